//! CPU quotas of the load test's own control groups.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// The place where systemd and container runtimes mount control groups.
const MOUNTED_AT: &str = "/sys/fs/cgroup";

/// Returns the time for which quotas have held up this process's control group and the groups that
/// contain it. It counts since these groups were made, and is 0 without quotas.
pub(crate) fn held_up() -> Duration {
    let memberships = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut sum = Duration::ZERO;
    for group in memberships.lines().filter_map(cpu_group) {
        let around = group.ancestors().take_while(|group| group.starts_with(MOUNTED_AT));
        let statistics = around.filter_map(|group| std::fs::read_to_string(group.join("cpu.stat")).ok());
        sum += statistics.map(|text| throttled(&text)).sum::<Duration>();
    }
    sum
}

/// Returns the directory of a control group, if the group may have a quota. `membership` is a line
/// `hierarchy:controllers:path`. In version 2 of control groups, the line names no controllers.
fn cpu_group(membership: &str) -> Option<PathBuf> {
    let mut parts = membership.splitn(3, ':').skip(1);
    let controllers = parts.next()?;
    let path = parts.next()?;
    let has_quota = controllers.is_empty() || controllers.split(',').any(|controller| controller == "cpu");
    has_quota.then(|| Path::new(MOUNTED_AT).join(controllers).join(path.trim_start_matches('/')))
}

/// Reads the time in `cpu.stat`: version 1 of control groups has nanoseconds, and version 2 has
/// microseconds.
fn throttled(statistics: &str) -> Duration {
    let in_ns = number_of("throttled_time ", statistics).map(Duration::from_nanos);
    let in_us = number_of("throttled_usec ", statistics).map(Duration::from_micros);
    in_ns.or(in_us).unwrap_or_default()
}

fn number_of(name: &str, statistics: &str) -> Option<u64> {
    statistics.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_control_groups_are_read() {
        let group = |line| cpu_group(line).map(|path| path.to_string_lossy().into_owned());
        assert_eq!(group("1:cpu:/a/b").as_deref(), Some("/sys/fs/cgroup/cpu/a/b"));
        assert_eq!(group("4:cpu,cpuacct:/").as_deref(), Some("/sys/fs/cgroup/cpu,cpuacct/"));
        assert_eq!(group("0::/user.slice").as_deref(), Some("/sys/fs/cgroup/user.slice"));
        assert_eq!((group("3:cpuset:/"), group("9:name=systemd:/")), (None, None));
        let first = "nr_periods 5\nnr_throttled 3\nthrottled_time 1200000\n";
        let second = "usage_usec 9\nnr_throttled 3\nthrottled_usec 1200\n";
        assert_eq!(
            [first, second, "usage_usec 9\n"].map(|text| throttled(text).as_micros()),
            [1_200, 1_200, 0]
        );
    }
}
