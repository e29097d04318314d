//! The real daemon, as a child process with its own directories and ports.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::address::Address;
use super::output::{Lines, Text};
use super::program::{Said, program, run_in};
use super::wire::{Ask, Reply, Run, Wire};
use super::{DEADLINE, poll};

/// A command line, an environment and a configuration for a daemon.
pub struct Setup {
    command: Command,
    directory: TempDir,
    listeners: usize,
}

impl Setup {
    /// Returns `snowbank serve` without options, but with its own directories for locks and state.
    pub fn bare() -> Setup {
        let directory = super::directory();
        let mut command = program();
        command.arg("serve").env("SNOWBANK_LOCK_DIR", directory.path().join("locks"));
        command.env("SNOWBANK_STATE_DIR", directory.path().join("state"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Setup { command, directory, listeners: 1 }
    }

    /// Returns `snowbank serve` on a free loopback port.
    pub fn new() -> Setup {
        Setup::bare().args(["--listen", "127.0.0.1:0"])
    }

    /// Returns `snowbank serve` on a free loopback port with this configuration.
    pub fn configured(toml: &str) -> Setup {
        Setup::new().config(toml)
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Setup {
        self.command.args(args);
        self
    }

    /// Adds an option with a value.
    pub fn option(self, name: &str, value: impl AsRef<OsStr>) -> Setup {
        self.args([OsStr::new(name), value.as_ref()])
    }

    /// Sets a variable of the environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Setup {
        self.command.env(name, value);
        self
    }

    /// Sets standard input.
    pub fn stdin(mut self, stdin: Stdio) -> Setup {
        self.command.stdin(stdin);
        self
    }

    /// Makes the daemon's own directory its working directory.
    pub fn in_own_directory(mut self) -> Setup {
        self.command.current_dir(self.directory.path());
        self
    }

    /// Writes the configuration and names it with `--config`.
    pub fn config(self, toml: &str) -> Setup {
        let path = self.path("snowbank.toml");
        std::fs::write(&path, toml).expect("the configuration is written");
        self.option("--config", path)
    }

    /// Adds a [`front_end`](Setup::front_end) for clients of Redis.
    pub fn resp(self) -> Setup {
        self.front_end("resp")
    }

    /// Adds a listener for clients of this protocol on a free loopback port. The only front end is
    /// the second of the daemon's `addresses`.
    pub fn front_end(self, protocol: &str) -> Setup {
        let listeners = self.listeners + 1;
        self.option(&format!("--{protocol}"), "127.0.0.1:0").listeners(listeners)
    }

    /// Adds an admin listener on a free loopback port. This listener is the last of the daemon's
    /// `addresses`. Sets the drain delay to 0.
    pub fn admin(self) -> Setup {
        let listeners = self.listeners + 1;
        self.env("SNOWBANK_LIMITS_DRAIN_DELAY", "0").option("--admin", "127.0.0.1:0").listeners(listeners)
    }

    /// Hands over a listening socket under this name, as a service manager does.
    pub fn inheriting(self, socket: impl Into<OwnedFd>, name: &str) -> Setup {
        // The shell moves the socket to the descriptor that the protocol requires, and then becomes
        // the daemon by `exec`, which keeps the process ID.
        let mut setup = self.through("sh", &["-c", "exec 3<&0 0</dev/null; LISTEN_PID=$$ exec \"$@\"", "sh"]);
        setup.command.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", name).stdin(socket.into());
        setup
    }

    /// Starts the daemon through another program, which becomes the daemon by `exec`.
    pub fn through<S: AsRef<OsStr>>(self, program: &str, args: &[S]) -> Setup {
        let mut command = Command::new(program);
        command.args(args).arg(self.command.get_program()).args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Setup { command, ..self }
    }

    /// Sets the number of `listening on` lines to wait for.
    pub fn listeners(mut self, count: usize) -> Setup {
        self.listeners = count;
        self
    }

    /// Returns a path in the daemon's own directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs another command with this daemon's state and locks.
    pub fn run(&self, arguments: &[&str]) -> Said {
        run_in(self.directory.path(), arguments)
    }

    /// Starts the daemon and waits until it listens.
    pub fn start(self) -> Daemon {
        self.try_start().unwrap_or_else(|mut daemon| {
            let _ = daemon.child.kill();
            panic!("the daemon does not listen. Its log:\n{}", daemon.log())
        })
    }

    /// Starts the daemon. Returns an error if the daemon does not listen.
    pub fn try_start(mut self) -> Result<Daemon, Box<Daemon>> {
        let mut child = self.command.spawn().expect("the daemon's program runs");
        let stdout = Lines::of(child.stdout.take().expect("piped"));
        let stderr = Text::of(child.stderr.take().expect("piped"));
        let mut daemon =
            Daemon { child, status: None, addresses: Vec::new(), stdout, stderr, directory: self.directory };
        for _ in 0..self.listeners {
            let Some(line) = daemon.stdout.next() else { return Err(Box::new(daemon)) };
            daemon.addresses.push(Address::from_line(&line));
        }
        Ok(daemon)
    }

    /// Starts a daemon, checks that it waits and logs all of `parts`, and kills it.
    #[track_caller]
    pub fn assert_waits(self, parts: &[&str]) {
        let mut daemon = self.start();
        daemon.assert_logs("waits, and hands out nothing");
        for part in parts {
            daemon.assert_logs(part);
        }
        daemon.kill();
    }

    /// Starts a daemon that must end by itself, and waits for its end.
    pub fn end(mut self) -> Ended {
        let mut child = self.command.spawn().expect("the daemon's program runs");
        let stdout = Text::of(child.stdout.take().expect("piped"));
        let stderr = Text::of(child.stderr.take().expect("piped"));
        let status = wait(&mut child).unwrap_or_else(|| {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the daemon still runs and should have ended. Its log:\n{}", stderr.so_far())
        });
        Ended { code: status.code(), stdout: stdout.whole(), stderr: stderr.whole() }
    }
}

/// The output and exit code of a daemon that ended by itself.
#[derive(Debug)]
pub struct Ended {
    /// The exit code. `None`: a signal ended the daemon.
    pub code: Option<i32>,
    /// All of the daemon's standard output.
    pub stdout: String,
    /// All of the daemon's standard error.
    pub stderr: String,
}

impl Ended {
    /// Waits for the end of a daemon that has printed no listener.
    pub fn of(mut daemon: Daemon) -> Ended {
        Ended { code: daemon.wait(), stdout: String::new(), stderr: daemon.log() }
    }

    /// Checks that the daemon refused to start for a cause that does not go away by itself: exit
    /// code 2, and one line on standard error that has all of `parts`.
    #[track_caller]
    pub fn assert_refusal(&self, parts: &[&str]) {
        self.assert_refusal_with(2, parts);
    }

    /// Checks that the daemon refused to start for a cause that may go away by itself: exit code 3,
    /// and one line on standard error that has all of `parts`.
    #[track_caller]
    pub fn assert_refusal_for_now(&self, parts: &[&str]) {
        self.assert_refusal_with(3, parts);
    }

    #[track_caller]
    fn assert_refusal_with(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        // A start that takes longer than a second to be refused says before that it listens.
        assert!(self.stdout.lines().all(|line| line.contains(" on ")), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "expected one line, found:\n{}", self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "expected {part:?} in {:?}", self.stderr);
        }
    }
}

/// A daemon that listens. Dropping this value kills the daemon, and fails if the daemon has
/// panicked.
pub struct Daemon {
    child: Child,
    status: Option<ExitStatus>,
    /// The daemon's listeners, in the order in which it printed them.
    pub addresses: Vec<Address>,
    stdout: Lines,
    stderr: Text,
    directory: TempDir,
}

impl Daemon {
    /// Connects to the first listener.
    pub fn connect(&self) -> Wire {
        Wire::connect(&self.addresses[0])
    }

