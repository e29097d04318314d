//! Clients that request many IDs and read nothing. The daemon's memory stays within its budget and
//! is released later, and other clients are served.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::support::http::{sample, scrape};
use crate::support::wire::{self, EXPLICIT};
use crate::support::{Ask, Reply, Setup, poll};

/// The daemon's budget for queued bytes.
const BUDGET: f64 = 4.0 * 1_048_576.0;
/// The number of clients that do not read.
const DEAF: usize = 300;
/// The bytes by which each of these clients may make the daemon exceed the budget. The reference of
/// the setting says so.
const STEP: f64 = 8.0 * 1_024.0;

/// Connects a client with a small receive buffer, and sends these requests.
fn connect_deaf(to: std::net::SocketAddr, request: &[u8]) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4 * 1_024).expect("a socket option");
    socket.connect(&to.into()).expect("connected");
    let mut deaf = TcpStream::from(socket);
    deaf.write_all(request).expect("sent");
    deaf
}

/// Returns a hundred requests, whose replies are far larger than the budget.
fn requests() -> Vec<u8> {
    (0..100).flat_map(|tag| Ask::of(100_000).tag(tag).wait_ms(65_534).flags(EXPLICIT).bytes()).collect()
}

#[test]
fn clients_that_never_read_share_a_budget_until_they_close() {
    let limits = "worker_ids = \"0-255\"\n[limits]\nmax_queued_bytes = 4194304\nstall_timeout = \"1h\"\n";
    let daemon = Setup::configured(limits).front_end("http").admin().start();
    let mut served = daemon.connect();
    served.next(Ask::of(100_000).flags(EXPLICIT));
    let queued = || sample(&scrape(&daemon), "snowbank_queued_bytes");
    poll("an empty queue after a whole reply", || (queued() == 0.0).then_some(()));
    // IDs are longest in base 2, and here JSON escapes both digits.
    let over_http =
        "GET /v1/ids?count=100000&wait=9s&format=dictionary:%22%5C HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for (listener, request) in daemon.addresses.iter().zip([requests(), over_http.into()]) {
        let at_rest_kib = daemon.resident_kib();
        let deaf: Vec<TcpStream> = (0..DEAF).map(|_| connect_deaf(listener.tcp(), &request)).collect();
        let mut highest = 0.0_f64;
        poll("a quarter of the budget in use", || {
            assert_eq!(served.next(Ask::of(1)).id_count(), Some(1), "a client that reads was not served");
            highest = highest.max(queued());
            (highest >= BUDGET / 4.0).then_some(())
        });
        for _ in 0..100 {
            assert_eq!(served.next(Ask::of(1)).id_count(), Some(1), "a client that reads was not served");
            highest = highest.max(queued());
        }
        assert!(highest <= BUDGET + DEAF as f64 * STEP, "the daemon queued {highest} bytes");
        daemon.assert_logs("finding queues: ");
        drop(deaf);
        poll("an empty queue", || (queued() == 0.0).then_some(()));
        // The allocator releases memory only after a while, and only when a request arrives.
        poll("released memory", || {
            served.assert_open();
            std::thread::sleep(Duration::from_millis(20));
            (daemon.resident_kib() < at_rest_kib + 8 * 1_024).then_some(())
        });
    }
}

