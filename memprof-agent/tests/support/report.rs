//! The agent's JSON report.

use serde_json::Value;

use super::program::Truth;

/// A parsed report; the accessors panic with the whole document's relevant part when it breaks the contract.
pub(crate) struct Report(pub(crate) Value);

/// Sums over sites.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sum {
    /// Live bytes.
    pub(crate) inuse_bytes: f64,
    /// Live blocks.
    pub(crate) inuse_objects: f64,
    /// Bytes ever allocated.
    pub(crate) alloc_bytes: f64,
    /// Blocks ever allocated.
    pub(crate) alloc_objects: f64,
}

/// One frame, innermost first in [`Site::frames`].
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Its function, if it has a name.
    pub(crate) function: Option<String>,
    /// The file that holds its code.
    pub(crate) module: Option<String>,
    /// Its source file.
    pub(crate) file: Option<String>,
    /// The line in it.
    pub(crate) line: Option<u32>,
    /// How it was run; empty for native code.
    pub(crate) kinds: Vec<String>,
}

/// One allocation site: a stack.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Its process.
    pub(crate) pid: u64,
    /// Recorded allocations.
    pub(crate) samples: u64,
    /// How the stack ends: `complete`, `java` or `truncated: …`.
    pub(crate) end: String,
    /// Innermost first.
    pub(crate) frames: Vec<Frame>,
    /// Its numbers.
    pub(crate) sum: Sum,
    /// Half-width of the 95 % interval of the live bytes.
    pub(crate) inuse_bytes_error: f64,
}

impl Report {
    /// Parses the one document that stdout must hold.
    pub(crate) fn parse(stdout: &str) -> Self {
        let value = serde_json::from_str(stdout)
            .unwrap_or_else(|error| panic!("stdout is not one JSON document: {error}: {stdout}"));
        Self(value)
    }

    /// A number by path, for example `/losses/ring_full_allocs`.
    pub(crate) fn number(&self, pointer: &str) -> u64 {
        let value = self.0.pointer(pointer).unwrap_or_else(|| panic!("the report has no {pointer}"));
        value.as_u64().unwrap_or_else(|| panic!("{pointer} is {value}, not a whole number"))
    }

    /// All sites.
    pub(crate) fn sites(&self) -> Vec<Site> {
        self.0["sites"].as_array().expect("no sites in the report").iter().map(Site::from_json).collect()
    }

    /// The sites whose stack contains `function`.
    pub(crate) fn sites_of(&self, function: &str) -> Vec<Site> {
        self.sites().into_iter().filter(|site| site.contains(function)).collect()
    }

    /// Sum over the sites of process `pid` whose stack contains `function`.
    pub(crate) fn sum_of_process(&self, pid: u32, function: &str) -> Sum {
        sum(self.sites_of(function).iter().filter(|site| site.pid == u64::from(pid)))
    }

    /// Sum over all sites whose stack contains `function`.
    pub(crate) fn sum(&self, function: &str) -> Sum {
        sum(self.sites_of(function).iter())
    }

    /// Nothing may have been lost.
    pub(crate) fn assert_no_losses(&self) {
        self.assert_no_losses_but(&[]);
    }

    /// Nothing may have been lost, except for losses of the kinds `allowed`.
    pub(crate) fn assert_no_losses_but(&self, allowed: &[&str]) {
        let losses = self.0["losses"].as_object().expect("no losses in the report");
        assert!(losses.len() >= 10, "the report names too few kinds of losses: {losses:?}");
        assert!(allowed.iter().all(|name| losses.contains_key(*name)), "no such losses: {allowed:?}");
        let lost: Vec<_> = losses
            .iter()
            .filter(|(name, count)| count.as_u64() != Some(0) && !allowed.contains(&name.as_str()))
            .collect();
        assert!(lost.is_empty(), "something was lost: {lost:?}");
    }

    /// Every kind of loss that there was, and how often.
    pub(crate) fn losses(&self) -> Vec<String> {
        let losses = self.0["losses"].as_object().expect("no losses in the report");
        let losses = losses.iter().filter(|(_, count)| count.as_u64() != Some(0));
        losses.map(|(name, count)| format!("{count} {name}")).collect()
    }

    /// Live bytes and objects of every site that the program named must be exactly right.
    pub(crate) fn assert_exact(&self, truth: &Truth) {
        assert!(!truth.sites.is_empty(), "the program named no sites");
        for (name, &(bytes, objects)) in &truth.sites {
            let sum = self.sum(name);
            let live = (sum.inuse_bytes, sum.inuse_objects);
            assert_eq!(live, (bytes as f64, objects as f64), "live bytes and objects of {name}");
        }
    }

