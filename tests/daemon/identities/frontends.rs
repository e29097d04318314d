//! Identities of clients of other protocols: sources, rates, and reloads.

use std::time::Instant;

use super::{BILLING, ORDERS, PLAIN, assert_revoked, identity, tokens};
use crate::secure::write_secret;
use crate::support::frontend::FrontEndClient;
use crate::support::http::{Answer, sample, scrape};
use crate::support::resp::Client;
use crate::support::wire::EXPLICIT;
use crate::support::{Ask, Daemon, Setup, TWO_SOURCES, poll};

/// Starts a daemon with front ends, the three tokens, and these identities.
fn with_front_ends(identities: &str) -> Daemon {
    let setup = Setup::new();
    write_secret(&setup.path("tokens"), &tokens());
    let setup = setup.config(&config(identities)).front_end("resp").front_end("memcached").front_end("http");
    setup.admin().start()
}

fn config(identities: &str) -> String {
    format!("auth.token_file = \"tokens\"\nmemcached.tokens = false\n{identities}{TWO_SOURCES}")
}

fn resp(daemon: &Daemon, token: &str) -> Client {
    let mut client = Client::connect(daemon.addresses[1].tcp());
    client.asks(&format!("AUTH {token}\r\n"), "+OK\r\n");
    client
}

fn memcached(daemon: &Daemon) -> FrontEndClient {
    FrontEndClient::connect(daemon.addresses[2].tcp())
}

fn ask(web: &mut FrontEndClient, target: &str, token: &str) -> Answer {
    web.get(target, &format!("authorization: Bearer {token}\r\n"))
}

fn http(daemon: &Daemon) -> FrontEndClient {
    FrontEndClient::connect(daemon.addresses[3].tcp())
}

#[test]
fn an_identity_has_one_rate_over_all_front_ends() {
    let anonymous = identity("anonymous", "sources = [\"fast\"]");
    let daemon = with_front_ends(&(identity("billing", "rate = 10") + &identity("orders", "") + &anonymous));
    let mut redis = resp(&daemon, BILLING);
    let mut web = http(&daemon);
    let mut cache = memcached(&daemon);
    cache.send("get slow\r\n");
    let refusal = cache.line();
    assert!(refusal.contains("identity anonymous may not draw from source slow"), "{refusal}");
    cache.send("get fast\r\n");
    assert!(cache.line().starts_with("VALUE fast 0 "));

    // IDs that the identity drew at one front end count at the other front ends.
    let slowed = || sample(&scrape(&daemon), "snowbank_identity_slowed_total{identity=\"billing\"}");
    poll("a request that waits because of IDs from another front end", || {
        while ask(&mut web, "/v1/ids?source=fast&count=10&wait=0", BILLING).code != 200 {}
        let before = slowed();
        redis.send("INCR fast\r\n");
        redis.integer();
        (slowed() > before).then_some(())
    });
    let denied = "snowbank_identity_denied_total{identity=\"anonymous\"}";
    assert_eq!(sample(&scrape(&daemon), denied), 1.0);
}

