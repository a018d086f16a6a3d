//! The part of a run that is looked at: up to when, and from when growth is asked.

use std::sync::Arc;

/// A part of a run. The default is all of it, with no question about growth.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// `CLOCK_MONOTONIC` nanoseconds at which the run began.
    started_at: u64,
    /// Nanoseconds after the start.
    from: Option<u64>,
    /// Nanoseconds after the start.
    until: Option<u64>,
    /// Bytes in use by site at `from`, once that is past.
    baseline: Option<Arc<[f64]>>,
    /// Whether something happened behind the window.
    is_over: bool,
}

impl Window {
    /// From and until so many nanoseconds after the start of the run.
    pub(super) fn new(from: Option<u64>, until: Option<u64>) -> Self {
        Self { from, until, ..Self::default() }
    }

    /// The run begins.
    pub(super) fn start(&mut self, time: u64) {
        self.started_at = time;
    }

    /// The end of the window, where it has one: what happens later does not count.
    pub(super) fn end(&self) -> Option<u64> {
        self.until.map(|until| self.started_at.saturating_add(until))
    }

    /// Whether what happened at `time` lies behind the window; if so, the window is over.
    pub(super) fn is_past(&mut self, time: u64) -> bool {
        self.is_over |= self.end().is_some_and(|end| time > end);
        self.end().is_some_and(|end| time > end)
    }

    /// Whether something has happened behind the window: what is said of the present from then on, without
    /// a time of its own, is not true of the window.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether the baseline is to be set before an input of this `time` is taken in.
    pub(super) fn needs_baseline(&self, time: u64) -> bool {
        self.baseline.is_none() && self.from.is_some_and(|from| time >= self.started_at.saturating_add(from))
    }

    /// Sets what was in use at the moment from which growth is asked.
    pub(super) fn set_baseline(&mut self, bytes_by_site: Arc<[f64]>) {
        self.baseline = Some(bytes_by_site);
    }

    /// By how much the bytes in use of a site have grown since.
    pub(super) fn growth(&self, site: usize, bytes: f64) -> Option<f64> {
        let baseline = self.baseline.as_ref()?;
        Some(bytes - baseline.get(site).copied().unwrap_or(0.0))
    }
}
