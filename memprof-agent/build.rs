//! Embeds the kernel probes, built by `cargo xtask build-ebpf`, into the agent.
//!
//! Without `MEMPROF_EBPF_OBJECT` the agent still compiles (so `cargo check`, `clippy` and the tests
//! that need no root work without a BPF toolchain), but refuses to load probes and says why.
#![allow(clippy::print_stdout, reason = "build scripts talk to cargo on stdout")]

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-env-changed=MEMPROF_EBPF_OBJECT");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("memprof.bpf.o");
    match env::var_os("MEMPROF_EBPF_OBJECT").filter(|path| !path.is_empty()) {
        Some(object) => {
            println!("cargo:rerun-if-changed={}", object.display());
            fs::copy(&object, &out).unwrap_or_else(|error| {
                panic!("copying the eBPF object {}: {error}", object.display());
            });
        }
        None => fs::write(&out, []).expect("writing to OUT_DIR"),
    }
}
