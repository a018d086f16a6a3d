//! The probes' settings while they run. Two threads change them: the one that owns the tables raises the
//! interval, the one that ends the recording stops the sampling, and what it says is final.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use aya::Pod;
use aya::maps::{Array, Map, MapData};
use memprof_common::sampling::slope;
use memprof_common::settings::Settings;

/// Wrapper that lets aya copy settings to the kernel.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct SettingsValue(Settings);
// SAFETY: a repr(C) structure of integers without padding (asserted by its size in memprof-common).
unsafe impl Pod for SettingsValue {}

/// The settings in the kernel; clones stand for the same.
#[derive(Clone)]
pub(crate) struct ProbeSettings(Arc<Mutex<Current>>);

struct Current {
    map: Array<MapData, SettingsValue>,
    settings: Settings,
    stopped: bool,
}

impl ProbeSettings {
    /// Writes the first settings.
    pub(super) fn new(map: Map, settings: Settings) -> Result<Self> {
        let map = map.try_into().context("opening the probes' settings")?;
        let mut current = Current { map, settings, stopped: false };
        current.write()?;
        Ok(Self(Arc::new(Mutex::new(current))))
    }

    /// The sampling interval in bytes; 0 when nothing is sampled.
    pub(crate) fn interval(&self) -> u64 {
        self.lock().settings.sample_interval
    }

    /// Changes the sampling interval, unless the sampling has been stopped.
    pub(crate) fn set_interval(&self, interval: u64) -> Result<()> {
        let mut current = self.lock();
        if current.stopped { Ok(()) } else { current.set_interval(interval) }
    }

    /// Stops the sampling for good; frees are still seen.
    pub(crate) fn stop(&self) -> Result<()> {
        let mut current = self.lock();
        current.stopped = true;
        current.set_interval(0)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        // Nothing in here leaves the settings half changed when it panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    fn set_interval(&mut self, interval: u64) -> Result<()> {
        self.settings.sample_interval = interval;
        self.settings.sample_slope = slope(interval);
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        self.map.set(0, SettingsValue(self.settings), 0).context("writing the probes' settings")
    }
}
