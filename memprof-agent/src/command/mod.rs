//! The commands.

pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod floor;
pub(crate) mod record;
pub(crate) mod replay;
pub(crate) mod trim;
