//! Peers that close early, read nothing, speak no TLS or do not end their handshake.

use super::*;

#[test]
fn requests_are_answered_however_records_cut_them() {
    let house = House::with("");
    let requests: Vec<u8> = (0..1_000).flat_map(|tag| Ask::of(2).tag(tag).bytes()).collect();
    // There are records that have more bytes than the daemon's buffer takes, with no later byte
    // that could wake the daemon; records that end within requests; and more records than one read
    // takes.
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
                assert!(id > last, "{id} after {last}");
                last = id;
            }
        }
        wire.assert_open();
    }
}

/// Bytes that the daemon passed to TLS while the socket was full must leave without another
/// request. The size that fills a socket is unknown, so the sizes rise in steps smaller than TLS's
/// buffer.
#[test]
fn the_last_reply_arrives_however_full_the_socket_was() {
    const IDS: usize = 7_000;
    let house = House::with("[[sources]]\nname = \"ids\"\nworker_ids = \"0-15\"");
    let client = house.authority.client(None);
    for requests in 8..80 {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        // A small buffer, so that little fills it.
        socket.set_recv_buffer_size(4_096).expect("a buffer");
        socket.connect(&house.daemon.tcp().into()).expect("it listens");
        let mut secured = crate::secure::handshake(socket.into(), &client).expect("TLS");
        for _ in 0..requests {
            secured.write_all(&Ask::of(IDS as u32).flags(EXPLICIT).bytes()).expect("room");
            thread::sleep(Duration::from_millis(1));
        }
        let mut replies = vec![0; requests * (8 + 8 * IDS)];
        secured.read_exact(&mut replies).unwrap_or_else(|error| panic!("of {requests} replies: {error}"));
    }
}

#[test]
fn a_client_with_or_without_tls_says_which_listener_it_needs() {
    let house = House::with("");
    let secure = house.daemon.tcp().to_string();
    assert_refused(&snowbank(["ping", "--address", &secure]), "it speaks TLS: write tls:host:port");
    house.daemon.assert_logs("no TLS: ");
    let daemon = Setup::new().start();
    let plain = format!("tls:{}", daemon.tcp());
    assert_refused(&snowbank(["ping", "--address", &plain]), "if it is a plain listener, leave out tls:");
}

#[test]
fn a_client_names_a_server_that_does_not_shake_hands() {
    // The kernel accepts, and nothing answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("tls:{}", silent.local_addr().expect("an address"));
    let output = snowbank(["ping", "--address", &address, "--timeout", "4s"]);
    assert_refused(&output, &format!("cannot reach {address}: it "));
    assert_refused(&output, "the TLS handshake");
}

#[test]
fn a_handshake_that_takes_too_long_is_ended() {
    let house = House::with("[limits]\nstall_timeout = \"4s\"");
    let slow = [&b""[..], b"\x16\x03\x01\x02\x00"].map(|sent| {
        let mut slow = TcpStream::connect(house.daemon.tcp()).expect("it listens");
        slow.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        slow.write_all(sent).expect("room");
        slow
    });
    for mut slow in slow {
        assert_eq!(slow.read(&mut [0]).expect("an end, and no reset"), 0);
    }
    house.daemon.assert_logs("the handshake was not over within 4s");
    house.wire().assert_open();
}
