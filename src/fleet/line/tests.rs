use std::future::pending;

use tokio::sync::Barrier;

use super::*;

/// A session with the endpoint of this host. Nothing answers at the host `hangs`.
struct Named(String);

impl Session for Named {
    async fn open(_: &Access, endpoint: &Endpoint) -> Result<Self, Fault> {
        if endpoint.host() == "hangs" { pending().await } else { Ok(Named(endpoint.host().to_owned())) }
    }

    fn set_patience(&mut self, _: Duration) {}
}

fn line(hosts: &[&str]) -> Line<Named> {
    let endpoint = |host: &&str| format!("redis://{host}").parse().unwrap();
    let endpoints = hosts.iter().map(endpoint).collect();
    let (kind, tls) = (CoordinatorKind::Redis, ClientFiles::default());
    Line::new(Access { kind, endpoints, user: None, tls }).unwrap()
}

#[test]
fn a_connection_that_hangs_is_given_up_soon_and_a_slow_coordinator_is_waited_for() {
    let mut patience = Patience::long();
    assert_eq!(patience.answer(), ANSWER_TIMEOUT, "a start waits");
    patience.hurry();
    let mut after = |took_ms| {
        patience.note(Duration::from_millis(took_ms));
        patience.answer().as_millis()
    };
    (0..5).for_each(|_| _ = after(1));
    assert_eq!(after(1), 500);
    assert_eq!(after(200), 800);
    assert_eq!([after(1), after(1)], [500, 500]);
    // Each write takes a second, and each new connection a millisecond.
    assert_eq!([after(500), after(1)], [2_000, 1_000]);
    assert_eq!([after(1_000), after(1)], [4_000, 2_000]);
    assert_eq!([after(2_000), after(100_000)], [5_000, 5_000]);
}

#[test]
fn an_endpoint_that_hangs_delays_the_others_briefly() {
    let short = Some(CONNECT_TIMEOUT);
    let all = |endpoints, is_open| tries(endpoints, is_open).collect::<Vec<_>>();
    assert_eq!(all(1, false), [None]);
    assert_eq!(all(1, true), [None, None]);
    assert_eq!(all(2, true), [None, short, short, None, None]);
}

/// The exchanges of the two that answer wait for each other.
#[test]
fn endpoints_are_asked_at_the_same_time_and_the_first_that_answers_stays_connected() {
    let (mut line, barrier) = (line(&["hangs", "a", "b"]), Barrier::new(2));
    let found = line.call_each(async |session| {
        barrier.wait().await;
        Ok(session.0.clone())
    });
    assert_eq!(
        found,
        [("redis://a:6379", "a"), ("redis://b:6379", "b")].map(|(e, h)| (e.to_owned(), h.to_owned()))
    );
    assert_eq!((line.current, line.session.map(|session| session.0).as_deref()), (1, Some("a")));
}

#[test]
fn a_single_endpoint_and_those_that_hang_or_fail_are_left_out() {
    let name = async |session: &mut Named| Ok(session.0.clone());
    assert_eq!(line(&["a"]).call_each(name), []);
    let mut hanging = line(&["hangs", "hangs"]);
    assert!(hanging.call_each(name).is_empty() && hanging.session.is_none());
    let fails_at_a = async |session: &mut Named| match session.0.as_str() {
        "a" => Err(Fault::Endpoint(String::from("no"))),
        _ => Ok(()),
    };
    assert_eq!(line(&["a", "b"]).call_each(fails_at_a), [(String::from("redis://b:6379"), ())]);
}
