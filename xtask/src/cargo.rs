//! Cargo as a child process, with an environment that does not depend on how xtask was started.

use std::env;
use std::path::Path;
use std::process::Command;

/// Variables that cargo sets for the programs it runs. They describe xtask, not the child's package.
const SET_BY_CARGO_RUN: [&str; 5] =
    ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_PKG_", "CARGO_BIN_NAME", "CARGO_CRATE_NAME"];

/// Variables that steer the compiler and are meant for host builds.
const COMPILER: [&str; 6] = [
    "RUSTC",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTFLAGS",
    "RUSTDOCFLAGS",
    "__CARGO_DEFAULT_LIB_METADATA",
];

/// Cargo variables that only say where packages come from and how to print.
const HARMLESS: [&str; 6] =
    ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_SOURCE_", "CARGO_TERM_"];

/// Cargo for a host build in `directory`: the caller's `RUSTFLAGS`, target directory and the like apply.
pub(crate) fn cargo(directory: &Path) -> Command {
    let mut command = bare(directory);
    remove_variables(&mut command, |name| starts_with_any(name, &SET_BY_CARGO_RUN));
    command
}

/// Cargo for a build that settles everything itself: no inherited variable changes compiler flags,
/// profiles or directories.
pub(crate) fn isolated_cargo(directory: &Path) -> Command {
    let mut command = bare(directory);
    remove_variables(&mut command, |name| {
        COMPILER.contains(&name) || (name.starts_with("CARGO_") && !starts_with_any(name, &HARMLESS))
    });
    command
}

fn bare(directory: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(directory);
    command
}

fn starts_with_any(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

fn remove_variables(command: &mut Command, unwanted: impl Fn(&str) -> bool) {
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(&unwanted) {
            command.env_remove(name);
        }
    }
}
