//! Several endpoints, of which one hangs, is away, or belongs to another cluster.

use std::time::{Duration, Instant};

use super::*;

/// The time that a start has for one answer: far above the time in which all endpoints are compared.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns a configuration with these endpoints.
fn toml_of(at: &dyn Coordinator, urls: &[&str], horizon: &str) -> String {
    toml_at(at, &urls.join("\", \""), Some(5), horizon)
}

/// It connects, and hangs in its first answer or, except at etcd, after it.
#[test]
fn an_endpoint_that_hangs_delays_a_start_briefly_and_is_asked_once() {
    each(|at| {
        init(&toml(at, Some(5), LONG));
        for answers in [0, u64::from(at.name() != "etcd")] {
            let proxy = at.proxy();
            proxy.hang_after(answers);
            let named = at.url().replace("127.0.0.1", "localhost");
            let toml = toml_of(at, &[&proxy.url(), &at.url(), &named], LONG);
            let machine = Machine::new();
            let began = Instant::now();
            let daemon = machine.start(&toml);
            let took = began.elapsed();
            assert_eq!(worker_of(&draw(&daemon)), 5);
            assert!(took < ANSWER_TIMEOUT, "{took:?}");
            assert_eq!(proxy.connections(), 1);
            daemon.stop();
        }
    });
}