#[test]
fn a_pipeline_of_equal_requests_is_limited_by_its_clients_rate() {
    let identities = identity("billing", "rate = 10") + &identity("orders", "");
    let setup = Setup::new();
    write_secret(&setup.path("tokens"), &tokens());
    // The burst window is so long that IDs that one client leaves in the block are not too old for
    // the next client. The ceiling is two of these long ticks ahead, so the daemon does not reach
    // it even if the machine pauses.
    let layout = "worker_ids = 1\nburst_window = \"8s\"\nlayout = \"time:31,worker:10,sequence:20;tick=6s\"";
    let sources = config(&identities).replacen("worker_ids = 1", layout, 1);
    let daemon = setup.config(&format!("shards = 1\nlimits.max_wait = 0\n{sources}")).resp().start();
    let began = Instant::now();
    let mut billing = resp(&daemon, BILLING);
    let mut orders = resp(&daemon, ORDERS);
    let mut drawn = 0;
    poll("a source that has begun", || {
        orders.send("INCR fast\r\n");
        orders.line().starts_with(':').then_some(())
    });
    for _ in 0..10 {
        // The shard estimates from the length of the first request how many requests for IDs
        // follow. All 65 have the same length, so it claims 65 IDs, and 64 stay in its block.
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
    // The client may have drawn as many IDs as the rate allows for the time that has passed. A
    // burst of one second comes on top.
    let most = 10 * (began.elapsed().as_secs() as usize + 2);
    assert!((1..=most).contains(&drawn), "the client drew {drawn} IDs at 10 a second, allowed: {most}");
}

/// The connection stays open, because the client has no token that the reload could remove.
#[test]
fn a_reload_removes_a_permission_at_memcached() {
    let others = identity("billing", "") + &identity("orders", "");
    let daemon = with_front_ends(&(others.clone() + &identity("anonymous", "")));
    let mut cache = memcached(&daemon);
    cache.send("get fast\r\n");
    assert!(cache.line().starts_with("VALUE fast "));
    assert!(cache.line().parse::<u64>().is_ok());
    assert_eq!(cache.line(), "END");
    daemon.replace("snowbank.toml", &config(&(others + &identity("anonymous", "sources = [\"slow\"]"))));
    daemon.reload();
    cache.send("get fast\r\n");
    let refusal = cache.line();
    assert!(refusal.contains("identity anonymous may not draw from source fast"), "{refusal}");
}

/// A reload removes the token while the daemon sends a long reply. The client gets the whole reply,
/// and then the connection closes.
#[test]
fn a_reload_cuts_no_reply_that_has_begun() {
    // The test reads the replies one after the other, so nobody reads the last reply for a long
    // time.
    let patient = "limits.stall_timeout = \"5m\"\n";
    let daemon = with_front_ends(&format!("{patient}{}{}", identity("billing", ""), identity("orders", "")));
    let mut native = daemon.connect_as(BILLING);
    native.send(&Ask::of(200_000).flags(EXPLICIT).wait_ms(20_000).bytes());
    let mut redis = resp(&daemon, BILLING);
    redis.send("SNOWBANK.NEXT fast 200000 WAIT 20000\r\n");
    let mut transaction = resp(&daemon, BILLING);
    transaction
        .send("MULTI\r\nPING\r\nSNOWBANK.NEXT fast 200000 WAIT 20000\r\nINCR fast\r\nECHO end\r\nEXEC\r\n");
    let mut web = http(&daemon);
    web.send(format!(
        "GET /v1/ids?count=200000&wait=20s HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {BILLING}\r\n\r\n"
    ));
    // Waits until the first bytes of each reply have arrived. The test reads the rest only after
    // the reload.
    native.tcp().peek(&mut [0]).expect("a byte");
    redis.expect("*200000\r\n");
    transaction.expect(&format!("+OK\r\n{}*4\r\n+PONG\r\n*200000\r\n", "+QUEUED\r\n".repeat(4)));
    assert_eq!(web.line(), "HTTP/1.1 200 OK");
    daemon.replace("tokens", &format!("{PLAIN}\n"));
    daemon.replace("snowbank.toml", &config(patient));
    assert!(daemon.reload().contains("other tokens"));
    assert_eq!(native.reply().ids().len(), 200_000);
    assert_revoked(&mut native);
    (0..200_000).for_each(|_| drop(redis.bulk()));
    redis.is_closed_after("no longer accepts this token");
    (0..200_000).for_each(|_| drop(transaction.bulk()));
    // The daemon answers the requests behind the long request, but hands out no IDs.
    assert!(transaction.line().contains("may not draw"));
    assert_eq!(transaction.bulk(), "end");
    transaction.is_closed_after("no longer accepts this token");
    // The last chunk is empty.
    assert!(web.rest().ends_with(b"\r\n0\r\n\r\n"));
}

#[test]
fn a_kept_http_connection_counts_once_for_its_identity() {
    let daemon = with_front_ends(&(identity("billing", "") + &identity("orders", "")));
    let mut web = http(&daemon);
    (0..5).for_each(|_| assert_eq!(ask(&mut web, "/v1/ids", BILLING).code, 200));
    let samples = scrape(&daemon);
    assert_eq!(sample(&samples, "snowbank_identity_connected_total{identity=\"billing\"}"), 1.0);
    assert_eq!(sample(&samples, "snowbank_identity_connections{identity=\"billing\"}"), 1.0);
    assert!(sample(&samples, "snowbank_received_bytes_total") > 300.0);
    assert!(sample(&samples, "snowbank_sent_bytes_total") > 300.0);
    // A token applies only to the request that carries it.
    assert_eq!(web.get("/v1/ids", "").code, 401);
    assert_eq!(web.rest(), b"");
}

/// A reload ends the idle connections of a token that it takes away, and no other. So it ends also
/// those that a proxy or a pool keeps for later requests.
#[test]
fn a_reload_ends_idle_connections_of_a_removed_token() {
    let identities = identity("billing", "") + &identity("orders", "");
    let daemon = with_front_ends(&identities);
    // A token without an identity can be taken away, too.
    let [lost, named, mut kept] = [PLAIN, BILLING, ORDERS].map(|token| {
        let mut web = http(&daemon);
        assert_eq!(ask(&mut web, "/v1/ids", token).code, 200);
        (web, resp(&daemon, token))
    });
    daemon.replace("tokens", &format!("orders: {ORDERS}\n"));
    assert!(daemon.reload().contains("other tokens"));
    for (mut web, mut resp) in [lost, named] {
        assert_eq!(web.rest(), b"");
        resp.is_closed_after("no longer accepts this token");
    }
    assert_eq!(ask(&mut kept.0, "/v1/ids", ORDERS).code, 200);
    kept.1.send("INCR fast\r\n");
    kept.1.integer();
}