    /// Every stack must reach its thread's entry.
    pub(crate) fn assert_all_complete(&self) {
        let sites = self.sites();
        assert!(!sites.is_empty(), "the report has no sites");
        for site in sites {
            site.assert_reaches_thread_entry();
        }
        assert_eq!(self.number("/coverage/complete"), self.number("/coverage/samples"), "coverage");
        assert!(self.number("/coverage/samples") > 0, "no samples");
    }
}

impl Site {
    fn from_json(value: &Value) -> Self {
        let number = |name: &str| {
            value[name].as_f64().unwrap_or_else(|| panic!("a site without the number {name}: {value}"))
        };
        let frames = value["frames"].as_array().expect("a site without frames");
        Self {
            pid: value["pid"].as_u64().expect("a site without a pid"),
            samples: value["samples"].as_u64().expect("a site without samples"),
            end: value["end"].as_str().expect("a site without an end").to_owned(),
            frames: frames.iter().map(Frame::from_json).collect(),
            sum: Sum {
                inuse_bytes: number("inuse_bytes"),
                inuse_objects: number("inuse_objects"),
                alloc_bytes: number("alloc_bytes"),
                alloc_objects: number("alloc_objects"),
            },
            inuse_bytes_error: number("inuse_bytes_error"),
        }
    }

    /// Position of the innermost frame of `function`.
    pub(crate) fn position(&self, function: &str) -> Option<usize> {
        self.frames.iter().position(|frame| frame.is(function))
    }

    /// Whether the stack contains `function`.
    pub(crate) fn contains(&self, function: &str) -> bool {
        self.position(function).is_some()
    }

    /// The function names, innermost first; `?` where there is none.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.frames.iter().map(|frame| frame.function.as_deref().unwrap_or("?")).collect()
    }

    /// `functions` must stand in the stack in this order, innermost first; others may be between them.
    pub(crate) fn assert_order(&self, functions: &[&str]) {
        let mut names = self.frames.iter();
        for function in functions {
            assert!(
                names.any(|frame| frame.is(function)),
                "no {function} where {functions:?} asks for it: {:?}",
                self.names()
            );
        }
    }

    /// The stack must end where threads start. The C library's functions there may have no names (they
    /// are not exported); a wrong end would be in another place than the C library or the program.
    pub(crate) fn assert_reaches_thread_entry(&self) {
        assert_eq!(self.end, "complete", "a stack that does not reach the thread entry: {:?}", self.names());
        let last = self.frames.last().expect("a complete stack has frames");
        let named = ["_start", "clone", "clone3", "__clone", "__clone3", "start_thread"];
        // A stripped program's first function has no name, but what it calls has.
        let is_called_first =
            self.names().iter().rev().nth(1).is_some_and(|name| name.contains("libc_start_main"));
        let known = match &last.function {
            Some(name) => named.contains(&name.as_str()),
            None => {
                is_called_first || last.module.as_deref().is_some_and(|module| module.contains("libc.so"))
            }
        };
        assert!(known, "a stack that ends in {last:?}: {:?}", self.names());
    }
}

impl Frame {
    fn from_json(value: &Value) -> Self {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let kinds = value["kinds"].as_array().map_or(&[][..], Vec::as_slice);
        Self {
            function: text("function"),
            module: text("module"),
            file: text("file"),
            line: value["line"].as_u64().map(|line| u32::try_from(line).expect("a line number")),
            kinds: kinds.iter().map(|kind| kind.as_str().expect("a kind has a name").to_owned()).collect(),
        }
    }

    /// Whether this is a Java method.
    pub(crate) fn is_java(&self) -> bool {
        self.module.is_none()
            && self.function.as_deref().is_some_and(|name| name.contains('.') && !name.starts_with('['))
    }

    /// Whether this is `function`; a C++ name may be followed by its arguments.
    pub(crate) fn is(&self, function: &str) -> bool {
        let rest = self.function.as_deref().and_then(|name| name.strip_prefix(function));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('('))
    }
}

fn sum<'a>(sites: impl Iterator<Item = &'a Site>) -> Sum {
    sites.fold(Sum::default(), |sum, site| Sum {
        inuse_bytes: sum.inuse_bytes + site.sum.inuse_bytes,
        inuse_objects: sum.inuse_objects + site.sum.inuse_objects,
        alloc_bytes: sum.alloc_bytes + site.sum.alloc_bytes,
        alloc_objects: sum.alloc_objects + site.sum.alloc_objects,
    })
}
