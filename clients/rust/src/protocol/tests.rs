//! Properties of the wire format: any bytes, any split, and back again.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::collect::{BadReply, Collected, IdCollector, InfoCollector, Progress};
use super::reply::{self, IDS_PER_FRAME, RUNS_PER_FRAME, Reply, Unencodable};
use super::request::{self, Next, Request, Wait};
use super::{ErrorCode, MAX_REPLY_SIZE, Parsed, fuzzing};
use crate::layout::Run;

/// Streams that mean something now and then: sound frames, frames with one byte changed, and noise.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![1u8..6, 0x81u8..0x87, Just(0xff), any::<u8>()];
    let body = prop_oneof![vec(any::<u8>(), 0..80), vec(any::<u8>(), 8), vec(any::<u8>(), 32)];
    let frame = (kind, 0u8..5, any::<u16>(), body).prop_map(|(kind, flags, tag, body)| {
        let mut frame = (body.len() as u32 + 4).to_le_bytes().to_vec();
        frame.extend([kind, flags]);
        frame.extend(tag.to_le_bytes());
        frame.extend(body);
        frame
    });
    let piece = prop_oneof![8 => frame, 1 => vec(any::<u8>(), 0..20)];
    vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn a_split_stream_reads_as_the_whole(choices in vec(any::<u8>(), 6), stream in stream()) {
        fuzzing::reply_frames(&[choices, stream].concat());
    }

    #[test]
    fn next_comes_back(
        count: u32, source: u16, wait_ms in proptest::option::of(0u64..70_000), explicit: bool, partial: bool, tag: u16,
    ) {
        let wait = wait_ms.map_or(Wait::DEFAULT, |ms| Wait::at_most(Duration::from_millis(ms)));
        let next = Next { count, source, wait, explicit, partial };
        let mut wire = b"kept".to_vec();
        request::encode_next(&mut wire, tag, &next);
        let parsed = Parsed::Frame { content: Ok(Request::Next(next)), tag, consumed: 16 };
        prop_assert_eq!(request::parse(&wire[4..]), parsed);
        prop_assert_eq!(wait.limit(), wait_ms.map(|ms| Duration::from_millis(ms.min(65_534))));
    }

    #[test]
    fn ping_and_auth_come_back(body in vec(any::<u8>(), 0..600), tag: u16) {
        let mut wire = Vec::new();
        let encoded = request::encode_ping(&mut wire, tag, &body);
        prop_assert_eq!(encoded.is_ok(), body.len() <= 64);
        if encoded.is_ok() {
            let parsed = Parsed::Frame { content: Ok(Request::Ping(&body)), tag, consumed: wire.len() };
            prop_assert_eq!(request::parse(&wire), parsed);
        }
        wire.clear();
        let encoded = request::encode_auth(&mut wire, tag, &body);
        prop_assert_eq!(encoded.is_ok(), (1..=512).contains(&body.len()));
        if encoded.is_ok() {
            let parsed = Parsed::Frame { content: Ok(Request::Auth(&body)), tag, consumed: wire.len() };
            prop_assert_eq!(request::parse(&wire), parsed);
        }
    }

    #[test]
    fn runs_come_back(gaps in vec((1u64..1 << 40, 1u32..5000, 1u32..1000), 1..60), frame_size in 1usize..20, tag: u16) {
        let runs = increasing(&gaps);
        let count = runs.iter().map(|run| run.count).sum();
        let mut wire = Vec::new();
        let frames = runs.chunks(frame_size);
        let last = frames.len() - 1;
        for (index, part) in frames.enumerate() {
            reply::encode_runs_frame(&mut wire, tag, part, index < last).expect("they fit");
        }
        let asked = Next { count, source: 0, wait: Wait::DEFAULT, explicit: false, partial: false };
        prop_assert_eq!(collect(asked, &wire), Ok(Collected::Runs(runs.clone())));
        let fewer = Next { count: count - 1, ..asked };
        prop_assert_eq!(collect(fewer, &wire), Err(BadReply::TooMany { asked: count - 1 }));
        let more = Next { count: count + 1, ..asked };
        prop_assert_eq!(collect(more, &wire), Err(BadReply::TooFew { found: count, asked: count + 1 }));
        prop_assert_eq!(collect(Next { partial: true, ..more }, &wire), Ok(Collected::Runs(runs)));
        prop_assert_eq!(collect(Next { explicit: true, ..asked }, &wire), Err(BadReply::Kind));
    }

    #[test]
    fn lists_come_back(gaps in vec(1u64..1 << 40, 1..300), explicit: bool, tag: u16) {
        let ids: Vec<u64> = gaps.iter().scan(0, |id, gap| { *id += gap; Some(*id) }).collect();
        let count = ids.len() as u32;
        let mut wire = Vec::new();
        let (head, tail) = ids.split_at(ids.len() / 2);
        if !head.is_empty() {
            reply::encode_list_frame(&mut wire, tag, head.iter().copied(), true).expect("they fit");
        }
        reply::encode_list_frame(&mut wire, tag, tail.iter().copied(), false).expect("they fit");
        let asked = Next { count, source: 0, wait: Wait::DEFAULT, explicit, partial: false };
        prop_assert_eq!(collect(asked, &wire), Ok(Collected::List(ids)));
    }

    #[test]
    fn whatever_is_collected_keeps_the_promises(
        runs in vec((0u64..8, 0u32..4, 0u64..3), 1..4), count in 1u32..6, partial: bool,
    ) {
        let mut wire = Vec::new();
        for &(first, count, stride) in &runs {
            // Raw bytes, because the encoder refuses some of these.
            wire.extend(first.to_le_bytes());
            wire.extend(count.to_le_bytes());
            wire.extend((stride as u32).to_le_bytes());
        }
        let mut frame = (wire.len() as u32 + 4).to_le_bytes().to_vec();
        frame.extend([0x81, 0, 0, 0]);
        frame.extend(wire);
        let asked = Next { count, source: 0, wait: Wait::DEFAULT, explicit: false, partial };
        let ids: Vec<u64> = runs.iter()
            .flat_map(|&(first, count, stride)| (0..u64::from(count)).map(move |step| first + step * stride))
            .collect();
        let sound = ids.is_sorted_by(|a, b| a < b)
            && runs.iter().all(|run| run.1 > 0)
            && ids.len() <= count as usize
            && (partial || ids.len() == count as usize);
        prop_assert_eq!(collect(asked, &frame).is_ok(), sound);
    }

    #[test]
    fn errors_come_back(code in 0usize..10, retry_ms in proptest::option::of(any::<u64>()), message in ".{0,600}", tag: u16) {
        let code = ErrorCode::ALL[code];
        let retry = retry_ms.map(Duration::from_millis);
        let mut wire = Vec::new();
        reply::encode_error(&mut wire, tag, code, retry, &message);
        let Parsed::Frame { content: Ok(Reply::Error(error)), tag: parsed_tag, consumed } = reply::parse(&wire) else {
            panic!("an error parses as one");
        };
        prop_assert_eq!((error.code, parsed_tag, consumed), (code.to_u16(), tag, wire.len()));
        let expected = retry_ms.map(|ms| Duration::from_millis(ms.clamp(1, u32::MAX.into())));
        prop_assert_eq!(error.retry_after, expected);
        let text = std::str::from_utf8(error.message).expect("cut between characters");
        prop_assert!(message.starts_with(text) && text.len() <= 1024);
        prop_assert!(text.len() + 4 > message.len().min(1024));
    }

    #[test]
    fn info_comes_back(size in 1usize..200_000, tag: u16) {
        let json: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        let mut wire = Vec::new();
        reply::encode_info(&mut wire, tag, &json);
        let mut joined = Vec::new();
        let mut rest = &wire[..];
        while let Parsed::Frame { content: Ok(Reply::Info { json: part, more }), consumed, .. } = reply::parse(rest) {
            joined.extend_from_slice(part);
            rest = &rest[consumed..];
            prop_assert_eq!(more, !rest.is_empty());
        }
        prop_assert_eq!(joined, json);
    }
}

