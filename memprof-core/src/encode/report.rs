//! The report: a profile as a document for programs. The agent prints it as JSON.

use memprof_common::counter::Counter;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::frame_name::{NamedFrame, Names, end_words};
use super::losses;
use crate::estimate::Estimate;
use crate::profile::{Coverage, Losses, Profile, Site};
use crate::stack::Frame;
use crate::stack::Truncation;
use crate::symbols::Symbols;

/// A whole profile. Field names are a contract with its readers.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of memprof.
    pub version: String,
    /// Sampling interval in bytes; 1 = every block.
    pub sample_interval: u64,
    /// How the probes were attached.
    pub attach_mode: String,
    /// Length of the run.
    pub duration_seconds: f64,
    /// The watched processes.
    pub processes: Vec<ProcessReport>,
    /// How the stacks ended.
    pub coverage: CoverageReport,
    /// What the probes counted that is no loss.
    pub counters: NamedCounts,
    /// What went missing: all zero in a perfect run.
    pub losses: NamedCounts,
    /// Sums over all sites.
    pub total: Values,
    /// All sites with samples, largest in-use bytes first.
    pub sites: Vec<SiteReport>,
}

/// Numbers by name, in a fixed order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCounts(pub Vec<(&'static str, u64)>);

impl Serialize for NamedCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, count) in &self.0 {
            map.serialize_entry(name, count)?;
        }
        map.end()
    }
}

/// A watched process.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessReport {
    /// Process id.
    pub pid: u32,
    /// Command name.
    pub comm: String,
    /// Path of its executable.
    pub executable: String,
}

/// How the stacks ended: numbers of samples.
#[derive(Clone, Debug, Serialize)]
pub struct CoverageReport {
    /// All samples.
    pub samples: u64,
    /// Those whose stack reaches the thread's entry.
    pub complete: u64,
    /// Those whose native stack ends at Java code.
    pub java: u64,
    /// Those whose stack is truncated.
    pub truncated: u64,
}

/// Estimated values. Errors are half-widths of 95 % confidence intervals.
#[derive(Clone, Debug, Serialize)]
pub struct Values {
    /// Bytes in use.
    pub inuse_bytes: f64,
    /// Error of `inuse_bytes`.
    pub inuse_bytes_error: f64,
    /// Blocks in use.
    pub inuse_objects: f64,
    /// Error of `inuse_objects`.
    pub inuse_objects_error: f64,
    /// Bytes allocated during the run.
    pub alloc_bytes: f64,
    /// Blocks allocated during the run.
    pub alloc_objects: f64,
}

/// One allocation site.
#[derive(Clone, Debug, Serialize)]
pub struct SiteReport {
    /// Process id.
    pub pid: u32,
    /// Sampled allocations.
    pub samples: u64,
    /// What they stand for.
    #[serde(flatten)]
    pub values: Values,
    /// Age of the oldest block in use.
    pub oldest_seconds: Option<f64>,
    /// Age of the youngest block in use.
    pub youngest_seconds: Option<f64>,
    /// `complete`, `java`, or `truncated: ` and why.
    pub end: String,
    /// The functions, innermost first.
    pub frames: Vec<FrameReport>,
}

/// One function of a stack.
#[derive(Clone, Debug, Serialize)]
pub struct FrameReport {
    /// Name, when there is one; `[java]` stands for all Java frames.
    pub function: Option<String>,
    /// Path of the module.
    pub module: Option<String>,
    /// Address looked up, hexadecimal: as linked within the module, else absolute.
    pub offset: Option<String>,
    /// Source file.
    pub file: Option<String>,
    /// Line in it.
    pub line: Option<u32>,
    /// Whether it is inlined into the next function.
    pub inlined: bool,
}

impl Report {
    /// The report of a profile.
    #[must_use]
    pub fn new(profile: &Profile, symbols: &Symbols) -> Self {
        let names = Names::new(profile, symbols);
        let totals = profile.totals();
        Self {
            version: profile.run.version.clone(),
            sample_interval: profile.run.sample_interval,
            attach_mode: profile.run.attach_mode.clone(),
            duration_seconds: seconds(profile.duration()),
            processes: profile
                .processes
                .iter()
                .map(|process| ProcessReport {
                    pid: process.key.tgid,
                    comm: process.comm.clone(),
                    executable: process.executable.clone(),
                })
                .collect(),
            coverage: CoverageReport::new(&profile.coverage),
            counters: counters(&profile.losses),
            losses: NamedCounts(losses::named(&profile.losses).to_vec()),
            total: Values::new(&totals.in_use, &totals.allocated),
            sites: profile.sites.iter().map(|site| SiteReport::new(profile, names, site)).collect(),
        }
    }
}

