//! Methods: what the JVM calls them, and where their lines are.
//!
//! ```text
//! Method ─► ConstMethod ─┬─► ConstantPool ─┬─► slots ─► Symbols: name, signature
//!                        │                 ├─► source file
//!                        ├─ bytecodes      └─► holder: Klass ─► Symbol: class
//!                        └─ line table
//! ```
//! What has been read is kept, with a witness: see [`super::witness`].

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::layout::{Layout, MethodLayout, SourceFile};
use super::line_table::LineTable;
use super::loaders;
use super::mask::mask;
use super::symbol;
use super::witness::{Proof, Witness};
use crate::address::Avma;
use crate::java::{JavaMethod, JavaMethodId, JavaMethods};
use crate::memory::{Piece, ProcessMemory};
use crate::stack::{Frame, Truncation};
use crate::unwind::JavaContext;

/// Bytes that all methods kept may take (16 MiB); when they take more, all are forgotten before the next walk.
const MAX_KEPT: usize = 16 << 20;

/// Bytes of line tables that are read at once.
const LINES_PIECE: u64 = 256;

/// Most bytes of a line table. Methods have at most 64 KiB of bytecode, so this is a very long one.
const MAX_LINES: usize = 32 << 10;

/// Bytes of a line table that a witness keeps.
const LINES_WITNESSED: usize = 256;

/// Bytes that a method kept takes, beside its witness and lines.
const KEPT: usize = 128;

/// Methods by the addresses of their `Method`s.
#[derive(Debug, Default)]
pub(super) struct Methods {
    known: FxHashMap<Avma, KnownMethod>,
    bytes: usize,
    /// Those that the walk at hand has relied on, and that have not been compared with the process since the
    /// sample was taken.
    relied: IndexSet<Avma, FxBuildHasher>,
    /// Those that were first read after the sample was taken, when their classes may have been gone.
    doubtful: IndexSet<Avma, FxBuildHasher>,
}

/// What is known of a method, as long as its witness holds.
#[derive(Debug)]
struct KnownMethod {
    /// What it is called.
    id: JavaMethodId,
    /// Where its bytecodes are, and how many bytes they have: none, of a native or abstract method.
    bytecodes: Avma,
    code_size: u16,
    lines: LineTable,
    /// What all of this was read from.
    witness: Witness,
    /// `CLOCK_MONOTONIC` nanoseconds at which it is known to have held.
    held_at: Option<u64>,
    /// `CLOCK_MONOTONIC` nanoseconds at which it was read.
    read_at: u64,
    /// The loader of its class.
    loader: Avma,
    /// Whether that loader was found alive after all of this had been read.
    is_alive: bool,
}

impl Methods {
    /// A walk begins.
    pub(super) fn begin(&mut self) {
        self.relied.clear();
        self.doubtful.clear();
        if self.bytes > MAX_KEPT {
            self.known.clear();
            self.bytes = 0;
        }
    }

    /// The frame of the method whose `Method` is at an address, at the bytecode with this index.
    pub(super) fn frame(
        &mut self,
        method: Avma,
        bci: Option<u16>,
        layout: &Layout,
        context: &mut JavaContext<'_>,
    ) -> Result<Frame, Truncation> {
        self.get(method, (&layout.method, layout.unsigned5_bias()), context).map(|known| known.frame(bci))
    }

    /// The frame of the method whose `Method` is at an address, interpreted at the bytecode at `bytecode`. Native
    /// methods have none; there it means nothing.
    pub(super) fn interpreted(
        &mut self,
        method: Avma,
        bytecode: Avma,
        layout: &Layout,
        context: &mut JavaContext<'_>,
    ) -> Result<Frame, Truncation> {
        let known = self.get(method, (&layout.method, layout.unsigned5_bias()), context)?;
        Ok(known.frame(known.bci(bytecode)))
    }

    /// Asks for what must be read again to prove the names of the walk at hand.
    pub(super) fn want(&self, proof: &mut Proof) {
        for known in self.relied.iter().filter_map(|method| self.known.get(method)) {
            known.witness.want(proof);
        }
    }

