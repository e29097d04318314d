//! Servers as child processes, and what the kernel says of them.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use snowbank_testkit::Port;
use snowbank_testkit::program::program;
use tempfile::TempDir;

/// A server that was started here and ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    address: SocketAddr,
    /// Removed after the process has ended.
    _directory: TempDir,
}

impl Process {
    /// The daemon, with these options and those that every daemon here has, and a state directory
    /// of its own.
    pub(crate) fn daemon(options: &[&str]) -> io::Result<Process> {
        let directory = tempfile::tempdir()?;
        let state = directory.path().join("state");
        Process::start_daemon(options, &state, &[], directory)
    }

    /// The daemon on a state directory that outlasts it, with more in its environment.
    pub(crate) fn daemon_with_state(
        options: &[&str],
        state: &Path,
        environment: &[(&str, &Path)],
    ) -> io::Result<Process> {
        Process::start_daemon(options, state, environment, tempfile::tempdir()?)
    }

    fn start_daemon(
        options: &[&str],
        state: &Path,
        environment: &[(&str, &Path)],
        directory: TempDir,
    ) -> io::Result<Process> {
        let mut command = program();
        let has_locks = options.contains(&"--lock-dir");
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(options);
        if !has_locks {
            command.arg("--lock-dir").arg(directory.path());
        }
        command.arg("--state-dir").arg(state).envs(environment.iter().copied());
        // What it says while it starts would stand between the tables.
        command.env("SNOWBANK_LOG_LEVEL", "error");
        Process::announced(command, directory)
    }

    /// Tells it to stop, and waits until it has.
    pub(crate) fn stop(mut self) -> io::Result<()> {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
        self.child.wait().map(drop)
    }

    /// The echo server: this program once more.
    pub(crate) fn echo() -> io::Result<Process> {
        // Not by its path: a build may have put another file there meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.arg("echo");
        Process::announced(command, tempfile::tempdir()?)
    }

    /// Redis without persistence; `None` where it is not installed.
    pub(crate) fn redis() -> io::Result<Option<Process>> {
        let directory = tempfile::tempdir()?;
        let address = Port::take().address();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"]);
        command.arg(address.port().to_string()).arg("--dir").arg(directory.path());
        command.stdout(Stdio::null());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let process = Process { child, address, _directory: directory };
        let deadline = Instant::now() + Duration::from_secs(5);
        while let Err(error) = TcpStream::connect(address) {
            if Instant::now() > deadline {
                return Err(error);
            }
            thread::sleep(Duration::from_micros(200));
        }
        Ok(Some(process))
    }

    /// Starts a server that says `listening on ADDR` on its standard output.
    fn announced(mut command: Command, directory: TempDir) -> io::Result<Process> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let read = child.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
        let address = line.trim().strip_prefix("listening on ").and_then(|address| address.parse().ok());
        match (read, address) {
            (Some(Ok(_)), Some(address)) => Ok(Process { child, address, _directory: directory }),
            (read, _) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(io::Error::other(format!("{command:?} did not start: {line:?}, {read:?}")))
            }
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The processor time of all its threads.
    pub(crate) fn cpu(&self) -> io::Result<Duration> {
        cpu_of(&self.child.id().to_string())
    }

    /// The number of times its threads have gone to sleep, and so were woken.
    pub(crate) fn wake_ups(&self) -> io::Result<u64> {
        let mut sum = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let status = fs::read_to_string(task?.path().join("status"))?;
            sum += field(&status, "voluntary_ctxt_switches:").unwrap_or(0);
        }
        Ok(sum)
    }

    /// Resident memory and its part that no file backs (heap and stacks), in KiB.
    pub(crate) fn memory_kib(&self) -> io::Result<(u64, u64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        Ok((field(&status, "VmRSS:").unwrap_or(0), field(&status, "RssAnon:").unwrap_or(0)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processor time of this process, all threads.
pub(crate) fn own_cpu() -> io::Result<Duration> {
    cpu_of("self")
}

/// Sums what the scheduler has counted for each thread, in nanoseconds. `stat` counts in hundredths
/// of a second, too coarse for a stretch of one second, and is read only where the kernel keeps no
/// `schedstat`.
fn cpu_of(pid: &str) -> io::Result<Duration> {
    let mut sum_ns = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else {
            return cpu_from_stat(pid);
        };
        sum_ns += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(sum_ns))
}

fn cpu_from_stat(pid: &str) -> io::Result<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold spaces; utime and stime are the 12th and 13th fields after
    // it.
    let after_name = text.rsplit(") ").next().unwrap_or_default();
    let hundredths: u64 =
        after_name.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(hundredths * 10))
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
