//! Real coordinators on free loopback ports, and a proxy in front of them that delays, cuts off,
//! and drops answers.

mod etcd;
mod proxy;
mod zookeeper;

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::{Port, copy, poll};

pub use self::etcd::Etcd;
pub use self::proxy::Proxy;
pub use self::zookeeper::ZooKeeper;

/// The files with which a coordinator serves TLS.
pub struct Tls {
    /// The certificate of the authority that signs its clients' certificates.
    pub ca: PathBuf,
    /// Its own certificate.
    pub certificate: PathBuf,
    /// The key of its certificate.
    pub key: PathBuf,
}

/// The longest wait for one answer while a server starts. A starting server may accept a connection
/// and never answer.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

fn listens(address: SocketAddr) -> Option<()> {
    TcpStream::connect(address).ok().map(drop)
}

/// The process of a coordinator, with its directory and its port. Dropping this value kills the
/// process and removes its data.
pub struct Server {
    name: &'static str,
    directory: TempDir,
    port: Port,
    child: Option<Child>,
    /// The files for TLS, if the coordinator serves only TLS.
    tls: Option<Tls>,
}

impl Server {
    fn new(name: &'static str) -> Server {
        Server { name, directory: crate::directory(), port: Port::take(), child: None, tls: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.path("data")
    }

    fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Starts the process, which logs into a file. Returns once the process answers the probe; with
    /// TLS, once it listens. Panics with the log if the process ends.
    fn run(&mut self, command: &mut Command, mut probe: impl FnMut(SocketAddr) -> Option<()>) {
        let name = self.name;
        let log = self.path("log");
        let address = self.address();
        let uses_tls = self.tls.is_some();
        let file = File::create(&log).expect("a log file");
        let copy = file.try_clone().expect("a log file");
        command.stdin(Stdio::null()).stdout(file).stderr(copy);
        let child = self.child.insert(command.spawn().expect("the program was found"));
        poll(&format!("{name} answers"), || {
            if let Ok(Some(status)) = child.try_wait() {
                panic!("{name}: {status}: {}", fs::read_to_string(&log).unwrap_or_default());
            }
            if uses_tls { listens(address) } else { probe(address) }
        });
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A coordinator that runs on this machine.
pub trait Coordinator {
    /// Returns its name in a configuration.
    fn name(&self) -> &'static str {
        self.server().name
    }

    /// Returns the scheme of its endpoints.
    fn scheme(&self) -> &'static str {
        self.name()
    }

    /// Returns its process.
    fn server(&self) -> &Server;

    /// Returns its process, for changes.
    fn server_mut(&mut self) -> &mut Server;

    /// Returns the address of its clients' listener.
    fn address(&self) -> SocketAddr {
        self.server().address()
    }

    /// Returns its process ID while it runs.
    fn id(&self) -> u32 {
        self.server().child.as_ref().expect("the coordinator runs").id()
    }

    /// Makes it serve only TLS from its next run on.
    fn use_tls(&mut self, tls: Tls) {
        self.server_mut().tls = Some(tls);
    }

    /// Starts the process, and waits until it answers.
    fn run(&mut self);

    /// Ends the process like a crash.
    fn kill(&mut self) {
        self.server_mut().kill();
    }

    /// Removes its data, while it does not run.
    fn lose_data(&mut self) {
        assert!(self.server().child.is_none(), "the coordinator still runs");
        fs::remove_dir_all(self.server().data()).expect("its data can be removed");
    }

    /// Saves its data, as a nightly job does. The coordinator is down meanwhile.
    fn back_up(&mut self) {
        self.kill();
        let data = self.server().data();
        let backup = self.server().path("backup");
        // There may be an earlier backup.
        let _ = fs::remove_dir_all(&backup);
        copy(&data, &backup);
        self.run();
    }

    /// Replaces its data by the saved data. The coordinator is down meanwhile.
    fn restore(&mut self) {
        self.kill();
        self.lose_data();
        let data = self.server().data();
        let backup = self.server().path("backup");
        copy(&backup, &data);
        self.run();
    }

    /// Returns a text that has the value of a key, and that differs after each write.
    fn get(&self, key: &str) -> String;

    /// Writes a key.
    fn put(&self, key: &str, value: &str);

    /// Removes a key.
    fn delete(&self, key: &str);

    /// Makes it require a password. Tests call this before the fleet is prepared. Returns the
    /// user's name.
    fn require_password(&self, password: &str) -> &'static str;

    /// Returns the words by which it refuses a wrong password.
    fn wrong_password(&self) -> &'static str;

    /// Returns its endpoint in a configuration.
    fn url(&self) -> String {
        format!("{}://{}", self.scheme(), self.address())
    }

    /// Returns its endpoint in a configuration, while it serves TLS.
    fn tls_url(&self) -> String {
        format!("{}s://{}", self.scheme(), self.address())
    }

    /// Returns the table of a fleet in a configuration, with these endpoints in its list.
    fn table(&self, endpoints: &[&str]) -> String {
        format!("[fleet]\ncoordinator = \"{}\"\nendpoints = {endpoints:?}\n", self.name())
    }

    /// Starts a proxy in front of it.
    fn proxy(&self) -> Proxy {
        Proxy::before(self.address(), self.scheme())
    }
}

/// Runs a test of a rule that is the same at each coordinator: on etcd alone, or on each if
/// `SNOWBANK_COORDINATORS` is set, as in `tests/long`.
pub fn on_one(test: impl Fn(&mut dyn Coordinator) + Sync) {
    if std::env::var_os("SNOWBANK_COORDINATORS").is_some() {
        each(test);
    } else if let Some(mut etcd) = Etcd::start() {
        test(&mut etcd);
    }
}

/// Runs a test on each coordinator that is installed, on all at the same time.
pub fn each(test: impl Fn(&mut dyn Coordinator) + Sync) {
    type Start = fn() -> Option<Box<dyn Coordinator>>;
    let starts: [Start; 2] = [|| Some(Box::new(Etcd::start()?)), || Some(Box::new(ZooKeeper::start()?))];
    let run = &|start: Start| {
        let Some(mut coordinator) = start() else { return };
        let name = coordinator.name();
        let ended = catch_unwind(AssertUnwindSafe(|| test(coordinator.as_mut())));
        coordinator.kill();
        if let Err(panic) = ended {
            println!("the test failed on {name}");
            resume_unwind(panic);
        }
    };
    thread::scope(|scope| {
        for running in starts.map(|start| scope.spawn(move || run(start))) {
            running.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
}
