//! Makes a small recording of a large one, to become a fixture: the first so many allocations, and of the
//! modules' unwind information only what their stacks need.
//!
//! ```text
//! cargo run --release -p memprof-core --example shrink_recording -- LARGE.mprec SMALL.mprec 150
//! ```
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "a tool reads and writes files, and prints"
)]

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::sync::Arc;

use gimli::{BaseAddresses, EhFrame, LittleEndian, UnwindSection};
use memprof_common::event::EventKind;
use memprof_core::input::Input;
use memprof_core::process::module::{ModuleImage, Section};
use memprof_core::recording::{RecordingReader, RecordingWriter};
use memprof_core::session::Session;
use memprof_core::stack::Frame;

/// Bytes of the length with which each entry of `.eh_frame` starts.
const LENGTH: usize = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [large, small, allocations] = &arguments[..] else {
        return Err("give a recording, the name of the small one, and a number of allocations".into());
    };
    let inputs = first(large, allocations.parse()?)?;
    let needed = addresses(&inputs);
    let mut writer = RecordingWriter::new(BufWriter::new(File::create(small)?))?;
    let mut module = 0;
    for mut input in inputs {
        if let Input::Module(image) = &mut input {
            reduce(image, needed.get(&module).unwrap_or(&BTreeSet::new()))?;
            module += 1;
        }
        writer.write(&input)?;
    }
    writer.finish()?;
    println!("{small}: {} bytes", std::fs::metadata(small)?.len());
    Ok(())
}

/// All inputs but the events after so many allocations, and what was read for them.
fn first(recording: &str, allocations: usize) -> Result<Vec<Input<'static>>, Box<dyn Error>> {
    let mut left = allocations;
    let mut inputs = Vec::new();
    for input in RecordingReader::new(BufReader::new(File::open(recording)?))? {
        let input = input?;
        match &input {
            Input::Event(_) | Input::Memory(_) | Input::Mappings { .. } if left == 0 => continue,
            Input::Event(bytes) if bytes.starts_with(&(EventKind::Alloc as u32).to_ne_bytes()) => left -= 1,
            _ => {}
        }
        inputs.push(input);
    }
    Ok(inputs)
}

/// The addresses at which frames of these inputs' stacks are looked up, by module.
fn addresses(inputs: &[Input<'_>]) -> HashMap<u32, BTreeSet<u64>> {
    let mut session = Session::new();
    for input in inputs {
        // Only a live event can ask for mappings.
        let _done = session.ingest(input);
    }
    let mut needed: HashMap<u32, BTreeSet<u64>> = HashMap::new();
    for frame in session.snapshot(0).sites.iter().flat_map(|site| site.stack.iter()) {
        if let Frame::Code { module, svma, kind } = frame {
            needed.entry(module.0).or_default().insert(kind.lookup(*svma));
        }
    }
    needed
}

/// Leaves out the search table and every entry of `.eh_frame` that no address needs. What is left stays where
/// it was, because entries refer to each other by distance.
fn reduce(image: &mut ModuleImage, needed: &BTreeSet<u64>) -> Result<(), Box<dyn Error>> {
    image.eh_frame_hdr = None;
    let Some(section) = &image.eh_frame else { return Ok(()) };
    if needed.is_empty() {
        image.eh_frame = None;
        return Ok(());
    }
    let bases =
        BaseAddresses::default().set_eh_frame(section.svma).set_text(image.text.map_or(0, |text| text.0));
    let eh_frame = EhFrame::new(&section.bytes, LittleEndian);
    let mut kept = BTreeSet::new();
    for &address in needed {
        let entry = eh_frame.fde_for_address(&bases, address, EhFrame::cie_from_offset)?;
        kept.extend([entry.offset(), entry.cie().offset()]);
    }
    image.eh_frame = Some(Section { svma: section.svma, bytes: Arc::from(blank(&section.bytes, &kept)?) });
    Ok(())
}

/// Replaces each row of entries that are not kept by one that stands for nothing: a common entry, as long as the
/// row, that none refers to. Its instructions are zeros, which do nothing.
fn blank(bytes: &[u8], kept: &BTreeSet<usize>) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut entries = Vec::new();
    let mut offset = 0;
    while let Some(length) = bytes.get(offset..).and_then(<[u8]>::first_chunk).map(|b| u32::from_le_bytes(*b))
    {
        if length == 0 {
            break;
        }
        let end = offset + LENGTH + length as usize;
        entries.push(offset..end);
        offset = end;
    }
    let model = bytes.get(entries.first().ok_or("an empty section")?.clone()).ok_or("a damaged section")?;
    let mut blanked = bytes.to_vec();
    for row in entries.chunk_by(|a, b| !kept.contains(&a.start) && !kept.contains(&b.start)) {
        let (start, end) = (row[0].start, row[row.len() - 1].end);
        if kept.contains(&start) || end - start < model.len() {
            continue;
        }
        blanked[start..end].fill(0);
        blanked[start..start + model.len()].copy_from_slice(model);
        let length = u32::try_from(end - start - LENGTH)?;
        blanked[start..start + LENGTH].copy_from_slice(&length.to_le_bytes());
    }
    Ok(blanked)
}
