//! The front end for HTTP: the exact bytes of its responses.

use std::collections::HashSet;

use crate::front_ends::with_two_sources;
use crate::support::frontend::FrontEndClient;
use crate::support::{Setup, TWO_SOURCES, poll};

#[test]
fn ids_are_json_strings_or_lines_and_are_never_cached() {
    let daemon = with_two_sources("http");
    let mut client = FrontEndClient::of(&daemon);
    let response = client.get("/v1/ids?source=slow&count=3", "");
    assert!(response.body.starts_with("{\"source\":\"slow\",\"ids\":[\""), "{}", response.body);
    assert!(response.body.ends_with("\"]}\n") && response.ids().len() == 3, "{}", response.body);
    assert!(response.has("content-type: application/json"), "{response:?}");
    let lines = client.get("/v1/ids?count=4", "accept: text/plain\r\n");
    assert_eq!(lines.body.lines().count(), 4);
    client.send("POST /v1/ids HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n");
    let posted = client.answer(true);
    assert!(lines.ids().last() < posted.ids().first());
    for target in ["/v1/ids", "/v1/sources", "/v1/nothing", "/v1/ids?count=0", "/id", "/stats"] {
        let response = FrontEndClient::of(&daemon).get(target, "");
        assert!(response.has("cache-control: no-store"), "{target}: {response:?}");
    }
}

#[test]
fn a_million_ids_come_in_chunks_and_the_connection_stays_open() {
    let daemon = with_two_sources("http");
    let mut client = FrontEndClient::of(&daemon);
    let response = client.get("/v1/ids?count=1000000&wait=10s", "");
    assert!(response.has("transfer-encoding: chunked"));
    assert_eq!(response.json()["source"], "fast");
    let ids = response.ids();
    assert_eq!(ids.len(), 1_000_000);
    assert!(ids.is_sorted_by(|left, right| left < right));
    assert_eq!(client.get("/id", "").ids().len(), 1);
    daemon.stop();
}

#[test]
fn refusals_are_json_with_a_reason_and_a_retry_time() {
    // The ceiling is two of these long ticks ahead, so the daemon does not reach it even if the
    // machine pauses.
    let sources = TWO_SOURCES.replace("tick=1s", "tick=10s");
    let daemon = Setup::configured(&sources).front_end("http").start();
    let mut client = FrontEndClient::of(&daemon);
    let drawn = std::iter::repeat_with(|| client.get("/v1/ids?source=slow&count=10&wait=0", ""));
    let refused = drawn.take(100).find(|response| response.code != 200).expect("16 IDs in a tick");
    assert_eq!(refused.code, 503);
    let seconds = refused.json()["retry_after_ms"].as_u64().expect("a time").div_ceil(1_000);
    assert!(refused.has(&format!("retry-after: {seconds}")), "{refused:?}");
    for (target, status, parts) in [
        ("/v1/ids?source=none", 404, &["unknown_source", "fast, slow"][..]),
        ("/v1/ids?count=0", 400, &["bad_count", "allowed: 1 to 1000000"]),
        ("/v1/ids?count=99999999999999999999", 400, &["bad_count"]),
        ("/v1/ids?counts=1", 400, &["malformed", "counts", "source, count, wait, partial, format"]),
        ("/v1/ids?count=1&count=2", 400, &["twice"]),
        ("/v1/ids?wait=soon", 400, &["wait=soon"]),
        ("/v1/ids?format=base7", 400, &["format"]),
        ("/v1/ids?source=slow&count=40&wait=0", 400, &["exhausted", "never"]),
        ("/v1/decode/x", 400, &["malformed"]),
        ("/v1/range?from=2026-01-01", 400, &["to"]),
        ("/nothing", 404, &["/v1/ids"]),
    ] {
        let response = FrontEndClient::of(&daemon).get(target, "");
        assert_eq!(response.code, status, "{target}: {}", response.body);
        for part in parts {
            assert!(response.body.contains(part), "{target}: {}", response.body);
        }
        assert!(response.header("retry-after").is_none(), "{target}: {response:?}");
    }
}

#[test]
fn head_and_other_methods_are_refused() {
    let daemon = with_two_sources("http");
    let mut client = FrontEndClient::of(&daemon);
    for method in ["HEAD", "PUT", "DELETE"] {
        client.send(format!("{method} /v1/ids HTTP/1.1\r\nhost: localhost\r\n\r\n"));
        let response = client.answer(method != "HEAD");
        assert_eq!(response.code, 405);
        assert!(response.has("allow: get, post"), "{response:?}");
    }
}

