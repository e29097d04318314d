//! The front end for HTTP: the exact bytes of its responses.

use std::collections::HashSet;
use std::net::TcpStream;

use crate::front_ends::with_two_sources;
use crate::support::frontend::FrontEndClient;
use crate::support::http::{sample, scrape};
use crate::support::{Port, Setup, TWO_SOURCES, poll};

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
        ("/v1/ids?source=slow&count=40&wait=0", 409, &["exhausted", "never"]),
        ("/v1/decode/x", 400, &["malformed"]),
        ("/v1/range?from=2026-01-01", 400, &["to"]),
        ("/v1/range?from=1700000000&to=2026-01-01", 400, &["from: found 1700000000", "write 1700000000000"]),
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
fn every_path_answers_head_and_options_and_names_its_methods() {
    let daemon = with_two_sources("http");
    let mut client = FrontEndClient::of(&daemon);
    for (path, allow) in [
        ("/v1/ids", "get, post, head, options"),
        ("/id", "get, post, head, options"),
        ("/ids?n=3", "get, post, head, options"),
        ("/api/snowflake/get/fast", "get, post, head, options"),
        ("/v1/sources", "get, head, options"),
        ("/v1/openapi.json", "get, head, options"),
        ("/v1/range?from=2026-01-01&to=2026-01-02", "get, head, options"),
        ("/stats", "get, head, options"),
        ("/healthz", "get, head, options"),
    ] {
        for (method, code) in [("HEAD", 200), ("OPTIONS", 200), ("PUT", 405), ("DELETE", 405), ("PATCH", 405)]
        {
            client.send(format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"));
            let response = client.answer(method != "HEAD");
            assert_eq!(response.code, code, "{method} {path}: {response:?}");
            assert!(
                method == "HEAD" || response.has(&format!("allow: {allow}")),
                "{method} {path}: {response:?}"
            );
        }
    }
    // A method is wrong only where the path exists, also with a body.
    for (request, code) in [
        ("POST /v2/ids", 404),
        ("DELETE /nothing", 404),
        ("OPTIONS /nothing", 404),
        ("POST /api/snowflake", 404),
        ("GET *", 404),
        ("POST /stats", 405),
    ] {
        for headers in ["", "content-length: 2\r\n"] {
            let mut client = FrontEndClient::of(&daemon);
            client.send(format!("{request} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n"));
            let response = client.answer(true);
            assert_eq!(response.code, code, "{request}: {response:?}");
            assert_eq!(response.has("allow: get, head, options"), code == 405, "{request}: {response:?}");
        }
    }
    // A reply to HEAD has no body, so it draws nothing.
    let stats = client.get("/stats", "").json();
    assert_eq!((&stats["cmd_get"], &stats["get_hits"]), (&0.into(), &0.into()), "{stats}");
    client.send("HEAD /v1/ids?count=0 HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(client.answer(false).code, 400);
    // HAProxy's checks, with and without the version that needs a Host header.
    for check in
        ["OPTIONS / HTTP/1.0\r\n\r\n", "OPTIONS * HTTP/1.0\r\n\r\n", "HEAD /healthz HTTP/1.0\r\n\r\n"]
    {
        let mut client = FrontEndClient::of(&daemon);
        client.send(check);
        assert!(client.line().starts_with("HTTP/1.1 200 "), "{check}");
    }
}

#[test]
fn checks_of_load_balancers_need_no_token() {
    let setup = Setup::configured(&format!("auth.token_file = \"tokens\"\n{TWO_SOURCES}")).front_end("http");
    std::fs::write(setup.path("tokens"), "secret\n").expect("written");
    let daemon = setup.start();
    for (request, code) in [
        ("GET /healthz", 200),
        ("HEAD /healthz", 200),
        ("GET /", 200),
        ("HEAD /", 200),
        ("OPTIONS /v1/ids", 200),
        ("GET /v1/openapi.json", 200),
        ("GET /v1/ids", 401),
        ("HEAD /v1/ids", 401),
        ("GET /v1/sources", 401),
    ] {
        let mut client = FrontEndClient::of(&daemon);
        client.send(format!("{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"));
        let response = String::from_utf8(client.rest()).expect("text");
        assert!(response.starts_with(&format!("HTTP/1.1 {code} ")), "{request}: {response}");
    }
}

/// A check with keep-alive would leave a connection without a token, which the daemon closes and
/// counts after five seconds.
#[test]
fn a_check_without_a_token_ends_its_connection() {
    let setup = Setup::configured(&format!("auth.token_file = \"tokens\"\n{TWO_SOURCES}")).front_end("http");
    std::fs::write(setup.path("tokens"), "secret\n").expect("written");
    let daemon = setup.start();
    for request in ["GET /healthz", "OPTIONS /", "GET /v1/openapi.json"] {
        let mut client = FrontEndClient::of(&daemon);
        client.send(format!("{request} HTTP/1.1\r\nhost: localhost\r\n\r\n"));
        let response = client.answer(true);
        assert!(response.code == 200 && response.has("connection: close"), "{request}: {response:?}");
        assert_eq!(client.rest(), b"", "{request}");
        let mut client = FrontEndClient::of(&daemon);
        client.send(format!("{request} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer secret\r\n\r\n"));
        assert!(!client.answer(true).has("connection: close"), "{request}");
    }
}

/// A proxy may send the requests of several clients on one connection.
#[test]
fn a_mistake_ends_no_connection_and_unknown_parameters_are_mistakes() {
    let daemon = with_two_sources("http");
    let mut client = FrontEndClient::of(&daemon);
    for (target, code) in [
        ("/v1/ids?count=2&count=3", 400),
        ("/v1/ids?nope=1", 400),
        ("/v1/decode/abc", 400),
        ("/v1/range?from=1970-01-01&to=1970-01-02", 404),
        ("/v1/sources?nope=1", 400),
        ("/v1/openapi.json?nope=1", 400),
        // Probes have parameters of their own.
        ("/healthz?verbose", 200),
        ("/?_=1", 200),
    ] {
        let response = client.get(target, "");
        assert_eq!((response.code, response.has("connection: close")), (code, false), "{target}");
    }
    client.send("OPTIONS /healthz?verbose HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(client.answer(true).code, 200);
    assert_eq!(client.get("/id", "").code, 200);
}

#[test]
fn a_refused_head_says_what_is_wrong_with_it() {
    let daemon = with_two_sources("http");
    for (request, code, part) in [
        ("GET /id HTTP/2.0\r\nhost: localhost\r\n\r\n".to_owned(), 400, "invalid HTTP version"),
        ("GET /id HTTP/1.1\r\nhost : localhost\r\n\r\n".to_owned(), 400, "invalid header name"),
        (
            format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(40_000)),
            431,
            "a shorter address",
        ),
        (
            "GET /id HTTP/1.1\r\nhost: localhost\r\ncontent-length: +0\r\n\r\n".to_owned(),
            400,
            "a Content-Length that is no number",
        ),
        (
            "GET /id HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\ncontent-length: 0\r\n\r\n"
                .to_owned(),
            400,
            "two Content-Length headers",
        ),
        (
            "GET /id HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip\r\n\r\n".to_owned(),
            400,
            "a Transfer-Encoding other than chunked",
        ),
    ] {
        let mut client = FrontEndClient::of(&daemon);
        client.send(&request);
        let response = client.answer(true);
        assert!(response.code == code && response.body.contains(part), "{request:.60}: {response:?}");
        assert!(response.has("connection: close"), "{request:.60}");
    }
}

/// A balancer asks another daemon after a 503. Fewer than one ID cannot be asked for.
#[test]
fn a_counter_at_its_end_cannot_serve_one_id() {
    let setup = Setup::configured("[[sources]]\nname = \"small\"\nkind = \"ticket\"\nmaximum = 1001\n")
        .front_end("http");
    setup.run(&["ticket", "set", "small", "1000"]).printed();
    let daemon = setup.start();
    let mut client = FrontEndClient::of(&daemon);
    assert_eq!(client.get("/v1/ids?count=2", "").code, 409);
    assert_eq!(client.get("/id", "").code, 200);
    for target in ["/v1/ids", "/id", "/api/segment/get/small"] {
        let response = client.get(target, "");
        assert!(response.code == 503 && !response.body.contains("fewer"), "{target}: {response:?}");
    }
}

/// A key of segment mode that nobody moved must not get snowflake IDs.
#[test]
fn leafs_paths_give_only_their_kind_of_number() {
    let sources = "any_key = \"flakes\"\n[[sources]]\nname = \"flakes\"\nworker_ids = 1\n\
                   [[sources]]\nname = \"orders\"\nkind = \"ticket\"\n";
    let setup = Setup::configured(sources).front_end("http");
    setup.run(&["ticket", "set", "orders", "1000"]).printed();
    let daemon = setup.start();
    let mut client = FrontEndClient::of(&daemon);
    assert_eq!(client.get("/api/segment/get/orders", "").body, "1001");
    assert!(client.get("/api/snowflake/get/orders", "").body.len() > 15, "the IDs of any_key");
    for key in ["order", "flakes"] {
        let refused = client.get(&format!("/api/segment/get/{key}"), "");
        assert!(refused.code == 404 && refused.body.contains("a ticket source"), "{refused:?}");
    }
}

#[test]
fn a_path_is_decoded_once_and_an_empty_chunked_body_is_none() {
    let daemon = with_two_sources("http");
    let mut client = FrontEndClient::of(&daemon);
    for (target, code) in [
        ("/v1%2Fids", 200),
        ("/%76%31/i%64s?source=f%61st", 200),
        ("/api/snowflake/get/f%61st", 200),
        ("/api/snowflake/get/fast:1", 200),
        ("/api/snowflake/get/fast%3A1", 200),
        ("/v1%252Fids", 404),
        ("/v1/ids/", 404),
        ("//v1/ids", 404),
        ("/api/snowflake/get/f%2561st", 404),
    ] {
        let response = client.get(target, "");
        assert_eq!(response.code, code, "{target}: {}", response.body);
    }
    for (request, body) in
        [("POST /v1/ids", "0\r\n\r\n"), ("GET /v1/ids", "0;a=b\r\nx: y\r\n\r\n"), ("GET /id", "0\r\n\r\n")]
    {
        client.send(format!(
            "{request} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n{body}"
        ));
        let response = client.answer(true);
        assert_eq!((response.code, response.ids().len()), (200, 1), "{request} {body:?}: {response:?}");
    }
}

/// A client that asks before it sends its body waits for the answer.
#[test]
fn a_client_that_asks_may_send_its_empty_body() {
    let daemon = with_two_sources("http");
    let mut client = FrontEndClient::of(&daemon);
    let head = "POST /v1/ids HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n";
    for _ in 0..2 {
        for pieces in [&["\r\n", "0\r\n", "\r\n"][..], &["\r\n0\r\n\r\n"]] {
            client.send(format!("{head}transfer-encoding: chunked\r\n{}", pieces[0]));
            assert_eq!([client.line(), client.line()], ["HTTP/1.1 100 Continue", ""]);
            pieces[1..].iter().for_each(|piece| client.send(piece));
            assert_eq!(client.answer(true).ids().len(), 1);
        }
        // Without a body there is nothing to wait for.
        client.send(format!("{head}content-length: 0\r\n\r\n"));
        assert_eq!(client.answer(true).ids().len(), 1);
    }
    client.send(format!("{head}content-length: 9\r\n\r\n"));
    assert_eq!(client.answer(true).code, 400);
}

/// The HTTP front end and the admin listener read a target by the same rules.
#[test]
fn absolute_targets_are_the_same_for_http_and_admin() {
    let daemon = Setup::configured(TWO_SOURCES).front_end("http").admin().start();
    for (target, code) in [
        ("/PATH", 200),
        ("/%50ATH", 200),
        ("/%2550ATH", 404),
        ("http://localhost/PATH", 200),
        ("HTTPS://LOCALHOST:1/%50ATH", 200),
        ("http://[::1]:/PATH?a=b", 200),
        ("http://evil.example/PATH", 421),
        ("http:///PATH", 400),
        ("http://:80/PATH", 400),
        ("http://localhost:1@evil.com/PATH", 400),
        ("http://localhost:99999/PATH", 400),
        ("ftp://localhost/PATH", 404),
        ("*", 404),
    ] {
        for (listener, path, first) in [(1, "/id", "%69"), (2, "/healthz", "%68")] {
            let (name, encoded) = (&path[1..], format!("{first}{}", &path[2..]));
            let doubly = encoded.replace('%', "%25");
            let target =
                target.replace("%2550ATH", &doubly).replace("%50ATH", &encoded).replace("PATH", name);
            let mut client = FrontEndClient::connect(daemon.addresses[listener].tcp());
            client.send(format!("GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"));
            let line = client.line();
            assert!(line.starts_with(&format!("HTTP/1.1 {code} ")), "{target}: {line}");
        }
    }
}

#[test]
fn accepted_types_are_read_by_their_grammar() {
    let daemon = with_two_sources("http");
    let mut client = FrontEndClient::of(&daemon);
    for (target, accept, is_json) in [
        ("/v1/ids", "text/plain", false),
        ("/v1/ids", "text/plain;q=0.5, application/json;q=0.4", false),
        ("/v1/ids", "text/plain;q=0.5, */*;q=0.5", false),
        ("/v1/ids", "*/*", true),
        ("/v1/ids", "text/plain;q=0", true),
        ("/v1/ids", "application/json, text/plain, */*", true),
        ("/v1/ids", "text/html, text/plain;q=0.3, */*;q=0.8", true),
        ("/v1/ids", "text/plainer", true),
        ("/id", "application/json", true),
        ("/id", "application/json, text/plain, */*", true),
        ("/id", "application/json;q=0", false),
        ("/id", "application/json;q=0.1, text/plain", false),
        ("/id", "*/*", false),
        ("/ids?n=2", "application/json-seq", false),
        ("/ids?n=2", "text/html;level=\"application/json\"", false),
    ] {
        let response = client.get(target, &format!("accept: {accept}\r\n"));
        let expected = if is_json { "application/json" } else { "text/plain; charset=utf-8" };
        assert_eq!(response.header("content-type"), Some(expected), "{target} {accept}");
    }
}

#[test]
fn a_host_must_be_valid_and_at_loopback_local() {
    let daemon = with_two_sources("http");
    let evil = ["[::1].evil.com", "[8.8.8.8", "localhost:evil.com", "localhost:1@evil.com"];
    for (target, host, code) in [
        ("/v1/ids", "localhost", 200),
        ("/v1/ids", "[::1]:8080", 200),
        ("/v1/ids", "127.0.0.1:1", 200),
        ("/v1/ids", "a.localhost.", 200),
        ("/v1/ids", "evil.example", 421),
        ("/v1/ids", "", 421),
        // Browsers say nothing of the page that sends a request to one of these.
        ("/v1/ids", "0.0.0.0:1", 421),
        ("/v1/ids", "[::]", 421),
        ("/v1/ids", "[::ffff:127.0.0.1]", 421),
        ("/v1/ids", "8.8.8.8", 421),
        ("/v1/ids", "127.8.0.1", 200),
        // The checks of HAProxy and Envoy name the site or the cluster.
        ("/healthz", "shop.example", 200),
        ("/v1/openapi.json", "shop.example", 421),
        ("http://localhost:1/v1/ids", "evil.example", 200),
        ("http://evil.example/v1/ids", "localhost", 421),
        ("http://localhost:1@evil.com/v1/ids", "localhost", 400),
        ("http://[::1].evil.com/v1/ids", "localhost", 400),
    ]
    .into_iter()
    .chain(evil.map(|host| ("/v1/ids", host, 400)))
    {
        let mut client = FrontEndClient::of(&daemon);
        client.send(format!("GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"));
        let response = String::from_utf8(client.rest()).expect("text");
        assert!(response.starts_with(&format!("HTTP/1.1 {code} ")), "{target} {host}: {response}");
        assert!(code != 421 || response.contains("proxy_set_header Host localhost"), "{response}");
        assert!(!response.contains("localhost:1@"), "a user's password is not repeated: {response}");
    }
}

/// Returns the names that this machine gives to 127.0.0.1: often its own name is one of them.
fn names_of_this_machine() -> Vec<String> {
    let hosts = std::fs::read_to_string("/etc/hosts").expect("the hosts of this machine");
    let named = hosts.lines().filter_map(|line| line.strip_prefix("127.0.0.1"));
    named.flat_map(str::split_whitespace).map(str::to_ascii_uppercase).collect()
}

/// The check of the Host header follows the address of the connection, not of the listener.
#[test]
fn a_listener_at_every_address_checks_hosts_of_local_connections() {
    let mut hosts = vec![("evil.example".to_owned(), 421), ("localhost".to_owned(), 200)];
    hosts.extend(names_of_this_machine().into_iter().map(|name| (name, 200)));
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let setup = Setup::configured(TWO_SOURCES).option("--http", listen).listeners(2);
        let daemon = setup.option("--admin", listen).listeners(3).start();
        for listener in 1..=2 {
            let port = daemon.addresses[listener].tcp().port();
            let path = if listener == 1 { "/v1/ids" } else { "/status" };
            let mut addresses = vec![std::net::SocketAddr::from(([127, 0, 0, 1], port))];
            if listen.starts_with('[') {
                addresses.push(std::net::SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port)));
            }
            for address in addresses {
                for (host, code) in &hosts {
                    let mut client = FrontEndClient::connect(address);
                    client.send(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"));
                    let first = client.line();
                    assert!(first.starts_with(&format!("HTTP/1.1 {code} ")), "{address} {host}: {first}");
                }
            }
        }
        daemon.stop();
    }
}

