//! Two daemons that share a ticket counter at a real etcd. Time is not checked.

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::port::Port;
use crate::support::served::{Served, directory, prepare, serve};
use crate::support::{CLOSED, Ran, Server, directory_in_memory, has_daemon, loadtest, skip};
use tempfile::TempDir;

/// The longest time that etcd needs to start on a busy machine.
const ETCD_STARTS_WITHIN: Duration = Duration::from_secs(60);

/// An etcd that ends when this is dropped.
struct Etcd {
    _server: Server,
    client: Port,
    _peer: Port,
    _directory: TempDir,
}

impl Etcd {
    /// Starts an etcd and waits until it listens; `None` if it is not installed.
    fn start() -> Option<Etcd> {
        let (client, peer) = (Port::take(), Port::take());
        let directory = directory_in_memory();
        let [client_url, peer_url] = [&client, &peer].map(|port| format!("http://{}", port.address()));
        let mut command = Command::new("etcd");
        command
            .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("default={peer_url}"), "--log-level", "error"])
            .arg("--data-dir")
            .arg(directory.path());
        let Ok(child) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
            skip("etcd is missing: install the package etcd-server");
            return None;
        };
        let etcd = Etcd { _server: Server(child), client, _peer: peer, _directory: directory };
        let began = Instant::now();
        while TcpStream::connect(etcd.client.address()).is_err() {
            assert!(began.elapsed() < ETCD_STARTS_WITHIN, "etcd does not listen");
            sleep(Duration::from_millis(50));
        }
        Some(etcd)
    }

    /// Returns the configuration of a daemon in the fleet of this name.
    fn daemon_in(&self, fleet: &str) -> TempDir {
        directory(&format!(
            "listen = [\"127.0.0.1:0\"]\n[fleet]\nname = \"{fleet}\"\ncoordinator = \"etcd\"\n\
             endpoints = [\"http://{}\"]\n[[sources]]\nname = \"orders\"\nkind = \"fleet-ticket\"\n",
            self.client.address()
        ))
    }
}

fn make_counter(directory: &TempDir) {
    let path = directory.path().join("snowbank.toml");
    prepare(directory, &["ticket", "set", "orders", "0", "--config", path.to_str().expect("UTF-8")]);
}

fn load(one: &Served, other: &Served) -> Ran {
    let addresses = [one, other].map(|daemon| format!("--address={}", daemon.address("listening")));
    loadtest(&[&CLOSED[..], &["--batch=20"], &addresses.each_ref().map(String::as_str)].concat())
}

#[test]
fn daemons_that_share_a_counter_are_loaded_together_and_those_of_two_fleets_are_refused() {
    let Some(etcd) = Etcd::start().filter(|_| has_daemon()) else { return };
    make_counter(&etcd.daemon_in("one"));
    let ran = load(&serve(etcd.daemon_in("one"), 1), &serve(etcd.daemon_in("one"), 1));
    // All requests were answered, and no number came twice.
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.figure("target", "layout") == "tickets, increment 1", "{ran:?}");
    assert_eq!(ran.figure("IDs", "answered"), 1_000.0, "{ran:?}");
    make_counter(&etcd.daemon_in("two"));
    let ran = load(&serve(etcd.daemon_in("one"), 1), &serve(etcd.daemon_in("two"), 1));
    ran.assert_refused(1, "count the same tickets");
}
