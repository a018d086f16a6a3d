//! What a person or a machine reads: results on stdout, everything else on stderr.

use std::io::{self, IsTerminal, Write};

use anyhow::{Context, Result};
use memprof_core::encode::{report::Report, table};
use memprof_core::profile::Profile;
use memprof_core::symbols::Symbols;
use serde::Serialize;

use crate::cli::ViewArgs;

/// Prints the result: a table, or one JSON document.
pub(crate) fn result(profile: &Profile, symbols: &Symbols, view: &ViewArgs) -> Result<()> {
    if view.json {
        document(&Report::new(profile, symbols))
    } else {
        text(&table::encode(profile, symbols, view.top))
    }
}

/// Prints a document for programs.
pub(crate) fn document(document: &impl Serialize) -> Result<()> {
    let mut stdout = io::stdout().lock();
    // As an I/O error, so that a closed pipe is known for what it is.
    let written = serde_json::to_writer(&mut stdout, document);
    written.map_err(io::Error::from).context("writing to stdout")?;
    writeln!(stdout).and_then(|()| stdout.flush()).context("writing to stdout")
}

/// Prints text.
pub(crate) fn text(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("writing to stdout")
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
