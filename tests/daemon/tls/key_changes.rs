//! A flood of TLS records that change the keys. Such a record carries no byte of a request, but
//! costs the daemon more than a request.

use super::*;

const PEERS: usize = 40;

/// The number of requests of each peer.
const REQUESTS: usize = 100;

/// The number of key changes before each request. After a few more, the daemon would close the
/// connection.
const KEY_CHANGES: usize = 15;

/// Returns encrypted requests for one ID each, with key changes before each request.
fn requests(peer: &mut crate::secure::Secured) -> Vec<u8> {
    let mut records = Vec::new();
    let session = &mut peer.conn;
    for _ in 0..REQUESTS {
        for _ in 0..KEY_CHANGES {
            session.refresh_traffic_keys().expect("TLS 1.3");
            session.write_tls(&mut records).expect("memory");
        }
        session.writer().write_all(&Ask::of(1).wait_ms(10_000).flags(EXPLICIT).bytes()).expect("memory");
        session.write_tls(&mut records).expect("memory");
    }
    records
}

/// Reads a reply with one ID. Returns `None` for a refusal. A daemon may refuse requests after it
/// was stopped for long.
fn read_id(peer: &mut crate::secure::Secured) -> Option<u64> {
    const LIST: u8 = 0x82;
    let mut length = [0; 4];
    peer.read_exact(&mut length).expect("a reply");
    let mut frame = vec![0; u32::from_le_bytes(length) as usize];
    peer.read_exact(&mut frame).expect("a whole reply");
    frame[4..].first_chunk().filter(|_| frame[0] == LIST).map(|id| u64::from_le_bytes(*id))
}

/// SIGSTOP stops the daemon while the clients send. The IDs are in strict order, so they show which
/// requests the daemon served first.
#[test]
fn a_flood_of_key_changes_does_not_delay_other_clients() {
    let authority = Authority::new("authority");
    let tls = tls_section(&authority.issue_local("daemon"), "");
    let config = format!("shards = 1\norder = \"strict\"\nworker_ids = \"0-255\"\n{tls}");
    let setup = Setup::new().option("--listen", "tls:127.0.0.1:0").config(&config);
    let daemon = setup.listeners(2).start();
    let client = authority.client(None);
    let mut modest = daemon.connect();
    let mut peers = Vec::new();
    for _ in 0..PEERS {
        let mut peer = try_secure(daemon.addresses[1].tcp(), &client).expect("TLS");
        peer.write_all(&Ask::of(1).flags(EXPLICIT).bytes()).expect("sent");
        read_id(&mut peer).expect("an ID");
        peers.push(peer);
    }
    modest.next(Ask::of(1));
    let floods: Vec<Vec<u8>> = peers.iter_mut().map(requests).collect();
    daemon.stand_still();
    for (peer, flood) in peers.iter_mut().zip(&floods) {
        peer.sock.write_all(flood).expect("the sockets have room");
    }
    modest.send(&Ask::of(1).wait_ms(10_000).bytes());
    daemon.signal(Signal::CONT);
    let modest_id = modest.reply().ids()[0];
    let ids: Vec<u64> = peers
        .iter_mut()
        .flat_map(|peer| (0..REQUESTS).filter_map(|_| read_id(peer)).collect::<Vec<_>>())
        .collect();
    let before = ids.iter().filter(|id| **id < modest_id).count();
    println!("{before} of {} requests of the flood were served first", ids.len());
    assert!(before < 5 * PEERS, "{before} requests of the flood were served first");
}
