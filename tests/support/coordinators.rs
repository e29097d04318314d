//! Real coordinators on free loopback ports, and a proxy before them that delays, cuts, and swallows answers.

mod etcd;
mod proxy;
mod redis;
mod zookeeper;

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::poll;

pub(crate) use self::etcd::Etcd;
pub(crate) use self::proxy::Proxy;
pub(crate) use self::redis::{Redis, Watched};
pub(crate) use self::zookeeper::ZooKeeper;

/// The files for TLS.
pub(crate) struct Tls {
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

/// The longest that a server is given for one answer while it starts. It may accept a connection then and never answer.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// Starts a server that logs into a file.
fn spawn(command: &mut Command, log: &Path) -> Child {
    let file = File::create(log).expect("a log");
    let copy = file.try_clone().expect("a log");
    command.stdin(Stdio::null()).stdout(file).stderr(copy).spawn().expect("it was found before")
}

/// Returns once the server answers the probe. Panics with its log if it ends.
fn await_answer(name: &str, child: &mut Child, log: &Path, mut probe: impl FnMut() -> Option<()>) {
    poll(&format!("{name} answers"), || {
        if let Ok(Some(status)) = child.try_wait() {
            panic!("{name}: {status}: {}", fs::read_to_string(log).unwrap_or_default());
        }
        probe()
    });
}

/// Returns a value once something listens there.
fn listens(address: SocketAddr) -> Option<()> {
    TcpStream::connect(address).ok().map(drop)
}

/// A coordinator that runs on this machine. Dropped, it is killed and its data are removed.
pub(crate) trait Coordinator {
    /// Its name in a configuration.
    fn name(&self) -> &'static str;

    /// The scheme of its endpoints.
    fn scheme(&self) -> &'static str {
        self.name()
    }

    fn address(&self) -> SocketAddr;

    /// The files for TLS, if it serves that alone.
    fn tls(&mut self) -> &mut Option<Tls>;

    /// Has it serve over TLS alone from its next run on, to clients of this authority.
    fn use_tls(&mut self, ca: &Path, (certificate, key): (&Path, &Path)) {
        let [ca, certificate, key] = [ca, certificate, key].map(Path::to_owned);
        *self.tls() = Some(Tls { ca, certificate, key });
    }

    /// Starts the process, and waits until it answers.
    fn run(&mut self);

    fn child(&mut self) -> &mut Option<Child>;

    /// Ends the process as a crash would.
    fn kill(&mut self) {
        if let Some(mut child) = self.child().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Removes what it stores, while it does not run.
    fn lose_data(&mut self);

    /// Returns the value of a key; another text after each write.
    fn get(&self, key: &str) -> String;

    fn put(&self, key: &str, value: &str);

    fn delete(&self, key: &str);

    /// Has it ask for a password before the fleet is prepared, and returns the user's name.
    fn require_password(&self, password: &str) -> &'static str;

    /// Returns its words about a password that is wrong.
    fn wrong_password(&self) -> &'static str;

    fn url(&self) -> String {
        format!("{}://{}", self.scheme(), self.address())
    }

    fn tls_url(&self) -> String {
        format!("{}s://{}", self.scheme(), self.address())
    }

    /// Starts a proxy before it.
    fn proxy(&self) -> Proxy {
        Proxy::before(self.address(), self.scheme())
    }
}

/// Runs a test on each coordinator that is installed.
pub(crate) fn each(test: impl Fn(&mut dyn Coordinator)) {
    type Start = fn() -> Option<Box<dyn Coordinator>>;
    let starts: [Start; 3] = [
        || Some(Box::new(Etcd::start()?)),
        || Some(Box::new(Redis::start()?)),
        || Some(Box::new(ZooKeeper::start()?)),
    ];
    for start in starts {
        let Some(mut coordinator) = start() else { continue };
        // Shown if it fails.
        println!("on {}", coordinator.name());
        test(coordinator.as_mut());
        coordinator.kill();
    }
}
