//! `doctor`: what this machine, this user and a target allow, and how to cure what they do not.

mod system;
mod target;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Serialize;

/// Each attach mode, best first, and why it does not work here if it does not.
pub(crate) type AttachModes = Vec<(String, Result<(), String>)>;

/// Checks the machine and, with a pid, that process. Prints a list, or one JSON document. The exit code is
/// 1 when something is in the way of a recording. `attach_modes` tries all attach modes.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn run(
    pid: Option<i32>,
    json: bool,
    attach_modes: impl FnOnce() -> Result<AttachModes>,
) -> Result<ExitCode> {
    let mut checks = system::checks();
    checks.push(attach_mode(attach_modes()));
    if let Some(pid) = pid {
        checks.extend(target::checks(pid).unwrap_or_else(|error| {
            vec![Check::fail(
                "process",
                error.to_string(),
                "choose a running process that this user may examine",
            )]
        }));
    }
    let report = Report { version: env!("CARGO_PKG_VERSION"), ok: checks.iter().all(Check::passes), checks };
    let mut out = io::stdout().lock();
    let written = if json { report.write_json(&mut out) } else { report.write_list(&mut out) };
    match written {
        // The reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        result => result.context("writing to standard output")?,
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn attach_mode(modes: Result<AttachModes>) -> Check {
    let modes = match modes {
        Ok(modes) => modes,
        Err(error) => {
            return Check::fail(
                "attach mode",
                format!("{error:#}"),
                "remove the reason, or first what failed above",
            );
        }
    };
    let text = |(mode, result): &(String, Result<(), String>)| match result {
        Ok(()) => format!("{mode} works"),
        Err(reason) => format!("{mode} does not: {reason}"),
    };
    let all = modes.iter().map(text).collect::<Vec<_>>().join("; ");
    match modes.iter().find(|(_, result)| result.is_ok()) {
        Some((mode, _)) => Check::ok("attach mode", format!("{mode} ({all})")),
        None => Check::fail(
            "attach mode",
            format!("none ({all})"),
            "remove the reason, or first what failed above",
        ),
    }
}

/// Whether a recording would work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// Nothing to do.
    Ok,
    /// It would, but not as well as it could.
    Warn,
    /// It would not.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    /// What was found.
    detail: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<String>,
}

impl Check {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, detail: detail.into(), cure: None }
    }

    fn warn(name: &'static str, detail: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { name, status: Status::Warn, detail: detail.into(), cure: Some(cure.into()) }
    }

    fn fail(name: &'static str, detail: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { name, status: Status::Fail, detail: detail.into(), cure: Some(cure.into()) }
    }

    fn passes(&self) -> bool {
        self.status != Status::Fail
    }
}

/// Everything that was looked at.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    /// Whether nothing failed.
    ok: bool,
    checks: Vec<Check>,
}

impl Report {
    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }

    fn write_list(&self, out: &mut impl Write) -> io::Result<()> {
        let width = self.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
        for Check { name, status, detail, cure } in &self.checks {
            let word = match status {
                Status::Ok => "ok",
                Status::Warn => "warn",
                Status::Fail => "FAIL",
            };
            writeln!(out, "{word:<4}  {name:<width$}  {detail}")?;
            if let Some(cure) = cure {
                writeln!(out, "      {:<width$}  -> {cure}", "")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let checks = vec![
            Check::ok("kernel", "6.18.44"),
            Check::warn("types", "no BTF", "use another kernel"),
            Check::fail("capabilities", "none", "run as root"),
        ];
        Report { version: "1.2.3", ok: false, checks }
    }

    #[test]
    fn the_list_is_aligned() {
        let mut text = Vec::new();
        report().write_list(&mut text).unwrap();
        let expected = "\
ok    kernel        6.18.44
warn  types         no BTF
                    -> use another kernel
FAIL  capabilities  none
                    -> run as root
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn the_document_has_the_same_content() {
        let mut text = Vec::new();
        report().write_json(&mut text).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["ok"], false);
        assert_eq!(value["checks"][1]["status"], "warn");
        assert_eq!(value["checks"][0].get("cure"), None);
        assert_eq!(value["checks"][2]["cure"], "run as root");
    }

    #[test]
    fn the_best_attach_mode_that_works_is_chosen() {
        let modes = vec![
            ("session".to_owned(), Err("needs kernel 6.13".to_owned())),
            ("multi".to_owned(), Ok(())),
            ("perf".to_owned(), Ok(())),
        ];
        let check = attach_mode(Ok(modes));
        assert_eq!(check.detail, "multi (session does not: needs kernel 6.13; multi works; perf works)");
        assert!(check.passes());
        assert!(!attach_mode(Ok(vec![("perf".to_owned(), Err("no".to_owned()))])).passes());
        assert!(!attach_mode(Err(anyhow::anyhow!("no probes inside"))).passes());
    }
}