/// Runs one above the other, from the distance, count and stride of each.
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

fn collect(asked: Next, mut wire: &[u8]) -> Result<Collected, BadReply> {
    let mut collector = IdCollector::new(asked);
    loop {
        let Parsed::Frame { content: Ok(frame), consumed, .. } = reply::parse(wire) else {
            panic!("a whole reply");
        };
        wire = &wire[consumed..];
        if collector.add(&frame)? == Progress::Done {
            assert!(wire.is_empty());
            return Ok(collector.finish());
        }
    }
}

#[test]
fn frames_are_full_at_their_limits() {
    let run = Run { first: 1, count: 1, stride: 1 };
    let mut wire = Vec::new();
    reply::encode_runs_frame(&mut wire, 1, &[run; RUNS_PER_FRAME], false).expect("a full frame");
    assert!(matches!(reply::parse(&wire), Parsed::Frame { content: Ok(Reply::Runs { .. }), .. }));
    assert!(wire.len() <= MAX_REPLY_SIZE && wire.len() + 16 > MAX_REPLY_SIZE);
    wire.clear();
    let too_many = reply::encode_runs_frame(&mut wire, 1, &[run; RUNS_PER_FRAME + 1], false);
    assert_eq!((too_many, wire.len()), (Err(Unencodable::TooMany { limit: RUNS_PER_FRAME }), 0));

    reply::encode_list_frame(&mut wire, 1, (0..).take(IDS_PER_FRAME), false).expect("a full frame");
    assert!(matches!(reply::parse(&wire), Parsed::Frame { content: Ok(Reply::List { .. }), .. }));
    assert!(wire.len() <= MAX_REPLY_SIZE && wire.len() + 8 > MAX_REPLY_SIZE);
    wire.clear();
    let too_many = reply::encode_list_frame(&mut wire, 1, 0.., false);
    assert_eq!((too_many, wire.len()), (Err(Unencodable::TooMany { limit: IDS_PER_FRAME }), 0));
}

