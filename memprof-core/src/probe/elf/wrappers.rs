//! Functions that are only another name for one that is probed too.
//!
//! ```text
//! _ZdlPv:      jmp free@plt           same kind: the probe in free sees the call, this one goes
//! valloc:      jmp mi_valloc@plt      the same, where both are in the table
//! memalign:    jmp malloc_like        another kind: both stay, and this one marks its thread
//! _ZnwmSt11…:  … call aligned_alloc@plt …    `via`: this one goes
//! ```

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use memprof_common::function::Nesting;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol, ObjectSymbolTable, RelocationTarget};

use super::symbols::FunctionSymbols;
use super::{AllocatorFunction, content};
use crate::address::Svma;

/// Longest stub of a procedure linkage table in bytes: endbr64 and a jump with prefixes.
const STUB: u64 = 16;

/// Takes wrappers out of `functions`. `vias` names the function that each address may wrap.
pub(super) fn resolve(
    file: &ElfFile64<'_, Endianness>,
    symbols: &FunctionSymbols<'_>,
    vias: &BTreeMap<Svma, String>,
    functions: &mut BTreeMap<Svma, AllocatorFunction>,
) {
    let linkage = Linkage::read(file);
    let target_of = |svma: Svma| {
        let by_name = linkage.stub_target(file, svma).and_then(|name| symbols.of(name).next());
        by_name.map_or(svma, |(svma, _)| svma)
    };
    let mut gone = Vec::new();
    let mut outer = Vec::new();
    for (&svma, function) in &*functions {
        let wraps = vias.get(&svma).is_some_and(|via| {
            let wrapped: Vec<Svma> = symbols.of(via).map(|(svma, _)| svma).collect();
            branches(function).any(|target| wrapped.contains(&target_of(target)))
        });
        let jumps_to = tail_jump(function).map(target_of).filter(|&target| target != svma);
        match jumps_to.and_then(|target| functions.get(&target)) {
            _ if wraps => gone.push(svma),
            Some(target) if target.kind == function.kind => gone.push(svma),
            Some(_) => outer.push(svma),
            None => {}
        }
    }
    for svma in outer {
        if let Some(function) = functions.get_mut(&svma).filter(|function| function.kind.allocates()) {
            function.nesting = Nesting::Outer;
        }
    }
    functions.retain(|svma, _| !gone.contains(svma));
}

fn decoder(function: &AllocatorFunction) -> Decoder<'_> {
    Decoder::with_ip(64, &function.code, function.svma, DecoderOptions::NONE)
}

/// Where the function jumps to with its very first instruction.
fn tail_jump(function: &AllocatorFunction) -> Option<Svma> {
    let first = decoder(function)
        .iter()
        .find(|instruction| !matches!(instruction.mnemonic(), Mnemonic::Endbr64 | Mnemonic::Nop))?;
    (first.flow_control() == FlowControl::UnconditionalBranch).then(|| first.near_branch_target())
}

/// Where the function calls or jumps to.
fn branches(function: &AllocatorFunction) -> impl Iterator<Item = Svma> {
    decoder(function).into_iter().filter(is_near_branch).map(|instruction| instruction.near_branch_target())
}

fn is_near_branch(instruction: &Instruction) -> bool {
    instruction.op0_kind() == OpKind::NearBranch64
}

/// The names that a file's procedure linkage table leads to: by the address of the slot.
struct Linkage<'data> {
    names: BTreeMap<Svma, &'data str>,
}

impl<'data> Linkage<'data> {
    fn read(file: &ElfFile64<'data, Endianness>) -> Self {
        let table = file.dynamic_symbol_table();
        let relocations = file.dynamic_relocations().into_iter().flatten();
        let names = relocations.filter_map(|(slot, relocation)| match relocation.target() {
            RelocationTarget::Symbol(index) => {
                Some((slot, table.as_ref()?.symbol_by_index(index).ok()?.name().ok()?))
            }
            _ => None,
        });
        Self { names: names.collect() }
    }

    /// The name of the function to which the stub at `svma` leads, if that is a stub.
    fn stub_target(&self, file: &ElfFile64<'data, Endianness>, svma: Svma) -> Option<&'data str> {
        let (_, code) = content(file, svma, STUB)?;
        let jump = Decoder::with_ip(64, code, svma, DecoderOptions::NONE)
            .iter()
            .find(|instruction| instruction.mnemonic() != Mnemonic::Endbr64)?;
        let through_slot = jump.mnemonic() == Mnemonic::Jmp
            && jump.op0_kind() == OpKind::Memory
            && jump.memory_base() == Register::RIP;
        self.names.get(&through_slot.then(|| jump.ip_rel_memory_address())?).copied()
    }
}
