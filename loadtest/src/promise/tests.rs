use super::*;

const TWITTER: &str = "time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=1288834974657";

/// Reads an INFO whose only source has these keys.
fn info(source: &str) -> Info {
    let json = format!(r#"{{"protocol":1,"max_count":1000,"sources":[{{"name":"a",{source}}}]}}"#);
    Info::from_json(json.as_bytes()).expect("sound JSON")
}

fn promise(layout: &str, workers: &str) -> Promise {
    let info = info(&format!(r#""layout":"{layout}","worker_ids":{workers}"#));
    Promise::from_info(&info, None).expect("a sound promise")
}

fn tickets(increment: u64, offset: u64, more: &str) -> Promise {
    let info = info(&format!(r#""kind":"ticket","increment":{increment},"offset":{offset}{more}"#));
    Promise::from_info(&info, Some("a")).expect("a sound promise")
}

fn single(first: u64) -> Run {
    Run { first, count: 1, stride: 1 }
}

fn spans(promise: &Promise, run: Run) -> Result<Vec<Span>, u64> {
    let mut spans = Vec::new();
    promise.positions(run, &mut spans).map(|_| spans)
}

#[test]
fn a_run_of_the_layout_is_one_span() {
    let promise = promise(TWITTER, "[33]");
    let first = (5 << 22) + (33 << 12) + 7;
    let found = spans(&promise, Run { first, count: 10, stride: 1 }).expect("its own IDs");
    assert_eq!(found, [Span { start: 5 * 4_096 + 7, end: 5 * 4_096 + 17 }]);
    assert_eq!(promise.id_at(found[0].start), first);
}

#[test]
fn is_next_means_that_only_the_sequence_differs() {
    for (layout, workers) in [(TWITTER, "[33, 34]"), ("clearing", "[81]"), ("sonyflake", "[7]")] {
        let promise = promise(layout, workers);
        let start = 5 * promise.numbering.as_ref().expect("a layout").ids_per_tick();
        let ids: Vec<u64> = (start..start + 9_000).map(|position| promise.id_at(position)).collect();
        for (index, pair) in ids.windows(2).enumerate() {
            if promise.is_next(pair[0], pair[1]) {
                let [last, next] = [pair[0], pair[1]].map(|id| promise.position_of(id).expect("its own"));
                assert_eq!(next, last + 1, "{layout}, {index}");
            }
        }
        // In Twitter's layout the sequence is the lowest field, so most pairs are direct
        // neighbours. The last ID of a worker and the first of the next worker are not.
        let next = ids.windows(2).filter(|pair| promise.is_next(pair[0], pair[1])).count();
        assert!(layout != TWITTER || (8_900..8_999).contains(&next), "{layout}: {next}");
        assert!(!promise.is_next(ids[0], ids[0]) && !promise.is_next(ids[1], ids[0]));
    }
}

#[test]
fn a_run_with_an_id_of_another_worker_is_refused() {
    let promise = promise(TWITTER, "[33]");
    let first = (5 << 22) + (33 << 12) + 4_095;
    let refused = spans(&promise, Run { first, count: 2, stride: 1 });
    assert_eq!(refused, Err(first + 1));
    assert_eq!(promise.foreign_worker(first + 1), Some(34));
    assert_eq!(promise.foreign_worker(first), None);
}

#[test]
fn a_random_field_does_not_change_the_position() {
    let promise = promise("clearing", "[81]");
    let [found, again] =
        [1_613_024_787_541_981_316, 1_613_024_787_541_981_999].map(|id| spans(&promise, single(id)));
    assert!(found.is_ok());
    assert_eq!(found, again);
}

#[test]
fn tickets_are_placed_by_their_increment() {
    let promise = tickets(2, 1, "");
    assert_eq!(spans(&promise, Run { first: 11, count: 3, stride: 2 }), Ok(vec![Span { start: 5, end: 8 }]));
    assert_eq!(spans(&promise, Run { first: 18, count: 1, stride: 2 }), Err(18));
    assert_eq!((promise.id_at(5), promise.increment()), (11, Some(2)));
    // A protocol without strides sends the ID 7. The ID 8 is the other daemon's.
    assert_eq!(spans(&promise, single(7)), Ok(vec![Span { start: 3, end: 4 }]));
    assert_eq!(spans(&promise, single(8)), Err(8));
}

#[test]
fn counters_are_apart_by_increment_and_offset() {
    assert_eq!(tickets(2, 1, "").check_apart(&tickets(2, 2, "")), Ok(()));
    assert_eq!(tickets(6, 1, "").check_apart(&tickets(4, 2, "")), Ok(()));
    let [one, two] = [r#","fleet":"one""#, r#","fleet":"two""#].map(|fleet| tickets(1, 1, fleet));
    assert_eq!(one.check_apart(&one), Ok(()), "both take numbers from one counter");
    for (one, other) in [
        (&tickets(2, 1, ""), &tickets(2, 1, "")),
        (&tickets(1, 1, ""), &tickets(2, 2, "")),
        (&tickets(6, 1, ""), &tickets(4, 3, "")),
        (&one, &two),
        (&one, &tickets(1, 1, "")),
    ] {
        let found = one.check_apart(other);
        assert!(found.is_err_and(|failure| failure.reason.contains("the same IDs")), "{one:?} {other:?}");
    }
}

#[test]
fn an_impossible_info_is_refused() {
    let info = info(r#""layout":"twitter","worker_ids":[1024]"#);
    let codes = [None, Some("b")]
        .map(|source| Promise::from_info(&info, source).map_err(|failure| failure.exit_code()).err());
    assert_eq!(codes, [Some(1), Some(2)]);
}

#[test]
fn the_default_window_is_10_ms_back_and_10_s_ahead() {
    let promise = promise(TWITTER, "[0]");
    let bounds_us = promise.bounds_us(1_000_000, 2_000_000, 500);
    assert_eq!(bounds_us, (1_000_000 - 10_000 - 1_000 - 500, 2_000_000 + 10_000_000 + 500));
}
