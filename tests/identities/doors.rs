//! Identities of clients of other protocols: their sources, their rates, and reloads.

use std::io::{Read, Write};
use std::time::Instant;

use crate::secure::{Authority, Secured, tls_section, try_secure, write_secret};
use crate::support::door::DoorClient;
use crate::support::http::{sample, scrape};
use crate::support::resp::Client;
use crate::support::{self, Daemon, Setup, TWO_SOURCES, poll};
use crate::{BILLING, ORDERS, PLAIN, configure, identity, reload, tokens};

/// A daemon with doors, the three tokens, and these identities.
fn with_doors(identities: &str) -> Daemon {
    let setup = Setup::new();
    write_secret(&setup.path("tokens"), &tokens());
    let setup = setup.config(&config(identities)).door("resp").door("memcached").door("http");
    setup.admin().start()
}

fn config(identities: &str) -> String {
    format!("auth.token_file = \"tokens\"\nmemcached.tokens = false\n{identities}{TWO_SOURCES}")
}

fn resp(daemon: &Daemon, token: &str) -> Client {
    let mut client = Client::to(daemon.addresses[1].tcp());
    client.asks(&format!("AUTH {token}\r\n"), "+OK\r\n");
    client
}

fn memcached(daemon: &Daemon) -> DoorClient {
    DoorClient::connect(daemon.addresses[2].tcp())
}

/// Sends a request over HTTP with a token. Returns the reply's status and body.
fn ask(stream: &mut (impl Read + Write), target: &str, token: &str) -> (u16, String) {
    let request =
        format!("GET {target} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it leaves");
    let mut reply = Vec::new();
    while !(reply.ends_with(b"}\n")) {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a reply");
        reply.push(byte[0]);
    }
    let reply = String::from_utf8(reply).expect("text");
    (reply[9..12].parse().expect("a status"), reply)
}

fn http(daemon: &Daemon) -> std::net::TcpStream {
    let stream = std::net::TcpStream::connect(daemon.addresses[3].tcp()).expect("the door is open");
    stream.set_read_timeout(Some(support::DEADLINE)).expect("a timeout");
    stream
}

#[test]
fn an_identity_has_the_same_sources_and_one_rate_over_all_doors() {
    let billing = identity("billing", "sources = [\"fast\"]\nrate = 10");
    let daemon =
        with_doors(&(billing + &identity("orders", "") + &identity("anonymous", "sources = [\"fast\"]")));
    let (mut redis, mut web, mut cache) = (resp(&daemon, BILLING), http(&daemon), memcached(&daemon));
    redis.send("INCR slow\r\n");
    let refusal = redis.line();
    assert!(refusal.contains("identity billing may not draw from source slow"), "{refusal}");
    let (_, refusal) = ask(&mut web, "/v1/ids?source=slow", BILLING);
    assert!(refusal.contains("identity billing may not draw from source slow"), "{refusal}");
    cache.send("get slow\r\n");
    let refusal = cache.line();
    assert!(refusal.contains("identity anonymous may not draw from source slow"), "{refusal}");
    // Each request over HTTP has its own token.
    assert_eq!(ask(&mut web, "/v1/ids?source=slow", ORDERS).0, 200);
    cache.send("get fast\r\n");
    assert!(cache.line().starts_with("VALUE fast 0 "));

    // IDs drawn at one door count at the others.
    let slowed = || sample(&scrape(&daemon), "snowbank_identity_slowed_total{identity=\"billing\"}");
    poll("a request at one door that waits for what another has drawn", || {
        while ask(&mut web, "/v1/ids?source=fast&count=10&wait=0", BILLING).0 != 200 {}
        let before = slowed();
        redis.send("INCR fast\r\n");
        redis.integer();
        (slowed() > before).then_some(())
    });
    let samples = scrape(&daemon);
    let of = |name: &str| sample(&samples, &format!("snowbank_identity_{name}"));
    assert_eq!(of("denied_total{identity=\"billing\"}"), 2.0);
    assert_eq!(of("denied_total{identity=\"anonymous\"}"), 1.0);
}

