//! Placement over the first bytes of real functions (whole functions where they are short) and over
//! prologues that no allocator here has.

use super::*;

/// Where the linked code starts is of no consequence.
const SVMA: u64 = 0x98930;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        hex.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[track_caller]
fn check(kind: FunctionKind, hex: &str, offset: u32, emulated: bool, instruction: &str) {
    let chosen = choose(kind, &bytes(hex), SVMA);
    let mnemonic = chosen.instruction.split("0x").next().unwrap_or_default().trim_end();
    assert_eq!((chosen.offset, chosen.emulated, mnemonic), (offset, emulated, instruction));
}

/// Debian 12, libc6 2.36-9+deb12u14.
#[test]
fn glibc() {
    check(
        FunctionKind::Malloc,
        "415455534889fb4883ec10803d461b1400000f84f80100004885db0f88fd010000488d431731ed4883f81f760c4883e0",
        0,
        true,
        "push r12",
    );
    check(
        FunctionKind::Free,
        "4885ff0f84bf00000055488d77f0534883ec18488b1dd69e1300488b47f8648b2ba802755b488b155c9e130064488339",
        9,
        true,
        "push rbp",
    );
    check(
        FunctionKind::Calloc,
        "41554889f8415455534883ec1848f7e64889c30f90c04885db0f88d90200000fb6c04885c00f85cd020000803d760d14",
        0,
        true,
        "push r13",
    );
    check(
        FunctionKind::Realloc,
        "4157415641554154554889f5534889fb4883ec28803d3d131400000f84570100004885ed75224885db0f85c101000048",
        0,
        true,
        "push r15",
    );
    check(
        FunctionKind::PosixMemalign,
        "803d010214000041544989d4554889fd534889f3745a4889da48c1ea03488d42ff4821d04889da83e2074809d0753148",
        7,
        true,
        "push r12",
    );
    check(
        FunctionKind::AlignedAlloc,
        "803d710e1400007407e932f6ffff66904883ec18488974240848893c24e8bebcffff488b742408488b3c244883c418e90cf6ffff",
        7,
        true,
        "je",
    );
    check(
        FunctionKind::Malloc,
        "803d310e140000534889fb741b488b05349813004889de5b488b7818e9dff5ffff0f1f8000000000e873bcffffebde",
        7,
        true,
        "push rbx",
    );
    // Its third argument is gone before the first branch.
    check(
        FunctionKind::ReallocArray,
        "4889f048f7e24889c67005e940b8f8ff488b05e985130064c7000c00000031c0c3",
        0,
        false,
        "mov rax,rsi",
    );
}

/// Debian 12, musl 1.2.3-1: the exported names are jumps.
#[test]
fn musl() {
    check(FunctionKind::Malloc, "e96b190000", 0, true, "jmp");
    check(FunctionKind::Free, "e9bb0a0000", 0, true, "jmp");
    check(
        FunctionKind::AlignedAlloc,
        "554889f85348f7d84821f84883ec084839f80f85300200004889c34889f54801f3",
        0,
        true,
        "push rbp",
    );
    // mov rcx,rdx; test rdx,rdx; je: every call passes it, its arguments intact.
    check(
        FunctionKind::ReallocArray,
        "4889d14885d274084889f048f7e17009480faff1e927b0feff50e8b113ffffc7000c00000031c05ac3",
        6,
        true,
        "je",
    );
    check(
        FunctionKind::Calloc,
        "41544989f455534885f6740c4889f848f7e60f80b90000004c0fafe74c89e7e8ccd8feff4889c54885c00f84ae000000",
        0,
        true,
        "push r12",
    );
}

/// Debian 12, libjemalloc2 5.3.0-1: no stack frame on the fast path, but a branch that all calls pass.
#[test]
fn jemalloc() {
    check(
        FunctionKind::Malloc,
        "4881ff001000000f8793000000488d155c7f2c00488d4707488b0d49960a0048c1e8034c8d0586812c000fb634026448",
        7,
        true,
        "ja",
    );
    check(
        FunctionKind::Free,
        "4889f8488b150e530a004889f948c1e81a4881e1000000c025f00000006448030425000000004801d0483b88b00100000f858a0000004889fe",
        48,
        true,
        "jne",
    );
    check(
        FunctionKind::Realloc,
        "4157415641554154554889fd534889f34881ec8800000064488b042528000000488944247831c04885ff0f95c04885f6",
        0,
        true,
        "push r15",
    );
}