    /// Whether what [`Methods::want`] has asked for reads the same, after `now` (see
    /// [`crate::memory::MemorySource::now`]). Methods of which it does not are forgotten.
    pub(super) fn settle(&mut self, read: &mut &[Piece], now: u64) -> bool {
        let mut all_hold = true;
        for method in std::mem::take(&mut self.relied) {
            let Some(known) = self.known.get_mut(&method) else { continue };
            if known.witness.holds(read) {
                known.held_at = Some(now);
            } else {
                all_hold = false;
                self.forget(method);
            }
        }
        all_hold
    }

    /// Whether the classes of all methods that were first read after the sample are still there: see
    /// [`super::loaders`].
    pub(super) fn are_alive(&mut self, layout: &MethodLayout, context: &mut JavaContext<'_>) -> bool {
        let doubtful = std::mem::take(&mut self.doubtful);
        let loaders = doubtful.iter().filter_map(|method| self.known.get(method)).map(|known| known.loader);
        let are_alive = loaders::all_alive(loaders.collect(), layout.loaders.as_ref(), &mut context.memory);
        for method in doubtful {
            if let Some(known) = self.known.get_mut(&method) {
                known.is_alive = are_alive;
            }
        }
        are_alive
    }

    fn get(
        &mut self,
        method: Avma,
        (layout, bias): (&MethodLayout, u8),
        context: &mut JavaContext<'_>,
    ) -> Result<&KnownMethod, Truncation> {
        if !self.known.contains_key(&method) {
            let read_at = context.memory.now();
            let memory = &mut context.memory;
            let reader = Reader { layout, memory, witness: Witness::default(), read_at, loader: 0 };
            let known = reader.method(method, bias, context.methods)?;
            self.bytes += known.size();
            self.known.insert(method, known);
        }
        let known = self.known.get(&method).ok_or(Truncation::JavaUnreadable)?;
        // One that was read before, and has not changed, is the one that was on the stack.
        if !known.is_alive && known.read_at > context.time {
            self.doubtful.insert(method);
        }
        if known.held_at.is_none_or(|time| time < context.time) {
            self.relied.insert(method);
        }
        Ok(known)
    }

    fn forget(&mut self, method: Avma) {
        if let Some(known) = self.known.remove(&method) {
            self.bytes = self.bytes.saturating_sub(known.size());
        }
    }
}

impl KnownMethod {
    fn frame(&self, bci: Option<u16>) -> Frame {
        Frame::JavaMethod { method: self.id, line: self.line(bci) }
    }

    /// The index of the bytecode at an address; `None` when it is none of this method.
    fn bci(&self, bytecode: Avma) -> Option<u16> {
        let bci = bytecode.checked_sub(self.bytecodes)?;
        u16::try_from(bci).ok().filter(|&bci| bci < self.code_size)
    }

    /// The source line of a bytecode; 0 when it is not known.
    fn line(&self, bci: Option<u16>) -> u16 {
        bci.filter(|&bci| bci < self.code_size).map_or(0, |bci| self.lines.line(bci))
    }

    fn size(&self) -> usize {
        KEPT + self.lines.size() + self.witness.size()
    }
}

/// Reads one method and notes what it has read.
struct Reader<'a, 'm> {
    layout: &'a MethodLayout,
    memory: &'a mut ProcessMemory<'m>,
    witness: Witness,
    read_at: u64,
    /// The loader of its class, once that has been read.
    loader: Avma,
}

impl Reader<'_, '_> {
    fn method(mut self, method: Avma, bias: u8, names: &mut JavaMethods) -> Result<KnownMethod, Truncation> {
        let const_method = self.pointer(method.wrapping_add(self.layout.const_method));
        let const_method = const_method.ok_or(Truncation::JavaUnreadable)?;
        let name = self.name(const_method).ok_or(Truncation::JavaUnreadable)?;
        let (code_size, has_lines) = self.code(const_method).ok_or(Truncation::JavaUnreadable)?;
        let id = names.intern(name).ok_or(Truncation::StackLost)?;
        let bytecodes = const_method.wrapping_add(self.layout.const_.size);
        let lines = bytecodes.wrapping_add(code_size.into());
        let lines =
            if has_lines { self.lines(lines, bias).unwrap_or_default() } else { LineTable::default() };
        Ok(KnownMethod {
            id,
            bytecodes,
            code_size,
            lines,
            witness: self.witness.finish(),
            held_at: None,
            read_at: self.read_at,
            loader: self.loader,
            is_alive: false,
        })
    }

