use super::super::image::Image;
use super::super::layout::ConstMethodLayout;
use super::*;

const METHOD: Avma = 0x1000;
const CONST_METHOD: Avma = 0x2000;
const POOL: Avma = 0x3000;
const KLASS: Avma = 0x4000;
const SYMBOLS: Avma = 0x5000;

/// What the image says; the layout's numbers are those of JDK 17 unless `is_old`, which has those of JDK 8.
#[derive(Clone)]
struct Made {
    is_old: bool,
    class: &'static str,
    name: &'static str,
    signature: &'static str,
    file: Option<&'static str>,
    lines: Option<Vec<u8>>,
}

/// 20 bytes of bytecode: lines 100 from index 0 on and 103 from 8 on.
const LINES: [u8; 7] = [0xff, 0, 200, 0, 8 << 3 | 3, 0, 0x77];

fn made() -> Made {
    Made {
        is_old: false,
        class: "a/b/Leak$Inner",
        name: "grow",
        signature: "(I[B)V",
        file: Some("Leak.java"),
        lines: Some(LINES.to_vec()),
    }
}

impl Made {
    fn layout(&self) -> MethodLayout {
        let const_ = ConstMethodLayout {
            size: 48,
            constants: 8,
            name_index: 34,
            signature_index: 36,
            code_size: 32,
            flags: 28,
        };
        MethodLayout {
            loaders: None,
            const_method: 8,
            const_,
            pool_holder: 24,
            pool_size: 72,
            source_file: if self.is_old { SourceFile::Klass(50) } else { SourceFile::Pool(54) },
            klass_name: 16,
            symbol_length: if self.is_old { 0 } else { 4 },
            symbol_body: if self.is_old { 8 } else { 6 },
        }
    }

    fn image(&self) -> Image {
        let mut image = Image::default();
        let word = |number: u64| number.to_ne_bytes().to_vec();
        let half = |number: u16| number.to_ne_bytes().to_vec();
        image.put(METHOD, &[word(0), word(CONST_METHOD)].concat());
        let flags = if self.lines.is_some() { 0x8001 } else { 0x8000 };
        let mut const_method = [word(7), word(POOL), word(0), word(0)].concat();
        const_method[28..30].copy_from_slice(&half(flags));
        const_method.extend([half(20), half(2), half(3), vec![0; 10]].concat());
        const_method.extend(vec![0xb1; 20]);
        const_method.extend(self.lines.iter().flatten());
        image.put(CONST_METHOD, &const_method);
        let file = if self.file.is_some() { 4 } else { 0 };
        let mut pool = vec![0; 72];
        pool[24..32].copy_from_slice(&word(KLASS));
        pool[54..56].copy_from_slice(&half(if self.is_old { 99 } else { file }));
        // The third slot has the mark.
        pool.extend((0..5).flat_map(|slot| word((SYMBOLS + 0x800 * slot) | u64::from(slot == 3))));
        image.put(POOL, &pool);
        let mut klass = vec![0; 64];
        klass[16..24].copy_from_slice(&word(SYMBOLS));
        klass[50..52].copy_from_slice(&half(if self.is_old { file } else { 99 }));
        image.put(KLASS, &klass);
        let texts = [(0, self.class), (2, self.name), (3, self.signature), (4, self.file.unwrap_or("?"))];
        for (slot, text) in texts {
            let mut symbol = vec![0; if self.is_old { 8 } else { 6 }];
            let length = if self.is_old { 0 } else { 4 };
            symbol[length..length + 2].copy_from_slice(&half(text.len() as u16));
            symbol.extend(text.as_bytes());
            image.put(SYMBOLS + 0x800 * slot, &symbol);
        }
        image
    }

    fn read(&self) -> Result<(JavaMethod, KnownMethod), Truncation> {
        read(&mut self.image(), &self.layout())
    }
}

/// Reads the method as the first one of all.
fn read(image: &mut Image, layout: &MethodLayout) -> Result<(JavaMethod, KnownMethod), Truncation> {
    let mut names = JavaMethods::default();
    let mut memory = ProcessMemory::new(image, 1);
    let reader = Reader { layout, memory: &mut memory, witness: Witness::default(), read_at: 0, loader: 0 };
    let known = reader.method(METHOD, 0, &mut names)?;
    Ok((names.get(known.id).unwrap().clone(), known))
}

#[test]
fn a_method_is_named() {
    for is_old in [false, true] {
        let (name, known) = Made { is_old, ..made() }.read().unwrap();
        let expected = JavaMethod {
            class: "a.b.Leak$Inner".into(),
            name: "grow".into(),
            signature: "(I[B)V".into(),
            file: Some("Leak.java".into()),
        };
        assert_eq!(name, expected);
        let bytecodes = CONST_METHOD + 48;
        let bcis =
            [bytecodes - 1, bytecodes, bytecodes + 19, bytecodes + 20, 0, u64::MAX].map(|b| known.bci(b));
        assert_eq!(bcis, [None, Some(0), Some(19), None, None, None]);
        let lines = [None, Some(0), Some(7), Some(8), Some(19), Some(20)].map(|bci| known.line(bci));
        assert_eq!(lines, [0, 100, 100, 103, 103, 0]);
    }
}

#[test]
fn what_a_class_does_not_say_is_not_said() {
    let (name, known) = Made { file: None, lines: None, ..made() }.read().unwrap();
    assert_eq!((name.file, known.line(Some(8))), (None, 0));
    // Not the end of a table, and no table at all.
    for lines in [vec![9; 40], vec![0xff, 255]] {
        let (_, known) = Made { lines: Some(lines), ..made() }.read().unwrap();
        assert_eq!(known.line(Some(8)), 0);
    }
    let (name, _) = Made { class: "a/W$$Lambda$3+0x0000000800c03000", ..made() }.read().unwrap();
    assert_eq!(name.class, "a.W$$Lambda");
}

