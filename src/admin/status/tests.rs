use super::*;

impl Status {
    /// Returns the part of the first source's status that only a source with a layout has.
    pub(crate) fn first_snowflake(&mut self) -> &mut SnowflakeStatus {
        match &mut self.sources[0].kind {
            KindStatus::Snowflake(snowflake) => snowflake,
            KindStatus::Ticket(_) => panic!("a ticket counter"),
        }
    }
}

fn source() -> SourceStatus {
    let snowflake =
        SnowflakeStatus { headroom_s: 2.5, layout_years_left: 54.0, ..SnowflakeStatus::default() };
    SourceStatus {
        index: 0,
        name: String::from("orders"),
        facts: Vec::new(),
        kind: KindStatus::Snowflake(snowflake),
        id_space: String::new(),
        numbers_in_space: [0].into(),
        counts: SourceCounts { ids: 10, requests: 1, ..SourceCounts::default() },
        last_minute: SourceMinute::default(),
        waiting_requests: 0,
        waiting_ids: 0,
        default_wait_s: 1.0,
        fleet_headroom_s: None,
        ceiling_wanted: false,
        awaits: None,
    }
}

pub(crate) fn healthy() -> Status {
    let mut status = Status {
        started_unix_s: 1_800_000_000.0,
        uptime_s: 60.0,
        ceilings: CeilingsStatus {
            slowest_raise_s: 0.002,
            usual_raise_s: 0.002,
            horizon_s: 3.0,
            ..CeilingsStatus::default()
        },
        sources: vec![source()],
        connections: Connections { open: 1, max: 10, queued_bytes_max: 100, ..Connections::default() },
        ..Status::default()
    };
    status.judge();
    status
}

#[test]
fn quantiles_are_interpolated_between_bounds() {
    let mut latency = Latency::default();
    assert_eq!(latency.quantile_us(0.5), None);
    latency.counts[1] = 10;
    assert_eq!(latency.quantile_us(0.5), Some(15.0));
    assert_eq!(latency.quantile_us(1.0), Some(20.0));
    latency.counts[3] = 10;
    assert_eq!(latency.quantile_us(0.5), Some(20.0));
    assert_eq!(latency.quantile_us(0.75), Some(75.0));
    *latency.counts.last_mut().expect("a last bucket") = 1_000;
    assert_eq!(latency.quantile_us(0.99), Some(10_000_000.0), "the highest bound, as Prometheus returns");
}

#[test]
fn a_full_default_wait_counts_as_at_most_a_tenth_longer() {
    let mut latency = Latency::default();
    latency.counts[BOUNDS_US.partition_point(|&bound_us| bound_us < 1_010_000)] = 1_000;
    assert!(latency.quantile_us(0.999).is_some_and(|us| us <= 1_100_000.0));
}
