//! Programs that people run, under load, on the allocators that they come with: the numbers agree with
//! what the programs say of themselves, the stacks have names, nothing is lost.

mod support;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, io::Write};

use rustix::process::{Pid, Signal, kill_process};
use support::agent::{Recorder, Recording};
use support::lines::Lines;
use support::program::{Target, compile, run_tool, wait_for_exit};
use support::{PATIENCE, exclusive, open_directory};

/// A server of a test, on a socket in a directory of its own: one that the system runs is another's.
struct Server {
    child: Child,
    directory: tempfile::TempDir,
}

impl Server {
    fn socket(&self) -> &str {
        self.directory.path().to_str().expect("a UTF-8 path")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails when the server has ended already, which is as good.
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        wait_for_exit(&mut self.child, PATIENCE);
    }
}

/// Tries until it works.
fn wait_until(what: &str, mut works: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !works() {
        assert!(Instant::now() < deadline, "{what} did not come up");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Starts to record a process and gives the line that says where the probes are.
fn record(pid: u32, sample_interval: &str) -> (Recording, String) {
    let arguments = ["--json", "--ring-size", "128MiB", "-p", &pid.to_string()];
    let mut recording = Recorder::new(sample_interval).args(arguments).start_without_waiting();
    let line = recording.wait_for("memprof: recording");
    (recording, line)
}

fn start_redis() -> Server {
    let directory = open_directory();
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket", "redis.sock", "--dir"]);
    command.arg(directory.path()).current_dir(directory.path());
    let child = command.stdout(Stdio::null()).spawn().expect("cannot start redis-server");
    let server = Server { child, directory };
    wait_until("redis-server", || {
        redis(&server, "redis-cli", &["ping"]).is_some_and(|pong| pong.trim() == "PONG")
    });
    server
}

/// Runs a client of redis; `None` when it fails.
fn redis(server: &Server, client: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(client);
    command.arg("-s").arg(server.directory.path().join("redis.sock")).args(arguments);
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {client}: {error}"));
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Bytes that redis says it has allocated: those that its allocator has set aside for its requests.
fn used_memory(server: &Server) -> f64 {
    let info = redis(server, "redis-cli", &["info", "memory"]).expect("redis does not answer");
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("no used_memory");
    used.trim().parse().expect("a number")
}

/// Debian's redis-server on jemalloc.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn redis_holds_what_it_says() {
    let _alone = exclusive();
    let server = start_redis();
    let before = used_memory(&server);
    let (recording, line) = record(server.child.id(), "1KiB");
    assert!(line.contains("(jemalloc)"), "{line}");
    let load = ["-n", "30000", "-r", "20000", "-d", "400", "-t", "set,lpush,hset", "-q"];
    redis(&server, "redis-benchmark", &load).expect("redis-benchmark failed");
    // Its clients are gone; their buffers go by and by.
    wait_until("the clients' end", || {
        let clients = redis(&server, "redis-cli", &["info", "clients"]).expect("redis does not answer");
        clients.contains("connected_clients:1\r")
    });
    std::thread::sleep(Duration::from_millis(500));
    let grown = used_memory(&server) - before;
    let report = recording.report();
    report.assert_no_losses();

    let total = report.0["total"]["inuse_bytes"].as_f64().expect("a total");
    let error = report.0["total"]["inuse_bytes_error"].as_f64().expect("an error");
    assert!(grown > 5e6, "redis has grown by {grown} bytes only");
    // Size classes are up to a quarter apart.
    let share = total / grown;
    assert!((0.75..=1.0 + error / grown).contains(&share), "{total} of {grown} bytes in use");
    for command in ["setCommand", "pushGenericCommand", "hsetCommand"] {
        let sites = report.sites_of(command);
        assert!(report.sum(command).inuse_bytes > 1e5, "nothing held by {command}");
        sites.iter().for_each(|site| site.assert_order(&[command, "call", "processCommand", "main"]));
    }
    report.assert_all_complete();
}

/// The directory of the newest postgres programs.
fn postgres_programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("postgres is not installed");
    let mut found: Vec<PathBuf> = versions
        .map(|entry| entry.expect("an entry").path().join("bin"))
        .filter(|bin| bin.join("initdb").exists())
        .collect();
    found.sort();
    found.pop().expect("postgres is not installed")
}

/// A command as the user postgres: the server refuses to be root.
fn as_postgres(program: &Path) -> Command {
    let id = |option: &str| -> u32 {
        run_tool(Command::new("id").args([option, "postgres"])).trim().parse().expect("a number")
    };
    let mut command = Command::new(program);
    command.uid(id("-u")).gid(id("-g")).current_dir("/");
    command
}

fn start_postgres(programs: &Path) -> Server {
    let directory = open_directory();
    run_tool(Command::new("chown").arg("postgres").arg(directory.path()));
    let data = directory.path().join("data");
    let mut initialise = as_postgres(&programs.join("initdb"));
    run_tool(initialise.args(["-A", "trust", "-N", "--locale", "C", "-D"]).arg(&data));
    let mut command = as_postgres(&programs.join("postgres"));
    command.arg("-D").arg(&data).arg("-k").arg(directory.path());
    command.args([
        "-c",
        "listen_addresses=",
        "-c",
        "fsync=off",
        "-c",
        "shared_buffers=16MB",
        "-c",
        "jit=off",
    ]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("cannot start postgres");
    Server { child, directory }
}

/// One session, served by one process.
struct Psql {
    child: Child,
    stdin: ChildStdin,
    lines: Lines,
}

impl Psql {
    fn connect(programs: &Path, server: &Server) -> Self {
        let mut ready = as_postgres(&programs.join("pg_isready"));
        ready.args(["-h", server.socket()]).stdout(Stdio::null());
        wait_until("postgres", || ready.status().expect("cannot run pg_isready").success());
        let mut command = as_postgres(&programs.join("psql"));
        command.args(["-X", "-q", "-A", "-t", "-d", "postgres", "-h", server.socket()]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cannot start psql");
        let stdin = child.stdin.take().expect("stdin is piped");
        let lines = Lines::new("psql", child.stdout.take().expect("stdout is piped"));
        Self { child, stdin, lines }
    }

    /// The lines that a statement gives.
    fn query(&mut self, statement: &str) -> Vec<String> {
        writeln!(self.stdin, "{statement};\n\\echo the end").expect("psql does not listen any more");
        let mut answer = Vec::new();
        loop {
            match self.lines.next_within(PATIENCE).expect("psql has ended").as_str() {
                "the end" => return answer,
                line => answer.push(line.to_owned()),
            }
        }
    }

    fn number(&mut self, statement: &str) -> f64 {
        self.query(statement)[0].parse().expect("a number")
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        // Both fail when psql has ended already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A backend of postgres: it keeps account of its memory contexts, which get their memory from malloc.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_postgres_backend_holds_what_it_says() {
    const CONTEXTS: &str = "select sum(total_bytes) from pg_backend_memory_contexts";
    let _alone = exclusive();
    let programs = postgres_programs();
    let server = start_postgres(&programs);
    let mut psql = Psql::connect(&programs, &server);
    psql.query("set work_mem = '256MB'");
    let sorted = "select g, lpad(g::text, 60, 'x') as text from generate_series(1, 50000) g order by 2";
    // The caches fill with what is asked again.
    psql.query(&format!("select count(*) from ({sorted}) as sorted"));
    psql.number(CONTEXTS);
    let backend = psql.number("select pg_backend_pid()") as u32;
    let before = psql.number(CONTEXTS);
    let (recording, line) = record(backend, "1");
    assert!(line.contains("(glibc)"), "{line}");
    for _ in 0..10 {
        psql.query(&format!("select count(*) from ({sorted}) as sorted"));
    }
    psql.query(&format!("begin; declare held cursor for {sorted}; fetch 1 from held"));
    let grown = psql.number(CONTEXTS) - before;
    let report = recording.report();
    report.assert_no_losses();

    let total = report.0["total"]["inuse_bytes"].as_f64().expect("a total");
    assert!(grown > 5e6, "the backend has grown by {grown} bytes only");
    // Not all memory is in contexts.
    assert!((total / grown - 1.0).abs() < 0.05, "{total} of {grown} bytes in use");
    let sort = report.sum("tuplesort_puttupleslot");
    assert!(sort.inuse_bytes > 0.5 * grown, "{} of {grown} bytes held by the sort", sort.inuse_bytes);
    for site in report.sites_of("tuplesort_puttupleslot") {
        site.assert_order(&["tuplesort_puttupleslot", "PostgresMain", "main"]);
        site.assert_reaches_thread_entry();
    }
    psql.query("commit");
}

/// A Rust program with jemalloc and glibc linked into it: all its allocators are in one file.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_static_rust_program_with_jemalloc_is_exact() {
    const TRIPLE: &str = "x86_64-unknown-linux-gnu";
    let _alone = exclusive();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rust-jemalloc");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--locked", "--target", TRIPLE, "--target-dir"]).arg(&directory);
    cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rust-jemalloc"));
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", "-C target-feature=+crt-static");
    run_tool(&mut cargo);
    let mut target = Target::start(&mut Command::new(directory.join(TRIPLE).join("release/rust-jemalloc")));
    let (recording, line) = record(target.pid(), "1");
    assert!(line.contains("rust-jemalloc (jemalloc as _rjem_* and glibc)"), "{line}");
    let truth = target.work();
    let report = recording.report();
    target.finish();
    report.assert_no_losses();
    assert_eq!(truth.sites["leak_box"], (4000 * 192, 4000));
    report.assert_exact(&truth);
    assert_eq!(report.sum("churn_strings").alloc_objects, 2.0 * 2000.0 * 11.0);
    for site in report.sites_of("leak_grown") {
        site.assert_reaches_thread_entry();
    }
}

/// C++ on every preloaded allocator: who made an object has a name.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn objects_on_preloaded_allocators_have_names() {
    let _alone = exclusive();
    let program = compile("widgets", &["widgets.cpp"]);
    for (library, name) in [
        ("libjemalloc.so.2", "(jemalloc)"),
        ("libtcmalloc_minimal.so.4", "(tcmalloc)"),
        ("libmimalloc.so.2.0", "(mimalloc)"),
    ] {
        let mut target = program.start_with(Some(library), &[]);
        let (recording, line) = record(target.pid(), "1");
        assert!(line.contains(name), "{line}");
        let truth = target.work();
        let report = recording.report();
        target.finish();
        report.assert_no_losses();
        report.assert_exact(&truth);
        for site in report.sites_of("leaky::Widget::create") {
            site.assert_order(&["operator new", "leaky::Widget::create", "main"]);
            site.assert_reaches_thread_entry();
        }
    }
}
