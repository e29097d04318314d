//! Servers as child processes, and their figures in /proc.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use snowbank_testkit::{DEADLINE, Port, Setup};
use tempfile::TempDir;

/// Sets up a daemon with this state directory. The directory of the setup itself may be in memory,
/// where a sync costs nothing.
pub(crate) fn daemon(state: &Path) -> Setup {
    Setup::new().env("SNOWBANK_STATE_DIR", state).env("SNOWBANK_LOG_LEVEL", "error")
}

/// A server with which the daemon is compared. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Removed after the process has ended.
    _directory: TempDir,
}

impl Server {
    /// Starts the echo server, which is this program in another role.
    pub(crate) fn echo() -> io::Result<Server> {
        // A build may have replaced the file at this program's path.
        let mut command = Command::new("/proc/self/exe");
        let mut child = command.arg("echo").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let address = line.trim().trim_start_matches("listening on ").parse().map_err(io::Error::other)?;
        Ok(Server { child, address, _directory: tempfile::tempdir()? })
    }

    /// Starts Redis without persistence. Returns `None` if Redis is not installed.
    pub(crate) fn redis() -> io::Result<Option<Server>> {
        let directory = tempfile::tempdir()?;
        let address = Port::take().address();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"]);
        command.arg(address.port().to_string()).arg("--dir").arg(directory.path());
        let child = match command.stdout(Stdio::null()).spawn() {
            Ok(child) => child,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let server = Server { child, address, _directory: directory };
        let deadline = Instant::now() + DEADLINE;
        while let Err(error) = TcpStream::connect(address) {
            if Instant::now() > deadline {
                return Err(error);
            }
            thread::sleep(Duration::from_micros(200));
        }
        Ok(Some(server))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends Redis a command, which it must answer with `reply`.
    pub(crate) fn command(&self, command: &str, reply: &str) -> io::Result<()> {
        let mut socket = TcpStream::connect(self.address)?;
        socket.write_all(format!("{command}\r\n").as_bytes())?;
        let mut found = vec![0; reply.len()];
        socket.read_exact(&mut found)?;
        if found != reply.as_bytes() {
            return Err(io::Error::other(format!("Redis answered {command} with {}", found.escape_ascii())));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the CPU time of all threads of a process, from `schedstat`, which has nanoseconds.
/// `stat` has hundredths of a second, and that is too coarse for a stretch of one second.
pub(crate) fn cpu_of(process: u32) -> io::Result<Duration> {
    let mut sum_ns = 0;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        sum_ns += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(sum_ns))
}
