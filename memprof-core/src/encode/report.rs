//! The report: a profile as a document for programs. The agent prints it as JSON.

use memprof_common::counter::Counter;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::coverage::CoverageReport;
use super::figures::{LagReport, MemoryReport, OverheadReport};
use super::frame_name::{NamedFrame, Names, end_words};
use super::losses;
use crate::estimate::Estimate;
use crate::profile::{Ages, Losses, Profile, Site, Trend};
use crate::run_event::RunEvent;
use crate::stack::{Frame, Truncation, thread_of};
use crate::symbols::Symbols;

/// A whole profile. Field names are a contract with its readers.
// tidy: wide: the top level of one document
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
    /// Whether memory that the processes map themselves is included.
    pub memory_maps: bool,
    /// The watched processes.
    pub processes: Vec<ProcessReport>,
    /// Children of these that were started and not recorded.
    pub children_not_recorded: u64,
    /// How the stacks ended.
    pub coverage: CoverageReport,
    /// What the probes counted that is no loss.
    pub counters: NamedCounts,
    /// What went missing: all zero in a perfect run.
    pub losses: NamedCounts,
    /// What happened to the run, in order.
    pub events: Vec<EventReport>,
    /// Memory of the probes and the agent's tables; null when it is not known, as are the next two.
    pub memory: Option<MemoryReport>,
    /// What the probes cost the processes.
    pub overhead: Option<OverheadReport>,
    /// How long events took to be taken in.
    pub lag: Option<LagReport>,
    /// Sums over all sites.
    pub total: Values,
    /// How everything in use moves: `growing`, `shrinking`, `steady` or `varying`.
    pub trend: Option<&'static str>,
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
    /// Where it comes from; only for children that were started during the run.
    #[serde(flatten)]
    pub child: Option<ChildReport>,
}

/// What is special about a process that another watched one started.
#[derive(Clone, Debug, Serialize)]
pub struct ChildReport {
    /// Process id of its parent.
    pub parent_pid: u32,
    /// Seconds since the run began at which it was started.
    pub forked_seconds: f64,
    /// Seconds since the run began from which on all its blocks are seen; null when it ended before.
    pub recorded_from_seconds: Option<f64>,
    /// Bytes of its parent's blocks that it got a copy of, and whose fate in it is not known.
    pub inherited_bytes: f64,
    /// Number of those blocks.
    pub inherited_objects: f64,
}

/// Something that happened to the run.
#[derive(Clone, Debug, Serialize)]
pub struct EventReport {
    /// Seconds since the run began.
    pub at_seconds: f64,
    /// Its name.
    pub kind: &'static str,
    /// What it means, in a sentence.
    pub text: String,
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
    /// Name of the thread; only where stacks are told apart by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// What they stand for.
    #[serde(flatten)]
    pub values: Values,
    /// How old what is in use is.
    #[serde(flatten)]
    pub ages: AgesReport,
    /// How what is in use moves.
    #[serde(flatten)]
    pub movement: MovementReport,
    /// `complete`, `java`, or `truncated: ` and why.
    pub end: String,
    /// The functions, innermost first.
    pub frames: Vec<FrameReport>,
}

/// How old the blocks in use are.
#[derive(Clone, Debug, Serialize)]
pub struct AgesReport {
    /// Age of the oldest block in use.
    pub oldest_seconds: Option<f64>,
    /// Age of the youngest block in use.
    pub youngest_seconds: Option<f64>,
    /// Bytes in use by age.
    pub age_bands: AgeBandsReport,
}

/// Bytes in use by age.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AgeBandsReport {
    /// Younger than 10 seconds.
    pub under_10s: f64,
    /// Younger than a minute, and not the above.
    pub under_1min: f64,
    /// Younger than ten minutes, and none of the above.
    pub under_10min: f64,
    /// All others.
    pub older: f64,
}

/// How the bytes in use move.
#[derive(Clone, Debug, Serialize)]
pub struct MovementReport {
    /// `growing`, `shrinking`, `steady` or `varying`; nothing when the run is too short to tell.
    pub trend: Option<&'static str>,
    /// Change in bytes a second, of what grows or shrinks.
    pub trend_bytes_per_second: Option<f64>,
    /// Bytes in use now less those at the moment from which growth was asked.
    pub growth_bytes: Option<f64>,
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
    /// Whether it is inlined into the next function. Of Java's, `kinds` says so.
    pub inlined: bool,
    /// How the JVM ran it, in all the ways that were seen: `interpreted`, `C1`, `C2`, `inlined`,
    /// `native wrapper`, `stub`. Only of Java's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<&'static str>,
}

