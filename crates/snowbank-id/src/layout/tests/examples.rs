//! Published IDs, and the life, rate and ranges of layouts.

use super::*;

/// Decodes `id` and compares the result with an instant, and with a `name=value` text for each
/// field except the time.
#[track_caller]
fn decodes(name_or_spec: &str, id: u64, time: &str, fields: &str) {
    let layout = layout(name_or_spec);
    let decoded = layout.decode(id).unwrap();
    assert_eq!(layout.rfc3339(decoded.instant), time);
    let named: Vec<String> =
        decoded.fields[1..].iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(named.join(" "), fields);
    assert_eq!(decoded.fields[0], ("time", decoded.tick.0));
}

#[test]
fn published_ids_decode_to_their_published_fields() {
    let hours = "time:41,datacenter:5,worker:5,sequence:12;epoch=1970-01-01T00:00:00+08:00";
    assert_eq!(layout(hours).epoch_unix_ms(), -28_800_000);
    let highest = "datacenter=1 worker=1 sequence=4095";
    let lowest = "datacenter=1 worker=1 sequence=0";
    // The node of the published key hQnT0wuETI: 94.100.191 are the low bytes of its IPv4 address.
    let node = format!("node={} sequence=0", 94 * 65536 + 100 * 256 + 191);
    for (name, id, time, fields) in [
        ("simple-2020", 3125927076831231, "2020-08-09T07:01:19.092Z", highest),
        ("simple-2020", 3248473482862591, "2020-08-09T15:08:16.432Z", highest),
        (hours, 6698247966366502912, "2020-08-09T07:26:02.611Z", lowest),
        (hours, 6698248033827688448, "2020-08-09T07:26:18.695Z", lowest),
        // The test vector of Snowbank's protocol.
        ("twitter", 1541815603606036480, "2022-06-28T16:07:40.105Z", "datacenter=11 worker=26 sequence=0"),
        ("clearing", 1613024787541981316, "2016-11-07T02:13:07.541Z", "sequence=9 machine=81 table=316"),
        // The clearing house's code makes this ID: the time is Unix ms / 10 + 136040000000, and the
        // machine is above the sequence.
        ("clearing-code", 283888478754819316, "2016-11-07T02:13:07.540Z", "machine=81 sequence=9 table=316"),
        ("clearing-batch", 1478484776931281, "2016-11-07T02:12:56.931Z", "sequence=2 machine=81"),
        ("kubernetes", 17640439786371072, "2021-09-22T06:50:52Z", &node),
        // From Discord's own documentation.
        ("discord", 175928847299117063, "2016-04-30T11:18:25.796Z", "worker=1 process=0 sequence=7"),
    ] {
        decodes(name, id, time, fields);
    }
    let twitter = layout("twitter");
    assert_eq!(twitter.decode(1541815603606036480).unwrap().worker, 11 * 32 + 26);
    let clearing = layout("clearing");
    let clearing = clearing.decode(1613024787541981316).unwrap();
    assert_eq!((clearing.worker, clearing.sequence), (81, 9));
    // In this layout, the time is Unix ms + 136040000000.
    assert_eq!(layout("clearing-bits").decode(136040000000 << 20).unwrap().instant, UnixMicros(0));
}

#[test]
fn presets_have_the_published_years_rates_and_workers() {
    for (name, first, years, per_second, workers, digits) in [
        ("twitter", "2010-11-04T01:42:54.657Z", 69, 4_096_000, 1024, 19),
        ("clearing", "1965-09-26T19:46:40.000Z", 292, 10_000, 100, 19),
        ("clearing-batch", "1970-01-01T00:00:00.000Z", 316, 10_000, 100, 16),
        ("clearing-bits", "1965-09-09T11:06:40.000Z", 278, 4_096_000, 256, 19),
        ("kubernetes", "2021-09-16T08:14:08Z", 8, 2048, 1 << 24, 19),
        ("game", "2025-01-01T00:00:00.000Z", 87, 3200, 1 << 20, 19),
        ("instagram", "2011-08-24T21:07:01.721Z", 34, 1_024_000, 8192, 19),
        ("sonyflake", "2014-09-01T00:00:00.000Z", 174, 25_600, 65_536, 19),
        ("baidu", "2016-05-19T16:00:00Z", 8, 8192, 1 << 22, 19),
        ("js53", "2025-01-01T00:00:00.000Z", 69, 256_000, 16, 16),
    ] {
        let layout = layout(name);
        assert_eq!(layout.rfc3339(layout.first()), first, "{name}");
        let lasts = (layout.end().0 - layout.first().0) as f64 / (365.25 * 86_400e6);
        assert_eq!(lasts as u64, years, "{name}");
        assert_eq!((layout.ids_per_second(), layout.workers()), (per_second, workers), "{name}");
        assert_eq!(layout.max_digits(), digits, "{name}");
    }
    assert_eq!(layout("twitter").last_id(), i64::MAX as u64);
    assert_eq!(layout("js53").last_id(), (1 << 53) - 1);
}