/// `[::]` accepts IPv4, too, unless an IPv4 listener has the port.
#[test]
fn any_ipv6_address_accepts_ipv4_unless_another_listener_does() {
    let port = Port::take();
    let number = port.number();
    let both = Setup::bare().option("--listen", format!("[::]:{number}")).option("--worker-id", "1").start();
    let _ = TcpStream::connect(("127.0.0.1", number)).expect("IPv4 is accepted");
    let _ = TcpStream::connect(("::1", number)).expect("IPv6 is accepted");
    both.stop();
    for first in [
        "listen = [\"[::]:PORT\", \"0.0.0.0:PORT\"]",
        "listen = \"[::]:PORT\"\nresp.listen = \"127.0.0.1:PORT\"",
    ] {
        let config = first.replace("PORT", &number.to_string());
        let daemon = Setup::bare().config(&config).option("--worker-id", "1").listeners(2).start();
        let _ = TcpStream::connect(("127.0.0.1", number)).expect("IPv4 is accepted");
        let _ = TcpStream::connect(("::1", number)).expect("IPv6 is accepted");
        daemon.stop();
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
    // These routes ignore parameters that they do not know, as katsubushi and Leaf do.
    note(client.get("/ids?n=3&n=4&trace=1", "").ids(), 3);
    note(client.get("/id?_=123", "").ids(), 1);
    note(client.get("/api/snowflake/get/slow?_=123", "").ids(), 1);
    assert!(client.get("/ids?n=2", json).body.starts_with("{\"ids\":[\""));
    note(client.get("/api/snowflake/get/any-key", "").ids(), 1);
    let typo = client.get("/v1/ids?source=any-key", "");
    assert_eq!(typo.code, 404, "any_key applies only to the keys in Leaf's paths: {}", typo.body);
    let id = client.get("/id", "").body;
    let decoded = client.get(&format!("/decodeSnowflakeId?a=b&snowflakeId={id}"), "").body;
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
    // A `+` in a query means a blank, and people seldom write %2B.
    let zones = client.get("/v1/range?from=2026-01-01T02:00:00+02:00&to=2026-01-02T02:00:00%2B02:00", "");
    assert_eq!(zones.body, range);
    assert_eq!(client.get("/v1/ids?partial=True", "").code, 200);
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
    let daemon = Setup::configured(TWO_SOURCES).front_end("http").admin().start();
    let mut closed = 0.0;
    let get = "GET /v1/ids HTTP/1.1\r\n";
    let local = format!("{get}host: localhost\r\n");
    let flood: String = (0..200).map(|index| format!("h{index}: x\r\n")).collect();
    for (request, code) in [
        (format!("{local}content-length: 5\r\n\r\nabcde"), "4"),
        (format!("{local}transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n").replace("GET", "POST"), "4"),
        (format!("{local}content-length:\r\n\r\n"), "4"),
        (format!("{local}content-length: +0\r\n\r\n"), "4"),
        (format!("{local}content-length: 0, 0\r\n\r\n"), "4"),
        (format!("{local}content-length: 0\r\ncontent-length: 0\r\n\r\n"), "4"),
        // Other codings are refused before any of the body has arrived.
        (format!("{local}transfer-encoding: identity\r\n\r\n"), "4"),
        (format!("{local}transfer-encoding: xchunked\r\n\r\n"), "4"),
        (format!("{local}transfer-encoding: chunked, chunked\r\n\r\n"), "4"),
        (format!("{local}transfer-encoding: chunked\r\ncontent-length: 0\r\n\r\n"), "4"),
        (format!("{local}transfer-encoding: chunked\r\ncontent-length: 0\r\n\r\n0\r\n\r\n"), "4"),
        (format!("{local}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), "4"),
        (format!("{local}transfer-encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "4"),
        (format!("{local}transfer-encoding: chunked\r\n\r\n0\r\n\r\n").replace("1.1", "1.0"), "4"),
        (format!("{local}host: localhost\r\n\r\n"), "4"),
        (format!("{local}sec-fetch-site: none\r\nsec-fetch-site: cross-site\r\n\r\n"), "4"),
        (format!("{local}sec-fetch-site: same-origin\r\nsec-fetch-site: same-origin\r\n\r\n"), "4"),
        (format!("{local}sec-fetch-site: none\r\norigin: http://evil.example\r\n\r\n"), "403"),
        (format!("{local}bad header\r\n\r\n"), "4"),
        (format!("{get}\r\n"), "4"),
        (format!("{local}authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n"), "4"),
        (format!("{local}x: {}\r\n\r\n", "y".repeat(70_000)), "4"),
        (format!("{local}{flood}\r\n"), "431"),
        (format!("{local}cookie: {}\r\n\r\n", "c".repeat(40 * 1024)), "431"),
        (format!("{get}host: attacker.example\r\nconnection: close\r\n\r\n"), "421"),
    ] {
        let mut client = FrontEndClient::of(&daemon);
        client.send(&request);
        let response = String::from_utf8(client.rest()).expect("text");
        assert!(response.starts_with(&format!("HTTP/1.1 {code}")), "{request:.80}: {response}");
        assert_eq!(response.matches("HTTP/1.1 ").count(), 1, "{response}");
        closed += 1.0;
        let name = "snowbank_connections_closed_total{reason=\"bad_request\"}";
        assert_eq!(sample(&scrape(&daemon), name), closed, "{request:.80}");
    }
    daemon.assert_logs("closed a connection: this connection came to a loopback address");
    daemon.assert_logs("found a body, allowed: no body");
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
fn cookies_of_16_kib_are_taken_and_more_are_refused_with_a_reason() {
    let daemon = Setup::configured(TWO_SOURCES).front_end("http").admin().start();
    let cookies = |bytes: usize| format!("cookie: a={}\r\n", "x".repeat(bytes));
    for listener in [1, 2] {
        let mut client = FrontEndClient::connect(daemon.addresses[listener].tcp());
        assert_eq!(client.get("/healthz", &cookies(16 * 1024)).code, 200);
    }
    let many: String = (0..150).map(|index| format!("h{index}: x\r\n")).collect();
    for headers in [cookies(33 * 1024), many] {
        for listener in [1, 2] {
            let mut client = FrontEndClient::connect(daemon.addresses[listener].tcp());
            let refused = client.get("/healthz", &headers);
            assert_eq!(refused.code, 431);
            assert!(refused.body.contains("send fewer cookies"), "{refused:?}");
        }
    }
}

/// From the announcement of a stop on, load balancers see it, and each reply ends its connection.
#[test]
fn an_announced_stop_shows_in_each_reply() {
    let daemon = Setup::configured(&format!("limits.drain_delay = \"60s\"\n{TWO_SOURCES}")).front_end("http");
    let daemon = daemon.option("--admin", "127.0.0.1:0").listeners(3).start();
    daemon.signal(rustix::process::Signal::TERM);
    poll("a check that fails", || {
        (FrontEndClient::of(&daemon).get("/healthz", "").code == 503).then_some(())
    });
    for target in ["/healthz", "/v1/ids", "/v1/ids?count=0", "/v1/sources", "/stats", "/nothing", "/id"] {
        let mut client = FrontEndClient::of(&daemon);
        let response = client.get(target, "");
        assert!(response.has("connection: close"), "{target}: {response:?}");
        assert_eq!(client.rest(), b"", "{target}");
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
    // The first answer shows that the connection was accepted before the listener closes.
    let mut idle = FrontEndClient::of(&daemon);
    assert!(!idle.get("/id", "").has("connection: close"));
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
