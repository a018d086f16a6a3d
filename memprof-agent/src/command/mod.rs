//! The commands.

pub(crate) mod doctor;
pub(crate) mod floor;
pub(crate) mod record;
pub(crate) mod replay;
