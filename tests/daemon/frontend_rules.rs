//! Tokens, reloads, counts and the form of replies at the front end for Redis.

use crate::support::http::{sample, scrape};
use crate::support::program::snowbank;
use crate::support::resp::{Client, array};
use crate::support::{Ask, Setup, TWO_SOURCES, poll};

fn with(settings: &str) -> Setup {
    Setup::configured(&format!("{settings}\n{TWO_SOURCES}")).resp()
}

/// The daemon counts each refused request, even if the connection stays open afterwards.
#[test]
fn ids_need_a_token_and_each_refusal_is_counted() {
    let setup = with("auth.token_file = \"tokens\"");
    std::fs::write(setup.path("tokens"), "secret\n").expect("written");
    let daemon = setup.admin().start();
    let mut client = Client::of(&daemon);
    for request in ["INCR fast\r\n", "PING\r\n", "CLIENT SETINFO LIB-NAME x\r\n", "SNOWBANK.NEXT\r\n"] {
        client.asks(request, "-NOAUTH Authentication required.\r\n");
    }
    client.send("HELLO 3\r\n");
    assert!(client.line().starts_with("-NOAUTH HELLO must be called"));
    client.asks("AUTH secret\r\n", "+OK\r\n");
    client.send("INCR fast\r\n");
    client.integer();
    client.asks("RESET\r\nINCR fast\r\n", "+RESET\r\n-NOAUTH Authentication required.\r\n");
    client.send("HELLO 2 AUTH default secret\r\nINCR fast\r\n");
    assert_eq!(client.line(), "*14");
    client.lines_until(|line| line == "*0");
    client.integer();
    daemon.assert_logs("refused a request: no token, and auth.token_file asks for one");
    for (request, count) in
        [(array(&["AUTH", "wrong"]), 7.0), (array(&["HELLO", "3", "AUTH", "default", "wrong"]), 8.0)]
    {
        let mut client = Client::of(&daemon);
        client.asks(&request, "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
        client.is_closed();
        poll("the refusal is counted", || {
            let refusals = sample(&scrape(&daemon), "snowbank_unauthorized_refusals_total");
            (refusals == count).then_some(())
        });
    }
    daemon.assert_logs("the token is not one of auth.token_file");
    // A client that sends a long text as its token learns why it is closed.
    let mut client = Client::of(&daemon);
    client.send(array(&["AUTH", &"x".repeat(60_000)]));
    client.is_closed_after("bytes before a token; send a token first");
}

#[test]
fn a_reload_changes_any_key_and_the_form_of_replies() {
    let daemon = with("").start();
    let mut client = Client::of(&daemon);
    client.send("INCR counter\r\n");
    assert!(client.line().starts_with("-UNKNOWN_SOURCE"));
    let config = format!("any_key = \"slow\"\nresp.replies = \"string\"\n{TWO_SOURCES}");
    daemon.replace("snowbank.toml", &config);
    daemon.reload();
    client.send("INCR counter:__rand_int__\r\nSNOWBANK.NEXT\r\nINCR slow\r\n");
    let any_key_id: u64 = client.bulk().parse().expect("an ID");
    assert!(client.list()[0] > 1 << 53, "without a key the ID is of the first source");
    let slow_id = client.bulk().parse().expect("an ID");
    assert!(any_key_id < slow_id && slow_id < 1 << 53, "{any_key_id} {slow_id}");
}

#[test]
fn metrics_and_status_show_each_protocol() {
    let daemon = with("").admin().start();
    let mut client = Client::of(&daemon);
    client.send("INCR fast\r\nINCR fast\r\nPING\r\nINCR nothing\r\nSNOWBANK.NEXT slow 1000 WAIT 0\r\n");
    client.lines_until(|line| line.starts_with("-EXHAUSTED"));
    let mut wire = daemon.connect();
    wire.next(Ask::of(5));
    // The daemon counts a turn after it has written the replies.
    let samples = poll("both turns are counted", || {
        let samples = scrape(&daemon);
        let counted = |protocol| {
            sample(&samples, &format!("snowbank_protocol_requests_total{{protocol=\"{protocol}\"}}"))
        };
        (counted("resp") >= 5.0 && counted("native") >= 1.0).then_some(samples)
    });
    for (name, expected) in [("connections", 1.0), ("requests_total", 5.0), ("errors_total", 2.0)] {
        let name = format!("snowbank_protocol_{name}{{protocol=\"resp\"}}");
        assert_eq!(sample(&samples, &name), expected, "{name}");
    }
    let text = snowbank(["status", "--admin", &daemon.addresses[2].to_string()]).printed();
    let line = format!("resp         1 open on {}; 5 requests, 2 errors\n", daemon.addresses[1]);
    assert!(text.contains(&line), "{text}");
}

/// Reads an ID as a string or as an integer.
fn read_id(client: &mut Client, is_string: bool) {
    if is_string {
        client.bulk();
    } else {
        client.integer();
    }
}

/// Integers above 2^53 become equal numbers in JavaScript, so they are for clients that are known to
/// read them.
#[test]
fn incr_gives_integers_to_clients_that_are_known_to_read_them() {
    let daemon = with("").admin().start();
    for (library, is_string) in [
        (None, true),
        (Some(""), true),
        (Some("GlideJS"), true),
        (Some("ioredis(bullmq)"), true),
        (Some("node-redis"), true),
        (Some("redis-pyre"), true),
        (Some("redis-py"), false),
        (Some("coredis"), false),
        (Some("redis-py(redisvl_v0.4.1)"), false),
        (Some("Lettuce"), false),
        (Some("go-redis(,go1.26)"), false),
        (Some("SE.Redis"), false),
    ] {
        let mut client = Client::of(&daemon);
        let incr = array(&["INCR", "fast"]);
        if let Some(library) = library {
            client.asks(&array(&["CLIENT", "SETINFO", "LIB-NAME", library]), "+OK\r\n");
        }
        // As in Redis, a RESET keeps the library's name.
        let arrays =
            [vec!["INCRBY", "fast", "1"], vec!["RESET"], vec!["MULTI"], vec!["INCR", "fast"], vec!["EXEC"]];
        client.send(incr + &arrays.iter().map(|words| array(words)).collect::<String>());
        read_id(&mut client, is_string);
        read_id(&mut client, is_string);
        assert_eq!([(); 4].map(|()| client.line()), ["+RESET", "+OK", "+QUEUED", "*1"], "{library:?}");
        read_id(&mut client, is_string);
    }
    daemon.assert_logs("clients that announce no library, because");
    daemon.assert_logs("clients that announce \"GlideJS\", which is not known to read all 64 bits, because");
    // A client that looks at the version announces itself only to a Redis that knows how: from 7.2 on.
    let mut client = Client::of(&daemon);
    client.send(array(&["INFO"]));
    poll("the version", || client.line().starts_with("redis_version:7.2.").then_some(()));
    // Inline commands are of people and scripts.
    let mut client = Client::of(&daemon);
    client.send("INCR fast\r\n");
    read_id(&mut client, false);
    // A library's request is one also behind an inline health check.
    client.asks("PING\r\n", "+PONG\r\n");
    client.send(array(&["INCR", "fast"]));
    read_id(&mut client, true);
    let samples = scrape(&daemon);
    for (form, count) in [("integer", 7.0), ("string", 6.0)] {
        let name = format!("snowbank_incr_connections_total{{form=\"{form}\"}}");
        assert_eq!(sample(&samples, &name), count, "{form}");
    }
}

/// Every client reads numbers up to 2^53 exactly, and some libraries take nothing but integers.
#[test]
fn incr_gives_integers_where_all_ids_are_exact() {
    let config = format!(
        "{TWO_SOURCES}[[sources]]\nname = \"low\"\nkind = \"ticket\"\n[[sources]]\nname = \"high\"\nkind = \"ticket\"\n"
    );
    let setup = Setup::configured(&config).resp().admin();
    setup.run(&["ticket", "set", "low", "1000"]).printed();
    setup.run(&["ticket", "set", "high", "9007199254740991"]).printed();
    let daemon = setup.start();
    let count =
        |form: &str| sample(&scrape(&daemon), &format!("snowbank_incr_connections_total{{form=\"{form}\"}}"));
    let mut client = Client::of(&daemon);
    for (key, reply) in [("low", ":1001"), ("low", ":1002"), ("high", ":9007199254740992")] {
        client.asks(&array(&["INCR", key]), &format!("{reply}\r\n"));
    }
    client.send(array(&["INCRBY", "slow", "1"]));
    client.integer();
    assert_eq!((count("integer"), count("string")), (0.0, 0.0));
    client.asks(&array(&["INCR", "high"]), "$16\r\n9007199254740993\r\n");
    client.send(array(&["INCR", "fast"]));
    client.bulk();
    assert_eq!((count("integer"), count("string")), (0.0, 1.0));
}

/// A library reads a reply to each request of a pipeline, and shows the refusal of its token only if
/// they all come.
#[test]
fn a_pipeline_with_a_wrong_token_is_answered_before_the_close() {
    let setup = with("auth.token_file = \"tokens\"");
    std::fs::write(setup.path("tokens"), "secret\n").expect("written");
    let daemon = setup.start();
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let none = "-NOAUTH Authentication required.\r\n";
    let requests =
        [&["CLIENT", "SETINFO", "LIB-NAME", "redis-rs"][..], &["INCR", "fast"]].map(array).concat();
    for (first, replies) in [
        (array(&["AUTH", "wrong"]), [wrong, none, none, wrong, none].concat()),
        (array(&["HELLO", "3", "AUTH", "default", "wrong"]), [wrong, none, none, wrong, none].concat()),
        ("AUTH wrong\r\n".to_owned(), [wrong, none, none, wrong, none].concat()),
    ] {
        let mut client = Client::of(&daemon);
        // A right token behind a wrong one comes too late.
        client.send(first + &requests + &array(&["AUTH", "secret"]) + "INCR fast\r\n*1\r\n$4");
        client.expect(&replies);
        client.is_closed();
    }
}
