//! Containers: a daemon in a container does not see the locks of the machine.

use std::fs;
use std::path::Path;

/// The process namespace of the machine itself. Every kernel gives it this number
/// (`PROC_PID_INIT_INO`). The process namespace of a container has another number.
const MACHINES_PROCESSES: &str = "pid:[4026531836]";

/// Returns true if this process does not run among the processes of the machine itself.
pub(crate) fn runs_in_container() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|processes| processes != Path::new(MACHINES_PROCESSES))
}

/// Returns a warning if this process runs in a container and its lock directory is not mounted from
/// outside the container.
pub fn lock_dir_is_a_containers(directory: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let is_shared = is_mounted_from_outside(&mounts, directory);
    (runs_in_container() && !is_shared).then(|| {
        let directory = directory.display();
        format!(
            "this daemon runs in a container, and daemons outside the container do not see its lock directory {directory}: \
             they could use the same worker IDs; give each container other worker IDs, or mount one directory of the machine \
             at {directory} in all containers"
        )
    })
}

/// A mount of `/proc/self/mountinfo`.
struct Mount<'a> {
    device: &'a str,
    /// The mounted directory, as a path within its device.
    root: &'a Path,
    /// The path at which the directory is mounted.
    point: &'a Path,
}

impl<'a> Mount<'a> {
    /// Reads a line of `mountinfo`. The third to fifth words of the line are the fields of
    /// [`Mount`].
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split(' ').skip(2);
        let device = words.next()?;
        let root = words.next()?;
        let point = words.next()?;
        Some(Mount { device, root: Path::new(root), point: Path::new(point) })
    }

    /// Returns true if this mount only repeats the mount `below`, which already shows the same
    /// directory at this path. A service manager makes such a mount when it lets a unit write into
    /// a directory.
    fn repeats(&self, below: &Mount<'_>) -> bool {
        let inside = self.point.strip_prefix(below.point);
        self.device == below.device && inside.is_ok_and(|inside| below.root.join(inside) == self.root)
    }
}

/// Returns true if a directory from outside this namespace is mounted at `directory`.
fn is_mounted_from_outside(mounts: &str, directory: &Path) -> bool {
    let mounts: Vec<Mount<'_>> = mounts.lines().filter_map(Mount::parse).collect();
    let above = mounts.iter().filter(|mount| directory.starts_with(mount.point) && directory != mount.point);
    // If several mounts have the same point, the last one covers the earlier ones.
    let below = above.max_by_key(|mount| mount.point.components().count());
    let mut at = mounts.iter().filter(|mount| directory == mount.point);
    at.any(|mount| !below.is_some_and(|below| mount.repeats(below)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "22 27 0:20 / /run rw shared:5 - tmpfs tmpfs rw\n";

    #[test]
    fn a_directory_that_is_mounted_from_outside_is_shared() {
        let mounts = format!("{RUN}31 22 0:21 /snowbank /run/lock/snowbank rw - tmpfs tmpfs rw\n");
        assert!(is_mounted_from_outside(&mounts, Path::new("/run/lock/snowbank")));
        assert!(is_mounted_from_outside(&mounts, Path::new("/run/lock/snowbank/")));
        assert!(!is_mounted_from_outside(&mounts, Path::new("/run/lock")));
        let same_device = format!("{RUN}31 22 0:20 /elsewhere /run/lock/snowbank rw - tmpfs tmpfs rw\n");
        assert!(is_mounted_from_outside(&same_device, Path::new("/run/lock/snowbank")));
    }

    /// The setting `ReadWritePaths=` of a systemd unit mounts a directory on itself.
    #[test]
    fn a_directory_that_is_mounted_on_itself_comes_from_inside() {
        let directory = Path::new("/run/lock/snowbank");
        let unit_mount = "41 22 0:20 /lock/snowbank /run/lock/snowbank rw - tmpfs tmpfs rw\n";
        assert!(!is_mounted_from_outside(&format!("{RUN}{unit_mount}"), directory));
        let lock = "23 22 0:29 / /run/lock rw - tmpfs tmpfs rw\n";
        let lock_mount = "41 23 0:29 /snowbank /run/lock/snowbank rw - tmpfs tmpfs rw\n";
        assert!(!is_mounted_from_outside(&format!("{RUN}{lock}{lock_mount}"), directory));
        let shared = "31 22 0:21 /snowbank /run/lock/snowbank rw - tmpfs tmpfs rw\n";
        let both = format!("{RUN}{shared}{}", shared.replace("31 22", "41 31"));
        assert!(is_mounted_from_outside(&both, directory), "the mount of the unit repeats one from outside");
    }
}
