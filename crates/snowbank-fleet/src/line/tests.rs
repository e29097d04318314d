use std::future::pending;

use tokio::sync::Barrier;

use super::*;
use crate::{CoordinatorKind, FleetLimits, Marker};

/// A session with the endpoint of this host. The host `hangs` never answers, `away` refuses
/// connections, `strange` refuses the password, and `empty` has no marker. Every other host has a
/// marker whose identity is the host's name.
#[derive(Debug)]
struct Named(String);

impl Session for Named {
    async fn open(_: &Access, endpoint: &Endpoint, _: Duration) -> Result<Self, NoAnswer> {
        match &*endpoint.host {
            "hangs" => pending().await,
            "away" => Err(NoAnswer::passing("refuses")),
            "strange" => Err(NoAnswer::lasting("wrong password")),
            host => Ok(Named(host.to_owned())),
        }
    }

    async fn log_in(&mut self, _: &Access) -> Result<(), NoAnswer> {
        Ok(())
    }

    /// All hosts report one cluster ID.
    fn cluster_id(&self) -> &str {
        "1"
    }

    fn set_patience(&mut self, _: Duration) {}

    async fn read(&mut self, _: &[String]) -> Result<Vec<Option<String>>, NoAnswer> {
        Ok(vec![(self.0 != "empty").then(|| marker(&self.0))])
    }

    async fn list(&mut self, _: &str) -> Result<Vec<(String, String)>, NoAnswer> {
        unreachable!("the tests only read keys")
    }

    async fn swap(&mut self, _: &[Swap]) -> Result<Swapped, NoAnswer> {
        unreachable!("the tests only read keys")
    }
}

fn marker(identity: &str) -> String {
    let limits = FleetLimits::new(Duration::from_secs(60), Duration::from_secs(10));
    Marker::new(identity, Vec::new(), limits).text()
}

/// Calls these hosts as a daemon that belongs to the cluster of host `a`. Returns the host that
/// answers.
fn host_that_answers(hosts: &[&str]) -> Result<String, NoAnswer> {
    let mut line = line(hosts);
    line.set_cluster(Some(Cluster::of("/marker", &marker("a"), Marker::identity_in).unwrap()));
    line.call(async |session| Ok(session.0.clone()))
}

fn line(hosts: &[&str]) -> Line<Named> {
    let endpoint = |host: &&str| format!("zookeeper://{host}").parse().unwrap();
    let endpoints = hosts.iter().map(endpoint).collect();
    let kind = CoordinatorKind::ZooKeeper;
    let tls = ClientFiles::default();
    Line::new(Access { kind, endpoints, user: None, tls, certificate: None, boot_clock: || BootMicros(0) })
        .unwrap()
}

#[test]
fn the_time_for_an_answer_follows_recent_answers() {
    let mut patience = Patience::long();
    assert_eq!(patience.answer(), ANSWER_TIMEOUT, "`hurry` was not called yet");
    patience.hurry();
    let mut after = |took_ms| {
        patience.record(Duration::from_millis(took_ms));
        patience.answer().as_millis()
    };
    (0..5).for_each(|_| _ = after(1));
    assert_eq!(after(1), 500);
    assert_eq!(after(200), 800);
    assert_eq!([after(1), after(1)], [500, 500]);
    // A write takes several seconds. Each retry of that write connects again in a millisecond.
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

/// The exchanges with `a` and `b` wait for each other, so they end only if both run at the same
/// time.
#[test]
fn all_endpoints_are_asked_at_once_and_the_first_stays_open() {
    let mut line = line(&["hangs", "a", "b"]);
    let barrier = Barrier::new(2);
    let found = line.call_each(async |session| {
        barrier.wait().await;
        Ok(session.0.clone())
    });
    assert_eq!(
        found.unwrap(),
        [("zookeeper://a:2181", "a"), ("zookeeper://b:2181", "b")].map(|(e, h)| (e.to_owned(), h.to_owned()))
    );
    assert_eq!((line.current, line.session.take().map(|session| session.0).as_deref()), (1, Some("a")));
}

#[test]
fn a_comparison_leaves_out_single_and_failing_endpoints() {
    let name = async |session: &mut Named| Ok(session.0.clone());
    assert_eq!(line(&["a"]).call_each(name), Ok(Vec::new()));
    let mut hanging = line(&["hangs", "hangs"]);
    assert!(hanging.call_each(name).unwrap().is_empty() && hanging.session.is_none());
    let fails_at_a = async |session: &mut Named| match session.0.as_str() {
        "a" => Err(NoAnswer::passing("no")),
        _ => Ok(()),
    };
    assert_eq!(line(&["a", "b"]).call_each(fails_at_a), Ok(vec![(String::from("zookeeper://b:2181"), ())]));
}

#[test]
fn calls_go_only_to_the_daemons_own_cluster() {
    assert_eq!(host_that_answers(&["b", "empty", "a"]).as_deref(), Ok("a"));
    for hosts in [&["b"][..], &["empty"], &["b", "empty"]] {
        assert!(host_that_answers(hosts).is_err_and(|answer| answer.is_foreign), "{hosts:?}");
    }
    let away = host_that_answers(&["away", "b"]).unwrap_err();
    assert!(!away.is_foreign && !away.is_lasting, "the daemon's own cluster may come back: {away}");
    assert_eq!(host_that_answers(&["strange", "a"]).as_deref(), Ok("a"));
    let away = host_that_answers(&["strange", "away"]).unwrap_err();
    assert!(!away.is_lasting, "the daemon's own cluster may come back: {away}");
    assert!(host_that_answers(&["strange"]).is_err_and(|answer| answer.is_lasting));
}

#[test]
fn endpoints_of_another_cluster_are_left_out_of_a_comparison() {
    let mut line = line(&["b", "a"]);
    line.set_cluster(Some(Cluster::of("/marker", &marker("a"), Marker::identity_in).unwrap()));
    assert_eq!(line.call_each(async |_| Ok(())), Ok(vec![(String::from("zookeeper://a:2181"), ())]));
    assert_eq!(line.session.take().unwrap().0, "a");
}

/// A pipe that nobody writes hangs whoever opens it, as a file on a disk that hangs does.
#[test]
fn a_password_file_that_hangs_ends_the_wait_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let password_file = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&password_file).status().unwrap().success());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let user = User { name: String::from("snowbank"), password_file: password_file.clone() };
    let read = runtime.block_on(user.password(Duration::from_millis(50)));
    assert!(read.unwrap_err().reason.contains("could not be read within 50ms"));
    // The reader ends.
    std::fs::write(password_file, "secret\n").unwrap();
}
