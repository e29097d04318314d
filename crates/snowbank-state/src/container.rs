//! Containers: a daemon in a container does not see the locks of the machine.

use std::fs;
use std::path::Path;

/// The process namespace that the kernel makes at boot has this number (`PROC_PID_INIT_INO`). Containers have others.
const MACHINES_PROCESSES: &str = "pid:[4026531836]";

/// Returns a warning if this process is in a container, and the lock directory is not mounted from outside.
pub fn lock_dir_is_a_containers(directory: &Path) -> Option<String> {
    let processes = fs::read_link("/proc/self/ns/pid").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let is_shared = is_mount_point(&mounts, directory);
    (processes != Path::new(MACHINES_PROCESSES) && !is_shared).then(|| {
        let directory = directory.display();
        format!(
            "this daemon is in a container, and its locks of worker IDs are in a {directory} of the container's own: nothing \
             keeps daemons outside the container from using the same worker IDs; give each container other worker IDs, or \
             mount one directory of the machine at {directory} in all of them"
        )
    })
}

/// Returns true if the directory itself is a mount point, by the fifth word of its line in `/proc/self/mountinfo`.
fn is_mount_point(mounts: &str, directory: &Path) -> bool {
    mounts.lines().any(|line| line.split(' ').nth(4).is_some_and(|point| Path::new(point) == directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_mounted_is_shared() {
        let mounts = "22 27 0:20 / /run rw shared:5 - tmpfs tmpfs rw\n\
                      31 22 0:21 /snowbank /run/lock/snowbank rw - tmpfs tmpfs rw\n";
        assert!(is_mount_point(mounts, Path::new("/run/lock/snowbank")));
        assert!(is_mount_point(mounts, Path::new("/run/lock/snowbank/")));
        assert!(!is_mount_point(mounts, Path::new("/run/lock")));
    }
}
