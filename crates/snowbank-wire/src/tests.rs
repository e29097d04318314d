//! Properties of the wire format. The fuzz target `reply_frames` reads any bytes, in any pieces.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::collect::{BadReply, IdCollector, InfoCollector, Progress};
use super::reply::{self, IDS_PER_FRAME, RUNS_PER_FRAME, Reply};
use super::request::{self, Next, Wait};
use super::{Action, ErrorCode, ErrorReply, Fault, Hello, MAX_ID, MAX_REPLY_SIZE, Parsed, Request};
use snowbank_id::layout::Run;

proptest! {
    #[test]
    fn encoded_runs_decode_to_the_same_ids(gaps in vec((1u64..1 << 40, 1u32..50, 1u32..1000), 1..60), frame_size in 1usize..20, tag: u16) {
        let runs = increasing(&gaps);
        let ids: Vec<u64> = runs.iter().flat_map(Run::ids).collect();
        let count = ids.len() as u32;
        let mut wire = Vec::new();
        let frames = runs.chunks(frame_size);
        let last = frames.len() - 1;
        for (index, part) in frames.enumerate() {
            reply::encode_runs_frame(&mut wire, tag, part, index < last).expect("the runs fit");
        }
        let asked = Next { count, source: b"", wait: Wait::DEFAULT, explicit: false, partial: false };
        prop_assert_eq!(collect(asked, &wire), Ok(ids.clone()));
        let fewer = Next { count: count - 1, ..asked };
        prop_assert_eq!(collect(fewer, &wire), Err(BadReply::TooMany { asked: count - 1 }));
        let more = Next { count: count + 1, ..asked };
        prop_assert_eq!(collect(more, &wire), Err(BadReply::TooFew { found: count, asked: count + 1 }));
        prop_assert_eq!(collect(Next { partial: true, ..more }, &wire), Ok(ids));
        prop_assert_eq!(collect(Next { explicit: true, ..asked }, &wire), Err(BadReply::Kind));
    }

    #[test]
    fn encoded_errors_decode_to_the_same_fields(code in 0usize..10, action in 0u8..3, retry_ms: u64, message in ".{0,600}", tag: u16) {
        let code = ErrorCode::ALL[code];
        let error = ErrorReply {
            action: Action::from_u8(action),
            retry_after: Duration::from_millis(retry_ms),
            ..ErrorReply::tell(code, &message)
        };
        let mut wire = Vec::new();
        reply::encode_error(&mut wire, tag, &error);
        let Parsed::Frame { content: Ok(Reply::Error(found)), tag: parsed_tag, consumed } = reply::parse(&wire) else {
            panic!("an ERROR frame parses as an error");
        };
        prop_assert_eq!((found.code, parsed_tag, consumed), (code.to_u16(), tag, wire.len()));
        prop_assert_eq!(found.action, error.action);
        prop_assert_eq!(found.retry_after, Duration::from_millis(retry_ms.min(u32::MAX.into())));
        let text = std::str::from_utf8(found.message).expect("cut between characters");
        prop_assert!(message.starts_with(text) && text.len() <= 1024);
        prop_assert!(text.len() + 4 > message.len().min(1024));
    }

    #[test]
    fn encoded_greetings_decode_to_the_same_fields(version: u8, token in vec(any::<u8>(), 0..=512), claims in vec(any::<u64>(), 0..9000), instance: u64, tag: u16) {
        let mut wire = Vec::new();
        let hello = Hello { version, token: &token };
        request::encode_hello(&mut wire, tag, &hello).expect("the token fits");
        let parsed = Parsed::Frame { content: Ok(Request::Hello(hello)), tag, consumed: wire.len() };
        prop_assert_eq!(request::parse(&wire), parsed);
        wire.clear();
        let bytes: Vec<[u8; 8]> = claims.iter().map(|claim| claim.to_le_bytes()).collect();
        let claims = reply::WireIds::new(&bytes);
        let welcome = reply::Welcome { version, good_for: Duration::from_secs(1), max_count: 7, instance, claims };
        reply::encode_welcome(&mut wire, tag, &welcome);
        let claims = reply::WireIds::new(&bytes[..bytes.len().min(8_000)]);
        let cut = Reply::Welcome(reply::Welcome { claims, ..welcome });
        prop_assert_eq!(reply::parse(&wire), Parsed::Frame { content: Ok(cut), tag, consumed: wire.len() });
    }
}

/// Returns increasing runs. Each element of `gaps` describes one run: its distance from the
/// previous run, its count and its stride.
fn increasing(gaps: &[(u64, u32, u32)]) -> Vec<Run> {
    let mut above = 0;
    let mut runs = Vec::new();
    for &(gap, count, stride) in gaps {
        let run = Run { first: above + gap, count, stride: stride.into() };
        above = run.last();
        runs.push(run);
    }
    runs
}

fn collect(asked: Next<'_>, mut wire: &[u8]) -> Result<Vec<u64>, BadReply> {
    let mut collector = IdCollector::new(&asked);
    loop {
        let Parsed::Frame { content: Ok(frame), consumed, .. } = reply::parse(wire) else {
            panic!("the wire does not hold a whole reply");
        };
        wire = &wire[consumed..];
        if collector.add(&frame)? == Progress::Done {
            assert!(wire.is_empty());
            return Ok(collector.finish());
        }
    }
}

