use std::time::Duration;

use super::*;
use crate::access::Session;
use crate::frontends::fuzzing::{conditions, facts};
use crate::frontends::{IncrConnections, in_words};
use crate::source::wait_queue::Refusal;
use snowbank_client::layout::Run;
use snowbank_client::protocol::ErrorCode;

/// The requests for IDs as (source, count), all bytes of the replies, and whether the connection
/// was closed.
type Served<Bytes> = (Vec<(usize, u64)>, Bytes, bool);

fn serve(stream: &[u8], refused_at: Option<usize>) -> Served<String> {
    let (asks, out, closed) = serve_bytes(stream, refused_at);
    (asks, String::from_utf8_lossy(&out).into_owned(), closed)
}

/// Serves a stream. Source 0 gives the IDs 100, 101, …, source 1 gives 2000000000000000000 and so
/// on.
fn serve_bytes(stream: &[u8], refused_at: Option<usize>) -> Served<Vec<u8>> {
    let facts = facts(false);
    let mut session = Session::new(&facts.access, 0, None);
    let incr_connections = IncrConnections::default();
    let mut conditions = conditions(&facts, &mut session, &incr_connections);
    let mut front = Memcached::default();
    let mut next = [100, 2_000_000_000_000_000_000];
    let mut at = 0;
    let mut asks = Vec::new();
    let mut out = Vec::new();
    let closed = loop {
        match front.step(&stream[at..], &mut conditions, &mut out) {
            Step::Incomplete => break false,
            Step::Close { .. } => break true,
            Step::Answered { consumed, .. } => at += consumed,
            Step::Ids { consumed, ask, form } => {
                at += consumed;
                asks.push((ask.source, ask.count));
                if refused_at == Some(asks.len()) {
                    let refusal = Refusal::NoCeiling;
                    front.refuse(&mut out, form, &in_words(refusal.into(), "anonymous", "s", None));
                    continue;
                }
                let run = Run { first: next[ask.source], count: ask.count as u32, stride: 1 };
                next[ask.source] += ask.count;
                let ids =
                    FrameIds { runs: &[run], random: &[], needs_list: false, reply_count: None, more: false };
                front.encode_ids(&mut out, form, &ids, &mut fastrand::Rng::with_seed(1));
            }
        }
    };
    (asks, out, closed)
}

#[test]
fn each_key_gets_an_id_in_its_order() {
    let (asks, out, _) = serve(b"get orders\r\nGETS a\t batches \x0b orders \x0b\x0c\n", None);
    assert_eq!(asks, [(0, 1), (0, 1), (1, 1), (0, 1)]);
    let expected = "VALUE orders 0 3\r\n100\r\nEND\r\n\
        VALUE a 0 3\r\n101\r\nVALUE batches 0 19\r\n2000000000000000000\r\nVALUE orders 0 3\r\n102\r\nEND\r\n";
    assert_eq!(out, expected);
}

#[test]
fn different_keys_draw_from_the_source_before_their_colon() {
    let (asks, out, _) = serve(b"get batches:1 batches:2 batches:a:b nothing:1 :batches\r\n", None);
    assert_eq!(asks, [(1, 3), (0, 2)]);
    assert!(out.contains("VALUE batches:2 0 19\r\n2000000000000000001\r\n"), "{out}");
}

#[test]
fn a_refusal_ends_its_get_and_the_next_is_answered() {
    let (asks, out, _) = serve(b"get orders batches a\r\nget b\r\n", Some(2));
    assert_eq!(asks, [(0, 1), (1, 1), (0, 1)]);
    let (before, after) = out.split_once("SERVER_ERROR no_ceiling retry_after_ms=1000 ").expect("a refusal");
    assert_eq!(before, "VALUE orders 0 3\r\n100\r\n");
    assert!(after.ends_with("\r\nVALUE b 0 3\r\n101\r\nEND\r\n"), "{after}");
    assert!(!after.contains("VALUE a"), "{after}");
}