#[test]
fn paths_of_katsubushi_and_leaf_answer_in_their_formats() {
    let config = format!("any_key = \"fast\"\n{TWO_SOURCES}");
    let daemon = Setup::configured(&config).front_end("http").start();
    let mut client = FrontEndClient::of(&daemon);
    let mut ids = HashSet::new();
    let mut note = |found: Vec<u64>, count| {
        assert_eq!(found.len(), count);
        found.into_iter().for_each(|id| assert!(ids.insert(id)));
    };
    let json = "accept: application/json\r\n";
    let one = client.get("/id", "");
    assert!(one.body.bytes().all(|byte| byte.is_ascii_digit()), "{}", one.body);
    note(one.ids(), 1);
    let one = client.get("/id", json);
    assert!(one.body.starts_with("{\"id\":\"") && one.body.ends_with("\"}"), "{}", one.body);
    note(one.ids(), 1);
    note(client.get("/ids?n=3", "").ids(), 3);
    assert!(client.get("/ids?n=2", json).body.starts_with("{\"ids\":[\""));
    note(client.get("/api/snowflake/get/any-key", "").ids(), 1);
    let typo = client.get("/v1/ids?source=any-key", "");
    assert_eq!(typo.code, 404, "any_key applies only to the keys in Leaf's paths: {}", typo.body);
    let leaf = client.get("/api/segment/get/slow", "");
    note(leaf.ids(), 1);
    let id = client.get("/id", "").body;
    let decoded = client.get(&format!("/decodeSnowflakeId?snowflakeId={id}"), "").body;
    for part in ["\"sequenceId\":\"", "\"timestamp\":\"", "\"workerId\":\"1\""] {
        assert!(decoded.contains(part), "{decoded}");
    }
    let fields = client.get(&format!("/v1/decode/{id}"), "").body;
    assert!(
        fields.contains(&format!("\"id\":\"{id}\"")) && fields.contains("\"fields\":{\"time\":"),
        "{fields}"
    );
    let range = client.get("/v1/range?from=2026-01-01&to=2026-01-02", "").body;
    assert!(range.contains("\"first\":\"") && range.contains("\"last\":\""), "{range}");
    let objectid = client.get("/v1/ids?format=objectid", "accept: text/plain\r\n").body;
    assert_eq!(objectid.trim().len(), 24, "{objectid}");
    // Some formats have characters that a client must percent-encode in a path.
    let encoded: String = objectid.trim().bytes().map(|byte| format!("%{byte:02X}")).collect();
    for text in [objectid.trim(), &encoded] {
        let back = client.get(&format!("/v1/decode/{text}?format=objectid"), "");
        assert_eq!(back.code, 200, "{}", back.body);
    }
}

#[test]
fn requests_that_could_smuggle_another_close_the_connection() {
    let daemon = with_two_sources("http");
    let get = "GET /v1/ids HTTP/1.1\r\n";
    let local = format!("{get}host: localhost\r\n");
    let flood: String = (0..200).map(|index| format!("h{index}: x\r\n")).collect();
    for (request, code) in [
        (format!("{local}content-length: 5\r\n\r\nabcde"), "4"),
        (format!("{local}transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n").replace("GET", "POST"), "4"),
        (format!("{local}content-length:\r\n\r\n"), "4"),
        (format!("{local}content-length: +0\r\n\r\n"), "4"),
        (format!("{local}content-length: 0, 0\r\n\r\n"), "4"),
        (format!("{local}bad header\r\n\r\n"), "4"),
        (format!("{get}\r\n"), "4"),
        (format!("{local}authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n"), "4"),
        (format!("{local}x: {}\r\n\r\n", "y".repeat(70_000)), "4"),
        (format!("{local}{flood}\r\n"), "431"),
        (format!("{get}host: attacker.example\r\nconnection: close\r\n\r\n"), "421"),
    ] {
        let mut client = FrontEndClient::of(&daemon);
        client.send(&request);
        let response = String::from_utf8(client.rest()).expect("text");
        assert!(response.starts_with(&format!("HTTP/1.1 {code}")), "{request:.80}: {response}");
        assert_eq!(response.matches("HTTP/1.1 ").count(), 1, "{response}");
    }
}

#[test]
fn web_pages_of_other_origins_get_no_ids() {
    let daemon = with_two_sources("http");
    for (headers, code) in [("origin: http://localhost:3000\r\n", 403), ("origin: http://localhost\r\n", 200)]
    {
        let mut client = FrontEndClient::of(&daemon);
        let head = "POST /v1/ids HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n";
        client.send(format!("{head}{headers}\r\n"));
        let answer = client.answer(true);
        assert_eq!(answer.code, code, "{headers}: {}", answer.body);
        assert_eq!(answer.has("connection: close"), code == 403, "{answer:?}");
    }
}

#[test]
fn the_last_response_before_a_stop_has_connection_close() {
    let mut daemon = Setup::configured(&format!("shards = 1\nlimits.drain_timeout = \"60s\"\n{TWO_SOURCES}"))
        .front_end("http")
        .start();
    const ONE: &str = "GET /id HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let waits = "GET /v1/ids?source=slow&count=64&wait=9s HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let half = "GET /id HTTP/1.1\r\nhost: loc";
    // In one write, each client sends a complete request and something behind it: a request that
    // waits, or half of a request.
    let [mut waiting, mut two] = [waits, half].map(|behind| {
        let mut client = FrontEndClient::of(&daemon);
        client.send(format!("{ONE}{behind}"));
        assert!(!client.answer(true).has("connection: close"));
        client
    });
    // The daemon reads this request only after the waiting request has its IDs.
    waiting.send(ONE);
    let mut idle = FrontEndClient::of(&daemon);
    daemon.signal(rustix::process::Signal::TERM);
    poll("an answer that ends the connection", || idle.get("/id", "").has("connection: close").then_some(()));
    two.send(format!("alhost\r\n\r\n{ONE}"));
    for client in [&mut waiting, &mut two] {
        assert!(!client.answer(true).has("connection: close"), "another response follows");
    }
    for mut client in [waiting, two] {
        let last = client.answer(true);
        assert_eq!(last.code, 200, "{}", last.body);
        assert!(last.has("connection: close"), "{last:?}");
        assert_eq!(client.rest(), b"");
    }
    assert_eq!(daemon.wait(), Some(0));
}
