//! Java runtimes, and Java programs built for all of them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::program::{run_tool, source};

/// The versions that `cargo xtask setup` installs beside the system's.
pub(crate) const VERSIONS: [&str; 4] = ["11", "17", "21", "25"];

/// The oldest of them: what programs are compiled for.
const RELEASE: &str = "11";

/// The home directory of a runtime; `system` is the one whose `javac` is in the path.
pub(crate) fn java_home(version: &str) -> PathBuf {
    if version == "system" {
        return system_home();
    }
    let home = installed().join(version);
    assert!(home.join("bin/java").is_file(), "no Java {version} in {home:?}: run `cargo xtask setup`");
    home
}

/// Where setup puts them; `cargo xtask test` says it.
fn installed() -> PathBuf {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("MEMPROF_JDKS")
        .or_else(|| Some(absolute("MEMPROF_TOOLS")?.join("jdks")))
        .or_else(|| Some(absolute("XDG_CACHE_HOME")?.join("memprof/tools/jdks")))
        .or_else(|| Some(absolute("HOME")?.join(".cache/memprof/tools/jdks")))
        .expect("no home directory")
}

fn system_home() -> PathBuf {
    let javac = run_tool(Command::new("sh").args(["-c", "readlink -f \"$(command -v javac)\""]));
    let javac = Path::new(javac.trim());
    let home = javac.parent().and_then(Path::parent);
    home.unwrap_or_else(|| panic!("no JDK: javac is at {javac:?}")).to_owned()
}

/// Compiles the Java sources in a directory of `tests/programs` into `directory`.
pub(crate) fn compile_java(sources: &str, directory: &Path) {
    compile_java_with("", sources, directory);
}

/// Compiles sources that use the classes in `class_path`.
pub(crate) fn compile_java_with(class_path: &str, sources: &str, directory: &Path) {
    let sources = source(sources);
    let files = fs::read_dir(&sources).unwrap_or_else(|error| panic!("cannot read {sources:?}: {error}"));
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("cannot read a directory").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "java"));
    assert!(!files.is_empty(), "no Java sources in {sources:?}");
    files.sort();
    let mut javac = Command::new("javac");
    javac.args(["-nowarn", "-XDignore.symbol.file", "--release", RELEASE, "-d"]).arg(directory);
    if !class_path.is_empty() {
        javac.args(["-cp", class_path]);
    }
    javac.args(files);
    run_tool(&mut javac);
}

/// Compiles a native library for Java programs.
pub(crate) fn compile_jni(file: &str, library: &Path) {
    let include = system_home().join("include");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-fomit-frame-pointer", "-Wall", "-shared", "-fPIC"]);
    compiler.arg("-I").arg(source("")).arg("-I").arg(&include).arg("-I").arg(include.join("linux"));
    run_tool(compiler.arg(source(file)).arg("-o").arg(library));
}
