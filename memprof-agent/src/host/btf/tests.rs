use super::*;

/// Writes BTF: a type per call, in order; returns its number.
#[derive(Default)]
struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Writer {
    fn name(&mut self, name: &str) -> u32 {
        if self.strings.is_empty() {
            self.strings.push(0);
        }
        if name.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(name.as_bytes());
        self.strings.push(0);
        at
    }

    fn add(
        &mut self,
        kind: u32,
        flag: bool,
        name: &str,
        size_or_type: u32,
        count: u32,
        extra: &[u32],
    ) -> u32 {
        let name = self.name(name);
        for word in [name, u32::from(flag) << 31 | kind << 24 | count, size_or_type].iter().chain(extra) {
            self.types.extend(word.to_ne_bytes());
        }
        self.count += 1;
        self.count
    }

    /// Members: name, type, offset in bits (as packed, when `flag`).
    fn structure(&mut self, kind: u32, flag: bool, name: &str, members: &[(&str, u32, u32)]) -> u32 {
        let extra: Vec<u32> =
            members.iter().flat_map(|&(name, member, bits)| [self.name(name), member, bits]).collect();
        self.add(kind, flag, name, 64, members.len() as u32, &extra)
    }

    fn finish(&self) -> Vec<u8> {
        let mut file = MAGIC.to_ne_bytes().to_vec();
        file.extend([1, 0]);
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        for word in [HEADER_SIZE as u32, 0, types, types, strings] {
            file.extend(word.to_ne_bytes());
        }
        file.extend(&self.types);
        file.extend(&self.strings);
        file
    }
}

#[test]
fn members_are_found_through_nesting_names_and_qualifiers() {
    let mut writer = Writer::default();
    let int = writer.add(kind::INT, false, "long", 8, 0, &[64]);
    writer.add(kind::ENUM, false, "noise", 4, 2, &[0, 0, 0, 1]);
    let inner =
        writer.structure(kind::STRUCT, false, "thread_struct", &[("gs", int, 0), ("fsbase", int, 64)]);
    let constant = writer.add(kind::CONST, false, "", inner, 0, &[]);
    let alias = writer.add(kind::TYPEDEF, false, "thread_t", constant, 0, &[]);
    let union = writer.structure(kind::UNION, false, "", &[("other", int, 0), ("mm", int, 0)]);
    let packed = |width: u32, bits: u32| width << 24 | bits;
    writer.structure(
        kind::STRUCT,
        true,
        "task_struct",
        &[("flag", int, packed(1, 3)), ("", union, packed(0, 128)), ("thread", alias, packed(0, 256))],
    );
    let bytes = writer.finish();
    let types = Types::parse(&bytes).unwrap();
    assert_eq!(types.member_offset("task_struct", "thread.fsbase"), Some(40));
    assert_eq!(types.member_offset("task_struct", "mm"), Some(16));
    assert_eq!(types.member_offset("task_struct", "flag"), None, "a bit field has no byte offset");
    assert_eq!(types.member_offset("task_struct", "thread.nothing"), None);
    assert_eq!(types.member_offset("task_struct", "mm.more"), None, "a number has no members");
    assert_eq!(types.member_offset("no_struct", "mm"), None);

    let layout = KernelLayout::parse(&bytes).unwrap();
    assert_eq!((layout.offsets.task_fsbase, layout.offsets.task_mm), (40, 16));
    assert_eq!(layout.offsets.task_utask, KernelOffsets::UNKNOWN);
    assert_eq!(layout.missing[..2], ["mm_struct.start_stack", "task_struct.utask"]);
    assert_eq!(layout.missing.len(), 9);
}

#[test]
fn a_later_structure_of_the_same_name_can_have_the_member() {
    let mut writer = Writer::default();
    let int = writer.add(kind::INT, false, "long", 8, 0, &[64]);
    writer.structure(kind::STRUCT, false, "twice", &[("a", int, 0)]);
    writer.structure(kind::STRUCT, false, "twice", &[("a", int, 0), ("b", int, 64)]);
    assert_eq!(Types::parse(&writer.finish()).unwrap().member_offset("twice", "b"), Some(8));
}

#[test]
fn endless_types_end() {
    let mut writer = Writer::default();
    writer.structure(kind::STRUCT, false, "me", &[("", 1, 0)]);
    writer.add(kind::TYPEDEF, false, "loop", 2, 0, &[]);
    writer.structure(kind::STRUCT, false, "you", &[("", 2, 0), ("x", 2, 0)]);
    let bytes = writer.finish();
    let types = Types::parse(&bytes).unwrap();
    assert_eq!(types.member_offset("me", "x"), None);
    assert_eq!(types.member_offset("you", "x.y"), None);
}

#[test]
fn damage_is_an_error() {
    let mut writer = Writer::default();
    writer.add(31, false, "new", 0, 0, &[]);
    let newer = Types::parse(&writer.finish()).err().unwrap().to_string();
    assert_eq!(
        newer,
        "cannot understand the kernel's types: type 1 is of kind 31, which is newer than this program"
    );

    let mut writer = Writer::default();
    writer.structure(kind::STRUCT, false, "s", &[("a", 1, 0)]);
    let whole = writer.finish();
    for length in 0..whole.len() {
        assert!(Types::parse(&whole[..length]).is_err(), "{length} bytes");
    }
    assert!(KernelLayout::read(Path::new("/nonexistent")).unwrap_err().to_string().contains("/nonexistent"));
}

/// The kernel that runs the test has all members where they can be.
#[test]
fn running_kernel() {
    let path = Path::new(KERNEL_BTF);
    if !path.exists() {
        return;
    }
    let layout = KernelLayout::read(path).unwrap();
    assert_eq!(layout.missing, [""; 0]);
    let offsets = layout.offsets;
    // thread is the last member of a task_struct of several KiB; the pointers are aligned and differ.
    assert!(offsets.task_fsbase > offsets.task_mm && offsets.task_fsbase > offsets.task_utask);
    let in_return_instance =
        [offsets.return_instance_stack, offsets.return_instance_original, offsets.return_instance_next];
    for offset in in_return_instance {
        assert!(offset % 8 == 0 && offset < 256, "{offset}");
    }
    assert_eq!(offsets.return_instance_original, offsets.return_instance_stack + 8);
    for offset in [offsets.task_fsbase, offsets.task_mm, offsets.mm_start_stack, offsets.task_utask] {
        assert!(offset % 8 == 0 && offset > 0 && offset < 64 << 10, "{offset}");
    }
}
