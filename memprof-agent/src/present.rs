//! What a person or a machine reads: results on stdout, everything else on stderr.

use std::io::{self, IsTerminal, Write};

use anyhow::{Context, Result};
use memprof_core::encode::{report::Report, table};
use memprof_core::profile::Profile;
use memprof_core::symbols::Symbols;

use crate::cli::ViewArgs;

/// Prints the result: a table, or one JSON document.
pub(crate) fn result(profile: &Profile, symbols: &Symbols, view: &ViewArgs) -> Result<()> {
    let mut stdout = io::stdout().lock();
    if view.json {
        // As an I/O error, so that a closed pipe is known for what it is.
        let written = serde_json::to_writer(&mut stdout, &Report::new(profile, symbols));
        written.map_err(io::Error::from).context("writing to stdout")?;
        writeln!(stdout).context("writing to stdout")?;
    } else {
        let table = table::encode(profile, symbols, view.top);
        stdout.write_all(table.as_bytes()).context("writing to stdout")?;
    }
    stdout.flush().context("writing to stdout")
}

/// A message about the work, on stderr. A stderr that is gone is no reason to stop.
pub(crate) fn message(text: &str) {
    let _ = writeln!(io::stderr(), "memprof: {text}");
}

/// The error that ends the command, in one line.
pub(crate) fn error(error: &anyhow::Error) {
    let _ = writeln!(io::stderr(), "memprof-agent: error: {error:#}");
}

/// A line that is overwritten by the next one, when stderr is a terminal.
#[derive(Default)]
pub(crate) struct ProgressLine {
    shown: bool,
}

impl ProgressLine {
    /// Shows `text`.
    pub(crate) fn show(&mut self, text: &str) {
        if io::stderr().is_terminal() {
            let _ = write!(io::stderr(), "\r\x1b[2Kmemprof: {text}");
            self.shown = true;
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}
