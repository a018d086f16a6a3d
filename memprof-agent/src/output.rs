//! Output files: opened before the work, written after it.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use memprof_core::encode::{flamegraph, folded, pprof};
use memprof_core::profile::{Profile, ValueKind};
use memprof_core::symbols::Symbols;

/// What a file holds, by its name's ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Flame graph.
    Svg,
    /// pprof protocol buffer, gzipped.
    Pprof,
    /// Folded stacks.
    Folded,
    /// Recording.
    Recording,
}

/// A file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputFile {
    /// Where.
    pub(crate) path: PathBuf,
    /// What.
    pub(crate) format: Format,
}

impl OutputFile {
    /// Tells the format by the name's ending.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        const ENDINGS: [(&str, Format); 4] = [
            (".svg", Format::Svg),
            (".pb.gz", Format::Pprof),
            (".folded", Format::Folded),
            (".mprec", Format::Recording),
        ];
        ENDINGS
            .iter()
            .find(|(ending, _)| text.ends_with(ending))
            .map(|&(_, format)| Self { path: text.into(), format })
            .ok_or_else(|| "the name must end in .svg, .pb.gz, .folded or .mprec".into())
    }

    /// Creates the file, so that a bad path is known before the work and not after it. What is in it
    /// already stays until there is something to replace it: the work may yet fail. A recording holds
    /// stack contents of the target and is for its owner's eyes only.
    pub(crate) fn create(&self) -> Result<OpenOutput> {
        let mode = if self.format == Format::Recording { 0o600 } else { 0o644 };
        let existed = self.path.exists();
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(mode)
            .open(&self.path)
            .with_context(|| format!("creating {}", self.path.display()))?;
        if self.format == Format::Recording && is_regular(&file) {
            file.set_permissions(fs::Permissions::from_mode(mode))
                .with_context(|| format!("protecting {}", self.path.display()))?;
        }
        Ok(OpenOutput { path: self.path.clone(), format: self.format, file, existed, finished: false })
    }
}

fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file())
}

/// A created file. One that was not finished is removed again, unless it was there before.
#[derive(Debug)]
pub(crate) struct OpenOutput {
    path: PathBuf,
    format: Format,
    file: File,
    existed: bool,
    finished: bool,
}

impl OpenOutput {
    /// Where.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Drops what was in the file.
    fn empty(&self) -> Result<()> {
        if is_regular(&self.file) {
            self.file.set_len(0).with_context(|| format!("emptying {}", self.path.display()))?;
        }
        Ok(())
    }

    /// A second handle, for a writer in another thread. The file is empty from now on.
    pub(crate) fn writer(&self) -> Result<File> {
        self.empty()?;
        self.file.try_clone().with_context(|| format!("opening {}", self.path.display()))
    }

    /// Declares the content complete.
    pub(crate) fn finish(mut self) {
        self.finished = true;
    }

    /// Writes a profile and finishes the file.
    pub(crate) fn write(mut self, profile: &Profile, symbols: &Symbols, value: ValueKind) -> Result<()> {
        let bytes = match self.format {
            Format::Svg => flamegraph::encode(profile, symbols, value).context("drawing the flame graph")?,
            Format::Pprof => pprof::encode(profile, symbols, value).context("encoding the pprof profile")?,
            Format::Folded => folded::encode(profile, symbols, value).into_bytes(),
            Format::Recording => return Ok(()),
        };
        self.empty()?;
        self.file
            .write_all(&bytes)
            .and_then(|()| self.file.flush())
            .with_context(|| format!("writing {}", self.path.display()))?;
        self.finish();
        Ok(())
    }
}

impl Drop for OpenOutput {
    fn drop(&mut self) {
        if !self.finished && !self.existed && is_regular(&self.file) {
            // Best effort: the error that led here is the one worth reporting.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_follows_the_name() {
        assert_eq!(OutputFile::parse("a/b.pb.gz").map(|o| o.format), Ok(Format::Pprof));
        assert_eq!(OutputFile::parse("x.svg").map(|o| o.format), Ok(Format::Svg));
        assert!(OutputFile::parse("x.pdf").is_err());
    }
}