impl Report {
    /// The report of a profile.
    #[must_use]
    pub fn new(profile: &Profile, symbols: &Symbols) -> Self {
        let names = Names::new(profile, symbols);
        let totals = profile.totals();
        let figures = profile.figures.as_ref();
        Self {
            version: profile.run.version.clone(),
            sample_interval: profile.run.sample_interval,
            attach_mode: profile.run.attach_mode.clone(),
            duration_seconds: seconds(profile.duration()),
            memory_maps: profile.run.scope.maps,
            processes: (0..profile.processes.len()).map(|i| ProcessReport::new(profile, i)).collect(),
            children_not_recorded: profile.children.not_recorded,
            coverage: CoverageReport::new(profile),
            counters: counters(&profile.losses),
            losses: NamedCounts(losses::named(&profile.losses).to_vec()),
            events: profile.events.iter().map(|event| EventReport::new(profile, event)).collect(),
            memory: figures.map(|figures| MemoryReport::new(&figures.memory)),
            overhead: figures.and_then(|figures| figures.overhead.as_ref()).map(OverheadReport::new),
            lag: figures.and_then(|figures| figures.lag).map(LagReport::new),
            total: Values::new(&totals.in_use, &totals.allocated),
            trend: profile.trend.map(Trend::name),
            sites: profile.sites.iter().map(|site| SiteReport::new(profile, names, site)).collect(),
        }
    }
}

impl ProcessReport {
    fn new(profile: &Profile, index: usize) -> Self {
        let process = &profile.processes[index];
        let child = profile.children.recorded.iter().find(|child| child.process == index);
        let since_start = |time: u64| seconds(time.saturating_sub(profile.run.started_at));
        Self {
            pid: process.key.tgid,
            comm: process.comm.clone(),
            executable: process.executable.clone(),
            child: child.map(|child| ChildReport {
                parent_pid: profile.processes[child.parent].key.tgid,
                forked_seconds: since_start(child.forked_at),
                recorded_from_seconds: child.probes_at.map(since_start),
                inherited_bytes: child.inherited.bytes,
                inherited_objects: child.inherited.objects,
            }),
        }
    }
}

impl EventReport {
    fn new(profile: &Profile, event: &RunEvent) -> Self {
        Self {
            at_seconds: seconds(event.time.saturating_sub(profile.run.started_at)),
            kind: event.kind.name(),
            text: event.kind.to_string(),
        }
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
        let is_frame = |frame: Frame| match frame {
            Frame::Truncated(reason) => reason == Truncation::JavaCode,
            frame => !matches!(frame, Frame::Thread(_)),
        };
        let frames = names.frames_of(site).filter(|(frame, _)| is_frame(*frame));
        Self {
            pid: profile.process(site).key.tgid,
            samples: site.allocated.samples,
            thread: thread_of(&site.stack).and_then(|name| profile.threads.get(name)).map(str::to_owned),
            values: Values::new(&site.in_use, &site.allocated),
            ages: AgesReport::new(site.ages),
            movement: MovementReport {
                trend: site.trend.map(Trend::name),
                trend_bytes_per_second: site.trend.and_then(Trend::bytes_per_second),
                growth_bytes: site.growth,
            },
            end: end_words(&site.stack).into_owned(),
            frames: frames.flat_map(|(_, named)| named).map(FrameReport::new).collect(),
        }
    }
}

impl AgesReport {
    fn new(ages: Option<Ages>) -> Self {
        let bands = ages.map_or_else(Default::default, |ages| ages.bands.map(|band| band.bytes));
        let [under_10s, under_1min, under_10min, older] = bands;
        Self {
            oldest_seconds: ages.map(|ages| seconds(ages.oldest)),
            youngest_seconds: ages.map(|ages| seconds(ages.youngest)),
            age_bands: AgeBandsReport { under_10s, under_1min, under_10min, older },
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
            kinds: frame.kinds.names().collect(),
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
        ("returns", Counter::Returns),
        ("ring_pressure", Counter::RingPressure),
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
        assert_eq!(
            report["coverage"],
            json!({"samples": 4, "complete": 2, "java": 1, "truncated": 1,
                   "truncated_by_reason": {"snapshot limit": 1}})
        );
        assert_eq!(report["counters"]["alloc_calls"], 77);
        assert_eq!(report["losses"]["unknown_frees"], 3);
        assert_eq!(report["losses"].as_object().unwrap().len(), 24);
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
    fn java_frames_say_how_they_were_run() {
        let (profile, symbols) = sample::java();
        let report = serde_json::to_value(Report::new(&profile, &symbols)).unwrap();
        let frames = report["sites"][0]["frames"].as_array().unwrap();
        let method = json!({"function": "a.Leak.grow", "module": null, "offset": null, "file": "Leak.java",
                            "line": 30, "inlined": false, "kinds": ["interpreted", "C2"]});
        assert_eq!(frames[3], method);
        let kinds: Vec<_> = frames.iter().map(|frame| &frame["kinds"]).collect();
        let none = &Value::Null;
        assert_eq!(kinds, [none, none, &json!(["C2", "inlined"]), &method["kinds"], &json!(["stub"]), none]);
        let overload = &report["sites"][1]["frames"][2];
        assert_eq!((&overload["function"], &overload["line"]), (&json!("a.Leak.grow"), none));
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