#[test]
fn a_pipeline_of_equal_requests_is_limited_by_its_clients_rate() {
    let identities = identity("billing", "rate = 10") + &identity("orders", "");
    let setup = Setup::new();
    write_secret(&setup.path("tokens"), &tokens());
    // IDs that one client leaves in the block are not too old for the next client.
    let sources = config(&identities).replacen("worker_ids = 1", "worker_ids = 1\nburst_window = \"8s\"", 1);
    let daemon = setup.config(&format!("shards = 1\nlimits.max_wait = 0\n{sources}")).resp().start();
    let began = Instant::now();
    let (mut billing, mut orders) = (resp(&daemon, BILLING), resp(&daemon, ORDERS));
    let mut drawn = 0;
    for _ in 0..10 {
        // The shard reads these as 65 equal requests, because they are equally long. It has 64 IDs in its block
        // then.
        orders.send(format!("INCR fast\r\n{}", "ECHO fast\r\n".repeat(64)));
        orders.integer();
        (0..64).for_each(|_| assert_eq!(orders.bulk(), "fast"));
        billing.send("INCR fast\r\n".repeat(64));
        for _ in 0..64 {
            let line = billing.line();
            assert!(line.starts_with(':') || line.starts_with("-EXHAUSTED "), "{line}");
            drawn += usize::from(line.starts_with(':'));
        }
    }
    // The rate, and a burst of one second.
    let most = 10 * (began.elapsed().as_secs() as usize + 2);
    assert!((1..=most).contains(&drawn), "{drawn} at 10 a second, {most} at most");
}

#[test]
fn a_permission_removed_by_a_reload_is_gone_at_every_door() {
    let identities = identity("billing", "") + &identity("orders", "");
    let daemon = with_doors(&(identities.clone() + &identity("anonymous", "")));
    let (mut redis, mut web, mut cache) = (resp(&daemon, BILLING), http(&daemon), memcached(&daemon));
    let (mut other_redis, mut other_web) = (resp(&daemon, ORDERS), http(&daemon));
    redis.send("INCR fast\r\n");
    redis.integer();
    assert_eq!(ask(&mut web, "/v1/ids", BILLING).0, 200);
    assert_eq!(ask(&mut other_web, "/v1/ids", ORDERS).0, 200);
    configure(&daemon, "tokens", &format!("orders: {ORDERS}\n{PLAIN}\n"));
    configure(
        &daemon,
        "snowbank.toml",
        &config(&(identities + &identity("anonymous", "sources = [\"slow\"]"))),
    );
    assert!(reload(&daemon).contains("other tokens"));
    redis.is_closed_after("no longer accepts this token");
    assert_eq!(web.read(&mut [0; 1]).expect("an end in order"), 0);
    cache.send("get fast\r\n");
    let refusal = cache.line();
    assert!(refusal.contains("identity anonymous may not draw from source fast"), "{refusal}");
    // Other clients notice nothing.
    other_redis.send("INCR fast\r\n");
    other_redis.integer();
    assert_eq!(ask(&mut other_web, "/v1/ids", ORDERS).0, 200);
    assert_eq!(ask(&mut http(&daemon), "/v1/ids", BILLING).0, 401);
}

#[test]
fn a_certificate_that_a_reload_takes_away_closes_its_connection_over_http() {
    let files = support::directory();
    let authority = Authority::new(files.path(), "authority");
    let client_ca = format!("client_ca = \"{}\"", authority.file.display());
    let tls = tls_section(&authority.issue_local("daemon"), &client_ca);
    let billing = identity("billing", "certificate_names = [\"billing.internal\"]\nsources = [\"fast\"]");
    let orders = identity("orders", "certificate_names = [\"orders.internal\"]");
    let config = format!("{TWO_SOURCES}{tls}");
    let setup = Setup::new().option("--http", "tls:127.0.0.1:0").listeners(2);
    let daemon = setup.config(&format!("{config}{billing}{orders}")).start();
    let connect = |name: &str| -> Secured {
        let client = authority.client(Some(&authority.issue(name, &[&format!("{name}.internal")])));
        try_secure(daemon.addresses[1].tcp(), &client, "127.0.0.1").expect("TLS")
    };
    let (mut of_billing, mut of_orders) = (connect("billing"), connect("orders"));
    assert_eq!(ask(&mut of_billing, "/v1/ids?source=fast", "any").0, 200);
    let (_, refusal) = ask(&mut of_billing, "/v1/ids?source=slow", "any");
    assert!(refusal.contains("identity billing may not draw from source slow"), "{refusal}");
    assert_eq!(ask(&mut of_orders, "/v1/ids?source=slow", "any").0, 200);
    configure(&daemon, "snowbank.toml", &format!("{config}{orders}"));
    assert!(reload(&daemon).contains("identity \"billing\": name: \"billing\" -> none"));
    assert_eq!(of_billing.read(&mut [0; 1]).expect("an end in order"), 0);
    assert_eq!(ask(&mut of_orders, "/v1/ids?source=slow", "any").0, 200);
}