/// The operators have the fast path of `malloc` in them.
#[test]
fn jemalloc_operators() {
    check(
        FunctionKind::New,
        "4881ff001000000f8793000000488d153cda2300488d4707488b0d29f1010048c1e8030fb634",
        7,
        true,
        "ja",
    );
    check(FunctionKind::Free, "4885ff74134883ec08e81233f8ff4883c408c30f1f440000c3", 9, true, "call");
    check(
        FunctionKind::Free,
        "4989f84881fe00100000770c85d27508f7c7ff0f000075084c89c7e9e0edffff488d0dc9a42b00",
        10,
        true,
        "ja",
    );
    check(
        FunctionKind::ResizeInPlace,
        "415741564989f641554989d5415441bc010000005549d3e4",
        0,
        true,
        "push r15",
    );
    check(FunctionKind::Realloc, "31c9e9e91cffff", 2, true, "jmp");
}

/// Debian 12, libtcmalloc-minimal4 2.10-1.
#[test]
fn tcmalloc() {
    check(
        FunctionKind::Malloc,
        "488b0559ab00004885c07575488b0505a10000644c8b004d85c074654881ff0004000077",
        10,
        true,
        "jne",
    );
    check(
        FunctionKind::Free,
        "488b0559b11b004885c00f85900000004889fa488b053ebd0000488d0d9f0c010048c1ea",
        10,
        true,
        "jne",
    );
    check(
        FunctionKind::New,
        "488b05d9b100004885c07575488b0585a70000644c8b004d85c074654881ff00040000",
        10,
        true,
        "jne",
    );
    check(
        FunctionKind::AlignedAlloc,
        "4989f84881ff002000000f87e80000004c89c0488d7c37ff48f7d84821c7",
        10,
        true,
        "ja",
    );
    check(FunctionKind::Calloc, "41554889f841544883ec0848f7e64989c50f90c04885f6", 0, true, "push r13");
}

/// Debian 12, libmimalloc2.0 2.0.9+ds-2.
#[test]
fn mimalloc() {
    // rdi is overwritten before the first branch.
    check(
        FunctionKind::Malloc,
        "488b0549b400004889fe64488b384881fe000400007729488d460748c1e803488b44c708",
        0,
        false,
        "mov rax,[",
    );
    check(FunctionKind::New, "55534889fb4883ec08488b0500a5000064488b284881ff0004000077", 0, true, "push rbp");
    check(FunctionKind::PosixMemalign, "b8160000004885ff744e4885f67441554889d5488d56ff53", 8, true, "je");
    // The null check is the only instruction that can be emulated before rdi is overwritten.
    check(FunctionKind::Free, "4889f94885ff745d488d7fff4889c84881e7000000fe4829f8", 6, true, "je");
}

/// `endbr64`, as Ubuntu and Fedora compile (-fcf-protection), in front of glibc's prologues.
#[test]
fn endbr64_is_passed() {
    check(FunctionKind::Malloc, "f30f1efa415455534889fb4883ec10", 4, true, "push r12");
    check(FunctionKind::Free, "f30f1efa4885ff0f84bf00000055488d77f0534883ec18", 13, true, "push rbp");
    check(FunctionKind::Realloc, "f30f1efa41574156415541545553", 4, true, "push r15");
}

#[test]
fn an_allocation_is_not_probed_behind_a_moved_stack_pointer() {
    // sub rsp,0x18; push rbx; mov rbx,rdi
    check(FunctionKind::Malloc, "4883ec18534889fb", 0, false, "sub rsp,");
    // The same is no obstacle for an entry-only probe.
    check(FunctionKind::Free, "4883ec18534889fb", 4, true, "push rbx");
    // push rbx with a prefix that the kernel does not emulate, then a plain push.
    check(FunctionKind::Malloc, "4853415455", 0, false, "push rbx");
    // push qword [rdi]; push rbx
    check(FunctionKind::Free, "ff3753c3", 2, true, "push rbx");
    // mov rsp,rax; push rbx
    check(FunctionKind::Malloc, "4889c453", 0, false, "mov rsp,rax");
}

