//! Sockets that the service manager opens and passes to the daemon.

use std::io::ErrorKind;
use std::time::Instant;

use super::*;
use crate::support::failing_disk::FailingDisk;
use crate::support::ids::assert_distinct;
use crate::support::program::{Said, program};
use crate::support::wire::Run;

#[test]
fn inherited_sockets_replace_configured_listeners() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = Address::Tcp(tcp.local_addr().expect("bound"));
    for name in ["native", "snowbank.socket", ""] {
        // If the daemon opened this listener, it would print another line.
        let setup = Setup::bare().args(["--listen", "127.0.0.9:0"]);
        let daemon = setup.inheriting(tcp.try_clone().expect("a copy"), name).start();
        assert_eq!(daemon.addresses, std::slice::from_ref(&address));
        assert_eq!(daemon.connect().next(Ask::of(5)).id_count(), Some(5));
        assert!(daemon.stop().is_empty(), "the daemon has more listeners than it inherited");
    }
    // An inherited admin socket replaces only the admin listener.
    let admin = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = admin.local_addr().expect("bound");
    let daemon = Setup::new().args(["--admin", "127.0.0.9:0"]).inheriting(admin, "admin").start();
    assert_eq!(http::ask(&Address::Tcp(at), "GET", "/healthz", "").code, 200);
    assert_eq!(daemon.stop(), [format!("admin on {at}")]);
    let directory = crate::support::directory();
    let path = directory.path().join("socket");
    let unix = UnixListener::bind(&path).expect("a socket");
    let daemon = Setup::bare().inheriting(unix, "native").start();
    assert_eq!(daemon.addresses, [Address::Unix(path.clone())]);
    assert_eq!(daemon.connect().next(Ask::of(5)).id_count(), Some(5));
    daemon.stop();
    assert!(path.exists(), "the daemon removed a socket that it did not make");
}

#[test]
fn sockets_for_another_process_are_ignored() {
    let setup = Setup::new().env("LISTEN_FDS", "1").env("LISTEN_PID", "1").env("LISTEN_FDNAMES", "native");
    let daemon = setup.start();
    assert_eq!(daemon.connect().next(Ask::of(1)).id_count(), Some(1));
    daemon.stop();
}

#[test]
fn unusable_sockets_are_refused() {
    let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let stream = std::os::unix::net::UnixStream::pair().expect("a pair").0;
    let file = std::fs::File::open("/dev/null").expect("it exists");
    let sockets: [(OwnedFd, &str); 3] =
        [(datagrams.into(), "stream socket"), (stream.into(), "listen"), (file.into(), "stream socket")];
    for (socket, reason) in sockets {
        let ended = Setup::bare().inheriting(socket, "native").end();
        ended.assert_refusal(&["descriptor 3", "\"native\"", reason]);
    }
    let reachable = TcpListener::bind("0.0.0.0:0").expect("a free port");
    let ended = Setup::bare().inheriting(reachable, "native").end();
    // A socket beyond loopback needs a worker ID as well, because two machines must not both be
    // worker 0 by default.
    ended.assert_refusal(&["0.0.0.0", "worker_ids"]);
}

#[test]
fn sockets_from_systemd_socket_activate_are_served() {
    if !has_program("systemd-socket-activate", "systemd") {
        return;
    }
    let directory = crate::support::directory();
    let path = directory.path().join("socket");
    let port = Port::take();
    let tcp = port.address().to_string();
    let path_text = path.to_str().expect("text");
    let pass_on = ["-E", "SNOWBANK_STATE_DIR", "-E", "SNOWBANK_LOCK_DIR"];
    let listen = ["-l", &tcp, "-l", path_text, "--fdname=native:native"];
    let setup = Setup::bare().through("systemd-socket-activate", &[&pass_on[..], &listen[..]].concat());
    // The tool starts the daemon when the first connection arrives. That connection waits until the
    // daemon serves.
    let first = thread::spawn({
        let address = Address::Unix(path.clone());
        move || poll("the socket", || Wire::try_connect(&address).ok()).next(Ask::of(7)).id_count()
    });
    let daemon = setup.listeners(2).start();
    assert_eq!(daemon.addresses, [Address::Tcp(tcp.parse().expect("an address")), Address::Unix(path)]);
    assert_eq!(first.join().expect("served"), Some(7));
    assert_eq!(daemon.connect().next(Ask::of(7)).id_count(), Some(7));
    daemon.stop();
}