#[test]
fn what_is_no_method_is_refused() {
    let unreadable = Err(Truncation::JavaUnreadable);
    let refused = |made: Made| made.read().map(|_| ());
    assert_eq!(refused(Made { name: "", ..made() }), unreadable);
    assert_eq!(refused(Made { class: "", ..made() }), unreadable);
    assert_eq!(refused(Made { signature: "I", ..made() }), unreadable);
    let layout = made().layout();
    for (address, bytes) in [
        (METHOD, [0_u8; 16]),
        (METHOD, [0xff; 16]),
        (CONST_METHOD, [0x11; 16]),
        (CONST_METHOD, [0; 16]),
        (POOL, [0xff; 16]),
        (KLASS, [0; 16]),
    ] {
        let mut image = made().image();
        image.put(address, &bytes);
        assert_eq!(read(&mut image, &layout).map(|_| ()), unreadable, "{address:#x} {bytes:?}");
    }
    assert_eq!(read(&mut Image::default(), &layout).map(|_| ()), unreadable);
}

#[test]
fn a_very_long_name_is_shortened() {
    let name: &str = Box::leak("x".repeat(1500).into_boxed_str());
    let (method, _) = Made { name, ..made() }.read().unwrap();
    assert_eq!(method.name.chars().count(), 1025);
    assert!(method.name.ends_with("x…"));
}

#[test]
fn a_witness_holds_until_anything_changes() {
    let holds = |image: &mut Image, known: &KnownMethod| {
        let mut proof = Proof::default();
        known.witness.want(&mut proof);
        let mut read = proof.read(&mut ProcessMemory::new(image, 1)).unwrap();
        known.witness.holds(&mut read)
    };
    for is_old in [false, true] {
        let made = Made { is_old, ..made() };
        let (_, known) = made.read().unwrap();
        assert!(holds(&mut made.image(), &known));
        assert!(!holds(&mut Image::default(), &known), "gone");
        let other_lines = Some([&[0xff, 0, 202, 0][..], &LINES[4..]].concat());
        for other in [
            Made { name: "gros", ..made.clone() },
            Made { class: "a/b/Leak$Other", ..made.clone() },
            Made { signature: "(I[I)V", ..made.clone() },
            Made { file: Some("Lead.java"), ..made.clone() },
            Made { file: None, ..made.clone() },
            Made { lines: other_lines, ..made.clone() },
        ] {
            assert!(!holds(&mut other.image(), &known), "{} {} {}", other.class, other.name, other.signature);
        }
        let mut image = made.image();
        image.put(METHOD, &[0; 16]);
        assert!(!holds(&mut image, &known), "another ConstMethod");
    }
}

/// The name of the method for a sample taken at `time`, and whether it stands when the process is read again
/// after `now`.
fn walk(methods: &mut Methods, image: &mut Image, time: u64, now: u64) -> (String, bool) {
    let mut names = JavaMethods::default();
    // Names are those of one session.
    for name in ["grow", "shrink"] {
        let other = Made { name, ..made() };
        read_into(&mut names, &other);
    }
    methods.begin();
    let layout = made().layout();
    let memory = ProcessMemory::new(image, 1);
    let mut context = JavaContext { memory, methods: &mut names, time };
    let id = methods.get(METHOD, (&layout, 0), &mut context).unwrap().id;
    let mut proof = Proof::default();
    methods.want(&mut proof);
    let mut read = proof.read(&mut context.memory).unwrap_or_default();
    let holds = methods.settle(&mut read, now);
    (names.get(id).unwrap().name.clone(), holds)
}

fn read_into(names: &mut JavaMethods, made: &Made) {
    let (mut image, layout) = (made.image(), made.layout());
    let mut memory = ProcessMemory::new(&mut image, 1);
    let reader =
        Reader { layout: &layout, memory: &mut memory, witness: Witness::default(), read_at: 0, loader: 0 };
    reader.method(METHOD, 0, names).unwrap();
}

#[test]
fn a_name_stands_only_while_the_process_says_the_same() {
    let mut methods = Methods::default();
    let (mut image, mut other) = (made().image(), Made { name: "shrink", ..made() }.image());
    assert_eq!(walk(&mut methods, &mut image, 10, 12), ("grow".into(), true));
    // Samples taken before it was proven last need no further proof.
    assert_eq!(walk(&mut methods, &mut other, 12, 13), ("grow".into(), true));
    // Later ones do, and then it is another method.
    assert_eq!(walk(&mut methods, &mut other, 13, 14), ("grow".into(), false));
    assert_eq!(methods.bytes, 0);
    assert_eq!(walk(&mut methods, &mut other, 13, 15), ("shrink".into(), true));
    let mut nothing = Image::default();
    assert_eq!(walk(&mut methods, &mut nothing, 16, 17), ("shrink".into(), false));
    assert!(methods.known.is_empty());
}

#[test]
fn what_is_kept_is_bounded() {
    let mut methods = Methods::default();
    let mut image = made().image();
    walk(&mut methods, &mut image, 10, 12);
    let each = methods.bytes;
    assert_eq!(each, methods.known[&METHOD].size());
    methods.bytes = MAX_KEPT + 1;
    walk(&mut methods, &mut image, 13, 14);
    assert_eq!((methods.known.len(), methods.bytes), (1, each));
}
