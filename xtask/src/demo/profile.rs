//! The agent's JSON document, as far as the demo tells about it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Functions that hand out memory: everybody calls them, so they do not name a site.
const ALLOCATORS: [&str; 8] =
    ["malloc", "calloc", "realloc", "reallocarray", "posix_memalign", "aligned_alloc", "memalign", "valloc"];

/// Frames that name a site.
const NAMING_FRAMES: usize = 3;

/// What was recorded.
#[derive(Debug, Deserialize)]
pub(crate) struct Profile {
    total: Total,
    sites: Vec<Site>,
}

#[derive(Debug, Deserialize)]
struct Total {
    inuse_bytes: f64,
}

#[derive(Debug, Deserialize)]
struct Site {
    inuse_bytes: f64,
    inuse_bytes_error: f64,
    inuse_objects: f64,
    frames: Vec<Frame>,
}

#[derive(Debug, Deserialize)]
struct Frame {
    function: Option<String>,
    module: Option<String>,
    offset: Option<String>,
    /// How a Java frame was run.
    #[serde(default)]
    kinds: Vec<String>,
}

impl Profile {
    /// Reads the document.
    pub(crate) fn from_json(json: &str) -> Result<Self> {
        serde_json::from_str(json).context("reading the agent's JSON document")
    }

    /// A sentence about the site that holds most memory. Sites of one name count as one: zlib allocates
    /// at several places in one function.
    ///
    /// # Errors
    /// When nothing was found to be in use.
    pub(crate) fn biggest_site(&self) -> Result<String> {
        let mut by_name = BTreeMap::<String, Sum>::new();
        for site in &self.sites {
            by_name.entry(site.name()).or_default().add(site);
        }
        let biggest = by_name.into_iter().max_by(|(_, a), (_, b)| a.bytes.total_cmp(&b.bytes));
        let Some((name, sum)) = biggest.filter(|(_, sum)| sum.bytes > 0.0) else {
            bail!("the recording found no memory that is still in use");
        };
        Ok(format!(
            "The biggest site holds {} ± {} in {:.0} blocks, {:.0} % of all found: {name}",
            mebibytes(sum.bytes),
            mebibytes(sum.squared_errors.sqrt()),
            sum.objects,
            100.0 * sum.bytes / self.total.inuse_bytes,
        ))
    }
}

/// Sites taken together. Their errors are independent, so the squares add up.
#[derive(Default)]
struct Sum {
    bytes: f64,
    squared_errors: f64,
    objects: f64,
}

impl Sum {
    fn add(&mut self, site: &Site) {
        self.bytes += site.inuse_bytes;
        self.squared_errors += site.inuse_bytes_error * site.inuse_bytes_error;
        self.objects += site.inuse_objects;
    }
}

impl Site {
    /// The innermost callers of the allocator, innermost first, and the program's own Java method above them.
    fn name(&self) -> String {
        let callers = || self.frames.iter().skip_while(|frame| frame.is_allocator());
        let mut names: Vec<String> = callers().take(NAMING_FRAMES).map(Frame::name).collect();
        let rest = || callers().skip(NAMING_FRAMES);
        if let Some((between, method)) = rest().enumerate().find(|(_, frame)| frame.is_own_java()) {
            if between > 0 {
                names.push("…".into());
            }
            names.push(method.name());
        } else if rest().next().is_some() {
            names.push("…".into());
        }
        names.join(" ← ")
    }
}

impl Frame {
    fn is_allocator(&self) -> bool {
        self.function.as_deref().is_some_and(|function| ALLOCATORS.contains(&function))
    }

    /// Whether it is a Java method that is not of the class library.
    fn is_own_java(&self) -> bool {
        const LIBRARY: [&str; 4] = ["java.", "javax.", "jdk.", "sun."];
        let is_method = self.kinds.iter().any(|kind| kind != "stub");
        is_method && self.function.as_ref().is_some_and(|name| !LIBRARY.iter().any(|p| name.starts_with(p)))
    }

    fn name(&self) -> String {
        if let Some(function) = &self.function {
            return function.clone();
        }
        let module = self.module.as_deref().map_or("?", |path| path.rsplit('/').next().unwrap_or(path));
        format!("{module}+{}", self.offset.as_deref().unwrap_or("?"))
    }
}

fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(frames: &str) -> Profile {
        let json = format!(
            r#"{{"version": "0.1.0", "total": {{"inuse_bytes": 4194304.0}}, "sites": [{{"pid": 7,
                "inuse_bytes": 3145728.0, "inuse_bytes_error": 524288.0, "inuse_objects": 12.0,
                "frames": [{frames}]}}]}}"#
        );
        Profile::from_json(&json).unwrap()
    }

    fn frame(name: &str) -> String {
        format!(r#"{{"function": "{name}", "module": "/lib/x.so", "offset": "0x1", "inlined": false}}"#)
    }

    fn java(name: &str) -> String {
        format!(r#"{{"function": "{name}", "module": null, "offset": null, "kinds": ["C1", "C2"]}}"#)
    }

    #[test]
    fn names_the_biggest_site() {
        let native = ["malloc", "deflateInit2_", "Java_java_util_zip_Deflater_init"].map(frame);
        let methods =
            ["java.util.zip.Deflater.init", "java.util.zip.Deflater.<init>", "Server.open"].map(java);
        let frames = [native, methods].concat();
        assert_eq!(
            profile(&frames.join(",")).biggest_site().unwrap(),
            "The biggest site holds 3.0 MiB ± 0.5 MiB in 12 blocks, 75 % of all found: \
             deflateInit2_ ← Java_java_util_zip_Deflater_init ← java.util.zip.Deflater.init ← … ← Server.open"
        );
    }

    #[test]
    fn sites_of_one_name_count_as_one() {
        let site = |name: &str, bytes: f64| {
            format!(
                r#"{{"inuse_bytes": {bytes:?}, "inuse_bytes_error": 1048576.0, "inuse_objects": 1.0,
                    "frames": [{}]}}"#,
                frame(name)
            )
        };
        let sites = [site("one", 4e6), site("two", 3e6), site("two", 3e6)].join(",");
        let json = format!(r#"{{"total": {{"inuse_bytes": 1e7}}, "sites": [{sites}]}}"#);
        assert_eq!(
            Profile::from_json(&json).unwrap().biggest_site().unwrap(),
            "The biggest site holds 5.7 MiB ± 1.4 MiB in 2 blocks, 60 % of all found: two"
        );
    }

    #[test]
    fn an_unnamed_frame_is_module_and_offset() {
        let unnamed = r#"{"function": null, "module": "/usr/lib/libz.so.1", "offset": "0x5f0"}"#;
        let frames = [&[frame("malloc"), unnamed.to_owned()][..], &["a", "b", "c", "d"].map(frame)].concat();
        let sentence = profile(&frames.join(",")).biggest_site().unwrap();
        assert!(sentence.ends_with(": libz.so.1+0x5f0 ← a ← b ← …"), "{sentence}");
    }

    #[test]
    fn nothing_in_use_is_an_error() {
        let empty = Profile::from_json(r#"{"total": {"inuse_bytes": 0.0}, "sites": []}"#).unwrap();
        assert!(empty.biggest_site().is_err());
    }
}