#[test]
fn what_the_wire_cannot_say_is_refused_whole() {
    let run = Run { first: 1, count: 1, stride: 1 };
    let mut wire = b"kept".to_vec();
    let wide = Run { stride: 1 << 32, ..run };
    let refused = reply::encode_runs_frame(&mut wire, 1, &[run, wide], false);
    assert_eq!(refused, Err(Unencodable::WideStride { stride: 1 << 32 }));
    let refused = reply::encode_runs_frame(&mut wire, 1, &[run, Run { count: 0, ..run }], false);
    assert_eq!(refused, Err(Unencodable::EmptyRun));
    assert_eq!(reply::encode_runs_frame(&mut wire, 1, &[], false), Err(Unencodable::Empty));
    assert_eq!(reply::encode_list_frame(&mut wire, 1, [], false), Err(Unencodable::Empty));
    assert_eq!(wire, b"kept");
}

#[test]
fn a_run_beyond_64_bits_is_refused() {
    let asked = Next { count: 2, source: 0, wait: Wait::DEFAULT, explicit: false, partial: false };
    let mut wire = Vec::new();
    reply::encode_runs_frame(&mut wire, 1, &[Run { first: u64::MAX - 1, count: 2, stride: 1 }], false)
        .expect("the encoder does not look at the end");
    assert!(collect(asked, &wire).is_ok());
    wire.clear();
    reply::encode_runs_frame(&mut wire, 1, &[Run { first: u64::MAX, count: 2, stride: 1 }], false)
        .expect("the encoder does not look at the end");
    assert_eq!(collect(asked, &wire), Err(BadReply::Overflow { first: u64::MAX }));
}

#[test]
fn an_endless_info_is_cut_off() {
    let part = Reply::Info { json: &[b' '; 65_532], more: true };
    let mut collector = InfoCollector::default();
    let parts = (0..1000).take_while(|_| collector.add(&part).is_ok()).count();
    assert_eq!(parts, super::info::MAX_INFO_SIZE / 65_532);
    assert_eq!(collector.add(&Reply::Ok), Err(BadReply::Kind));
}

#[test]
fn waits_round_up() {
    assert_eq!(Wait::at_most(Duration::from_nanos(1)).limit(), Some(Duration::from_millis(1)));
    assert_eq!(Wait::at_most(Duration::ZERO), Wait::NONE);
    assert_eq!(Wait::at_most(Duration::MAX).limit(), Some(Wait::LONGEST));
    assert_eq!(Wait::DEFAULT.limit(), None);
}
