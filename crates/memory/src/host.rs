//! What the host reports about its memory. Nothing here changes the host's settings.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The default budget, in per cent of the available memory.
const DEFAULT_BUDGET_PERCENT: u64 = 80;
/// The most levels of control groups that are read.
const CGROUP_LEVELS_MAX: usize = 64;

/// What the host reports about its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// All memory of the host, or the lowest limit of the control groups of this process.
    pub total_bytes: u64,
    /// What could be allocated now without swapping: the host's estimate, or what the control
    /// groups of this process leave, whichever is less.
    pub available_bytes: u64,
    /// Which pages the host's settings suggest.
    pub pages: PagePolicy,
    /// Whether the host promises more memory than it has.
    pub overcommit: Overcommit,
}

/// Which pages volumes use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagePolicy {
    /// The processor's ordinary pages.
    Ordinary,
    /// Transparent huge pages, if the host has one free at the moment.
    TransparentHuge,
}

/// How the host counts reserved memory (`vm.overcommit_memory`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overcommit {
    /// Reserved memory does not count; pages count when they are written.
    Allowed,
    /// All writable memory counts when it is reserved (`vm.overcommit_memory = 2`).
    Strict,
}

impl HostMemory {
    /// Reads the host's settings.
    pub fn probe() -> io::Result<Self> {
        let meminfo = fs::read_to_string("/proc/meminfo")?;
        let field = |name| {
            field_bytes(&meminfo, name).ok_or_else(|| {
                let message =
                    format!("/proc/meminfo has no {name} (Linux 3.14 or later is needed)");
                io::Error::new(io::ErrorKind::Unsupported, message)
            })
        };
        let (total_bytes, available_bytes) = (field("MemTotal:")?, field("MemAvailable:")?);
        let groups = control_groups();
        let limits = groups.iter().filter_map(|group| limit_bytes(group));
        let left = groups
            .iter()
            .filter_map(|group| group_available_bytes(group));
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Ok(Self {
            total_bytes: limits.fold(total_bytes, u64::min),
            available_bytes: left.fold(available_bytes, u64::min),
            pages: pages_of(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
            overcommit: overcommit_of(&read("/proc/sys/vm/overcommit_memory")),
        })
    }

    /// The budget if the user gives none: 80 % of the available memory.
    pub fn default_budget_bytes(&self) -> u64 {
        self.available_bytes / 100 * DEFAULT_BUDGET_PERCENT
    }
}

/// How much of this process's memory is in huge pages now. [`PagePolicy`] says what was requested;
/// this says what the host gave. The host walks all memory of the process for it, so do not call it
/// in loops.
pub fn huge_bytes_in_use() -> io::Result<u64> {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup")?;
    Ok(field_bytes(&rollup, "AnonHugePages:").unwrap_or(0))
}

/// The value of a line `name   123 kB`.
fn field_bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    let kib: u64 = line[name.len()..]
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse()
        .ok()?;
    kib.checked_mul(1024)
}

fn pages_of(enabled: &str) -> PagePolicy {
    if enabled.contains("[always]") || enabled.contains("[madvise]") {
        PagePolicy::TransparentHuge
    } else {
        PagePolicy::Ordinary
    }
}

fn overcommit_of(setting: &str) -> Overcommit {
    if setting.trim() == "2" {
        Overcommit::Strict
    } else {
        Overcommit::Allowed
    }
}

/// The folders of the control groups (version 2) of this process, from its own to the root.
fn control_groups() -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(path) = own.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    let group = PathBuf::from("/sys/fs/cgroup").join(path);
    group
        .ancestors()
        .take(CGROUP_LEVELS_MAX)
        .take_while(|group| group.starts_with("/sys/fs/cgroup"))
        .map(Path::to_owned)
        .collect()
}

/// The limit of a control group; `None` if it has none.
fn limit_bytes(group: &Path) -> Option<u64> {
    let max = fs::read_to_string(group.join("memory.max")).ok()?;
    max.trim().parse().ok()
}

fn group_available_bytes(group: &Path) -> Option<u64> {
    let read = |file: &str| fs::read_to_string(group.join(file)).ok();
    let current = read("memory.current")?.trim().parse().ok()?;
    Some(left_in_group(
        limit_bytes(group)?,
        current,
        &read("memory.stat").unwrap_or_default(),
    ))
}

/// The limit less the used memory. Inactive file pages count as unused, since the host drops them
/// when memory is requested.
fn left_in_group(max_bytes: u64, current_bytes: u64, stat: &str) -> u64 {
    let reclaimable_bytes: u64 = stat
        .lines()
        .find_map(|line| line.strip_prefix("inactive_file "))
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0);
    max_bytes.saturating_sub(current_bytes.saturating_sub(reclaimable_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probing_this_host_gives_a_budget_below_what_is_available() {
        let host = HostMemory::probe().expect("Linux");
        assert!(host.available_bytes > 0);
        assert!(host.total_bytes >= host.available_bytes);
        assert!(host.default_budget_bytes() < host.available_bytes);
        assert!(host.default_budget_bytes() >= host.available_bytes / 100 * 79);
    }

    #[test]
    fn settings_are_read_as_the_kernel_writes_them() {
        assert_eq!(
            pages_of("always [madvise] never\n"),
            PagePolicy::TransparentHuge
        );
        assert_eq!(
            pages_of("[always] madvise never\n"),
            PagePolicy::TransparentHuge
        );
        assert_eq!(pages_of("always madvise [never]\n"), PagePolicy::Ordinary);
        assert_eq!(pages_of(""), PagePolicy::Ordinary);
        assert_eq!(overcommit_of("2\n"), Overcommit::Strict);
        assert_eq!(overcommit_of("0\n"), Overcommit::Allowed);
        let meminfo = "MemTotal:       24684092 kB\nMemAvailable:   24288548 kB\n";
        assert_eq!(
            field_bytes(meminfo, "MemAvailable:"),
            Some(24_288_548 * 1024)
        );
        assert_eq!(field_bytes(meminfo, "MemFree:"), None);
    }

    #[test]
    fn a_control_group_leaves_its_limit_less_what_cannot_be_dropped() {
        assert_eq!(
            left_in_group(1000, 700, "anon 500\ninactive_file 150\n"),
            450
        );
        assert_eq!(left_in_group(1000, 1200, ""), 0);
    }
}
