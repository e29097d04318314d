//! File systems of their own, which can be full or read-only. They want root, to mount them.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A file system in memory, mounted for as long as this lives.
pub(crate) struct FileSystem {
    directory: TempDir,
}

impl FileSystem {
    /// `None` where this user may not mount.
    pub(crate) fn mount() -> Option<FileSystem> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let point = directory.path().join("disk");
        std::fs::create_dir(&point).expect("a directory");
        let mounted = run(&["mount", "-t", "tmpfs", "-o", "size=1m,mode=0755", "snowbank-test"], &point);
        if !mounted {
            assert!(std::env::var_os("CI").is_none(), "mounting a tmpfs has to work where CI is set");
            eprintln!("skipped: this user may not mount a file system");
            return None;
        }
        Some(FileSystem { directory })
    }

    pub(crate) fn point(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    /// Writes until nothing more fits.
    pub(crate) fn fill(&self) -> PathBuf {
        let path = self.point().join("ballast");
        let mut ballast = File::create(&path).expect("room for a name");
        for size in [4_096, 1] {
            while ballast.write_all(&vec![7; size]).is_ok() {}
        }
        path
    }

    /// Mounts it anew with these options; false if the system does not let it.
    pub(crate) fn remount(&self, options: &str) -> bool {
        run(&["mount", "-o", &format!("remount,{options}")], &self.point())
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
