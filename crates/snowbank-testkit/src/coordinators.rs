//! Real coordinators on free loopback ports. A proxy in front of a coordinator can delay answers,
//! drop answers, or cut connections.

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
    /// The certificate of the authority that signs the certificates of the coordinator's clients.
    pub ca: PathBuf,
    /// The coordinator's own certificate.
    pub certificate: PathBuf,
    /// The key of the coordinator's own certificate.
    pub key: PathBuf,
}

/// The longest wait for one answer while a server starts. A starting server may accept a
/// connection, and then never answer on it.
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

    /// Starts the process, which logs into a file. Without TLS, returns once the process answers
    /// the probe. With TLS, returns once the process listens. Panics with the log if the process
    /// ends before that.
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
    /// Returns the coordinator's name in a configuration.
    fn name(&self) -> &'static str {
        self.server().name
    }

    /// Returns the scheme of the coordinator's endpoints.
    fn scheme(&self) -> &'static str {
        self.name()
    }

    /// Returns the coordinator's process.
    fn server(&self) -> &Server;

    /// Returns the coordinator's process, for changes.
    fn server_mut(&mut self) -> &mut Server;

    /// Returns the address on which the coordinator listens for clients.
    fn address(&self) -> SocketAddr {
        self.server().address()
    }

    /// Returns the process ID of the coordinator, which must run.
    fn id(&self) -> u32 {
        self.server().child.as_ref().expect("the coordinator runs").id()
    }

    /// Makes the coordinator serve only TLS from its next start on.
    fn use_tls(&mut self, tls: Tls) {
        self.server_mut().tls = Some(tls);
    }

    /// Starts the process, and waits until it answers.
    fn run(&mut self);

    /// Kills the process, as a crash does.
    fn kill(&mut self) {
        self.server_mut().kill();
    }

    /// Removes the coordinator's data. The coordinator must not run.
    fn lose_data(&mut self) {
        assert!(self.server().child.is_none(), "the coordinator still runs");
        fs::remove_dir_all(self.server().data()).expect("its data can be removed");
    }

    /// Saves the coordinator's data, as a nightly job does. During the copy, the coordinator is
    /// down.
    fn back_up(&mut self) {
        self.kill();
        let data = self.server().data();
        let backup = self.server().path("backup");
        // There may be an earlier backup.
        let _ = fs::remove_dir_all(&backup);
        copy(&data, &backup);
        self.run();
    }

    /// Replaces the coordinator's data by the saved data. During the copy, the coordinator is down.
    fn restore(&mut self) {
        self.kill();
        self.lose_data();
        let data = self.server().data();
        let backup = self.server().path("backup");
        copy(&backup, &data);
        self.run();
    }

    /// Returns a text that contains a key's value, perhaps encoded. Each write of the key
    /// changes the text, even a write of an equal value.
    fn get(&self, key: &str) -> String;

    /// Writes a key.
    fn put(&self, key: &str, value: &str);

    /// Removes a key.
    fn delete(&self, key: &str);

    /// Makes the coordinator require a password. Tests call this before the fleet is prepared.
    /// Returns the name of the user who has this password.
    fn require_password(&self, password: &str) -> &'static str;

    /// Returns the words with which the coordinator refuses a wrong password.
    fn wrong_password(&self) -> &'static str;

    /// Returns the coordinator's endpoint for a configuration.
    fn url(&self) -> String {
        format!("{}://{}", self.scheme(), self.address())
    }

    /// Returns the endpoint for a configuration, with the scheme for TLS.
    fn tls_url(&self) -> String {
        format!("{}s://{}", self.scheme(), self.address())
    }

    /// Returns the table `[fleet]` for a configuration, with these endpoints.
    fn table(&self, endpoints: &[&str]) -> String {
        format!("[fleet]\ncoordinator = \"{}\"\nendpoints = {endpoints:?}\n", self.name())
    }

    /// Starts a proxy in front of the coordinator.
    fn proxy(&self) -> Proxy {
        Proxy::before(self.address(), self.scheme())
    }
}

/// Runs a test of a rule that is the same for every kind of coordinator. Without
/// `SNOWBANK_COORDINATORS`, the test runs on etcd alone. With this variable, which `tests/long`
/// sets, the test runs on every kind that is installed.
pub fn on_one(test: impl Fn(&mut dyn Coordinator) + Sync) {
    if std::env::var_os("SNOWBANK_COORDINATORS").is_some() {
        each(test);
    } else if let Some(mut etcd) = Etcd::start() {
        test(&mut etcd);
    }
}

/// Runs a test on each kind of coordinator that is installed, on all kinds at the same time.
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
