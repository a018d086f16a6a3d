//! Names of threads, for stacks that are told apart by them.

use indexmap::IndexSet;
use memprof_common::event::COMM_LEN;
use rustc_hash::FxBuildHasher;

/// Most distinct names that are kept. A program that names its threads one by one must not fill the memory.
const MAX_NAMES: usize = 4096;

/// What the threads are called whose names there was no room for.
const OTHERS: &str = "[other threads]";

/// Identity of a thread's name within a session. Threads of one name are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadNameId(pub u32);

/// Every thread's name once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadNames {
    names: IndexSet<String, FxBuildHasher>,
}

impl ThreadNames {
    /// The identity of the name in a task's `comm`, and whether it is its own: without room for it, it is that
    /// of all others.
    pub fn intern(&mut self, comm: [u8; COMM_LEN]) -> (ThreadNameId, bool) {
        let end = comm.iter().position(|&byte| byte == 0).unwrap_or(COMM_LEN);
        let name = String::from_utf8_lossy(&comm[..end]);
        let known = self.names.get_index_of(&*name);
        let has_room = known.is_some() || self.names.len() < MAX_NAMES;
        let index = known.unwrap_or_else(|| {
            let name = if has_room { name.into_owned() } else { OTHERS.to_owned() };
            self.names.insert_full(name).0
        });
        (ThreadNameId(u32::try_from(index).expect("few names")), has_room)
    }

    /// The name with this identity.
    #[must_use]
    pub fn get(&self, id: ThreadNameId) -> Option<&str> {
        self.names.get_index(id.0 as usize).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comm(name: &str) -> [u8; COMM_LEN] {
        let mut comm = [0; COMM_LEN];
        comm[..name.len()].copy_from_slice(name.as_bytes());
        comm
    }

    #[test]
    fn names_have_a_bound() {
        let mut names = ThreadNames::default();
        for number in 0..MAX_NAMES {
            assert_eq!(names.intern(comm(&format!("t{number}"))), (ThreadNameId(number as u32), true));
        }
        let (others, own) = names.intern(comm("another"));
        assert_eq!((names.get(others), own), (Some("[other threads]"), false));
        assert_eq!(names.intern(comm("and another")), (others, false));
        assert_eq!(names.intern(comm("t7")), (ThreadNameId(7), true));
        assert_eq!(names.get(ThreadNameId(7)), Some("t7"));
        let (full, _) = ThreadNames::default().intern(*b"sixteen bytes ok");
        assert_eq!(full, ThreadNameId(0));
    }
}