#[test]
fn faults_are_answered_and_the_connection_goes_on() {
    let long_key = "k".repeat(251);
    for (line, answer) in [
        ("", "ERROR\r\n"),
        ("get", "ERROR\r\n"),
        ("set a 0 0 1", "ERROR\r\n"),
        ("incr a 1", "ERROR\r\n"),
        ("get a\x01b", "CLIENT_ERROR found a key with a control character, allowed are none\r\n"),
        (&format!("get {long_key}"), "CLIENT_ERROR found a key of 251 bytes, allowed 1 to 250\r\n"),
    ] {
        let (asks, out, closed) = serve(format!("{line}\r\nVERSION\r\n").as_bytes(), None);
        let version = "VERSION 1.6.0\r\n";
        assert_eq!((asks, out, closed), (vec![], format!("{answer}{version}"), false), "{line:?}");
    }
}

/// Returns a request packet with the opaque bytes "wxyz".
fn packet(opcode: u8, key: &str) -> Vec<u8> {
    let mut packet = vec![binary::REQUEST, opcode];
    packet.extend_from_slice(&(key.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[0; 4]);
    packet.extend_from_slice(&(key.len() as u32).to_be_bytes());
    packet.extend_from_slice(b"wxyz");
    packet.extend_from_slice(&[0; 8]);
    packet.extend_from_slice(key.as_bytes());
    packet
}

/// Returns the opcode, status, key and value of each reply packet.
fn packets(mut out: &[u8]) -> Vec<(u8, u16, String, String)> {
    let mut packets = Vec::new();
    while let [0x81, opcode, k0, k1, extras, 0, s0, s1, b0, b1, b2, b3, b'w', b'x', b'y', b'z', rest @ ..] =
        out
    {
        let body = u32::from_be_bytes([*b0, *b1, *b2, *b3]) as usize;
        let key = usize::from(u16::from_be_bytes([*k0, *k1]));
        let (body, behind) = rest[8..].split_at(body);
        let (key, value) = body[usize::from(*extras)..].split_at(key);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        packets.push((*opcode, u16::from_be_bytes([*s0, *s1]), text(key), text(value)));
        out = behind;
    }
    assert!(out.is_empty(), "{out:?}");
    packets
}

#[test]
fn a_refusal_that_does_not_pass_is_not_one_to_try_later() {
    let mut out = Vec::new();
    let mut refuse = |code, retry_after| {
        let words = Words { code, retry_after, message: String::from("why") };
        let echo = binary::Echo { opcode: 0x0a, opaque: *b"wxyz" };
        binary::refusal(&mut out, echo, &words, &words.message);
    };
    let later = Some(Duration::from_millis(5));
    refuse(ErrorCode::Exhausted, later);
    refuse(ErrorCode::Exhausted, None);
    refuse(ErrorCode::NoCeiling, None);
    refuse(ErrorCode::ShuttingDown, None);
    let statuses: Vec<u16> = packets(&out).iter().map(|(_, status, ..)| *status).collect();
    assert_eq!(statuses, [0x86, 0x84, 0x84, 0x85]);
}

#[test]
fn packets_are_answered_with_their_opaque_bytes() {
    let stream =
        [packet(0x0d, "batches"), packet(0x00, "a"), packet(0x0a, ""), packet(0x20, ""), packet(0x07, "")]
            .concat();
    let (_, out, closed) = serve_bytes(&stream, None);
    assert!(closed, "it quits");
    let replies = packets(&out);
    let found: Vec<_> =
        replies.iter().map(|(opcode, status, key, value)| (*opcode, *status, &**key, &**value)).collect();
    let expected = [
        (0x0d, 0, "batches", "2000000000000000000"),
        (0x00, 0, "", "100"),
        (0x0a, 0, "", ""),
        (0x20, 0x81, "", "Unknown command"),
        (0x07, 0, "", ""),
    ];
    assert_eq!(found, expected);
}

#[test]
fn packets_that_lie_are_refused() {
    let mut short_body = packet(0x00, "orders");
    short_body[11] = 3;
    short_body.truncate(24 + 3);
    let mut endless = packet(0x00, "orders");
    endless[8] = 0xff;
    for (bytes, is_closed) in [(short_body, false), (packet(0x00, ""), false), (endless, true)] {
        let (_, out, closed) = serve_bytes(&bytes, None);
        assert_eq!(closed, is_closed);
        assert!(matches!(packets(&out)[..], [(0, 3 | 4, _, _)]), "{out:?}");
    }
}
