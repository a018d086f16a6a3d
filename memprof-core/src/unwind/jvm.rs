//! What is known of a process's JVM, and whether its frames can be told.

use std::sync::Arc;

use super::hotspot::{HotSpot, OpenError};
use crate::input::Jvm;
use crate::java::JavaMethods;
use crate::memory::ProcessMemory;

/// Nanoseconds after which a JVM that was not ready is looked at again (100 ms).
const RETRY: u64 = 100_000_000;

/// What unwinding of Java frames needs besides the stack.
pub struct JavaContext<'a> {
    /// The process's memory.
    pub memory: ProcessMemory<'a>,
    /// Where methods get their identity.
    pub methods: &'a mut JavaMethods,
    /// `CLOCK_MONOTONIC` nanoseconds at which the stack was copied.
    pub time: u64,
}

/// A library or program that holds a JVM, where a process maps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JvmImage {
    /// Which JVM.
    pub(crate) jvm: Arc<Jvm>,
    /// Live minus linked address.
    pub(crate) bias: u64,
}

/// A process's JVM.
#[derive(Default)]
pub(crate) struct ProcessJvm {
    image: Option<JvmImage>,
    state: State,
    /// Why its frames cannot be told, when that has not been asked for yet.
    news: Option<String>,
}

#[derive(Default)]
enum State {
    /// Nothing is known yet; not to be looked at before this time.
    #[default]
    New,
    NotReady {
        until: u64,
    },
    Open(Box<HotSpot>),
    Unsupported,
}

impl ProcessJvm {
    /// The process maps this JVM, or none. Another one than before is looked at anew.
    pub(crate) fn set_image(&mut self, image: Option<JvmImage>) {
        if self.image == image {
            return;
        }
        let unsupported = image.as_ref().and_then(|image| match &*image.jvm {
            Jvm::HotSpot { .. } => None,
            Jvm::OpenJ9 => {
                Some("its JVM is Eclipse OpenJ9, and HotSpot's are known: its stacks end at [java]")
            }
            Jvm::NativeImage => {
                Some("it is a GraalVM native image: its methods are shown as native functions")
            }
        });
        let state = if unsupported.is_some() { State::Unsupported } else { State::New };
        *self = Self { image, state, news: unsupported.map(str::to_owned) };
    }

    /// Why its frames cannot be told; once.
    pub(crate) fn take_news(&mut self) -> Option<String> {
        self.news.take()
    }

    /// Looks at the JVM if that has not been done. The stack at hand has come to code that may be its.
    pub(crate) fn open(&mut self, context: &mut JavaContext<'_>) {
        let due = match self.state {
            State::New => true,
            State::NotReady { until } => context.time >= until,
            State::Open(_) | State::Unsupported => false,
        };
        let Some(image) = self.image.as_ref().filter(|_| due) else { return };
        self.state = match open(image, context) {
            Ok(hotspot) => State::Open(Box::new(hotspot)),
            Err(OpenError::NotReady) => State::NotReady { until: context.time.saturating_add(RETRY) },
            Err(OpenError::Unsupported(reason)) => {
                self.news = Some(reason);
                State::Unsupported
            }
        };
    }

    /// The JVM whose frames can be told.
    pub(crate) fn hotspot(&mut self) -> Option<&mut HotSpot> {
        match &mut self.state {
            State::Open(hotspot) => Some(hotspot),
            _ => None,
        }
    }
}

fn open(image: &JvmImage, context: &mut JavaContext<'_>) -> Result<HotSpot, OpenError> {
    let Jvm::HotSpot { symbols } = &*image.jvm else { return Err(OpenError::NotReady) };
    let live = symbols.iter().map(|(name, svma)| (name.as_str(), svma.wrapping_add(image.bias)));
    HotSpot::open(&live.collect::<Vec<_>>(), &mut context.memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_hotspot_is_named_once() {
        let mut jvm = ProcessJvm::default();
        assert_eq!(jvm.take_news(), None);
        for (which, word) in [(Jvm::OpenJ9, "OpenJ9"), (Jvm::NativeImage, "GraalVM native image")] {
            let image = JvmImage { jvm: Arc::new(which), bias: 0 };
            jvm.set_image(Some(image.clone()));
            assert!(jvm.take_news().is_some_and(|news| news.contains(word)));
            jvm.set_image(Some(image));
            assert_eq!(jvm.take_news(), None);
        }
    }
}