/// Whatever the clients send and leave unread, the sum of what the daemon keeps for them is
/// bounded. The bound follows from the setting and from their number.
#[test]
fn the_budget_bounds_the_bytes_of_every_protocol() {
    const BUDGET: f64 = 1_048_576.0;
    let limits = "worker_ids = \"0-255\"\n[limits]\nmax_queued_bytes = 1048576\nstall_timeout = \"5s\"\n";
    let daemon = Setup::configured(limits).front_end("resp").front_end("memcached").front_end("http").admin();
    let daemon = daemon.start();
    let [native, resp, memcached, http, _] = &daemon.addresses[..] else { panic!("five listeners") };
    let http_head = "GET /v1/ids?count=100000 HTTP/1.1\r\nhost: localhost\r\n";
    // Requests for two keys by turns, because equal ones in a row would be kept once.
    let put_aside = format!("MULTI\r\n{}", "INCR default:1\r\nINCR default:2\r\n".repeat(1_500));
    for (what, listener, request, reads) in [
        ("IDs", native, requests(), false),
        ("an array", resp, "SNOWBANK.NEXT default 100000\r\n".repeat(10).into(), false),
        ("short replies", resp, "INCR default\r\n".repeat(30_000).into(), false),
        ("half an argument", resp, format!("*2\r\n$4\r\nINCR\r\n$60000\r\n{:050000}", 0).into(), false),
        ("a transaction whose replies are read", resp, put_aside.into(), true),
        ("keys", memcached, "get default\r\n".repeat(20_000).into(), false),
        ("half a list of keys", memcached, format!("get{}", " default".repeat(7_000)).into(), false),
        ("JSON", http, format!("{http_head}\r\n").repeat(3).into(), false),
        ("half a head", http, format!("{http_head}cookie: {:030000}", 0).into(), false),
    ] {
        let at_rest_kib = daemon.resident_kib();
        let mut clients: Vec<_> = (0..DEAF).map(|_| (connect_deaf(listener.tcp(), b""), 0)).collect();
        let mut highest = 0.0_f64;
        let mut highest_kib = 0;
        let mut still = 0;
        // Sends as much as the daemon reads.
        poll(&format!("a budget that is used up by {what}"), || {
            still += 1;
            for (client, sent) in &mut clients {
                client.set_nonblocking(true).expect("a socket option");
                if reads {
                    while client.read(&mut [0; 4_096]).is_ok_and(|size| size > 0) {}
                }
                let next = &request[*sent..request.len().min(*sent + 8_192)];
                let size = client.write(next).unwrap_or(0);
                *sent += size;
                if size > 0 {
                    still = 0;
                }
            }
            highest = highest.max(sample(&scrape(&daemon), "snowbank_queued_bytes"));
            highest_kib = highest_kib.max(daemon.resident_kib());
            (still > 30 && highest > BUDGET / 2.0).then_some(())
        });
        assert!(highest <= BUDGET + DEAF as f64 * STEP, "{what}: {highest} bytes were queued");
        let most_kib = 1_024 + DEAF as u64 * 32;
        assert!(highest_kib <= at_rest_kib + most_kib, "{what}: {at_rest_kib} KiB, then {highest_kib} KiB");
        drop(clients);
        poll("an empty queue", || (sample(&scrape(&daemon), "snowbank_queued_bytes") == 0.0).then_some(()));
    }
}

/// The daemon limits what the kernel buffers, because all TCP connections of a machine share one
/// pool of kernel memory.
#[test]
fn the_kernel_buffers_little_for_a_client_that_never_reads() {
    /// Twice the limit that the daemon sets for the kernel's buffer. The peer's kernel also buffers
    /// some bytes, and one more packet may be queued.
    const TAKEN_MAX: f64 = 2.0 * 16.0 * 1_024.0;
    let daemon = Setup::configured("shards = 1\nlimits.stall_timeout = \"2s\"\n").admin().start();
    let sent = || sample(&scrape(&daemon), "snowbank_sent_bytes_total");
    let mut deaf = connect_deaf(daemon.addresses[0].tcp(), &Ask::of(30_000).flags(EXPLICIT).bytes());
    poll("the end of a client that never reads", || {
        (sample(&scrape(&daemon), "snowbank_connections") == 0.0).then_some(())
    });
    // The daemon has reset the connection, so the kernel has dropped the bytes that it still
    // buffered.
    let ended = std::io::copy(&mut deaf, &mut std::io::sink());
    assert_eq!(ended.expect_err("a reset").kind(), std::io::ErrorKind::ConnectionReset);
    assert!(sent() <= TAKEN_MAX, "the kernel took {} bytes", sent());
}

/// The daemon reads the remaining requests as soon as the budget has room.
#[test]
fn a_client_that_reads_again_gets_its_whole_reply() {
    let limits = "worker_ids = \"0-255\"\n[limits]\nmax_queued_bytes = 1048576\nstall_timeout = \"1h\"\n";
    let daemon = Setup::configured(limits).start();
    let requests = requests();
    let mut wires: Vec<_> = (0..35).map(|_| daemon.connect()).collect();
    // Sends only ten of the hundred requests.
    wires.iter_mut().for_each(|wire| wire.send(&requests[..requests.len() / 10]));
    // Most clients close without reading. The others read everything.
    for wire in wires.drain(..30) {
        let _ = wire.tcp().shutdown(Shutdown::Both);
    }
    for wire in &mut wires {
        let mut last = 0;
        for tag in 0..10 {
            let Reply::List(found, ids) = wire.reply() else { panic!("no list") };
            assert_eq!((found, ids.len()), (tag, 100_000));
            assert!(last < ids[0]);
            last = ids[ids.len() - 1];
        }
    }
    assert_eq!(daemon.connect().call(&wire::ping(1, b"")), Reply::Pong(1, Vec::new()));
}
