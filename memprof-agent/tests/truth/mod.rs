//! Running the program whose stacks are known, and judging what the agent makes of them.

pub(crate) mod cells;
pub(crate) mod judge;
pub(crate) mod ledger;
pub(crate) mod run;
