//! The values that a profile can show: the sample types of a heap profile, and growth.

use std::fmt;
use std::str::FromStr;

use crate::profile::Site;

/// The four sample types of a heap profile, in pprof's order and spelling, and growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueKind {
    /// Blocks allocated during the run.
    AllocObjects,
    /// Bytes allocated during the run.
    AllocSpace,
    /// Blocks allocated during the run and not yet freed.
    InuseObjects,
    /// Bytes allocated during the run and not yet freed.
    InuseSpace,
    /// By how much [`ValueKind::InuseSpace`] has grown since the moment from which growth was asked; what has
    /// shrunk counts as 0.
    InuseGrowth,
}

/// A name that is none of the sample types.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown value {0:?}: use alloc_objects, alloc_space, inuse_objects, inuse_space or, in a replay with \
     --from, inuse_growth"
)]
pub struct UnknownValueKind(String);

impl ValueKind {
    /// The sample types, in pprof's order.
    pub const SAMPLE_TYPES: [Self; 4] =
        [Self::AllocObjects, Self::AllocSpace, Self::InuseObjects, Self::InuseSpace];

    /// pprof's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AllocObjects => "alloc_objects",
            Self::AllocSpace => "alloc_space",
            Self::InuseObjects => "inuse_objects",
            Self::InuseSpace => "inuse_space",
            Self::InuseGrowth => "inuse_growth",
        }
    }

    /// pprof's unit: `count` or `bytes`.
    #[must_use]
    pub fn unit(self) -> &'static str {
        if self.is_bytes() { "bytes" } else { "count" }
    }

    /// Whether the values are bytes; otherwise they count blocks.
    #[must_use]
    pub fn is_bytes(self) -> bool {
        matches!(self, Self::AllocSpace | Self::InuseSpace | Self::InuseGrowth)
    }

    /// Whether the values leave out what was freed.
    #[must_use]
    pub fn is_in_use(self) -> bool {
        matches!(self, Self::InuseObjects | Self::InuseSpace | Self::InuseGrowth)
    }

    /// The estimated value of a site.
    #[must_use]
    pub fn of(self, site: &Site) -> f64 {
        match self {
            Self::AllocObjects => site.allocated.objects,
            Self::AllocSpace => site.allocated.bytes,
            Self::InuseObjects => site.in_use.objects,
            Self::InuseSpace => site.in_use.bytes,
            Self::InuseGrowth => site.growth.unwrap_or(0.0).max(0.0),
        }
    }
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ValueKind {
    type Err = UnknownValueKind;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::SAMPLE_TYPES
            .into_iter()
            .chain([Self::InuseGrowth])
            .find(|kind| kind.name() == name)
            .ok_or_else(|| UnknownValueKind(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for kind in ValueKind::SAMPLE_TYPES.into_iter().chain([ValueKind::InuseGrowth]) {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = "heap".parse::<ValueKind>().unwrap_err();
        assert!(error.to_string().contains("inuse_space"));
    }
}
