//! What stands beside the RSS: memory that a process costs and its RSS does not show, and the limit over it.

use serde::Serialize;

use crate::process::smaps::{MappedMemory, kilobytes};

/// Memory beside the RSS, and other views of it. Amounts are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Beside {
    /// The RSS with each page divided by the number of processes that map it.
    pub pss_bytes: u64,
    /// Tables by which the processor finds the pages (`VmPTE`); not part of the RSS.
    pub page_table_bytes: u64,
    /// Swapped out; not part of the RSS.
    pub swap_bytes: u64,
    /// Huge pages of hugetlbfs that others may map too; not part of the RSS.
    pub hugetlb_shared_bytes: u64,
    /// Huge pages of hugetlbfs of this process alone; not part of the RSS.
    pub hugetlb_private_bytes: u64,
    /// What of the RSS is mapped by transparent huge pages.
    pub transparent_huge_bytes: u64,
}

/// Sums up what smaps tells beside the RSS, and adds the page tables from the text of `/proc/PID/status`.
#[must_use]
pub fn beside(memory: &[MappedMemory<'_>], status: &str) -> Beside {
    let sum = |field: fn(&MappedMemory<'_>) -> u64| memory.iter().map(field).sum();
    let page_tables = status.lines().find_map(|line| line.strip_prefix("VmPTE:")).and_then(kilobytes);
    Beside {
        pss_bytes: sum(|memory| memory.pss),
        page_table_bytes: page_tables.unwrap_or(0),
        swap_bytes: sum(|memory| memory.swap),
        hugetlb_shared_bytes: sum(|memory| memory.hugetlb_shared),
        hugetlb_private_bytes: sum(|memory| memory.hugetlb_private),
        transparent_huge_bytes: sum(|memory| memory.transparent_huge),
    }
}

/// Version of the control groups' interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupVersion {
    /// One hierarchy for each resource.
    V1,
    /// One for all.
    V2,
}

/// The control group that limits a process's memory. Amounts are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cgroup {
    /// Its path in the hierarchy.
    pub path: String,
    /// Which interface.
    pub version: CgroupVersion,
    /// What all of its processes use; files in the page cache, kernel memory included.
    pub usage_bytes: u64,
    /// What of the usage the kernel takes back first: files that nobody used lately.
    pub inactive_file_bytes: u64,
    /// The nearest limit, of this group or one above it; none when there is none.
    pub limit_bytes: Option<u64>,
}

impl Cgroup {
    /// Bytes that can be used before the limit ends a process: usage that can be taken back does not count.
    #[must_use]
    pub fn left_bytes(&self) -> Option<u64> {
        let needed = self.usage_bytes.saturating_sub(self.inactive_file_bytes);
        Some(self.limit_bytes?.saturating_sub(needed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::smaps;

    #[test]
    fn sums_over_mappings() {
        let text = "\
1000-3000 rw-p 00000000 00:00 0
Pss: 8 kB
Swap: 4 kB
3000-5000 rw-s 00000000 00:00 7 /anon_hugepage (deleted)
Pss: 2 kB
Shared_Hugetlb: 2048 kB
";
        let memory = smaps::parse(text).expect("all lines are known");
        let found = beside(&memory, "Name:\tx\nVmPTE:\t     172 kB\nVmSwap:\t 1 kB\n");
        let expected = Beside {
            pss_bytes: 10 << 10,
            page_table_bytes: 172 << 10,
            swap_bytes: 4 << 10,
            hugetlb_shared_bytes: 2 << 20,
            ..Beside::default()
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn files_can_be_taken_back() {
        let cgroup = Cgroup {
            path: "/a".into(),
            version: CgroupVersion::V2,
            usage_bytes: 900,
            inactive_file_bytes: 300,
            limit_bytes: Some(1000),
        };
        assert_eq!(cgroup.left_bytes(), Some(400));
        assert_eq!(Cgroup { limit_bytes: None, ..cgroup }.left_bytes(), None);
    }
}
