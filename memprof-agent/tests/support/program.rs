//! Test programs: built from `tests/programs` with the system's compilers, and steered line by line.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::lines::Lines;
use super::{PATIENCE, open_directory};

/// Optimised as programs in production are; the stacks can only come from `.eh_frame`.
const FLAGS: [&str; 4] = ["-O2", "-fomit-frame-pointer", "-Wall", "-pthread"];

/// A built program; its file is removed with this value.
pub(crate) struct Program {
    /// The executable.
    pub(crate) path: PathBuf,
    /// Where it lies; free for other files of the test.
    pub(crate) directory: TempDir,
}

/// Where the sources of the test programs are.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Runs a tool of the system to its end; a missing tool is a failure that says so.
pub(crate) fn run_tool(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?} failed: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Builds a program called `name` from C and C++ sources.
pub(crate) fn compile(name: &str, sources: &[&str]) -> Program {
    let directory = open_directory();
    let path = directory.path().join(name);
    let mut linker = "cc";
    let mut objects = Vec::new();
    for file in sources {
        let object = directory.path().join(file).with_extension("o");
        let compiler = if file.ends_with(".cpp") { "g++" } else { "cc" };
        if compiler == "g++" {
            linker = "g++";
        }
        run_tool(Command::new(compiler).args(FLAGS).arg("-c").arg(source(file)).arg("-o").arg(&object));
        objects.push(object);
    }
    run_tool(Command::new(linker).args(FLAGS).args(&objects).arg("-o").arg(&path));
    Program { path, directory }
}

/// Builds a program called `name` from C sources with another compiler than the system's, or with more
/// `flags`.
pub(crate) fn compile_by(compiler: &str, name: &str, sources: &[&str], flags: &[&str]) -> Program {
    let directory = open_directory();
    let path = directory.path().join(name);
    let sources = sources.iter().map(|file| source(file));
    run_tool(Command::new(compiler).args(FLAGS).args(sources).args(flags).arg("-o").arg(&path));
    Program { path, directory }
}

impl Program {
    /// Starts the program with another allocator preloaded and waits until it is ready.
    pub(crate) fn start_with(&self, preload: Option<&str>, arguments: &[&str]) -> Target {
        let mut command = Command::new(&self.path);
        // tcmalloc reports large requests on stderr.
        command.envs(preload.map(|library| ("LD_PRELOAD", library))).stderr(Stdio::null());
        Target::start(command.args(arguments))
    }

    /// Starts the program and waits until it is ready.
    pub(crate) fn start(&self, arguments: &[&str]) -> Target {
        Target::start(Command::new(&self.path).args(arguments))
    }
}

/// What a program knows about itself.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// Live bytes and objects by the function that allocated them.
    pub(crate) sites: BTreeMap<String, (u64, u64)>,
    /// Anything else by name.
    pub(crate) values: BTreeMap<String, u64>,
}

impl Truth {
    /// A named value that the program must have said.
    pub(crate) fn value(&self, name: &str) -> u64 {
        *self.values.get(name).unwrap_or_else(|| panic!("the program said no value {name:?}: {self:?}"))
    }
}

/// A running test program. It is killed when this value goes.
pub(crate) struct Target {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines,
    /// What the program said before it was ready.
    pub(crate) preface: Truth,
}

impl Target {
    /// Starts `command` and waits for its line `ready`.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stdin = child.stdin.take();
        let stdout = Lines::new("the program", child.stdout.take().expect("stdout is piped"));
        let mut target = Self { child, stdin, stdout, preface: Truth::default() };
        target.preface = target.read_until("ready");
        target
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the program go on.
    pub(crate) fn go(&mut self) {
        let stdin = self.stdin.as_mut().expect("stdin is piped");
        stdin.write_all(b"go\n").expect("the program does not listen any more");
    }

    /// Lets the program go on and waits for what it says about its blocks.
    pub(crate) fn work(&mut self) -> Truth {
        self.go();
        self.read_until("done")
    }

    /// Waits for another `ready`, after the program has replaced itself.
    pub(crate) fn wait_until_ready(&mut self) {
        self.read_until("ready");
    }

    /// Lets the program go on to its end.
    pub(crate) fn finish(mut self) {
        self.go();
        let status = self.wait();
        assert!(status.success(), "the program ended with {status}");
    }

    /// Waits for the program's end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait_for_exit(&mut self.child, PATIENCE)
    }

    /// Whether the process runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("cannot ask for the program's state").is_none()
    }

    fn read_until(&mut self, last: &str) -> Truth {
        let mut truth = Truth::default();
        loop {
            let Some(line) = self.stdout.next_within(PATIENCE) else {
                panic!("the program ended ({:?}) before it said {last:?}", self.child.wait());
            };
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                [word] if word == last => return truth,
                ["site", name, bytes, objects] => {
                    truth.sites.insert(name.to_owned(), (parse(bytes), parse(objects)));
                }
                ["value", name, value] => {
                    truth.values.insert(name.to_owned(), parse(value));
                }
                _ => panic!("the program said {line:?} instead of {last:?}"),
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Both fail when the program has ended already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parse(digits: &str) -> u64 {
    digits.parse().unwrap_or_else(|_| panic!("the program said {digits:?} instead of a number"))
}

/// Waits for a child's end, which must come within `patience`.
pub(crate) fn wait_for_exit(child: &mut Child, patience: Duration) -> ExitStatus {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait().expect("cannot wait for a child") {
            return status;
        }
        assert!(Instant::now() < deadline, "process {} has not ended within {patience:?}", child.id());
        std::thread::sleep(Duration::from_millis(10));
    }
}
