//! Stops one thread of a running daemon from outside, by ptrace(2), as a deadlock would. So the
//! daemon needs no hook for tests.

use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

/// A thread that stands still until this value is dropped.
pub struct FrozenThread {
    thaw: Option<Sender<()>>,
    tracer: Option<JoinHandle<()>>,
}

impl FrozenThread {
    /// Stops the thread with this name in `/proc/PID/task/TID/comm`.
    fn of(process: u32, name: &str) -> FrozenThread {
        let thread = find(process, name);
        let (thaw, thawed) = mpsc::channel();
        let (is_frozen, frozen) = mpsc::channel();
        // The thread that attaches is the tracer. When the tracer ends, the traced thread
        // continues.
        let tracer = std::thread::spawn(move || {
            is_frozen.send(attach(thread)).expect("the test waits");
            let _ = thawed.recv();
        });
        let attached = frozen.recv().expect("the tracer lives");
        attached.unwrap_or_else(|error| panic!("cannot stop the thread {name}: {error}"));
        FrozenThread { thaw: Some(thaw), tracer: Some(tracer) }
    }

    /// Stops the thread, and calls `holds`. Of the two values that `holds` returns, the first says
    /// whether the daemon has noticed the stop, and this function returns the second. A daemon does
    /// not notice the stop of a keeper that was waiting for storage. If the daemon has not noticed,
    /// the thread continues for a moment and is stopped again, up to five times in all.
    pub fn once<T>(process: u32, name: &str, holds: impl Fn() -> (bool, T)) -> (FrozenThread, T) {
        let mut tries_left = 5;
        loop {
            let frozen = FrozenThread::of(process, name);
            let (is_noticed, found) = holds();
            tries_left -= 1;
            if is_noticed || tries_left == 0 {
                return (frozen, found);
            }
            drop(frozen);
            std::thread::sleep(std::time::Duration::from_millis(37));
        }
    }
}

impl Drop for FrozenThread {
    fn drop(&mut self) {
        drop(self.thaw.take());
        if let Some(tracer) = self.tracer.take() {
            let _ = tracer.join();
        }
    }
}

fn find(process: u32, name: &str) -> libc::pid_t {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("the daemon runs");
    let paths = tasks.map(|task| task.expect("listed").path());
    let is_it = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let path = { paths }.find(is_it).unwrap_or_else(|| panic!("no thread is called {name}"));
    let number = path.file_name().expect("a number").to_string_lossy().parse();
    number.expect("a number")
}

#[allow(unsafe_code)]
fn attach(thread: libc::pid_t) -> std::io::Result<()> {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: this request takes no memory of either process.
    if unsafe { libc::ptrace(libc::PTRACE_ATTACH, thread, nothing, nothing) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let mut status = 0;
    // SAFETY: `status` lives until the call returns, which is when the thread has stopped.
    let waited = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
    if waited == thread { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
