use serde_json::{Value, json};

use super::*;
use crate::server::health::figures::Figure::{self, *};
use crate::server::health::samples::tests::healthy_but;

/// The observer's log of a status that changes every second.
struct Log {
    observer: Observer,
    now: Instant,
}

impl Log {
    fn new() -> Log {
        Log { observer: Observer::default(), now: Instant::now() }
    }

    /// Lets a second pass, and observes a healthy status with other values of these figures.
    /// Returns the new lines.
    fn second(&mut self, figures: &[(Figure, Value)]) -> Vec<String> {
        self.now += Duration::from_secs(1);
        let status = Status::new(healthy_but(figures.iter().cloned()));
        self.observer.lines(&status, self.now).into_iter().map(|Line(_, text)| text).collect()
    }

    fn quiet_seconds(&mut self, seconds: u32, figures: &[(Figure, Value)]) {
        for second in 0..seconds {
            assert_eq!(self.second(figures), [""; 0], "second {second}");
        }
    }
}

#[test]
fn each_change_of_a_finding_or_of_readiness_is_logged_once() {
    let mut log = Log::new();
    log.quiet_seconds(10, &[]);
    let reached = [(Failing, json!("disk full")), (HeadroomS, json!(0.0))];
    let lines = log.second(&reached[..1]);
    assert!(lines.len() == 1 && lines[0].contains("finding ceiling of orders: cannot be raised: disk full"));
    let lines = log.second(&reached);
    assert!(lines[0].contains("finding ceiling of orders: reached, and cannot"), "{lines:?}");
    assert_eq!(lines[1..], ["not ready: /readyz answers 503, because of ceiling of orders"]);
    log.quiet_seconds(100, &reached);
    log.quiet_seconds(20, &[]);
    let lines = log.second(&[]);
    assert_eq!(lines[0], "finding ceiling of orders has ended");
    assert!(lines[1].starts_with("ready again: /readyz answers 200"), "{lines:?}");
    log.quiet_seconds(100, &[]);
}

#[test]
fn nothing_is_logged_before_a_first_tick_that_comes_soon() {
    for (uptime_s, stands_s, lines) in [(0.1, 0.1, 0), (1.9, 1.0, 0), (0.1, 60.0, 2), (2.0, 0.1, 2)] {
        let logged = Log::new().second(&[(UptimeS, json!(uptime_s)), (StandsS, json!(stands_s))]);
        assert_eq!(logged.len(), lines, "{uptime_s}, {stands_s}: {logged:?}");
    }
}

#[test]
fn a_finding_that_comes_and_goes_has_two_log_lines() {
    let refused = [(UnauthorizedLately, json!(5))];
    let mut log = Log::new();
    let lines = log.second(&refused);
    assert!(lines.len() == 1 && lines[0].starts_with("finding authorization: "), "{lines:?}");
    for _ in 0..6 {
        log.quiet_seconds(10, &[]);
        log.quiet_seconds(10, &refused);
    }
    log.quiet_seconds(20, &[]);
    assert_eq!(log.second(&[]), ["finding authorization has ended"]);
}

#[test]
fn a_stop_logs_no_finding() {
    let mut log = Log::new();
    log.quiet_seconds(10, &[(Draining, json!(true))]);
}

#[test]
fn a_pause_for_a_new_worker_id_is_logged_only_if_it_lasts() {
    let mut log = Log::new();
    log.quiet_seconds(5, &[]);
    let under_way = |since_s: f64| {
        let at_unix_s = healthy_but([]).now_s() - since_s;
        [(ReloadAt, json!(at_unix_s)), (Awaits, json!("waits"))]
    };
    log.quiet_seconds(5, &under_way(5.0));
    let lines = log.second(&under_way(UNDER_WAY.as_secs_f64() + 1.0));
    assert!(lines[0].starts_with("finding ceiling of orders: has not begun"), "{lines:?}");
}