#[test]
fn arguments_must_be_intact() {
    // mov rdi,rsi; push rbx
    check(FunctionKind::Malloc, "4889f753", 0, false, "mov rdi,rsi");
    // mov edi,esi clears the upper half of rdi.
    check(FunctionKind::Malloc, "89f753", 0, false, "mov edi,esi");
    // mov esi,eax; push rbx: only the second argument.
    check(FunctionKind::Malloc, "89c653", 2, true, "push rbx");
    check(FunctionKind::Calloc, "89c653", 0, false, "mov esi,eax");
    // xor edx,edx; push rbx: only the third.
    check(FunctionKind::Realloc, "31d253", 2, true, "push rbx");
    check(FunctionKind::ReallocArray, "31d253", 0, false, "xor edx,edx");
    // rep stosq: rdi is written although no operand names it.
    check(FunctionKind::Free, "f348ab53", 0, false, "rep stosq [rdi],rax");
}

#[test]
fn only_the_null_check_of_free_may_be_passed() {
    // test rdi,rdi; je; push rbx
    let null_check = "4885ff740553";
    check(FunctionKind::Free, null_check, 5, true, "push rbx");
    check(FunctionKind::Malloc, null_check, 3, true, "je");
    // test rdi,rdi; mov rax,rdi; je; push rbx: the flags are still those of the null check.
    check(FunctionKind::Free, "4885ff4889f8740553", 8, true, "push rbx");
    // cmp rdi,0; je; push rbx
    check(FunctionKind::Free, "4883ff00740553", 6, true, "push rbx");
    // test rdi,rdi; test rax,rax; je; push rbx: other calls leave here as well.
    check(FunctionKind::Free, "4885ff4885c0740553", 6, true, "je");
    // test rdi,rdi; jne; push rbx: only free(NULL) falls through.
    check(FunctionKind::Free, "4885ff750553", 3, true, "jne");
    // test rdi,rdi; je; mov rdi,rax; push rbx
    check(FunctionKind::Free, "4885ff74054889c753", 3, true, "je");
}

#[test]
fn control_flow_ends_the_search() {
    // mov rax,rdi; ret; push rbx
    check(FunctionKind::Malloc, "4889f8c353", 0, false, "mov rax,rdi");
    // mov eax,1; jmp rax; push rbx
    check(FunctionKind::Malloc, "b801000000ffe053", 0, false, "mov eax,");
    // mov rax,rdi; call +0; a call is emulated and every call of the function makes it.
    check(FunctionKind::Malloc, "4889f8e800000000c3", 3, true, "call");
    // int3 and bytes that are no instruction.
    check(FunctionKind::Malloc, "cc53", 0, false, "int3");
    check(FunctionKind::Malloc, "0653", 0, false, "");
    check(FunctionKind::Malloc, "", 0, false, "");
}

#[test]
fn only_the_short_nop_counts_as_emulated() {
    check(FunctionKind::Malloc, "9053", 0, true, "nop");
    // xchg ax,ax and nop dword [rax+0] are passed.
    check(FunctionKind::Malloc, "669053", 2, true, "push rbx");
    check(FunctionKind::Malloc, "0f1f400053", 4, true, "push rbx");
}

#[test]
fn a_place_that_is_jumped_to_is_refused() {
    // mov rax,rdi; push rbx; jmp back to the push.
    check(FunctionKind::Malloc, "4889f853ebfd", 0, false, "mov rax,rdi");
    // mov rax,rdi; mov rcx,rax; push rbx; jmp back between them: the push runs again.
    check(FunctionKind::Malloc, "4889f84889c153ebfa", 0, false, "mov rax,rdi");
    // A branch to the entry restarts the whole function and is as good there as anywhere.
    check(FunctionKind::Malloc, "4889f853ebfa", 3, true, "push rbx");
    // test rdi,rdi; je; push rbx; jmp to the push: the null check is still usable.
    check(FunctionKind::Free, "4885ff740553ebfd", 3, true, "je");
}
