use super::*;
use crate::access::Rules;
use crate::config::{Settings, SourceSettings};
use snowbank_id::layout::{Layout, Position, WorkerSet};
use snowbank_id::numbering::Numbering;
use snowbank_wire::{MAX_REPLY_SIZE, Next, Wait, request};

#[test]
fn random_fields_never_carry_into_the_sequence() {
    let layout = Layout::resolve("clearing").expect("a preset");
    let numbering = Numbering::new(layout, WorkerSet::single(81)).expect("worker 81 exists");
    let runs = [numbering.run_at(Position(4_710), 10)];
    let random = numbering.random_parts();
    let frame_ids = FrameIds { runs: &runs, random, needs_list: true, reply_count: None, more: false };
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..2_000 {
        for (id, bare) in frame_ids.ids(&mut rng).zip(runs[0].ids()) {
            assert_eq!(numbering.position_of(id), numbering.position_of(bare), "{id} of {bare}");
        }
    }
}

/// Checks the size of a front end's longest frames, full and small: they have the largest IDs, in
/// runs of one ID each. `request` asks for as many IDs as fit, in the longest form.
fn assert_frames_fit<F: FrontEnd>(request: &[u8], needs_list: bool) {
    let mut settings = Settings { sources: vec![SourceSettings::default()], ..Settings::default() };
    settings.sources[0].name = "n".repeat(60);
    let facts = Facts::new(&settings, b"{}".to_vec(), Rules::default());
    for is_small in [false, true] {
        let mut front = F::default();
        let mut session = Session::new(&facts.access, 0, None, true);
        let incr_connections = IncrConnections::default();
        let mut conditions = fuzzing::conditions(&facts, &mut session, &incr_connections);
        let Step::Ids { ask, form, .. } = front.step(request, &mut conditions, &mut Vec::new()) else {
            panic!("the request over {:?} asks for no IDs", F::PROTOCOL);
        };
        let full = front.frame_limit(form, needs_list);
        let limit = if is_small { full.small() } else { full };
        assert!(limit.runs > 0 && limit.ids >= FEW_IDS.into(), "{:?}: {limit:?}", F::PROTOCOL);
        let count = ask.count.min(limit.ids).min(limit.runs as u64);
        let largest = i64::MAX as u64;
        let run = |first| Run { first, count: 1, stride: 1 };
        let runs: Vec<Run> = (largest - count + 1..=largest).map(run).collect();
        let frame_ids =
            FrameIds { runs: &runs, random: &[], needs_list, reply_count: Some(ask.count), more: true };
        let mut out = Vec::new();
        front.encode_ids(&mut out, form, &frame_ids, &mut fastrand::Rng::with_seed(1));
        let bytes_max = if is_small { 3 * 1_024 } else { MAX_REPLY_SIZE };
        assert!(out.len() <= bytes_max, "{:?}: {} bytes for {count} IDs", F::PROTOCOL, out.len());
    }
}

#[test]
fn pages_name_the_option_of_every_front_end() {
    for protocol in Protocol::ALL.into_iter().filter(|protocol| *protocol != Protocol::Native) {
        let option = format!("`--{}", protocol.name());
        for page in [include_str!("../../docs/frontends.md"), include_str!("../../docs/capacity.md")] {
            assert!(page.contains(&option), "no {option} in {:?}", page.lines().next());
        }
    }
}

