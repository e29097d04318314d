use proptest::prelude::*;

use super::memcached::Memcached;
use super::noeqd::Noeqd;
use super::resp::Resp;
use super::*;
use crate::check::Violation;

fn source() -> Resp {
    Resp::Source(Some("a".to_owned()))
}

fn asked(front_end: &dyn FrontEnd, count: u32) -> String {
    let mut out = Vec::new();
    front_end.ask(&mut out, 0, count);
    String::from_utf8_lossy(&out).into_owned()
}

/// The IDs that were read from a reply, and the way in which the reply ended.
type Outcome = Result<(Vec<u64>, String), Fault>;

/// Reads a reply that arrives in these pieces.
fn reply<'a>(front_end: &dyn FrontEnd, count: u32, pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut input = Vec::new();
    let mut ids = Vec::new();
    let mut runs = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            let read = front_end.read(&input, Awaited { count, ..Awaited::default() }, &mut runs);
            ids.extend(runs.drain(..).flat_map(|run: Run| run.ids().collect::<Vec<_>>()));
            let Some((part, size)) = read? else { break };
            let end = match part {
                Part::More => None,
                Part::End => Some("end".to_owned()),
                Part::Refused(Refusal { code, words }) => {
                    Some(format!("{} {}", crate::target::code_name(code), text(&words)))
                }
            };
            input.drain(..size);
            if let Some(end) = end {
                assert!(input.is_empty(), "{:?} is left over", String::from_utf8_lossy(&input));
                return Ok((ids, end));
            }
        }
    }
    Ok((ids, "incomplete".to_owned()))
}

fn whole(front_end: &dyn FrontEnd, asked: u32, bytes: &[u8]) -> Outcome {
    reply(front_end, asked, [bytes])
}

fn http() -> http::Http {
    http::Http { before: b"GET /ids?n=".to_vec(), after: b" HTTP/1.1\r\n\r\n".to_vec() }
}

fn memcached() -> Memcached {
    Memcached { key: "a".to_owned() }
}

#[test]
fn each_front_end_writes_its_requests() {
    assert_eq!(asked(&source(), 1), "*2\r\n$4\r\nINCR\r\n$1\r\na\r\n");
    assert_eq!(asked(&source(), 20), "*3\r\n$13\r\nSNOWBANK.NEXT\r\n$1\r\na\r\n$2\r\n20\r\n");
    assert_eq!(asked(&Resp::Source(None), 1), "*2\r\n$13\r\nSNOWBANK.NEXT\r\n$1\r\n1\r\n");
    assert_eq!(asked(&Resp::Counter("k"), 1), "*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n");
    assert_eq!(asked(&Resp::Counter("k"), 100), "*3\r\n$6\r\nINCRBY\r\n$1\r\nk\r\n$3\r\n100\r\n");
    assert_eq!(asked(&memcached(), 3), "get a a a\r\n");
    assert_eq!(asked(&http(), 7), "GET /ids?n=7 HTTP/1.1\r\n\r\n");
    assert_eq!(asked(&Noeqd, 7), "\u{7}");
}

/// Returns, for each front end, whole replies with the IDs 7 and 9.
fn seven_and_nine() -> Vec<(Box<dyn FrontEnd>, Vec<u8>)> {
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n7\r\n3;x\r\n\n9\n\r\n0\r\n\r\n";
    let noeqd = [7_u64.to_be_bytes(), 9_u64.to_be_bytes()].concat();
    vec![
        (Box::new(source()), b"*2\r\n$1\r\n7\r\n$1\r\n9\r\n".to_vec()),
        (Box::new(memcached()), b"VALUE a 0 1\r\n7\r\nVALUE a 0 1\r\n9\r\nEND\r\n".to_vec()),
        (Box::new(http()), b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n7\n9\n".to_vec()),
        (Box::new(http()), chunked.to_vec()),
        (Box::new(Noeqd), noeqd),
    ]
}

proptest! {
    #[test]
    fn a_reply_in_pieces_is_read_like_a_whole_one(cuts in prop::collection::vec(0_usize..100, 0..4)) {
        for (front_end, bytes) in seven_and_nine() {
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % bytes.len()).collect();
            ends.extend([0, bytes.len()]);
            ends.sort_unstable();
            let pieces = ends.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
            let read = reply(&*front_end, 2, pieces);
            prop_assert_eq!(read, Ok((vec![7, 9], "end".to_owned())));
        }
    }
}

#[test]
fn a_counters_reply_is_the_last_of_its_numbers() {
    let expected = Ok((vec![40, 41, 42], "end".to_owned()));
    assert_eq!(whole(&Resp::Counter("k"), 3, b":42\r\n"), expected);
    assert!(whole(&Resp::Counter("k"), 3, b":2\r\n").is_err());
}

#[test]
fn refusals_keep_their_code_and_words() {
    let end = |front_end: &dyn FrontEnd, bytes: &[u8]| whole(front_end, 1, bytes).map(|(_, end)| end);
    let exhausted = Ok("exhausted EXHAUSTED retry_after_ms=3 source a".to_owned());
    assert_eq!(end(&source(), b"-EXHAUSTED retry_after_ms=3 source a\r\n"), exhausted);
    assert_eq!(end(&source(), b"-ERR no\r\n"), Ok("error ERR no".to_owned()));
    let line = b"SERVER_ERROR clock_behind retry_after_ms=3\r\n";
    assert_eq!(end(&memcached(), line), Ok("clock_behind clock_behind retry_after_ms=3".to_owned()));
    assert_eq!(end(&memcached(), b"ERROR\r\n"), Ok("error ERROR".to_owned()));
    let refused =
        b"HTTP/1.1 503 No\r\ncontent-length: 38\r\n\r\n{\"error\":\"no_ceiling\",\"message\":\"why\"}";
    assert_eq!(end(&http(), refused), Ok("no_ceiling why".to_owned()));
    let other = b"HTTP/1.1 502 No\r\ncontent-length: 2\r\n\r\nno";
    assert_eq!(end(&http(), other), Ok("error status 502".to_owned()));
}

#[test]
fn bytes_that_are_no_reply_are_faults() {
    let found = Fault::Violation(Violation::Count { asked: 2, found: 1 });
    assert_eq!(whole(&source(), 2, b"*1\r\n$1\r\n7\r\n"), Err(found));
    let wrong: [(&dyn FrontEnd, &[u8]); 9] = [
        (&source(), b"+OK\r\n"),
        (&source(), b":-1\r\n"),
        (&source(), b"$1\r\n7\r\n"),
        (&source(), b"*2\r\n:7\r\n:9\r\n"),
        (&memcached(), b"VALUE b 0 1\r\n7\r\nEND\r\n"),
        (&memcached(), b"VALUE a 0 2\r\n7\r\nEND\r\n"),
        (&http(), b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno"),
        (&http(), b"HTTP/1.1 200 OK\r\n\r\n7\n"),
        (&http(), b"SSH-2.0\r\n\r\n\r\n"),
    ];
    for (front_end, bytes) in wrong {
        assert!(
            matches!(whole(front_end, 2, bytes), Err(Fault::Unreadable(_))),
            "{:?}",
            String::from_utf8_lossy(bytes)
        );
    }
    let check = |count| check_size(100_000, Awaited { count, ..Awaited::default() });
    assert!(check(1).is_err() && check(1_000).is_ok());
}
