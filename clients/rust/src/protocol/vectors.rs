//! The vectors of `tests/vectors`, compared with the code of both sides and with the page that
//! shows the vectors to users.

use super::code::ErrorCode;
use super::reply;
use super::request::{self, Next, Request, Wait};
use super::{Info, Parsed};
use crate::layout::Run;
use std::time::Duration;

const REQUESTS: &str = include_str!("../../../../tests/vectors/requests.txt");
const REPLIES: &str = include_str!("../../../../tests/vectors/replies.txt");
const FAULTS: &str = include_str!("../../../../tests/vectors/faults.txt");
const PAGE: &str = include_str!("../../../../docs/protocol.md");

/// Returns the fields of each line that is not a comment.
fn lines(file: &str) -> impl Iterator<Item = Vec<&str>> {
    file.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(" | ").collect())
}

/// Returns the bytes of a vector. A vector is hex, with spaces anywhere between bytes. `61*513`
/// means the byte 0x61, repeated 513 times.
fn bytes(vector: &str) -> Vec<u8> {
    let hex = |digits: &str| u8::from_str_radix(digits, 16).expect("two hex digits");
    let word = |word: &str| match word.split_once('*') {
        Some((byte, times)) => vec![hex(byte); times.parse().expect("how many times")],
        None => (0..word.len()).step_by(2).map(|at| hex(&word[at..at + 2])).collect(),
    };
    vector.split(' ').flat_map(word).collect()
}

fn next(count: u32, source: u16, wait: Wait, explicit: bool, partial: bool) -> Request<'static> {
    Request::Next(Next { count, source, wait, explicit, partial })
}

#[test]
fn request_vectors_encode_and_parse() {
    let ms = |ms| Wait::at_most(Duration::from_millis(ms));
    let mut seen = 0;
    for line in lines(REQUESTS) {
        let (request, tag) = match line[0] {
            "next" => (next(1000, 0, Wait::DEFAULT, false, false), 7),
            "next-explicit" => (next(3, 1, Wait::NONE, true, false), 258),
            "next-partial" => (next(40_000, 0, ms(250), false, true), 8),
            "next-explicit-partial" => (next(u32::MAX, u16::MAX, ms(65_534), true, true), 65_535),
            "info" => (Request::Info, 1),
            "ping" => (Request::Ping(b"snowbank"), 2),
            "ping-empty" => (Request::Ping(b""), 3),
            "auth" => (Request::Auth(b"s3cret"), 0),
            name => panic!("no test knows the vector {name}"),
        };
        let wire = bytes(line[2]);
        let parsed = Parsed::Frame { content: Ok(request), tag, consumed: wire.len() };
        assert_eq!(request::parse(&wire), parsed, "{}", line[0]);
        let mut encoded = Vec::new();
        match request {
            Request::Next(next) => request::encode_next(&mut encoded, tag, &next),
            Request::Info => request::encode_info(&mut encoded, tag),
            Request::Ping(body) => request::encode_ping(&mut encoded, tag, body).expect("short enough"),
            Request::Auth(token) => request::encode_auth(&mut encoded, tag, token).expect("short enough"),
        }
        assert_eq!(encoded, wire, "{}", line[0]);
        seen += 1;
    }
    assert_eq!(seen, 8);
}

fn runs(tag: u16, runs: &[Run], more: bool) -> Vec<u8> {
    let mut out = Vec::new();
    reply::encode_runs_frame(&mut out, tag, runs, more).expect("fits");
    out
}

fn list(tag: u16, ids: &[u64], more: bool) -> Vec<u8> {
    let mut out = Vec::new();
    reply::encode_list_frame(&mut out, tag, ids.iter().copied(), more).expect("fits");
    out
}

fn error(tag: u16, code: ErrorCode, retry_after_ms: Option<u64>, message: &str) -> Vec<u8> {
    let mut out = Vec::new();
    reply::encode_error(&mut out, tag, code, retry_after_ms.map(Duration::from_millis), message);
    out
}

/// The properties in `tests.rs` and the fuzz targets check that parsing reverses encoding.
#[test]
fn reply_vectors_encode() {
    const FIRST: u64 = 1_541_815_603_606_036_480;
    let tick_run = |first, count| Run { first, count, stride: 1 };
    let mut seen = 0;
    for line in lines(REPLIES) {
        let wire = bytes(line[2]);
        let mut out = Vec::new();
        let encoded = match line[0] {
            "runs" => runs(7, &[tick_run(FIRST, 1000)], false),
            "runs-two" => runs(7, &[tick_run(FIRST, 4096), tick_run(FIRST + (1 << 22), 904)], false),
            "runs-stride" => runs(9, &[Run { first: 1_478_484_776_931_081, count: 3, stride: 100 }], false),
            "runs-more" => runs(7, &[tick_run(FIRST, 4096)], true),
            "runs-last" => runs(7, &[tick_run(FIRST + (1 << 22), 904)], false),
            "list" => {
                let ids = [1_613_024_787_541_981_316, 1_613_024_787_541_982_007, 1_613_024_787_542_081_999];
                list(258, &ids, false)
            }
            "list-more" => list(10, &[1_613_024_787_541_981_316], true),
            "info" => {
                let json = Info::from_json(&wire[8..]).expect("the needed keys").to_json();
                reply::encode_info(&mut out, 1, &json);
                out
            }
            "pong" => {
                reply::encode_pong(&mut out, 2, b"snowbank");
                out
            }
            "ok" => {
                reply::encode_ok(&mut out, 0);
                out
            }
            "error-bad-count" => error(11, ErrorCode::BadCount, None, "count 0; 1 to 1000000 are allowed"),
            "error-exhausted" => error(12, ErrorCode::Exhausted, Some(1_200), ""),
            "error-too-busy" => error(0, ErrorCode::TooBusy, Some(1_000), "10000 connections"),
            name => panic!("no test knows the vector {name}"),
        };
        assert_eq!(encoded, wire, "{}", line[0]);
        seen += 1;
    }
    assert_eq!(seen, 13);
}

#[test]
fn fault_vectors_are_refused() {
    let mut seen = 0;
    for line in lines(FAULTS) {
        let [name, _, hex, code, tag, connection] = line[..] else {
            panic!("six fields in {line:?}");
        };
        let wire = bytes(hex);
        let found = match request::parse(&wire) {
            Parsed::BadLength(_) => (ErrorCode::Malformed, 0, "closed"),
            Parsed::Frame { content: Err(fault), tag, consumed } => {
                assert_eq!(consumed, wire.len(), "{name}");
                (fault.code(), tag, "goes on")
            }
            other => panic!("{name} is taken for {other:?}"),
        };
        assert_eq!(
            (found.0.name(), found.1, found.2),
            (code, tag.parse().expect("a tag"), connection),
            "{name}"
        );
        seen += 1;
    }
    assert_eq!(seen, 16);
}

#[test]
fn the_vectors_of_the_page_are_in_the_files() {
    let vectors: Vec<_> = [REQUESTS, REPLIES].into_iter().flat_map(lines).collect();
    let (_, section) = PAGE.split_once("\n## Vectors\n").expect("the section");
    let rows = section.lines().filter(|line| line.ends_with("` |"));
    let mut seen = 0;
    for row in rows {
        let known = vectors.iter().any(|line| row == format!("| {}: {} | `{}` |", line[0], line[1], line[2]));
        assert!(known, "docs/protocol.md has a row that no file has: {row}");
        seen += 1;
    }
    assert!(seen > 10, "found {seen} rows");
}