#[test]
fn clearing_ends_before_its_incomplete_last_tick() {
    let layout = layout("clearing");
    assert_eq!(layout.rfc3339(layout.end()), "2258-01-05T19:33:56.854Z");
    assert_eq!(layout.last_id(), 9223372036853999999);
    let numbering = LayoutNumbering::new(layout, WorkerSet::single(99)).unwrap();
    assert_eq!(numbering.end(), Position(92233720368540));
    assert_eq!(numbering.id_at(Position(92233720368539)), 9223372036853999000);
    assert_eq!(numbering.tick_at(instant("2300-01-01")), Tick(9223372036854));
}

#[test]
fn a_life_has_four_parts() {
    let layout = layout("twitter");
    let end = layout.end();
    let before_end = |seconds: i64| UnixMicros(end.0 - seconds * 1_000_000);
    let year = 365 * 86_400;
    let left = std::time::Duration::from_secs;
    assert_eq!(end.rfc3339(3), "2080-07-10T17:30:30.209Z");
    assert_eq!(layout.life(UnixMicros(layout.first().0 - 1)), Life::NotBegun);
    assert_eq!(layout.life(before_end(year + 1)), Life::Running { left: left(year as u64 + 1) });
    assert_eq!(layout.life(before_end(year)), Life::LastYear { left: left(year as u64) });
    assert_eq!(layout.life(before_end(1)), Life::LastYear { left: left(1) });
    assert_eq!(layout.life(end), Life::Ended { at: end });
    assert_eq!(layout.life(UnixMicros(i64::MAX)), Life::Ended { at: end });
    assert_eq!(layout.life(UnixMicros(i64::MIN)), Life::NotBegun);
}

#[test]
fn a_life_ends_with_the_year_9999() {
    let layout = layout("time:41,sequence:12;tick=1s");
    assert_eq!(layout.rfc3339(layout.last()), "9999-12-30T22:00:00Z");
    let last = layout.decode(layout.last_id()).unwrap();
    assert_eq!((last.instant, last.sequence), (layout.last(), 4095));
    assert!(layout.decode(layout.last_id() + 1).is_err());
    let numbering = LayoutNumbering::new(layout, WorkerSet::single(0)).unwrap();
    assert_eq!(numbering.id_at(Position(numbering.end().0 - 1)), numbering.layout().last_id());
}

#[test]
fn ranges_hold_whole_ticks_and_are_clamped_to_the_life() {
    let layout = layout("time:41,worker:10,sequence:12;tick=10ms");
    let range = |from: &str, to: &str| layout.range(instant(from), instant(to)).unwrap();
    let weight = 1 << 22;
    assert_eq!(range("0", "0"), (0, weight - 1), "an instant stands for its whole tick");
    assert_eq!(range("1970-01-01T00:00:00.0199999Z", "29"), (weight, 3 * weight - 1));
    assert_eq!(range("-1000", "1970-01-01"), (0, weight - 1), "cut at the first tick");
    let after = "2900-01-01";
    assert_eq!(range(&layout.last().to_string(), after), (layout.last_id() + 1 - weight, layout.last_id()));
    for (from, to, reason) in [
        ("-1000", "-1", "no ID of this layout lies between"),
        (after, after, "no ID of this layout lies between"),
        ("1", "0", "the range ends at"),
    ] {
        let refusal = layout.range(instant(from), instant(to)).unwrap_err().to_string();
        assert!(refusal.starts_with(reason), "{refusal}");
    }
    let extremes = layout.range(UnixMicros(i64::MIN), UnixMicros(i64::MAX));
    assert_eq!(extremes, Ok((0, layout.last_id())));
}

#[test]
fn ranges_include_constants() {
    let layout = layout("time:13d,region:1d:constant(4),sequence:2d,table:3d:random");
    let last = layout.last();
    assert_eq!(layout.range(last, last), Ok((9223372036853400000, 9223372036853499999)));
}
