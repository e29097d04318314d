//! Connections to the admin listener that send no request. The daemon still answers probes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::Done;
use crate::support::{DEADLINE, Setup, poll};

/// The test opens far more connections than the daemon allows, and sends nothing or half a request
/// on each. When the daemon closes one of them, the test opens another.
#[test]
fn silent_connections_do_not_delay_probes() {
    let daemon = Setup::new().admin().start();
    let admin = daemon.addresses[1].tcp();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = Done(&stop);
        for part in [&b""[..], b"GET /metr"] {
            let stopped = stop.0;
            scope.spawn(move || hold_silent(admin, 150, part, stopped));
        }
        // A connection that has its answer and sends no other request is silent as well.
        let mut idle = TcpStream::connect(admin).expect("a connection");
        idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
        daemon.assert_logs("it was idle at the admin listener");
        for _ in 0..50 {
            // If a busy machine sends a probe's request late, the daemon may close the connection.
            poll("the answer to a probe", || is_answered(admin).then_some(()));
        }
    });
    daemon.stop();
}

fn is_answered(admin: SocketAddr) -> bool {
    let mut stream = TcpStream::connect(admin).expect("the admin listener is there");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
    let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.read(&mut [0; 16]).is_ok_and(|size| size > 0)
}

/// Keeps this many connections open, each of which has sent only `part`. Replaces each connection
/// that the daemon closes.
fn hold_silent(to: SocketAddr, count: usize, part: &[u8], stop: &AtomicBool) {
    let mut held: Vec<TcpStream> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        held.retain(|stream| {
            let mut stream = stream;
            matches!(stream.read(&mut [0; 64]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        });
        while held.len() < count && !stop.load(Ordering::Relaxed) {
            // Connecting fails while the listener's queue is full.
            let Ok(mut stream) = TcpStream::connect_timeout(&to, Duration::from_millis(100)) else { break };
            let _ = stream.write_all(part);
            stream.set_nonblocking(true).expect("a socket option");
            held.push(stream);
        }
    }
}
