//! The vectors of `tests/vectors`, compared with the code of both sides and with the page that
//! shows the vectors to users.

use std::time::Duration;

use crate::reply::{self, WireIds};
use crate::{ErrorCode, ErrorReply, Fault, Hello, Info, Next, Parsed, Request, Wait, Welcome, request};
use snowbank_id::layout::{Layout, Run};

const REQUESTS: &str = include_str!("../../../tests/vectors/requests.txt");
const REPLIES: &str = include_str!("../../../tests/vectors/replies.txt");
const FAULTS: &str = include_str!("../../../tests/vectors/faults.txt");
const PAGE: &str = include_str!("../../../docs/protocol.md");

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

fn next(count: u32, source: &[u8], wait: Wait, explicit: bool, partial: bool) -> Request<'_> {
    Request::Next(Next { count, source, wait, explicit, partial })
}

#[test]
fn request_vectors_encode_and_parse() {
    let ms = |ms| Wait::at_most(Duration::from_millis(ms));
    let mut seen = 0;
    for line in lines(REQUESTS) {
        let (request, tag) = match line[0] {
            "next" => (next(1000, b"", Wait::DEFAULT, false, false), 7),
            "next-explicit" => (next(3, b"orders", Wait::NONE, true, false), 258),
            "next-partial" => (next(40_000, b"", ms(250), false, true), 8),
            "next-explicit-partial" => (next(u32::MAX, &[b'n'; 64], ms(65_534), true, true), 65_535),
            "info" => (Request::Info, 1),
            "ping" => (Request::Ping(b"snowbank"), 2),
            "ping-empty" => (Request::Ping(b""), 3),
            "hello" => (Request::Hello(Hello { version: 1, token: b"" }), 1),
            "hello-token" => (Request::Hello(Hello { version: 1, token: b"s3cret" }), 1),
            name => panic!("no test knows the vector {name}"),
        };
        let wire = bytes(line[2]);
        let parsed = Parsed::Frame { content: Ok(request), tag, consumed: wire.len() };
        assert_eq!(request::parse(&wire), parsed, "{}", line[0]);
        let mut encoded = Vec::new();
        let fits = match request {
            Request::Next(next) => request::encode_next(&mut encoded, tag, &next),
            Request::Info => {
                request::encode_info(&mut encoded, tag);
                Ok(())
            }
            Request::Ping(body) => request::encode_ping(&mut encoded, tag, body),
            Request::Hello(hello) => request::encode_hello(&mut encoded, tag, &hello),
        };
        assert_eq!((fits, encoded), (Ok(()), wire), "{}", line[0]);
        seen += 1;
    }
    assert_eq!(seen, 9);
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

fn error(tag: u16, error: &ErrorReply<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    reply::encode_error(&mut out, tag, error);
    out
}

/// The properties in `tests.rs` and the fuzz targets check that parsing reverses encoding.
#[test]
fn reply_vectors_encode() {
    const FIRST: u64 = 1_541_815_603_606_036_480;
    let tick_run = |first, count| Run { first, count, stride: 1 };
    let ms = Duration::from_millis;
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
            "welcome" => {
                let space = Layout::resolve("twitter").expect("a preset").space();
                let claims = [space.claim(0).to_le_bytes()];
                let claims = WireIds::new(&claims);
                let instance = 72_623_859_790_382_856;
                let good_for = ms(1_000);
                let welcome = Welcome { version: 1, good_for, max_count: 1_000_000, instance, claims };
                reply::encode_welcome(&mut out, 1, &welcome);
                out
            }
            "error-bad-count" => {
                error(11, &ErrorReply::tell(ErrorCode::BadCount, "count 0; 1 to 1000000 are allowed"))
            }
            "error-exhausted" => error(12, &ErrorReply::stay(ErrorCode::Exhausted, ms(12), "")),
            "error-too-busy" => {
                error(0, &ErrorReply::leave(ErrorCode::TooBusy, ms(1_000), "10000 connections"))
            }
            name => panic!("no test knows the vector {name}"),
        };
        assert_eq!(encoded, wire, "{}", line[0]);
        seen += 1;
    }
    assert_eq!(seen, 13);
}

/// The daemon's own test sends it all of these vectors. The codes below are those of the wire.
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
                (fault.code(), tag, if fault == Fault::Magic { "closed" } else { "goes on" })
            }
            // Whether a version, a count or a source exists is for the daemon to say.
            Parsed::Frame { content: Ok(_), .. } => {
                assert!(["hello-version-0", "next-count-0", "next-unknown"].contains(&name), "{name}");
                continue;
            }
            Parsed::Incomplete => panic!("{name} is incomplete"),
        };
        assert_eq!(
            (found.0.name(), found.1, found.2),
            (code, tag.parse().expect("a tag"), connection),
            "{name}"
        );
        seen += 1;
    }
    assert_eq!(seen, 18);
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
