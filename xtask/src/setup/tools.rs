//! Where tools lie that all clones of this repository share.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// `$MEMPROF_TOOLS`, or `memprof/tools` in the user's cache directory.
pub(super) fn tools_directory() -> Result<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("MEMPROF_TOOLS")
        .or_else(|| Some(absolute("XDG_CACHE_HOME")?.join("memprof/tools")))
        .or_else(|| Some(absolute("HOME")?.join(".cache/memprof/tools")))
        .context("no place for tools: set MEMPROF_TOOLS to an absolute path")
}

/// Creates `directory` and keeps other clones from installing into it, for as long as the file is open.
pub(super) fn lock(directory: &Path) -> Result<File> {
    fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
    let path = directory.join("lock");
    let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    file.lock().with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}
