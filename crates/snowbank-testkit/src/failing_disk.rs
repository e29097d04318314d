//! A disk that fails on demand, under the real daemon. A library for `LD_PRELOAD`, which is
//! compiled here, obeys a file of orders. `failing_disk.c` explains the orders.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::Setup;
use crate::program::{Said, program};

/// No space left on device.
pub const ENOSPC: i32 = 28;
/// Input/output error.
pub const EIO: i32 = 5;

/// Operation not permitted: the error if a service manager forbids a call.
pub const EPERM: i32 = 1;

/// The disk under one directory.
pub struct FailingDisk {
    directory: PathBuf,
    control: PathBuf,
}

impl FailingDisk {
    /// Makes a disk under `directory`. The disk works until it gets an order. `control`, the file
    /// of orders, must be outside of `directory`.
    pub fn new(directory: &Path, control: PathBuf) -> FailingDisk {
        std::fs::create_dir_all(directory).expect("the directory can be made");
        let directory = directory.canonicalize().expect("the directory is there");
        let disk = FailingDisk { directory, control };
        disk.works();
        disk
    }

    /// Makes a daemon use the disk.
    pub fn under(&self, setup: Setup) -> Setup {
        setup
            .env("LD_PRELOAD", library())
            .env("FAILING_DISK_DIR", &self.directory)
            .env("FAILING_DISK_CONTROL", &self.control)
            .env("FAILING_DISK_RECORD", self.record())
    }

    /// Makes a daemon use the disk, and a file in place of the kernel's log.
    pub fn under_with_log(&self, setup: Setup) -> Setup {
        self.under(setup).env("FAILING_DISK_KERNEL_LOG", self.log())
    }

    /// Runs a command that uses the disk.
    pub fn run(&self, directory: &Path, arguments: &[&str]) -> Said {
        let mut command = program();
        command.args(arguments).env("SNOWBANK_STATE_DIR", directory.join("state"));
        command.env("SNOWBANK_LOCK_DIR", directory.join("locks")).env("LD_PRELOAD", library());
        command.env("FAILING_DISK_DIR", &self.directory).env("FAILING_DISK_CONTROL", &self.control);
        Said::by(command.env("FAILING_DISK_RECORD", self.record()))
    }

    /// Runs a command that reads the file in place of the kernel's log.
    pub fn run_with_log(&self, directory: &Path, arguments: &[&str]) -> Said {
        let mut command = program();
        command.args(arguments).env("SNOWBANK_STATE_DIR", directory.join("state"));
        command.env("SNOWBANK_LOCK_DIR", directory.join("locks"));
        Said::by(command.env("LD_PRELOAD", library()).env("FAILING_DISK_KERNEL_LOG", self.log()))
    }

    fn log(&self) -> PathBuf {
        self.control.with_extension("log")
    }

    /// Adds a record to the kernel's log: the machine was restored from a snapshot.
    pub fn report_restore(&self, number: u32) {
        use std::io::Write;
        let path = self.log();
        let mut log = std::fs::OpenOptions::new().create(true).append(true).open(path).expect("it opens");
        let record = format!("5,{number},6184640,-;random: crng reseeded due to virtual machine fork\n");
        log.write_all(record.as_bytes()).expect("it is written");
    }

    fn record(&self) -> PathBuf {
        self.control.with_extension("record")
    }

    /// Returns the calls so far, in order, each with the path within the directory. If a call on an
    /// open file stalls, a second line follows, which begins with `stall`.
    pub fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.record()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Makes each sync from now on stall for this long. Calls `meanwhile` again and again until a
    /// sync stalls.
    pub fn stall_syncs(&self, stall_ms: u64, mut meanwhile: impl FnMut()) {
        let stalls = || self.calls().iter().filter(|call| call.starts_with("stall ")).count();
        let before = stalls();
        self.order(&format!("sync stall {stall_ms}"));
        crate::poll("a sync that stalls", || {
            meanwhile();
            (stalls() > before).then_some(())
        });
    }

    /// Sets the result of the disk's calls from now on.
    pub fn order(&self, lines: &str) {
        // The rename replaces the file in one step, so that no call reads half of the orders.
        let unfinished = self.control.with_extension("new");
        std::fs::write(&unfinished, lines).expect("the order is written");
        std::fs::rename(&unfinished, &self.control).expect("the order is given");
    }

    /// Makes all calls succeed from now on.
    pub fn works(&self) {
        self.order("");
    }
}

/// Returns the library, compiled once for each test program.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/failing_disk/failing_disk.c");
        let directory = crate::program::built().join("failing_disk");
        std::fs::create_dir_all(&directory).expect("the directory can be made");
        let library = directory.join("failing_disk.so");
        // A rename puts the library in place, because another test program may use the existing
        // library.
        let unfinished = directory.join(format!("failing_disk.so.{}", std::process::id()));
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
        let status = compiler.arg(&unfinished).arg(source).arg("-ldl").status().expect("cc is installed");
        assert!(status.success(), "the library compiles");
        std::fs::rename(&unfinished, &library).expect("the library is put in place");
        library
    })
}