/// Connects again and again, and sends one request each time. Returns the IDs. At a stop, the
/// daemon waits 250 ms for the first request of a connection. So the daemon may close a connection
/// without an answer only if the request came more than 250 ms after the connection began.
fn ask_again_and_again(address: &Address, until: &AtomicBool) -> Vec<Run> {
    let mut runs = Vec::new();
    while !until.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let mut wire = Wire::try_connect(address).expect("no connection is refused");
        let sent = wire.try_send(&Ask::of(3).bytes());
        let is_late = begun.elapsed() > Duration::from_millis(250);
        match sent.and_then(|()| wire.try_reply()) {
            Ok(Some(reply)) if (reply.tag(), reply.id_count()) == (0, Some(3)) => runs.extend(reply.runs()),
            Ok(None) if is_late => {}
            Err(error) if is_late && error.kind() != ErrorKind::WouldBlock => {}
            other => panic!("a new connection got no IDs: {other:?}"),
        }
    }
    runs
}

#[test]
fn a_restart_refuses_no_connection_and_repeats_no_id() {
    let machine = Machine::new();
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = Address::Tcp(tcp.local_addr().expect("bound"));
    let start = || machine.setup("").inheriting(tcp.try_clone().expect("a copy"), "native").start();
    let done = Arc::new(AtomicBool::new(false));
    let mut daemon = start();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let address = address.clone();
            let done = Arc::clone(&done);
            thread::spawn(move || ask_again_and_again(&address, &done))
        })
        .collect();
    for _ in 0..5 {
        // This connection stays open until the stop.
        let mut held = daemon.connect();
        assert_eq!(held.next(Ask::of(1)).id_count(), Some(1));
        thread::sleep(Duration::from_millis(100));
        daemon.stop();
        held.assert_closed();
        daemon = start();
    }
    done.store(true, Ordering::Relaxed);
    let drawn = clients.into_iter().flat_map(|client| client.join().expect("no panic"));
    assert_distinct(drawn.collect());
    daemon.stop();
}

/// The daemon listens where systemd says, whatever the file says: its log and its status show it.
#[test]
fn a_replaced_listener_shows_in_log_and_status() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = tcp.local_addr().expect("bound");
    let setup = Setup::bare().config("listen = [\"127.0.0.9:7660\"]").admin();
    let daemon = setup.inheriting(tcp, "native").start();
    daemon
        .assert_logs("listen = [\"127.0.0.9:7660\"] is not in force: listen of inherited sockets sets it to");
    let status: serde_json::Value =
        serde_json::from_str(&http::get(&daemon, "/status").body).expect("the status is JSON");
    assert_eq!(status["protocols"][0]["addresses"], serde_json::json!([at.to_string()]));
    let admin = status["admin_addresses"][0].as_str().expect("an address").to_owned();
    let said = Said::by(program().args(["status", "--admin", &admin]));
    assert!(said.out.contains(&format!("open on {at};")), "{}", said.out);
    assert!(said.out.contains(&format!("on {admin}\n")), "{}", said.out);
    daemon.stop();
}

/// systemd starts a daemon that crashed after 3 s.
#[test]
fn a_command_waits_for_the_daemon_of_its_socket() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = tcp.local_addr().expect("bound").to_string();
    let next =
        thread::spawn(move || Said::by(program().args(["next", "--address", &at, "--timeout", "60s"])));
    // Longer than a client's limit for a greeting.
    thread::sleep(Duration::from_secs(3));
    let daemon = Setup::new().inheriting(tcp, "native").start();
    assert!(next.join().expect("no panic").printed().trim().parse::<u64>().is_ok());
    daemon.stop();
}

/// Clients that came while no daemon ran wait for the first grant, however slow the disk is.
#[test]
fn a_slow_start_refuses_no_request() {
    let machine = Machine::new();
    let disk = FailingDisk::new(&machine.path("state"), machine.path("disk"));
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = Address::Tcp(tcp.local_addr().expect("bound"));
    let mut runs = Vec::new();
    for _ in 0..2 {
        disk.order("sync stall 400");
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let address = address.clone();
                thread::spawn(move || {
                    let mut wire = Wire::try_connect(&address).expect("no connection is refused");
                    wire.next(Ask::of(20).wait_ms(9_000)).runs()
                })
            })
            .collect();
        let setup = disk.under(machine.setup(""));
        let daemon = setup.inheriting(tcp.try_clone().expect("a copy"), "native").start();
        for client in clients {
            runs.extend(client.join().expect("no panic"));
        }
        disk.works();
        daemon.stop();
    }
    assert_distinct(runs);
}
