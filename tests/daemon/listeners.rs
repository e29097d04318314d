//! Listeners of every kind, alone and several at once: TCP on IPv4, IPv6 and by name, and Unix
//! sockets.

use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};

use crate::support::daemon::mode;
use crate::support::failing_disk::{ENOSPC, FailingDisk};
use crate::support::{Address, Ask, Setup, Wire};

/// Returns whether this machine has IPv6 loopback. Some containers do not.
fn has_ipv6() -> bool {
    TcpListener::bind("[::1]:0").is_ok()
}

#[test]
fn all_listeners_hand_out_ids_of_the_same_sources() {
    // The socket is outside the daemon's own directory, because that directory is removed with the
    // daemon.
    let home = tempfile::tempdir().expect("a directory");
    let socket = home.path().join("snowbank.sock");
    let mut listen = vec!["127.0.0.1:0".to_owned(), "127.0.0.2:0".to_owned()];
    if has_ipv6() {
        listen.push("[::1]:0".to_owned());
    } else {
        println!("no IPv6 here: not tried");
    }
    listen.push(format!("unix:{}", socket.display()));
    let options = listen.iter().flat_map(|address| ["--listen", address]);
    let daemon = Setup::bare().args(options).args(["--order", "strict"]).listeners(listen.len()).start();
    assert_eq!(daemon.addresses.last(), Some(&Address::Unix(socket.clone())));
    assert_eq!(mode(&socket), 0o660, "only the daemon's user and group may connect");
    let mut last = 0;
    for (address, asked) in daemon.addresses.iter().zip(&listen) {
        if let Address::Tcp(address) = address {
            assert_ne!(address.port(), 0);
            let (host, _) = asked.rsplit_once(':').expect("a port");
            assert!(address.to_string().starts_with(host), "{address} for {asked}");
        }
        let ids = Wire::connect(address).next(Ask::of(100)).ids();
        assert!(last < ids[0]);
        last = ids[99];
    }
    assert!(daemon.stop().is_empty(), "standard output has more than the listeners");
    assert!(!socket.exists(), "the socket file is left behind");
}

#[test]
fn a_daemon_can_listen_on_localhost() {
    let setup = Setup::bare();
    // The daemon prints the line of this listener after all lines of localhost.
    let last = format!("unix:{}", setup.path("last.sock").display());
    let addresses =
        std::net::ToSocketAddrs::to_socket_addrs("localhost:0").expect("localhost has an address");
    let mut distinct: Vec<_> = addresses.filter(|address| TcpListener::bind(address).is_ok()).collect();
    distinct.sort_unstable();
    distinct.dedup();
    let daemon =
        setup.args(["--listen", "localhost:0", "--listen", &last]).listeners(distinct.len() + 1).start();
    let (unix, tcp) = daemon.addresses.split_last().expect("several");
    assert_eq!(unix.to_string(), last);
    for address in tcp {
        assert!(address.tcp().ip().is_loopback());
        Wire::connect(address).next(Ask::of(1));
    }
}

#[test]
fn a_stale_socket_file_is_replaced_and_a_live_one_is_not() {
    let setup = Setup::bare();
    let socket = setup.path("snowbank.sock");
    // Dropping a listener leaves its file behind, as a killed daemon does.
    drop(UnixListener::bind(&socket).expect("a socket"));
    assert!(socket.exists());
    let listen = format!("unix:{}", socket.display());
    let mut daemon = setup.args(["--listen", &listen]).start();
    daemon.connect().next(Ask::of(1));
    daemon.kill();
    assert!(socket.exists(), "a killed daemon removes no file");
    let again = Setup::bare().args(["--listen", &listen]).start();
    // A second daemon does not replace the socket of the first.
    let second = Setup::bare().args(["--listen", &listen]).end();
    second.assert_refusal_for_now(&["snowbank.sock", "another program listens there"]);
    again.connect().next(Ask::of(1));
    again.stop();
    assert!(!socket.exists());
    // A program that is stopped does not empty its queue of new connections.
    let stopped = UnixListener::bind(&socket).expect("a socket");
    rustix::net::listen(&stopped, 0).expect("a queue of one connection");
    let _queued = UnixStream::connect(&socket).expect("queued");
    Setup::bare()
        .args(["--listen", &listen])
        .end()
        .assert_refusal_for_now(&["another program listens there"]);
}

/// Neither a start nor a stop removes another program's file.
#[test]
fn a_file_of_another_program_is_never_removed() {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("precious");
    let listen = format!("unix:{}", path.display());
    std::fs::write(&path, "data").expect("written");
    Setup::bare().args(["--listen", &listen]).end().assert_refusal(&["precious", "no socket"]);
    assert_eq!(std::fs::read_to_string(&path).expect("the file exists"), "data");
    std::fs::remove_file(&path).expect("removed");
    let daemon = Setup::bare().args(["--listen", &listen]).start();
    std::fs::remove_file(&path).expect("removed");
    let _other = UnixListener::bind(&path).expect("another socket");
    daemon.stop();
    assert!(path.exists());
}

/// A daemon that cannot accept connections prints no listener.
#[test]
fn a_listener_that_cannot_be_polled_fails_the_start() {
    let setup = Setup::new();
    let disk = FailingDisk::new(&setup.path("state"), setup.path("orders"));
    disk.order(&format!("listen fail {ENOSPC}"));
    let ended = disk.under(setup).end();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""), "{ended:?}");
    assert!(ended.stderr.contains("cannot accept connections at 127.0.0.1:"), "{ended:?}");
}
