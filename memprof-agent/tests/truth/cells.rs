//! The combinations of a Java version and a way to run it.

/// Where the virtual machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Like any other program.
    Here,
    /// In a mount and a PID namespace of its own.
    Namespaces,
    /// From files that have been removed since it started.
    Removed,
}

/// One combination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    /// Version of Java, or `system`.
    pub(crate) java: &'static str,
    /// Its way to run.
    pub(crate) mode: Mode,
}

/// A way to run the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    /// What the table calls it.
    pub(crate) name: &'static str,
    /// Options of the virtual machine; `{boot}` stands for the directory of the white-box classes.
    pub(crate) flags: &'static [&'static str],
    /// What the program is told to do.
    pub(crate) program: &'static str,
    /// Where it runs.
    pub(crate) place: Place,
    /// Versions that can do this.
    pub(crate) versions: &'static [&'static str],
    /// Versions with which each run of the tests does it.
    pub(crate) always: &'static [&'static str],
}

const ALL: &[&str] = &["11", "system", "17", "21", "25"];
const SINCE_17: &[&str] = &["system", "17", "21", "25"];
const SINCE_21: &[&str] = &["21", "25"];

const USUAL: Mode =
    Mode { name: "default", flags: &[], program: "threads", place: Place::Here, versions: ALL, always: &[] };

const MODES: [Mode; 17] = [
    Mode { always: ALL, ..USUAL },
    Mode { name: "interpreter", flags: &["-Xint"], always: &["11", "25"], ..USUAL },
    Mode { name: "C1", flags: &["-XX:TieredStopAtLevel=1"], always: &["17", "21"], ..USUAL },
    Mode { name: "C1 with counters", flags: &["-XX:TieredStopAtLevel=3"], always: &["25"], ..USUAL },
    Mode { name: "C2 only", flags: &["-XX:-TieredCompilation"], always: &["21"], ..USUAL },
    Mode { name: "one code heap", flags: &["-XX:-SegmentedCodeCache"], always: &["11", "21"], ..USUAL },
    Mode { name: "Serial", flags: &["-XX:+UseSerialGC"], always: &["system"], ..USUAL },
    Mode { name: "Parallel", flags: &["-XX:+UseParallelGC"], always: &["11", "25"], ..USUAL },
    Mode { name: "G1", flags: &["-XX:+UseG1GC"], always: &["21", "25"], ..USUAL },
    Mode { name: "ZGC", flags: &["-XX:+UseZGC"], versions: SINCE_17, always: &["25"], ..USUAL },
    Mode {
        name: "generational ZGC",
        flags: &["-XX:+UseZGC", "-XX:+ZGenerational"],
        versions: &["21"],
        always: &["21"],
        ..USUAL
    },
    Mode { name: "Shenandoah", flags: &["-XX:+UseShenandoahGC"], always: &["17"], ..USUAL },
    Mode { name: "virtual threads", program: "virtual", versions: SINCE_21, always: SINCE_21, ..USUAL },
    Mode {
        name: "deoptimisation",
        flags: &["-XX:+UnlockDiagnosticVMOptions", "-XX:+WhiteBoxAPI", "-Xbootclasspath/a:{boot}"],
        program: "deopt",
        always: &["system", "25"],
        ..USUAL
    },
    Mode {
        name: "unloading",
        flags: &["-XX:ReservedCodeCacheSize=6m", "-Xmx64m"],
        program: "unload",
        always: ALL,
        ..USUAL
    },
    Mode {
        name: "hidden classes",
        flags: &["-XX:ReservedCodeCacheSize=6m", "-Xmx64m"],
        program: "hidden",
        versions: SINCE_17,
        always: &["system", "25"],
        ..USUAL
    },
    Mode { name: "namespaces", place: Place::Namespaces, always: &["21"], ..USUAL },
];

/// Files that have gone: the system's own must stay.
const REMOVED: Mode = Mode {
    name: "removed files",
    place: Place::Removed,
    versions: &["11", "17", "21", "25"],
    always: &["25"],
    ..USUAL
};

/// All combinations, or those of each run of the tests. `filter` must be in `java mode`.
pub(crate) fn cells(all: bool, filter: &str) -> Vec<Cell> {
    let mut cells = Vec::new();
    for mode in MODES.into_iter().chain([REMOVED]) {
        let versions = if all { mode.versions } else { mode.always };
        cells.extend(versions.iter().map(|java| Cell { java, mode }));
    }
    cells.retain(|cell| cell.to_string().contains(filter));
    cells
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.java, self.mode.name)
    }
}