    /// Connects to the first listener with a token that the daemon accepts.
    #[track_caller]
    pub fn connect_as(&self, token: &str) -> Wire {
        let mut wire = self.connect();
        wire.call(&super::wire::hello(1, token.as_bytes())).welcome();
        wire
    }

    /// Draws one ID.
    #[track_caller]
    pub fn draw_one(&self) -> u64 {
        self.connect().next(Ask::of(1)).ids()[0]
    }

    /// Draws one ID of each of these sources as soon as it has begun. Before, a daemon whose
    /// `max_wait` is 0 refuses every request.
    pub fn await_begin(&self, sources: &[&str]) {
        for source in sources {
            self.connect().next_once_granted(Ask::of(1).source(source).wait_ms(0)).ids();
        }
    }

    /// Returns the address of the daemon's first listener.
    pub fn tcp(&self) -> SocketAddr {
        self.addresses[0].tcp()
    }

    /// Returns a path in the daemon's own directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the daemon's process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the daemon's standard error so far. After the daemon has ended, this is all of it.
    pub fn log(&self) -> String {
        if self.status.is_some() { self.stderr.whole() } else { self.stderr.so_far() }
    }

    /// Waits until the daemon's log has this text. A thread collects the log, so a line appears a
    /// little late.
    pub fn assert_logs(&self, part: &str) {
        poll(&format!("{part:?} is logged"), || self.log().contains(part).then_some(()));
    }

    /// Waits until the daemon has its worker IDs. A daemon already listens while it waits for
    /// worker IDs.
    pub fn assert_has_numbers(&self) {
        // A daemon logs this line only after it has its worker IDs.
        self.assert_logs("the kernel's log");
    }

    /// Replaces a file in the daemon's own directory in one step.
    pub fn replace(&self, name: &str, text: &str) {
        replace(&self.path(name), text);
    }

    /// Repeats a request, with a `max_wait_ms` of 0, until the daemon refuses the request with this
    /// code. Returns the runs of all earlier replies.
    pub fn draw_until(&self, ask: Ask, code: u16) -> Vec<Run> {
        const REQUESTS_BETWEEN_PAUSES: usize = 20;
        let mut wire = self.connect();
        let mut runs = Vec::new();
        poll("a refusal", || {
            for _ in 0..REQUESTS_BETWEEN_PAUSES {
                match wire.next(ask.wait_ms(0)) {
                    Reply::Runs(_, more) => runs.extend(more),
                    Reply::Error { code: found, .. } if found == code => return Some(()),
                    other => panic!("{other:?}"),
                }
            }
            None
        });
        runs
    }

