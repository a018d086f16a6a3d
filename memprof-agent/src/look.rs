//! One look at a process from outside: what its JVM says, its mappings, its pages, its heaps.

use anyhow::{Context, Result, bail};
use memprof_core::glibc::{self, MAX_VERSION_BYTES, Version};
use memprof_core::jvm::{JvmFacts, NmtAnswer, native_memory};
use memprof_core::memory::{MemorySource as _, ProcessMemory};
use memprof_core::process::mappings::Mapping;
use memprof_core::process::smaps;
use memprof_core::rss::{Account, Process, account};

use crate::host::jvm_attach::{AttachError, AttachedJvm};
use crate::host::pagemap::Pagemap;
use crate::host::proc_fs::read_text;
use crate::host::process_memory::ProcessMemoryReader;
use crate::present;
use crate::target::Target;

/// Looks at one process, again and again if need be.
pub(crate) struct Looker<'a> {
    target: &'a Target,
    jvm: Option<AttachedJvm>,
    version: Option<Version>,
    gaps: Vec<String>,
}

impl<'a> Looker<'a> {
    /// Prepares: makes a JVM listen, unless `asks` forbids it.
    pub(crate) fn new(target: &'a Target, asks: bool) -> Result<Self> {
        let pid = target.tgid().cast_signed();
        let text = read_text(pid, "maps")?;
        let mappings: Vec<Mapping<'_>> = text.lines().filter_map(Mapping::parse).collect();
        if mappings.is_empty() {
            bail!(
                "process {pid} ({}) has no memory of its own: it is a kernel thread or has ended; choose a running process",
                target.info.comm
            );
        }
        let mut gaps = Vec::new();
        let mut jvm = None;
        if mappings.iter().any(Mapping::is_libjvm) {
            if asks {
                present::message(&format!("asking the JVM of process {pid} about its memory, as jcmd does"));
                match AttachedJvm::new(target) {
                    Ok(attached) => jvm = Some(attached),
                    Err(error) => gaps.push(error.to_string()),
                }
            } else {
                gaps.push(
                    "the JVM was not asked (--no-attach): its parts are shown as other memory".to_owned(),
                );
            }
        }
        let version = version(target.tgid(), &mappings);
        Ok(Self { target, jvm, version, gaps })
    }

    /// What could not be learnt so far.
    pub(crate) fn gaps(&self) -> &[String] {
        &self.gaps
    }

    /// The JVM, if it listens.
    pub(crate) fn jvm(&self) -> Option<&AttachedJvm> {
        self.jvm.as_ref()
    }

    /// Looks. What moves least comes first: the JVM's parts, then mappings, pages and heaps at once.
    pub(crate) fn look(&mut self) -> Result<Account> {
        let pid = self.target.tgid().cast_signed();
        let facts = match self.jvm.as_ref().map(facts) {
            Some(Ok(facts)) => Some(facts),
            Some(Err(error)) => {
                let gap = error.to_string();
                if !self.gaps.contains(&gap) {
                    self.gaps.push(gap);
                }
                None
            }
            None => None,
        };
        let status = read_text(pid, "status")?;
        let text = read_text(pid, "smaps")?;
        let memory = smaps::parse(&text)?;
        if memory.is_empty() {
            bail!("process {pid} has ended");
        }
        let mut pages = Pagemap::open(pid)?;
        let mut reader = ProcessMemoryReader::new(false);
        let mut reading = ProcessMemory::new(&mut reader, self.target.tgid());
        let probe = reading.bytes(memory[0].mapping.start, 8);
        if probe.is_none() && reading.bytes(first_readable(&memory), 8).is_none() {
            bail!(
                "cannot read the memory of process {pid}: run as root, or with the capability CAP_SYS_PTRACE"
            );
        }
        let process = Process { smaps: &memory, status: &status, glibc: self.version, jvm: facts.as_ref() };
        Ok(account(&mut reading, &mut pages, &process))
    }
}

fn first_readable(memory: &[smaps::MappedMemory<'_>]) -> u64 {
    memory.iter().find(|memory| memory.rss > 0).map_or(0, |memory| memory.mapping.start)
}

/// What the JVM says.
fn facts(jvm: &AttachedJvm) -> Result<JvmFacts, AttachError> {
    let info = jvm.ask("VM.info")?;
    let code = jvm.ask("Compiler.codecache")?;
    let mut answer = native_memory(&jvm.ask("VM.native_memory detail scale=b")?);
    if answer == NmtAnswer::Unknown {
        // A JVM that keeps sums only has no answer to a question about details.
        answer = native_memory(&jvm.ask("VM.native_memory summary scale=b")?);
    }
    Ok(JvmFacts::new(answer, &info, &code))
}

/// The version of a process's glibc, from its read-only data.
fn version(tgid: u32, mappings: &[Mapping<'_>]) -> Option<Version> {
    let mut reader = ProcessMemoryReader::new(false);
    glibc::read_only_data(mappings).find_map(|mapping| {
        let mut bytes = vec![0; (mapping.end - mapping.start).min(MAX_VERSION_BYTES) as usize];
        reader.read(tgid, mapping.start, &mut bytes).then(|| glibc::version(&bytes)).flatten()
    })
}

/// Opens the process to look at.
pub(crate) fn open(pid: i32) -> Result<Target> {
    Target::open(pid.cast_unsigned()).with_context(|| format!("looking at process {pid}"))
}
