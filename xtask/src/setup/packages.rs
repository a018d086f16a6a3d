//! Packages of the operating system.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Result, bail};

use super::{Purpose, Requirement};
use crate::report::Report;
use crate::run::{as_root, find_program};

/// How to see that a package, or another one that does the same, is there.
enum Evidence {
    /// One of these programs is in `PATH`.
    Program(&'static str),
    /// This file exists.
    File(&'static str),
    /// This library is where the loader looks.
    Library(&'static str),
}

/// A package, and why it is needed.
struct Package {
    debian_name: &'static str,
    words: &'static str,
    evidence: Evidence,
    purpose: Purpose,
}

const PACKAGES: [Package; 12] = [
    Package {
        debian_name: "gcc",
        words: "a C compiler (cc)",
        evidence: Evidence::Program("cc"),
        purpose: Purpose::Build,
    },
    Package {
        debian_name: "libc6-dev",
        words: "the C library's headers",
        evidence: Evidence::File("/usr/include/stdio.h"),
        purpose: Purpose::Build,
    },
    Package {
        debian_name: "g++",
        words: "a C++ compiler (c++)",
        evidence: Evidence::Program("c++"),
        purpose: Purpose::Test,
    },
    Package {
        debian_name: "default-jdk-headless",
        words: "a Java development kit (javac)",
        evidence: Evidence::Program("javac"),
        purpose: Purpose::Test,
    },
    Package {
        debian_name: "python3-pip",
        words: "pip, which brings more Java runtimes (pip3)",
        evidence: Evidence::Program("pip3"),
        purpose: Purpose::Test,
    },
    Package {
        debian_name: "libtomcat10-java",
        words: "Tomcat (/usr/share/java/tomcat10-catalina.jar)",
        evidence: Evidence::File("/usr/share/java/tomcat10-catalina.jar"),
        purpose: Purpose::Test,
    },
    // Allocators and programs that the tests record. The tests start servers of their own.
    Package {
        debian_name: "libjemalloc2",
        words: "jemalloc (libjemalloc.so.2)",
        evidence: Evidence::Library("libjemalloc.so.2"),
        purpose: Purpose::Test,
    },
    Package {
        debian_name: "libtcmalloc-minimal4",
        words: "tcmalloc of gperftools (libtcmalloc_minimal.so.4)",
        evidence: Evidence::Library("libtcmalloc_minimal.so.4"),
        purpose: Purpose::Test,
    },
    Package {
        debian_name: "libmimalloc2.0",
        words: "mimalloc (libmimalloc.so.2.0)",
        evidence: Evidence::Library("libmimalloc.so.2.0"),
        purpose: Purpose::Test,
    },
    Package {
        debian_name: "musl-tools",
        words: "musl and its compiler (musl-gcc)",
        evidence: Evidence::Program("musl-gcc"),
        purpose: Purpose::Test,
    },
    Package {
        debian_name: "redis-server",
        words: "redis (redis-server, redis-benchmark)",
        evidence: Evidence::Program("redis-server"),
        purpose: Purpose::Test,
    },
    Package {
        debian_name: "postgresql",
        words: "postgres (/usr/lib/postgresql)",
        evidence: Evidence::File("/usr/lib/postgresql"),
        purpose: Purpose::Test,
    },
];

impl Package {
    fn is_present(&self) -> bool {
        match self.evidence {
            Evidence::Program(name) => find_program(name).is_some(),
            Evidence::File(path) => Path::new(path).exists(),
            Evidence::Library(name) => ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"]
                .iter()
                .any(|directory| Path::new(directory).join(name).exists()),
        }
    }
}

/// The packages that one purpose needs.
pub(crate) struct Packages {
    purpose: Purpose,
}

impl Packages {
    pub(crate) fn needed_for(purpose: Purpose) -> Self {
        Self { purpose }
    }

    fn needed(&self) -> impl Iterator<Item = &'static Package> {
        let purpose = self.purpose;
        PACKAGES.iter().filter(move |package| package.purpose <= purpose)
    }

    fn missing(&self) -> Vec<&'static Package> {
        self.needed().filter(|package| !package.is_present()).collect()
    }
}

impl Requirement for Packages {
    fn name(&self) -> String {
        "system packages".into()
    }

    fn present(&self) -> Result<Option<String>> {
        let names: Vec<_> = self.needed().map(|package| package.debian_name).collect();
        Ok(self.missing().is_empty().then(|| names.join(", ")))
    }

    fn recipe(&self) -> String {
        let missing = self.missing();
        if has_apt() {
            let names: Vec<_> = missing.iter().map(|package| package.debian_name).collect();
            format!("apt-get install {}", names.join(" "))
        } else {
            let words: Vec<_> = missing.iter().map(|package| package.words).collect();
            format!("install {} with this system's package manager", words.join(", "))
        }
    }

    fn install(&self, report: &Report) -> Result<()> {
        if !has_apt() {
            bail!("only Debian and Ubuntu packages are installed by this task: {}", self.recipe());
        }
        let names: Vec<_> = self.missing().iter().map(|package| package.debian_name).collect();
        apt_get_install(&names, report)
    }
}

/// Whether this system installs packages with `apt-get`.
pub(super) fn has_apt() -> bool {
    Path::new("/etc/debian_version").exists() && find_program("apt-get").is_some()
}

/// Installs Debian packages, as root or through sudo.
pub(super) fn apt_get_install(names: &[&str], report: &Report) -> Result<()> {
    // `env` inside of sudo: sudo drops the variables of its caller.
    let apt_get = || -> Result<_> {
        let mut command = as_root(OsStr::new("env"))?;
        command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y"]);
        Ok(command)
    };
    let mut update = apt_get()?;
    update.arg("update");
    report.logged("apt-get update", update)?;
    let mut install = apt_get()?;
    install.args(["install", "--no-install-recommends"]).args(names);
    report.logged("apt-get install", install)
}