#[test]
fn frames_of_all_front_ends_fit_the_queues() {
    for protocol in Protocol::ALL {
        match protocol {
            Protocol::Native => {
                for explicit in [false, true] {
                    let source = b"";
                    let next =
                        Next { count: 1_000_000, source, wait: Wait::DEFAULT, explicit, partial: false };
                    let mut bytes = Vec::new();
                    request::encode_next(&mut bytes, 1, &next).expect("a short name");
                    assert_frames_fit::<Native>(&bytes, explicit);
                }
            }
            Protocol::Resp => assert_frames_fit::<Resp>(b"SNOWBANK.NEXT 1000000\r\n", false),
            Protocol::Memcached => {
                let keys = format!("get{}\r\n", format!(" {}", "k".repeat(250)).repeat(260));
                assert_frames_fit::<Memcached>(keys.as_bytes(), false);
            }
            Protocol::Noeqd => assert_frames_fit::<Noeqd>(b"\xff", false),
            Protocol::Http => {
                // JSON escapes both characters of this dictionary.
                let list = "GET /v1/ids?count=1000000&format=dictionary:%22%5C HTTP/1.1\r\nHost: a\r\n\r\n";
                assert_frames_fit::<Http>(list.as_bytes(), false);
            }
        }
    }
}

#[test]
fn a_noeqd_request_costs_more_than_its_single_byte() {
    let facts = Facts::new(&Settings::default(), b"{}".to_vec(), Rules::default());
    let mut session = Session::new(&facts.access, 0, None, true);
    let incr_connections = IncrConnections::default();
    let mut conditions = fuzzing::conditions(&facts, &mut session, &incr_connections);
    let mut front = Noeqd::default();
    for requests in 1..=3 {
        assert!(matches!(front.step(&[1], &mut conditions, &mut Vec::new()), Step::Ids { consumed: 1, .. }));
        assert_eq!(requests + front.extra_cost_bytes(), requests * 16);
    }
}

#[test]
fn a_line_is_too_long_however_its_bytes_arrive() {
    let facts = Facts::new(&Settings::default(), b"{}".to_vec(), Rules::default());
    let incr_connections = IncrConnections::default();
    let refusal = |line: &[u8]| {
        let mut session = Session::new(&facts.access, 0, None, true);
        let mut conditions = fuzzing::conditions(&facts, &mut session, &incr_connections);
        let step = Memcached::default().step(line, &mut conditions, &mut Vec::new());
        matches!(step, Step::Close { .. }).then_some(conditions.rejection)
    };
    let line = |size: usize, end: &str| format!("get {}{end}", " ".repeat(size - 4 - end.len())).into_bytes();
    let longest = line(MESSAGE_BYTES_MAX, "id\r\n");
    assert_eq!([&longest[..], &longest[..MESSAGE_BYTES_MAX - 1]].map(refusal), [None, None]);
    for end in ["id\r\n", " HTTP/1.1\r\n"] {
        let longer = line(MESSAGE_BYTES_MAX + 1, end);
        let refused = refusal(&longer);
        assert!(matches!(&refused, Some(Some(reason)) if reason.contains("65536 bytes")), "{refused:?}");
        assert_eq!(refusal(&longer[..MESSAGE_BYTES_MAX]), refused);
    }
}

#[test]
fn a_source_may_be_called_like_a_negative_count() {
    let mut settings = Settings {
        sources: vec![SourceSettings::default(), SourceSettings::default()],
        ..Settings::default()
    };
    settings.sources[1].name = String::from("-5");
    let facts = Facts::new(&settings, b"{}".to_vec(), Rules::default());
    let mut session = Session::new(&facts.access, 0, None, true);
    let incr_connections = IncrConnections::default();
    let mut conditions = fuzzing::conditions(&facts, &mut session, &incr_connections);
    let request = b"SNOWBANK.NEXT -5 2\r\n";
    let Step::Ids { ask, .. } = Resp::default().step(request, &mut conditions, &mut Vec::new()) else {
        panic!("a count was found where the source stands");
    };
    assert_eq!((ask.source, ask.count), (1, 2));
}

#[test]
fn a_time_to_retry_is_rounded_up_to_milliseconds() {
    let in_ms = [0, 1, 1_000_000, 1_000_001].map(|ns| refusals::ceil_to_ms(Duration::from_nanos(ns)));
    assert_eq!(in_ms, [0, 1, 1, 2]);
}
