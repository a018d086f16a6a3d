//! The running kernel: its version and what it allows.

use std::fmt;
use std::fs;

/// A kernel version; ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KernelVersion {
    major: u32,
    minor: u32,
    patch: u32,
}

impl KernelVersion {
    /// A version by its numbers.
    pub(crate) const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// The running kernel's; `None` when it does not tell.
    ///
    /// Ubuntu's release string ends in its own numbering (6.11.0-29), so its signature, which holds the
    /// upstream version, is asked first.
    pub(crate) fn running() -> Option<Self> {
        fs::read_to_string("/proc/version_signature")
            .ok()
            .and_then(|signature| Self::parse(signature.split_whitespace().last()?))
            .or_else(|| Self::parse(&rustix::system::uname().release().to_string_lossy()))
    }

    /// Reads the start of a release string: `6.18.44-fc`, `6.1`.
    pub(crate) fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self::new(next()?, next()?, next().unwrap_or(0)))
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Settings of the running kernel that decide what probes can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelFacts {
    /// Its version.
    pub(crate) version: Option<KernelVersion>,
    /// The release string.
    pub(crate) release: String,
    /// The processor's name for itself.
    pub(crate) machine: String,
    /// Type number of uprobe events for `perf_event_open`, if it has them.
    pub(crate) uprobe_event_type: Option<u32>,
    /// The lockdown in force: `none`, `integrity` or `confidentiality`; `None` without lockdown.
    pub(crate) lockdown: Option<String>,
    /// `kernel.perf_event_paranoid`
    pub(crate) perf_event_paranoid: Option<i32>,
    /// `kernel.unprivileged_bpf_disabled`
    pub(crate) unprivileged_bpf_disabled: Option<u32>,
}

impl KernelFacts {
    /// Those of the running kernel.
    pub(crate) fn read() -> Self {
        let uname = rustix::system::uname();
        Self {
            version: KernelVersion::running(),
            release: uname.release().to_string_lossy().into_owned(),
            machine: uname.machine().to_string_lossy().into_owned(),
            uprobe_event_type: number("/sys/bus/event_source/devices/uprobe/type"),
            lockdown: fs::read_to_string("/sys/kernel/security/lockdown").ok().and_then(|text| chosen(&text)),
            perf_event_paranoid: number("/proc/sys/kernel/perf_event_paranoid"),
            unprivileged_bpf_disabled: number("/proc/sys/kernel/unprivileged_bpf_disabled"),
        }
    }
}

fn number<T: std::str::FromStr>(path: &str) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The word in brackets: `none [integrity] confidentiality`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_strings() {
        assert_eq!(KernelVersion::parse("6.18.44-fc-v782"), Some(KernelVersion::new(6, 18, 44)));
        assert_eq!(KernelVersion::parse("6.12.57+deb13-amd64"), Some(KernelVersion::new(6, 12, 57)));
        assert_eq!(KernelVersion::parse("6.1"), Some(KernelVersion::new(6, 1, 0)));
        assert_eq!(KernelVersion::parse("6.14-rc1"), Some(KernelVersion::new(6, 14, 0)));
        assert_eq!(KernelVersion::parse("linux"), None);
        assert!(KernelVersion::new(6, 9, 3) < KernelVersion::new(6, 10, 0));
        assert_eq!(KernelVersion::new(6, 1, 0).to_string(), "6.1.0");
    }

    #[test]
    fn lockdown_is_the_word_in_brackets() {
        assert_eq!(chosen("none [integrity] confidentiality\n").as_deref(), Some("integrity"));
        assert_eq!(chosen("nothing"), None);
    }

    #[test]
    fn running_kernel() {
        let facts = KernelFacts::read();
        assert!(facts.version.is_some_and(|version| version > KernelVersion::new(4, 0, 0)), "{facts:?}");
        assert!(facts.release.starts_with(|c: char| c.is_ascii_digit()));
    }
}
