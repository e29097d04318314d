//! The admin listener: exact counts, correct readiness, and each path's format.

mod health;

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::failing_disk::{EIO, FailingDisk};
use crate::support::http::{ask, get, sample, scrape};
use crate::support::program::{Said, program, snowbank};
use crate::support::{Address, Ask, Daemon, Setup, TWO_SOURCES, poll, wire};

fn with_admin(toml: &str) -> Daemon {
    Setup::configured(toml).admin().start()
}

fn admin_of(daemon: &Daemon) -> Address {
    daemon.addresses.last().expect("an admin listener").clone()
}

fn status(options: &[&str]) -> Said {
    snowbank([&["status"], options].concat())
}

/// Scrapes until a scrape counts at least this many timed requests, and returns that scrape. An
/// earlier scrape may miss some, because a shard times a request after it has sent the reply.
fn scrape_after(daemon: &Daemon, requests: f64) -> Vec<(String, f64)> {
    poll(&format!("{requests} timed requests"), || {
        let samples = scrape(daemon);
        (sample(&samples, "snowbank_request_duration_seconds_count") >= requests).then_some(samples)
    })
}

/// Sends requests with every outcome. Returns how many IDs a request of 4,000 got from the source
/// `slow`, which has fewer.
fn send_one_of_each(daemon: &Daemon) -> f64 {
    let mut wire = daemon.connect();
    // The connections stay open, so that all shards serve.
    let mut wires: Vec<_> = (0..10).map(|_| daemon.connect()).collect();
    wires.iter_mut().for_each(|wire| drop(wire.next(Ask::of(7))));
    wire.next(Ask::of(3).source("slow"));
    wire.next(Ask::of(4_000).flags(wire::EXPLICIT));
    let some = wire.next(Ask::of(4_000).source("slow").wait_ms(0).flags(wire::PARTIAL)).id_count();
    let some = some.expect("an idle source has some IDs") as f64;
    assert!((1.0..4_000.0).contains(&some));
    // These requests ask for more IDs than the source has, and allow no wait.
    let never = Ask::of(4_000).source("slow").wait_ms(0).bytes();
    for (request, tag, code) in [
        (never.clone(), 0, wire::EXHAUSTED),
        (never, 0, wire::EXHAUSTED),
        (Ask::of(0).bytes(), 0, wire::BAD_COUNT),
        // With PARTIAL the daemon may send fewer IDs, but it still refuses a count above
        // `max_count`.
        (Ask::of(5_001).flags(wire::PARTIAL).bytes(), 0, wire::BAD_COUNT),
        (Ask::of(1).source("nine").bytes(), 0, wire::UNKNOWN_SOURCE),
        (wire::frame(0x01, 0, 1, &[1, 2, 3]), 1, wire::MALFORMED),
        (wire::frame(0x55, 0, 1, &[]), 1, wire::UNSUPPORTED),
    ] {
        wire.call(&request).assert_error(tag, code);
    }
    wire.call(&wire::ping(1, b"a"));
    wire.call(&wire::info(1));
    // A frame length of 0 ends the connection.
    wire.call(&[0, 0, 0, 0]).assert_error(0, wire::MALFORMED);
    some
}

#[test]
fn every_request_is_counted_once() {
    // The ceiling is two of these long ticks ahead, so the daemon does not reach it even if the
    // machine pauses.
    let sources = TWO_SOURCES.replace("tick=1s", "tick=10s");
    let daemon = with_admin(&format!("shards = 4\nlimits.max_count = 5000\n{sources}"));
    let some = send_one_of_each(&daemon);
    let samples = scrape_after(&daemon, 15.0);
    for (name, expected) in [
        ("snowbank_requests_total{source=\"fast\"}", 11.0),
        ("snowbank_ids_issued_total{source=\"fast\"}", 4_070.0),
        ("snowbank_exhausted_total{source=\"fast\"}", 0.0),
        ("snowbank_requests_total{source=\"slow\"}", 4.0),
        ("snowbank_ids_issued_total{source=\"slow\"}", 3.0 + some),
        ("snowbank_exhausted_total{source=\"slow\"}", 2.0),
        ("snowbank_errors_total{code=\"exhausted\"}", 2.0),
        ("snowbank_errors_total{code=\"bad_count\"}", 2.0),
        ("snowbank_errors_total{code=\"unknown_source\"}", 1.0),
        ("snowbank_errors_total{code=\"malformed\"}", 2.0),
        ("snowbank_errors_total{code=\"unsupported\"}", 1.0),
        ("snowbank_other_requests_total", 2.0),
        ("snowbank_request_duration_seconds_count", 15.0),
        ("snowbank_request_duration_seconds_bucket{le=\"+Inf\"}", 15.0),
        ("snowbank_connections_accepted_total", 11.0),
        ("snowbank_connections_refused_total", 0.0),
        ("snowbank_ready", 1.0),
    ] {
        assert_eq!(sample(&samples, name), expected, "{name}");
    }
    let errors = samples.iter().filter(|(name, _)| name.starts_with("snowbank_errors_total{"));
    assert_eq!(
        errors.map(|(_, count)| count).sum::<f64>(),
        8.0,
        "the daemon counted errors with other codes"
    );
}