    /// What a method is called. `None` when there is none, or it cannot be read.
    fn name(&mut self, const_method: Avma) -> Option<JavaMethod> {
        let (layout, const_) = (self.layout, &self.layout.const_);
        let pool = self.pointer(const_method.wrapping_add(const_.constants))?;
        let name = self.u16(const_method.wrapping_add(const_.name_index))?;
        let signature = self.u16(const_method.wrapping_add(const_.signature_index))?;
        let name = self.slot(pool, name).filter(|name| !name.is_empty())?;
        // Whatever is no method has no signature either.
        let signature = self.slot(pool, signature).filter(|signature| signature.starts_with('('))?;
        let holder = self.pointer(pool.wrapping_add(layout.pool_holder))?;
        if let Some(loaders) = &layout.loaders {
            self.loader = self.memory.u64(holder.wrapping_add(loaders.of_class))?;
        }
        let class = self.pointer(holder.wrapping_add(layout.klass_name))?;
        let class = self.symbol(class).filter(|class| !class.is_empty())?;
        let file = self.source_file(pool, holder)?;
        Some(JavaMethod { class: mask(&class).replace('/', "."), name, signature, file })
    }

    /// How many bytes of bytecode there are, and whether a line table follows them.
    fn code(&mut self, const_method: Avma) -> Option<(u16, bool)> {
        let const_ = &self.layout.const_;
        let code_size = self.u16(const_method.wrapping_add(const_.code_size))?;
        // Not in the witness: other bits of the flags change while a method lives.
        let flags = self.memory.u16(const_method.wrapping_add(const_.flags))?;
        Some((code_size, flags & 1 != 0 && code_size != 0))
    }

    /// The name of the source file; an empty index means that there is none.
    fn source_file(&mut self, pool: Avma, holder: Avma) -> Option<Option<String>> {
        let index = match self.layout.source_file {
            SourceFile::Klass(offset) => holder.wrapping_add(offset),
            SourceFile::Pool(offset) => pool.wrapping_add(offset),
        };
        match self.u16(index)? {
            0 => Some(None),
            index => self.slot(pool, index).map(|file| Some(file).filter(|file| !file.is_empty())),
        }
    }

    /// The text in a slot of the constant pool.
    fn slot(&mut self, pool: Avma, index: u16) -> Option<String> {
        let slot = pool.wrapping_add(self.layout.pool_size).wrapping_add(8 * u64::from(index));
        // The lowest bit is a mark of some releases.
        let symbol = self.witness.u64(slot, self.memory)? & !1;
        self.symbol(symbol)
    }

    fn symbol(&mut self, symbol: Avma) -> Option<String> {
        symbol::read(symbol, self.layout, self.memory, &mut self.witness)
    }

    /// The line table at an address.
    fn lines(&mut self, address: Avma, bias: u8) -> Option<LineTable> {
        let mut bytes = Vec::new();
        let mut end = address;
        while bytes.len() < MAX_LINES {
            // What follows the table may be on a page that is not there.
            let length = LINES_PIECE - end % LINES_PIECE;
            bytes.extend(self.memory.bytes(end, length as usize)?);
            end = end.wrapping_add(length);
            if let Some((table, length)) = LineTable::read(&bytes, bias) {
                let witnessed = bytes.get(..length.min(LINES_WITNESSED))?;
                self.witness.add(address, witnessed);
                return Some(table);
            }
        }
        None
    }

    fn pointer(&mut self, address: Avma) -> Option<Avma> {
        self.witness.u64(address, self.memory).filter(|&pointer| pointer != 0 && pointer % 8 == 0)
    }

    fn u16(&mut self, address: Avma) -> Option<u16> {
        self.witness.u16(address, self.memory)
    }
}

#[cfg(test)]
mod tests;
