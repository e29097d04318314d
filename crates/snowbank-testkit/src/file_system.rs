//! File systems that a test can fill. Mounting them needs root.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A file system in memory or in a file, mounted until this value is dropped.
pub struct FileSystem {
    directory: TempDir,
}

/// The size of the smallest file system that `mkfs.xfs` makes.
const IMAGE_BYTES: u64 = 300 << 20;

impl FileSystem {
    /// Mounts a file system of this type: tmpfs in memory, ext4 and XFS in a file. Returns `None`
    /// if this user may not mount.
    pub fn mount_as(kind: &str) -> Option<FileSystem> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let point = directory.path().join("disk");
        let image = directory.path().join("image");
        std::fs::create_dir(&point).expect("a directory");
        File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES)).expect("an image");
        let is_made = match kind {
            "tmpfs" => true,
            // No blocks are reserved for root.
            "ext4" => run(&["mkfs.ext4", "-q", "-m", "0"], &image),
            _ => run(&["mkfs.xfs", "-q"], &image),
        };
        let mount = match kind {
            "tmpfs" => ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0755", "snowbank-test"],
            _ => ["mount", "-t", kind, "-o", "loop", image.to_str().expect("its path is text")],
        };
        if !is_made || !run(&mount, &point) {
            super::skip(&format!("cannot make and mount a file system: {mount:?}"));
            return None;
        }
        Some(FileSystem { directory })
    }

    /// Returns the directory at which the file system is mounted.
    pub fn point(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    /// Mounts the file system again, read-only.
    pub fn make_read_only(&self) {
        assert!(run(&["mount", "-o", "remount,ro"], &self.point()), "mounted again");
    }

    /// Writes until nothing more fits.
    pub fn fill(&self) {
        let mut ballast = File::create(self.point().join("ballast")).expect("room for a name");
        for size in [1 << 20, 4_096, 1] {
            while ballast.write_all(&vec![7; size]).is_ok() {}
            // The file system may postpone allocations until a sync.
            let _ = ballast.sync_all();
        }
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        run(&["umount", "--lazy"], &self.point());
    }
}

fn run(command: &[&str], point: &Path) -> bool {
    let status = Command::new(command[0]).args(&command[1..]).arg(point).status();
    status.is_ok_and(|status| status.success())
}