#[test]
fn a_request_that_waits_is_counted_and_timed() {
    let daemon = with_admin(&format!("limits.max_wait = \"60s\"\n{TWO_SOURCES}"));
    let waiting = || sample(&scrape(&daemon), "snowbank_waiting_requests{source=\"slow\"}");
    // This request would wait for most of a minute. The reset of its connection ends the wait, and
    // the daemon does not count the request as answered.
    let mut gone = daemon.connect();
    gone.send(&Ask::of(800).source("slow").wait_ms(60_000).bytes());
    poll("a request that waits", || (waiting() == 1.0).then_some(()));
    socket2::SockRef::from(gone.tcp()).set_linger(Some(std::time::Duration::ZERO)).expect("a socket");
    drop(gone);
    poll("the end of the wait", || (waiting() == 0.0).then_some(()));
    // Asks for more IDs than two ticks have, so the request waits.
    assert_eq!(daemon.connect().next(Ask::of(48).source("slow").wait_ms(30_000)).id_count(), Some(48));
    let samples = scrape_after(&daemon, 1.0);
    assert!(sample(&samples, "snowbank_waits_total{source=\"slow\"}") >= 1.0);
    assert_eq!(sample(&samples, "snowbank_request_duration_seconds_count"), 1.0);
}

#[test]
fn each_path_has_its_content_type_and_allows_reads() {
    let daemon = with_admin("");
    let admin = admin_of(&daemon);
    for (path, content_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/icon.svg", "image/svg+xml"),
        ("/healthz", "text/plain; charset=utf-8"),
        ("/readyz?verbose", "application/json"),
        ("/status", "application/json"),
        ("/history", "application/json"),
        ("/config", "text/plain; charset=utf-8"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
    ] {
        let answer = ask(&admin, "GET", path, "");
        assert_eq!((answer.code, answer.header("content-type")), (200, Some(content_type)), "{path}");
        let policy = answer.header("content-security-policy").expect("a policy");
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert!(!answer.body.is_empty());
        let head = ask(&admin, "HEAD", path, "");
        assert_eq!((head.code, head.body.as_str()), (200, ""), "{path}");
        assert_eq!(head.header("content-type"), Some(content_type));
        let post = ask(&admin, "POST", path, "Content-Length: 0\r\n");
        assert_eq!((post.code, post.header("allow")), (405, Some("GET, HEAD, OPTIONS")), "{path}");
        let options = ask(&admin, "OPTIONS", path, "");
        assert_eq!((options.code, options.header("allow")), (200, Some("GET, HEAD, OPTIONS")), "{path}");
    }
    let page = ask(&admin, "GET", "/", "").body;
    assert!(!page.contains("://") && !page.contains("<style") && !page.contains("style="), "{page}");
    for path in ["/nothing", "/metrics/", "//", "/../etc/passwd"] {
        for method in ["GET", "POST"] {
            let answer = ask(&admin, method, path, "");
            assert_eq!(answer.code, 404, "{method} {path}");
            assert!(answer.body.contains("/metrics"), "{answer:?}");
        }
    }
    // A web page cannot read the admin listener by DNS rebinding.
    for path in ["/", "/status"] {
        let answer = ask(&admin, "GET", path, "Host: rebound.example:9660\r\n");
        assert!(answer.code == 421 && answer.body.contains("nginx"), "{answer:?}");
    }
    let absolute = |target: &str| ask(&admin, "GET", target, "").code;
    assert_eq!(absolute("http://localhost/status"), 200);
    assert_eq!(absolute("http://rebound.example/status"), 421);
    assert_eq!(ask(&admin, "GET", "/status", "Host: [::1].evil.example\r\n").code, 400);
    let text = ask(&admin, "GET", "/metrics", "Accept: text/plain;version=0.0.4\r\n");
    assert_eq!(text.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(text.body.contains("# TYPE snowbank_ids_issued_total counter"), "{}", text.body);
    assert!(!text.body.contains("# EOF") && !text.body.contains("# UNIT"), "{}", text.body);
    let newer = ask(&admin, "GET", "/metrics", "Accept: application/openmetrics-text;version=1.0.0\r\n");
    assert_eq!(
        newer.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    assert!(newer.body.contains("# TYPE snowbank_ids_issued counter"), "{}", newer.body);
    // A browser sends localhost's cookies to every port.
    let cookies = format!("Cookie: a={}\r\n", "x".repeat(16 * 1024));
    assert_eq!(ask(&admin, "GET", "/status", &cookies).code, 200);
}

#[test]
fn the_admin_listener_is_optional_and_may_be_a_unix_socket() {
    let setup = Setup::new();
    let path = setup.path("admin.sock");
    let daemon = setup.option("--admin", format!("unix:{}", path.display())).listeners(2).start();
    assert_eq!(daemon.addresses[1], Address::Unix(path.clone()));
    assert_eq!(get(&daemon, "/healthz").body, "ok\n");
    let answer = status(&["--admin", &format!("unix:{}", path.display())]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    daemon.stop();
    assert!(!path.exists());
    assert!(!Setup::new().start().log().contains("admin"));
}

#[test]
fn status_finds_the_daemon_by_option_and_configuration() {
    let daemon = with_admin(TWO_SOURCES);
    daemon.connect().next(Ask::of(5));
    scrape_after(&daemon, 1.0);
    let admin = admin_of(&daemon).to_string();
    let said = status(&["--admin", &admin]);
    let text = said.out;
    assert_eq!(said.code, Some(0), "{text}");
    for part in ["Serving, all is as it should be", "source fast: 5 IDs in 1 request", "99 % within"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let json = status(&["--admin", &admin, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.printed()).expect("JSON");
    assert_eq!((&json["ready"], &json["sources"][0]["ids"]), (&true.into(), &5.into()));

    let path = daemon.path("other.toml");
    let config = path.to_str().expect("UTF-8");
    let no_admin = daemon.addresses[0].to_string();
    for (toml, options, code) in [
        (&*format!("admin.listen = \"{admin}\""), &["--config", config][..], 0),
        ("shards = 1", &["--config", config], 2),
        ("", &["--admin", "nowhere"], 2),
        // The native listener is not an admin listener.
        ("", &["--admin", &no_admin, "--timeout", "2s"], 2),
    ] {
        std::fs::write(&path, toml).expect("written");
        let said = status(options);
        assert_eq!(said.code, Some(code), "{said:?}");
    }

    // A daemon can be asked while its file has a mistake, or cannot be read.
    let missing = daemon.path("missing.toml");
    std::fs::write(&path, format!("shards = 0\nadmin.listen = \"{admin}\"")).expect("written");
    for config in [config, missing.to_str().expect("UTF-8")] {
        let line = status(&["--config", config]).refusal(2);
        assert!(line.trim_end().ends_with("; or give the daemon's admin address with --admin"), "{line}");
        assert_eq!(status(&["--config", config, "--admin", &admin]).code, Some(0));
    }
    let line = status(&["--admin", &no_admin, "--timeout", "2s"]).refusal(2);
    assert!(line.contains("speaks no HTTP: give the address of [admin]"), "{line}");

    // A container's health check: the file is only right with the variables that the daemon has.
    std::fs::write(&path, format!("listen = \"0.0.0.0:0\"\nadmin.listen = \"{admin}\"")).expect("written");
    for (variable, code) in [("SNOWBANK_WORKER_IDS", 0), ("SNOWBANK_ORDER", 2)] {
        let mut command = program();
        let said = Said::by(command.args(["status", "--config", config]).env(variable, "5"));
        assert_eq!(said.code, Some(code), "{said:?}");
    }
}

/// The page comes again and again, with rates, and the command outlives the daemon.
#[test]
fn status_watch_repeats_the_page_with_rates() {
    let daemon = with_admin(TWO_SOURCES);
    let admin = admin_of(&daemon).to_string();
    let pages = crate::support::directory();
    let pages = pages.path().join("pages");
    let mut command = program();
    command.args(["status", "--watch", "1", "--admin", &admin]);
    let mut watching = command.stdout(File::create(&pages).expect("made")).spawn().expect("the program runs");
    let await_text = |text: &str| {
        poll(&format!("the text {text:?}"), || {
            std::fs::read_to_string(&pages).expect("UTF-8").contains(text).then_some(())
        });
    };
    await_text("\nsource fast: 0 IDs in 0 requests\n");
    daemon.connect().next(Ask::of(5));
    await_text("\nsource fast: 5 IDs (");
    daemon.stop();
    await_text(&format!("cannot ask the daemon at {admin}: "));
    assert!(watching.try_wait().expect("a child").is_none(), "the command has ended");
    watching.kill().expect("it runs");
    watching.wait().expect("a child");
}

/// The answers to these give no reason.
#[test]
fn what_is_no_http_request_is_logged_at_the_admin_listener() {
    let daemon = with_admin(TWO_SOURCES);
    for sent in [&b"\x16\x03\x01\x02\0\x01\0\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut stream = TcpStream::connect(admin_of(&daemon).tcp()).expect("connected");
        stream.write_all(sent).expect("sent");
    }
    for found in ["invalid HTTP method", "invalid HTTP version"] {
        daemon.assert_logs(&format!("the admin listener found no request of HTTP/1.1: {found}"));
    }
    let mut stream = TcpStream::connect(admin_of(&daemon).tcp()).expect("connected");
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: ").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.ends_with("\r\n\r\nno whole request arrived within 2s\n"), "{answer}");
    for (reason, count) in [("bad_request", 2.0), ("half_request", 1.0)] {
        let name = format!("snowbank_connections_closed_total{{reason=\"{reason}\"}}");
        poll(reason, || (sample(&scrape(&daemon), &name) >= count).then_some(()));
    }
}