impl CoverageReport {
    fn new(coverage: &Coverage) -> Self {
        let Coverage { samples, complete, java, truncated } = *coverage;
        Self { samples, complete, java, truncated }
    }
}

impl Values {
    fn new(in_use: &Estimate, allocated: &Estimate) -> Self {
        Self {
            inuse_bytes: in_use.bytes,
            inuse_bytes_error: in_use.bytes_error(),
            inuse_objects: in_use.objects,
            inuse_objects_error: in_use.objects_error(),
            alloc_bytes: allocated.bytes,
            alloc_objects: allocated.objects,
        }
    }
}

impl SiteReport {
    fn new(profile: &Profile, names: Names<'_>, site: &Site) -> Self {
        // The reason of a truncation is not a frame; `end` says it.
        let frames = site
            .stack
            .iter()
            .filter(|frame| !matches!(frame, Frame::Truncated(reason) if *reason != Truncation::JavaCode));
        Self {
            pid: profile.process(site).key.tgid,
            samples: site.allocated.samples,
            values: Values::new(&site.in_use, &site.allocated),
            oldest_seconds: site.ages.map(|ages| seconds(ages.oldest)),
            youngest_seconds: site.ages.map(|ages| seconds(ages.youngest)),
            end: end_words(&site.stack).into_owned(),
            frames: frames.flat_map(|&frame| names.frame(frame)).map(FrameReport::new).collect(),
        }
    }
}

impl FrameReport {
    fn new(frame: NamedFrame<'_>) -> Self {
        Self {
            function: frame.function.map(|function| function.into_owned()),
            module: frame.module.map(str::to_owned),
            offset: frame.offset.map(|offset| format!("{offset:#x}")),
            file: frame.file.map(str::to_owned),
            line: frame.line,
            inlined: frame.inlined,
        }
    }
}

fn counters(losses: &Losses) -> NamedCounts {
    let named = [
        ("alloc_calls", Counter::AllocCalls),
        ("free_calls", Counter::FreeCalls),
        ("sampled", Counter::Sampled),
        ("nested", Counter::Nested),
        ("failed_allocations", Counter::FailedAllocations),
        ("failed_reallocs", Counter::FailedReallocs),
    ];
    NamedCounts(named.map(|(name, counter)| (name, losses.kernel(counter))).to_vec())
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::encode::sample;

    #[test]
    fn keeps_the_contract() {
        let (mut profile, symbols) = sample::profile();
        profile.losses.kernel[Counter::AllocCalls as usize] = 77;
        profile.losses.unknown_frees = 3;
        let report = serde_json::to_value(Report::new(&profile, &symbols)).unwrap();
        assert_eq!(report["version"], "0.1.0");
        assert_eq!(report["duration_seconds"], 5.0);
        assert_eq!(report["processes"][1], json!({"pid": 13, "comm": "other", "executable": "/tmp/other"}));
        assert_eq!(report["coverage"], json!({"samples": 4, "complete": 2, "java": 1, "truncated": 1}));
        assert_eq!(report["counters"]["alloc_calls"], 77);
        assert_eq!(report["losses"]["unknown_frees"], 3);
        assert_eq!(report["losses"].as_object().unwrap().len(), 15);
        assert_eq!(report["total"]["inuse_bytes"], 5196.0);
        assert_eq!(report["total"]["alloc_objects"], 7.0);
        let site = &report["sites"][0];
        assert_eq!(site["inuse_bytes"], 4196.0);
        assert!((site["inuse_bytes_error"].as_f64().unwrap() - 6952.6).abs() < 0.1);
        assert_eq!((&site["samples"], &site["oldest_seconds"]), (&json!(2), &json!(2.5)));
        assert_eq!(site["frames"].as_array().unwrap().len(), 4);
        assert_eq!(
            site["frames"][1],
            json!({"function": "push", "module": "/tmp/leak", "offset": "0x100", "file": "vec.rs", "line": 10,
                   "inlined": true})
        );
    }

    #[test]
    fn ends_and_nameless_frames() {
        let (profile, symbols) = sample::profile();
        let report = serde_json::to_value(Report::new(&profile, &symbols)).unwrap();
        let truncated = &report["sites"][1];
        assert_eq!(truncated["end"], "truncated: snapshot limit");
        assert_eq!(truncated["frames"].as_array().unwrap().len(), 2);
        assert_eq!(truncated["frames"][1]["function"], Value::Null);
        assert_eq!(truncated["frames"][1]["offset"], "0x2ff");
        let java = &report["sites"][2];
        assert_eq!((&java["end"], &java["oldest_seconds"]), (&json!("java"), &Value::Null));
        let mark = json!({"function": "[java]", "module": null, "offset": null, "file": null, "line": null,
                          "inlined": false});
        assert_eq!(java["frames"][2], mark);
    }
}