#[test]
fn a_full_frame_has_room_for_nothing_more() {
    let run = Run { first: 1, count: 1, stride: 1 };
    let mut wire = Vec::new();
    reply::encode_runs_frame(&mut wire, 1, &[run; RUNS_PER_FRAME], false).expect("a full frame");
    assert!(matches!(reply::parse(&wire), Parsed::Frame { content: Ok(Reply::Runs { .. }), .. }));
    assert!(wire.len() <= MAX_REPLY_SIZE && wire.len() + 16 > MAX_REPLY_SIZE);
    wire.clear();
    reply::encode_list_frame(&mut wire, 1, (0..).take(IDS_PER_FRAME), false).expect("a full frame");
    assert!(matches!(reply::parse(&wire), Parsed::Frame { content: Ok(Reply::List { .. }), .. }));
    assert!(wire.len() <= MAX_REPLY_SIZE && wire.len() + 8 > MAX_REPLY_SIZE);
}

#[test]
fn a_frame_that_cannot_be_encoded_appends_nothing() {
    let run = Run { first: 1, count: 1, stride: 1 };
    let wide = Run { stride: 1 << 32, ..run };
    let empty = Run { count: 0, ..run };
    let mut wire = b"kept".to_vec();
    for runs in [&[][..], &[run, wide], &[run, empty], &[run; RUNS_PER_FRAME + 1]] {
        reply::encode_runs_frame(&mut wire, 1, runs, false).expect_err("refused");
    }
    reply::encode_list_frame(&mut wire, 1, [], false).expect_err("refused");
    reply::encode_list_frame(&mut wire, 1, 0.., false).expect_err("refused");
    assert_eq!(wire, b"kept");
}

#[test]
fn an_endless_info_is_refused_at_its_limit() {
    let part = Reply::Info { json: &[b' '; 65_532], more: true };
    let mut collector = InfoCollector::default();
    let parts = (0..1000).take_while(|_| collector.add(&part).is_ok()).count();
    assert_eq!(parts, super::info::MAX_INFO_SIZE / 65_532);
    assert_eq!(collector.add(&Reply::Pong(b"")), Err(BadReply::Kind));
}

#[test]
fn ids_end_at_63_bits() {
    let asked = Next { count: 2, source: b"", wait: Wait::DEFAULT, explicit: false, partial: false };
    for (first, expected) in
        [(MAX_ID - 1, Ok(vec![MAX_ID - 1, MAX_ID])), (MAX_ID, Err(BadReply::Overflow { first: MAX_ID }))]
    {
        let mut wire = Vec::new();
        reply::encode_runs_frame(&mut wire, 1, &[Run { first, count: 2, stride: 1 }], false).expect("fits");
        assert_eq!(collect(asked, &wire), expected);
    }
}

#[test]
fn a_hello_has_a_magic_and_a_name_its_limit() {
    let mut wire = Vec::new();
    request::encode_hello(&mut wire, 1, &Hello { version: 1, token: b"" }).expect("fits");
    assert_eq!(wire, b"\x0e\0\0\0\x04\0\x01\0SNOW\r\n\r\n\x01\0");
    wire[8] = b's';
    let Parsed::Frame { content: Err(fault), .. } = request::parse(&wire) else { panic!("a whole frame") };
    assert_eq!((fault, fault.code()), (Fault::Magic, ErrorCode::Malformed));
    wire.clear();
    let next = Next { count: 1, source: &[b'n'; 64], wait: Wait::NONE, explicit: false, partial: false };
    request::encode_next(&mut wire, 1, &next).expect("fits");
    assert_eq!(
        request::parse(&wire),
        Parsed::Frame { content: Ok(Request::Next(next)), tag: 1, consumed: 78 }
    );
    wire.push(b'n');
    wire[0] += 1;
    assert!(matches!(
        request::parse(&wire),
        Parsed::Frame { content: Err(Fault::Body { size: 71, .. }), .. }
    ));
    request::encode_next(&mut wire, 1, &Next { source: &[b'n'; 65], ..next }).expect_err("too long");
}

#[test]
fn unknown_flags_of_replies_are_ignored() {
    let mut wire = Vec::new();
    reply::encode_pong(&mut wire, 1, b"x");
    wire[5] = 0xfe;
    assert!(matches!(reply::parse(&wire), Parsed::Frame { content: Ok(Reply::Pong(b"x")), .. }));
    wire[4] = 0x86;
    assert!(matches!(reply::parse(&wire), Parsed::Frame { content: Err(Fault::Kind { kind: 0x86 }), .. }));
}

#[test]
fn waits_round_up() {
    assert_eq!(Wait::at_most(Duration::from_nanos(1)).limit(), Some(Duration::from_millis(1)));
    assert_eq!(Wait::at_most(Duration::ZERO), Wait::NONE);
    assert_eq!(Wait::at_most(Duration::MAX).limit(), Some(Wait::LONGEST));
    assert_eq!(Wait::DEFAULT.limit(), None);
}
