//! Builds the tables of a pprof profile, in which strings, functions, locations and mappings stand
//! once each and are referred to by number.

use std::fmt::Write;

use indexmap::{IndexMap, IndexSet};
use rustc_hash::FxBuildHasher;

use super::message::{Function, Line, Location, Mapping, ValueType};
use crate::encode::frame_name::{NamedFrame, Names};
use crate::process::module::ModuleIndex;
use crate::profile::{ModuleFacts, Profile, ValueKind};
use crate::stack::Frame;

/// What makes two frames one location: return addresses and instruction pointers that are looked up
/// at the same place are the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Code(ModuleIndex, u64),
    Other(Frame),
}

/// The tables, filled as samples are added.
pub(super) struct Builder<'a> {
    profile: &'a Profile,
    names: Names<'a>,
    strings: IndexSet<String, FxBuildHasher>,
    functions: IndexSet<(i64, i64), FxBuildHasher>,
    mappings: IndexMap<ModuleIndex, Mapping, FxBuildHasher>,
    locations: IndexMap<Place, Location, FxBuildHasher>,
}

impl<'a> Builder<'a> {
    /// Empty tables for a profile. The executable of its first process becomes the first mapping,
    /// which readers take for the main program.
    pub(super) fn new(profile: &'a Profile, names: Names<'a>) -> Self {
        let mut builder = Self {
            profile,
            names,
            strings: IndexSet::default(),
            functions: IndexSet::default(),
            mappings: IndexMap::default(),
            locations: IndexMap::default(),
        };
        builder.string("");
        let main = profile.processes.first().map(|process| process.executable.as_str());
        if let Some(index) = profile.modules.iter().position(|module| Some(module.path.as_str()) == main) {
            builder.mapping(ModuleIndex(index as u32));
        }
        builder
    }

    /// Number of a string.
    pub(super) fn string(&mut self, text: &str) -> i64 {
        let index = match self.strings.get_index_of(text) {
            Some(index) => index,
            None => self.strings.insert_full(text.to_owned()).0,
        };
        index as i64
    }

    /// A sample type.
    pub(super) fn value_type(&mut self, kind: ValueKind) -> ValueType {
        ValueType { r#type: self.string(kind.name()), unit: self.string(kind.unit()) }
    }

    /// Number of the location of a frame.
    pub(super) fn location(&mut self, frame: Frame) -> u64 {
        let place = match frame.symbol_key() {
            Some(key) => Place::Code(key.module, key.lookup),
            None => Place::Other(frame),
        };
        if let Some(location) = self.locations.get(&place) {
            return location.id;
        }
        let names = self.names.frame(frame);
        let (mapping_id, address) = match (place, frame) {
            (Place::Code(module, lookup), _) => (self.mapping_of(module, &names), lookup),
            (_, Frame::Unmapped(address)) => (0, address),
            _ => (0, 0),
        };
        // A location without lines is one that a reader may still find a name for.
        let line = names.iter().filter_map(|name| self.line(name)).collect();
        let id = self.locations.len() as u64 + 1;
        self.locations.insert(place, Location { id, mapping_id, address, line });
        id
    }

    /// Moves the tables into a message.
    pub(super) fn finish(self, message: &mut super::message::Profile) {
        message.mapping = self.mappings.into_values().collect();
        message.location = self.locations.into_values().collect();
        message.function = (1..)
            .zip(self.functions)
            .map(|(id, (name, filename))| Function { id, name, system_name: name, filename })
            .collect();
        message.string_table = self.strings.into_iter().collect();
    }

    fn line(&mut self, name: &NamedFrame<'_>) -> Option<Line> {
        let function = (self.string(name.function.as_deref()?), self.string(name.file.unwrap_or("")));
        let (index, _) = self.functions.insert_full(function);
        Some(Line { function_id: index as u64 + 1, line: name.line.unwrap_or(0).into() })
    }

    /// Number of a module's mapping, which says of what all its locations have.
    fn mapping_of(&mut self, module: ModuleIndex, names: &[NamedFrame<'_>]) -> u64 {
        let mapping = self.mapping(module);
        mapping.has_functions &= names.iter().all(|name| name.function.is_some());
        mapping.has_filenames &= names.iter().all(|name| name.file.is_some());
        mapping.has_line_numbers &= names.iter().all(|name| name.line.is_some());
        mapping.has_inline_frames |= names.iter().any(|name| name.inlined);
        mapping.id
    }

    fn mapping(&mut self, index: ModuleIndex) -> &mut Mapping {
        let module: &ModuleFacts = self.profile.module(index);
        let filename = self.string(&module.path);
        let build_id = self.string(&hex(&module.build_id));
        let id = self.mappings.len() as u64 + 1;
        // Addresses are as linked, so the mapping is where the file says that its code belongs.
        let code = module.code.as_ref();
        self.mappings.entry(index).or_insert(Mapping {
            id,
            memory_start: code.map_or(0, |c| c.svma),
            memory_limit: code.map_or(0, |c| c.svma.saturating_add(c.size)),
            file_offset: code.map_or(0, |c| c.file_offset),
            filename,
            build_id,
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: false,
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all text");
        text
    })
}
