//! The vectors of `tests/vectors`, compared with both sides' code and with the page that shows them
//! to users.

use super::code::ErrorCode;
use super::reply::{self, Reply};
use super::request::{self, Next, Request, Wait};
use super::{Fault, Info, Parsed};
use crate::layout::Run;
use std::time::Duration;

const REQUESTS: &str = include_str!("../../../../tests/vectors/requests.txt");
const REPLIES: &str = include_str!("../../../../tests/vectors/replies.txt");
const FAULTS: &str = include_str!("../../../../tests/vectors/faults.txt");
const PAGE: &str = include_str!("../../../../docs/protocol.md");

/// The fields of each line that is not a comment.
fn lines(file: &str) -> impl Iterator<Item = Vec<&str>> {
    file.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(" | ").collect())
}

/// The bytes that a vector stands for: hex, spaces anywhere between bytes, `61*513` for a byte
/// repeated.
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
fn requests() {
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

#[test]
fn replies() {
    const FIRST: u64 = 1_541_815_603_606_036_480;
    let run = |first, count, stride| Run { first, count, stride };
    let mut seen = 0;
    for line in lines(REPLIES) {
        let wire = bytes(line[2]);
        let mut encoded = Vec::new();
        match line[0] {
            "runs" => reply::encode_runs_frame(&mut encoded, 7, &[run(FIRST, 1000, 1)], false).expect("fits"),
            "runs-two" => {
                let runs = [run(FIRST, 4096, 1), run(FIRST + (1 << 22), 904, 1)];
                reply::encode_runs_frame(&mut encoded, 7, &runs, false).expect("fits");
            }
            "runs-stride" => {
                let runs = [run(1_478_484_776_931_081, 3, 100)];
                reply::encode_runs_frame(&mut encoded, 9, &runs, false).expect("fits");
            }
            "runs-more" => {
                reply::encode_runs_frame(&mut encoded, 7, &[run(FIRST, 4096, 1)], true).expect("fits");
            }
            "runs-last" => {
                let runs = [run(FIRST + (1 << 22), 904, 1)];
                reply::encode_runs_frame(&mut encoded, 7, &runs, false).expect("fits");
            }
            "list" => {
                let ids = [1_613_024_787_541_981_316, 1_613_024_787_541_982_007, 1_613_024_787_542_081_999];
                reply::encode_list_frame(&mut encoded, 258, ids, false).expect("fits");
            }
            "list-more" => {
                reply::encode_list_frame(&mut encoded, 10, [1_613_024_787_541_981_316], true).expect("fits");
            }
            "info" => {
                let json = Info::from_json(&wire[8..]).expect("the needed keys").to_json();
                reply::encode_info(&mut encoded, 1, &json);
            }
            "pong" => reply::encode_pong(&mut encoded, 2, b"snowbank"),
            "ok" => reply::encode_ok(&mut encoded, 0),
            "error-bad-count" => {
                let message = "count 0; 1 to 1000000 are allowed";
                reply::encode_error(&mut encoded, 11, ErrorCode::BadCount, None, message);
            }
            "error-exhausted" => {
                let wait = Some(Duration::from_millis(1200));
                reply::encode_error(&mut encoded, 12, ErrorCode::Exhausted, wait, "");
            }
            "error-too-busy" => {
                let wait = Some(Duration::from_secs(1));
                reply::encode_error(&mut encoded, 0, ErrorCode::TooBusy, wait, "10000 connections");
            }
            name => panic!("no test knows the vector {name}"),
        }
        assert_eq!(encoded, wire, "{}", line[0]);
        let Parsed::Frame { content: Ok(parsed), tag, consumed } = reply::parse(&wire) else {
            panic!("{} does not parse", line[0]);
        };
        assert_eq!(consumed, wire.len());
        assert_eq!(again(parsed, tag), wire, "{}", line[0]);
        seen += 1;
    }
    assert_eq!(seen, 13);
}

/// Encodes a parsed reply again. Anything that parsing lost is missing in the result.
fn again(reply: Reply<'_>, tag: u16) -> Vec<u8> {
    let mut out = Vec::new();
    match reply {
        Reply::Runs { runs, more } => {
            let runs: Vec<Run> = runs.iter().collect();
            reply::encode_runs_frame(&mut out, tag, &runs, more).expect("fits");
        }
        Reply::List { ids, more } => {
            reply::encode_list_frame(&mut out, tag, ids.iter(), more).expect("fits");
        }
        Reply::Info { json, .. } => reply::encode_info(&mut out, tag, json),
        Reply::Pong(body) => reply::encode_pong(&mut out, tag, body),
        Reply::Ok => reply::encode_ok(&mut out, tag),
        Reply::Error(error) => {
            let code = ErrorCode::from_u16(error.code).expect("a known code");
            let message = std::str::from_utf8(error.message).expect("UTF-8");
            reply::encode_error(&mut out, tag, code, error.retry_after, message);
        }
    }
    out
}

#[test]
fn faults() {
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
fn a_fault_names_what_it_found() {
    let text = Fault::Flags { kind: 1, flags: 4, allowed: 3 }.to_string();
    assert_eq!(text, "flags 0x04 do not fit frame kind 0x01: it defines 0x03");
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
