//! Four kinds of peers: peers whose records split requests, that read late, that speak no TLS, or
//! that do not finish their handshake.

use super::*;

#[test]
fn requests_are_answered_wherever_tls_records_split_them() {
    let house = House::with("");
    let requests: Vec<u8> = (0..1_000).flat_map(|tag| Ask::of(2).tag(tag).bytes()).collect();
    // Some records have more bytes than the daemon's buffer, and no later byte wakes the daemon.
    // Some records end within a request. If records are small, one read of the daemon does not take
    // all of them.
    for piece in [requests.len(), 16_384, 1_000, 17] {
        let mut wire = house.wire();
        for piece in requests.chunks(piece) {
            wire.send(piece);
        }
        let mut last = 0;
        for tag in 0..1_000 {
            let reply = wire.reply();
            assert_eq!(reply.tag(), tag);
            for id in reply.ids() {
                assert!(id > last, "{id} is not above {last}");
                last = id;
            }
        }
        wire.assert_open();
    }
}

/// Bytes that the daemon passed to TLS while the socket was full must be sent without another
/// request. The number of bytes that fills a socket is unknown. So this test tries several numbers,
/// in steps smaller than TLS's buffer.
#[test]
fn the_last_reply_arrives_however_full_the_socket_was() {
    const IDS: usize = 7_000;
    let house = House::with("[[sources]]\nname = \"ids\"\nworker_ids = \"0-15\"");
    let client = house.authority.client(None);
    for requests in 8..80 {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        // With a small buffer, a few replies fill the socket.
        socket.set_recv_buffer_size(4_096).expect("a buffer");
        socket.connect(&house.daemon.tcp().into()).expect("connected");
        let mut secured = crate::secure::handshake(socket.into(), &client).expect("TLS");
        for _ in 0..requests {
            secured.write_all(&Ask::of(IDS as u32).flags(EXPLICIT).bytes()).expect("room");
            thread::sleep(Duration::from_millis(1));
        }
        let mut replies = vec![0; requests * (8 + 8 * IDS)];
        secured
            .read_exact(&mut replies)
            .unwrap_or_else(|error| panic!("not all of {requests} replies arrived: {error}"));
    }
}

#[test]
fn a_client_on_a_listener_of_the_wrong_kind_gets_a_hint() {
    let house = House::with("");
    let secure = house.daemon.tcp().to_string();
    assert_refused(&snowbank(["ping", "--address", &secure]), "it speaks TLS: write tls:host:port");
    house.daemon.assert_logs("no TLS: ");
    let daemon = Setup::new().start();
    let plain = format!("tls:{}", daemon.tcp());
    assert_refused(&snowbank(["ping", "--address", &plain]), "if it is a plain listener, leave out tls:");
}

#[test]
fn a_clients_error_names_a_server_without_a_tls_handshake() {
    // The kernel accepts the connection, but no program answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("tls:{}", silent.local_addr().expect("an address"));
    let output = snowbank(["ping", "--address", &address, "--timeout", "4s"]);
    assert_refused(&output, &format!("{address}: cannot connect: it "));
    assert_refused(&output, "the TLS handshake");
}

#[test]
fn a_tls_handshake_longer_than_stall_timeout_is_closed() {
    let house = House::with("[limits]\nstall_timeout = \"4s\"");
    let slow = [&b""[..], b"\x16\x03\x01\x02\x00"].map(|sent| {
        let mut slow = TcpStream::connect(house.daemon.tcp()).expect("connected");
        slow.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        slow.write_all(sent).expect("room");
        slow
    });
    for mut slow in slow {
        assert_eq!(slow.read(&mut [0]).expect("a close without a reset"), 0);
    }
    house.daemon.assert_logs("the handshake was not over within 4s");
    house.wire().assert_open();
}