    /// Makes the daemon reload its configuration. Returns the lines that the daemon logged during
    /// the reload.
    pub fn reload(&self) -> String {
        const ENDS: [&str; 3] =
            ["reloaded: ", "reloaded without a configuration file", "nothing was reloaded"];
        let is_end = |line: &&str| ENDS.iter().any(|end| line.contains(end));
        let before = self.log();
        self.signal(Signal::HUP);
        poll("the end of a reload", || {
            let said = self.log();
            let has_ended = said.lines().filter(is_end).count() > before.lines().filter(is_end).count();
            (said.ends_with('\n') && has_ended).then(|| said[before.len()..].to_owned())
        })
    }

    /// Sends a signal to the daemon.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the daemon can be sent a signal");
    }

    /// Stops all threads of the daemon until it gets SIGCONT. Returns once all threads have
    /// stopped.
    pub fn stand_still(&self) {
        self.signal(Signal::STOP);
        poll("the stop of all threads of the daemon", || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.id())).expect("/proc is there");
            let stat = |task: std::io::Result<std::fs::DirEntry>| {
                std::fs::read_to_string(task.ok()?.path().join("stat")).ok()
            };
            tasks.filter_map(stat).all(|stat| stat.contains(") T ")).then_some(())
        });
    }

    /// Waits until the daemon has ended. Returns its exit code, or `None` if a signal ended it.
    pub fn wait(&mut self) -> Option<i32> {
        let status = wait(&mut self.child)
            .unwrap_or_else(|| panic!("the daemon does not end. Its log:\n{}", self.log()));
        self.status = Some(status);
        status.code()
    }

    /// Stops the daemon as a service manager does. Returns the lines of standard output that follow
    /// the listeners' lines.
    pub fn stop(mut self) -> Vec<String> {
        self.signal(Signal::TERM);
        assert_eq!(self.wait(), Some(0), "{}", self.log());
        std::iter::from_fn(|| self.stdout.next()).collect()
    }

    /// Stops the daemon after an ID, so that it has had its worker ID and has a state. A daemon that
    /// is stopped as soon as it listens may have neither.
    pub fn draw_and_stop(self) -> Vec<String> {
        self.draw_one();
        self.stop()
    }

    /// Kills the daemon with SIGKILL, so it cannot write anything more.
    pub fn kill(&mut self) {
        self.child.kill().expect("the daemon can be killed");
        self.wait();
    }

    /// Returns the daemon's resident memory.
    pub fn resident_kib(&self) -> u64 {
        self.status("VmRSS")
    }

    /// Returns the part of the daemon's resident memory that no file backs: the heap and the
    /// stacks.
    pub fn anonymous_kib(&self) -> u64 {
        self.status("RssAnon")
    }

    fn status(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        number_of(&std::fs::read_to_string(path).expect("/proc is there"), field)
    }

    /// Returns how often the daemon's threads have gone to sleep so far.
    pub fn voluntary_switches(&self) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("/proc is there");
        tasks
            // A thread may end between the listing and the reading.
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok())
            .map(|status| number_of(&status, "voluntary_ctxt_switches"))
            .sum()
    }

    /// Returns the number of files and sockets that the daemon has open.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("/proc is there").count()
    }
}

/// Removes the files that libfaketime leaves behind for a process that was killed.
fn sweep_faketime(process: u32) {
    for name in [format!("faketime_shm_{process}"), format!("sem.faketime_sem_{process}")] {
        let _ = std::fs::remove_file(format!("/dev/shm/{name}"));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.status.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        sweep_faketime(self.child.id());
        let said = self.stderr.whole();
        if thread::panicking() {
            eprintln!("the daemon's log:\n{said}");
        } else {
            assert!(!said.contains("panicked"), "the daemon's log:\n{said}");
        }
    }
}

/// Returns the number of a field in a `status` file of /proc.
fn number_of(status: &str, field: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.expect("Linux has this field").trim().trim_end_matches(" kB").parse().expect("a number")
}

fn wait(child: &mut Child) -> Option<ExitStatus> {
    let deadline = std::time::Instant::now() + DEADLINE;
    while std::time::Instant::now() < deadline {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Some(status);
        }
        thread::sleep(std::time::Duration::from_millis(5));
    }
    None
}

/// Replaces a file in one step. Only the user of this process can read the new file.
pub fn replace(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let unfinished = path.with_extension("unfinished");
    std::fs::write(&unfinished, text).expect("the file is written");
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&unfinished, private).expect("the mode of an own file can be set");
    std::fs::rename(&unfinished, path).expect("the file is put in place");
}

/// Returns the mode bits of a file.
pub fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::symlink_metadata(path).expect("the file is there").permissions().mode() & 0o7777
}
