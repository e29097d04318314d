//! The front end for clients of Redis: the exact bytes of its replies.

use std::io::Write;
use std::net::TcpStream;

use crate::front_ends::with_two_sources;
use crate::support::http::{sample, scrape};
use crate::support::resp::{Client, array};
use crate::support::{Setup, TWO_SOURCES, poll};

#[test]
fn malformed_requests_get_an_error_and_close_the_connection() {
    let daemon = with_two_sources("resp");
    let nested = "*1\r\n".repeat(8_000);
    let long = "x".repeat(70_000);
    for (bytes, error) in [
        (&nested[..], "ERR Protocol error: expected '$', got '*'"),
        ("*1025\r\n", "ERR Protocol error: invalid multibulk length, allowed are 1024 arguments"),
        ("*x\r\n", "ERR Protocol error: invalid multibulk length"),
        ("*01\r\n$4\r\nPING\r\n", "ERR Protocol error: invalid multibulk length"),
        ("*+1\r\n$4\r\nPING\r\n", "ERR Protocol error: invalid multibulk length"),
        ("*1\r\n$04\r\nPING\r\n", "ERR Protocol error: invalid bulk length"),
        ("*1\r\n$004\r\nPING\r\n", "ERR Protocol error: invalid bulk length"),
        ("PING \"a\r\n", "ERR Protocol error: unbalanced quotes in request"),
        ("INCR 'fast'x\r\n", "ERR Protocol error: unbalanced quotes in request"),
        ("*1\r\n$-1\r\n", "ERR Protocol error: invalid bulk length"),
        (
            "*1\r\n$99999999999\r\n",
            "ERR Protocol error: invalid bulk length, allowed are 65536 bytes in a request",
        ),
        ("*1\r\n$4\r\nPINGxx", "ERR Protocol error: expected a line end after the bulk string"),
        (&long, "ERR Protocol error: too big request, allowed are 65536 bytes"),
    ] {
        let mut client = Client::of(&daemon);
        client.send(bytes);
        client.expect(&format!("-{error}\r\n"));
        client.is_closed();
    }
}

#[test]
fn commands_of_a_new_connection_get_exact_replies() {
    let daemon = with_two_sources("resp");
    let mut client = Client::of(&daemon);
    for (request, reply) in [
        ("PING\r\n", "+PONG\r\n"),
        ("ping hello\r\n", "$5\r\nhello\r\n"),
        ("*2\r\n$4\r\nECHO\r\n$3\r\na b\r\n", "$3\r\na b\r\n"),
        ("ECHO \"a b\\x41\\n\" \r\n", "$5\r\na bA\n\r\n"),
        ("\r\nECHO 'a \\'b'\r\n", "$4\r\na 'b\r\n"),
        ("\"PING\" ''\r\n", "$0\r\n\r\n"),
        (
            "GET fast\r\n",
            "-ERR GET of source fast: only a ticket source with increment 1 has a last number; INCR fast draws an ID\r\n",
        ),
        ("SET fast 1\r\n", "-ERR unknown command 'SET', with args beginning with: 'fast' '1' \r\n"),
        ("INCRBY fast 01\r\n", "-ERR value is not an integer or out of range\r\n"),
        ("INCRBY nothing 01\r\n", "-ERR value is not an integer or out of range\r\n"),
        ("INCRBY fast +1\r\n", "-ERR value is not an integer or out of range\r\n"),
        ("SELECT 00\r\n", "-ERR value is not an integer or out of range\r\n"),
        ("CLIENT SETINFO LIB-NAME redis-py\r\n", "+OK\r\n"),
        (
            "CLIENT SETINFO LIB-NAME \"redis py\"\r\n",
            "-ERR lib-name cannot contain spaces, newlines or special characters.\r\n",
        ),
        (
            "CLIENT SETINFO lib-ver \"1\\n\"\r\n",
            "-ERR lib-ver cannot contain spaces, newlines or special characters.\r\n",
        ),
        ("CLIENT GETNAME\r\n", "$-1\r\n"),
        ("CLIENT SETNAME orders\r\n", "+OK\r\n"),
        ("CLIENT GETNAME\r\n", "$6\r\norders\r\n"),
        ("CLIENT MAINT_NOTIFICATIONS ON\r\n", "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'\r\n"),
        ("CLIENT SETNAME\r\n", "-ERR wrong number of arguments for 'client|setname' command\r\n"),
        ("SELECT 0\r\n", "+OK\r\n"),
        ("SELECT 1\r\n", "-ERR DB index is out of range\r\n"),
        ("SELECT x\r\n", "-ERR value is not an integer or out of range\r\n"),
        ("AUTH any\r\n", "+OK\r\n"),
        ("COMMAND DOCS\r\n", "*0\r\n"),
        ("CONFIG GET save\r\n", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        ("CONFIG GET maxmemory\r\n", "*0\r\n"),
        ("COMMAND COUNT\r\n", ":0\r\n"),
        ("COMMAND NONE\r\n", "-ERR unknown subcommand 'NONE'\r\n"),
        ("CONFIG SET save x\r\n", "-ERR unknown subcommand 'SET'\r\n"),
        ("FLUSHALL now\r\n", "-ERR unknown command 'FLUSHALL', with args beginning with: 'now' \r\n"),
        ("INCR\r\n", "-ERR wrong number of arguments for 'incr' command\r\n"),
        (
            "INCR counter\r\n",
            "-UNKNOWN_SOURCE found key 'counter', allowed: a source's name (fast, slow); or set any_key in the daemon's \
             configuration\r\n",
        ),
        ("HELLO 4\r\n", "-NOPROTO unsupported protocol version\r\n"),
        ("HELLO 3 FOO\r\n", "-ERR Syntax error in HELLO option 'FOO'\r\n"),
        ("\r\n*0\r\n*-1\r\nPING\r\n", "+PONG\r\n"),
        ("RESET\r\n", "+RESET\r\n"),
    ] {
        client.asks(request, reply);
    }
    client.asks("CLIENT GETNAME\r\n", "$-1\r\n");
    client.send("INFO\r\n");
    let info = client.text();
    for line in ["loading:0", "snowbank_worker_ids_fast:1", "snowbank_worker_ids_slow:1"] {
        assert!(info.contains(&format!("\r\n{line}\r\n")), "{info}");
    }
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert!(info.contains(&format!("\r\nsnowbank_instance:{machine}-")), "{info}");
    client.asks("TIME\r\n", "*2\r\n$10\r\n");
    let _seconds = client.line();
    let _micros = client.bulk();
    client.asks("QUIT\r\n", "+OK\r\n");
    client.is_closed();
}

#[test]
fn hello_3_replies_with_a_map_and_switches_to_resp3() {
    let daemon = with_two_sources("resp");
    let mut client = Client::of(&daemon);
    client.send("CLIENT ID\r\n");
    let id = client.integer();
    let head = "$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.2.0\r\n$5\r\nproto\r\n";
    let tail = "$2\r\nid\r\n";
    let rest = "$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n";
    client.asks("HELLO\r\n", &format!("*14\r\n{head}:2\r\n{tail}:{id}\r\n{rest}"));
    client
        .asks("HELLO 3 AUTH default any SETNAME me\r\n", &format!("%7\r\n{head}:3\r\n{tail}:{id}\r\n{rest}"));
    client.asks("CLIENT GETNAME\r\n", "$2\r\nme\r\n");
    client.asks("COMMAND DOCS\r\n", "%0\r\n");
    client.asks("CONFIG GET appendonly\r\n", "%1\r\n$10\r\nappendonly\r\n$2\r\nno\r\n");
    client.asks("HELLO 2\r\n", &format!("*14\r\n{head}:2\r\n{tail}:{id}\r\n{rest}"));
}

#[test]
fn snowbank_next_draws_from_the_named_or_the_first_source() {
    let daemon = with_two_sources("resp");
    let mut client = Client::of(&daemon);
    let mut last = 0;
    for (request, count) in [
        ("SNOWBANK.NEXT\r\n", 1),
        ("SNOWBANK.NEXT 5\r\n", 5),
        ("snowbank.next fast\r\n", 1),
        ("SNOWBANK.NEXT fast 100000 WAIT 5000 PARTIAL\r\n", 0),
        ("SNOWBANK.NEXT fast 5000 partial wait 5000\r\n", 0),
    ] {
        client.send(request);
        let ids = client.list();
        assert!(ids.len() == count || count == 0 && !ids.is_empty(), "{request}: {} IDs", ids.len());
        assert!(last < ids[0] && ids.is_sorted_by(|left, right| left < right), "{request}");
        last = ids[ids.len() - 1];
    }
    let count = |found| format!("-BAD_COUNT found count {found}, allowed 1 to 1000000\r\n");
    client.asks("SNOWBANK.NEXT fast 0\r\n", &count("0"));
    client.asks("SNOWBANK.NEXT -1\r\n", &count("-1"));
    client.asks("SNOWBANK.NEXT fast 10000000000000000000\r\n", &count("10000000000000000000"));
    let syntax = "-ERR syntax error, allowed: SNOWBANK.NEXT [source] [count] [WAIT ms] [PARTIAL]\r\n";
    client.asks("SNOWBANK.NEXT fast 1 fast\r\n", syntax);
    client.asks("SNOWBANK.NEXT WAIT\r\n", syntax);
    client.asks("SNOWBANK.NEXT WAIT x\r\n", "-ERR value is not an integer or out of range\r\n");
    let increment = "-ERR INCRBY of source fast can only add 1, because its IDs are not consecutive; SNOWBANK.NEXT fast 2 \
                     draws two\r\n";
    client.send("incrby fast 1\n");
    assert!(last < client.integer());
    client.asks("INCRBY fast 2\r\n", increment);
    client.asks("INCRBY fast 1.5\r\n", "-ERR value is not an integer or out of range\r\n");
}

#[test]
fn a_waiting_request_holds_back_later_ones_of_its_connection() {
    let daemon = with_two_sources("resp");
    let mut client = Client::of(&daemon);
    // The slow source has 16 IDs a second, so the second request waits.
    client
        .send("SNOWBANK.NEXT slow 16 WAIT 5000\r\nSNOWBANK.NEXT slow 16 WAIT 5000\r\nPING\r\nINCR fast\r\n");
    let first = client.list();
    let second = client.list();
    assert!(first.len() == 16 && second.len() == 16 && first[15] < second[0]);
    client.expect("+PONG\r\n");
    client.integer();
}

/// If equal requests follow each other, the daemon draws their IDs together, up to the first
/// request that gets no ID. Each request still has its own reply, in order.
#[test]
fn equal_requests_in_a_row_are_answered_one_by_one() {
    // The ceilings are two of these long ticks ahead, so the daemon does not reach them even if the
    // machine pauses.
    let source = |name: &str, sequence: u32, tick: &str| {
        format!(
            "[[sources]]\nname = {name:?}\nworker_ids = 1\nlayout = \"time:31,worker:10,sequence:{sequence};tick={tick}\"\n"
        )
    };
    let sources = source("fast", 20, "6s") + &source("slow", 4, "10s");
    let daemon = Setup::configured(&format!("limits.max_wait = 0\n{sources}")).resp().start();
    daemon.await_begin(&["fast", "slow"]);
    let mut client = Client::of(&daemon);
    client.asks("CLIENT SETINFO LIB-NAME redis-py\r\n", "+OK\r\n");
    let fast = array(&["INCR", "fast"]);
    let slow = array(&["INCR", "slow"]);
    // There are more equal requests in a row than the daemon counts at once. Some other requests
    // differ only in key, case or command.
    let requests = [fast.repeat(150), array(&["ECHO", "fast"]), "INCR fast\r\n".repeat(70), slow.repeat(60)];
    client.send(requests.concat() + &array(&["incr", "fast"]) + &fast.repeat(3));
    let mut ids: Vec<u64> = (0..150).map(|_| client.integer()).collect();
    client.expect("$4\r\nfast\r\n");
    ids.extend((0..70).map(|_| client.integer()));
    let slow: Vec<String> = (0..60).map(|_| client.line()).collect();
    ids.extend((0..4).map(|_| client.integer()));
    assert!(ids.is_sorted_by(|left, right| left < right), "{ids:?}");
    // The source has 16 IDs in a tick, so the daemon refuses some of the 60 requests.
    let drawn: Vec<u64> =
        slow.iter().filter_map(|line| line.strip_prefix(':')).map(|id| id.parse().expect("an ID")).collect();
    let refused = slow.iter().filter(|line| line.starts_with("-EXHAUSTED ")).count();
    assert!(!drawn.is_empty() && refused > 0 && drawn.len() + refused == 60, "{slow:?}");
    assert!(drawn.is_sorted_by(|left, right| left < right), "{drawn:?}");
    client.asks("PING\r\n", "+PONG\r\n");
}

#[test]
fn a_transaction_is_answered_as_one_array_in_order() {
    let daemon = with_two_sources("resp");
    let mut client = Client::of(&daemon);
    client.asks("MULTI\r\n", "+OK\r\n");
    client.asks("MULTI\r\n", "-ERR MULTI calls can not be nested\r\n");
    for request in [
        "INCR fast",
        "INCR fast",
        "INCR nothing",
        "SNOWBANK.NEXT slow 16 WAIT 5000",
        "SNOWBANK.NEXT slow 16 WAIT 5000",
        "PING",
    ] {
        client.asks(&format!("{request}\r\n"), "+QUEUED\r\n");
    }
    // Some requests wait. The daemon answers the requests behind them without another byte from the
    // client.
    client.asks("EXEC\r\n", "*6\r\n");
    assert!(client.integer() < client.integer());
    assert!(client.line().starts_with("-UNKNOWN_SOURCE "));
    assert!(client.list().last() < client.list().first());
    client.expect("+PONG\r\n");
    client.asks("EXEC\r\n", "-ERR EXEC without MULTI\r\n");
    client.asks("DISCARD\r\n", "-ERR DISCARD without MULTI\r\n");
    client.asks("MULTI\r\nFOO\r\n", "+OK\r\n-ERR unknown command 'FOO', with args beginning with: \r\n");
    client.asks("EXEC\r\n", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    client.asks("MULTI\r\n", "+OK\r\n");
    client.asks(
        "EXEC x\r\n",
        "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n",
    );
    client.asks("EXEC\r\n", "-ERR EXEC without MULTI\r\n");
    client.asks("MULTI\r\n", "+OK\r\n");
    client.asks("DISCARD x\r\n", "-ERR wrong number of arguments for 'discard' command\r\n");
    client.asks("EXEC\r\n", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    client.asks("MULTI\r\nINCR fast\r\nDISCARD\r\n", "+OK\r\n+QUEUED\r\n+OK\r\n");
    client.asks("MULTI\r\nEXEC\r\n", "+OK\r\n*0\r\n");
    for command in ["HELLO 3", "CLIENT REPLY OFF"] {
        let refused = "+OK\r\n-ERR Command not allowed inside a transaction\r\n";
        client.asks(&format!("MULTI\r\n{command}\r\n"), refused);
        client.asks("DISCARD\r\n", "+OK\r\n");
    }
    client.asks("MULTI\r\n", "+OK\r\n");
    client.asks("RESET\r\nPING\r\n", "+RESET\r\n+PONG\r\n");
    // Pipelines of redis-py are transactions of any length.
    client.send("MULTI\r\n".to_owned() + &array(&["INCR", "fast"]).repeat(20_000) + "EXEC\r\n");
    client.expect(&("+OK\r\n".to_owned() + &"+QUEUED\r\n".repeat(20_000) + "*20000\r\n"));
    let ids: Vec<u64> = (0..20_000).map(|_| client.integer()).collect();
    assert!(ids.is_sorted_by(|left, right| left < right));
    daemon.stop();
}

#[test]
fn incrby_of_a_ticket_source_draws_consecutive_numbers() {
    let config = "[[sources]]\nname = \"orders\"\nkind = \"ticket\"\n[[sources]]\nname = \"odd\"\nkind = \
                  \"ticket\"\nincrement = 2";
    let setup = Setup::configured(config).resp();
    for name in ["orders", "odd"] {
        setup.run(&["ticket", "set", name, "1000"]).printed();
    }
    let daemon = setup.start();
    let mut client = Client::of(&daemon);
    client.asks("GET orders\r\n", "$4\r\n1000\r\n");
    client.asks("INCRBY orders 37\r\nINCR orders\r\n", ":1037\r\n:1038\r\n");
    // Counters of libraries begin with the last number.
    client.asks(
        "INCRBY orders 0\r\nGET orders:1\r\nSETNX orders 0\r\nSET orders 0 NX\r\n",
        ":1038\r\n$4\r\n1038\r\n:0\r\n$-1\r\n",
    );
    // Its getAndIncrement() would compute a number of another daemon.
    let refused = "-ERR GET of source odd: only a ticket source with increment 1 has a last number; INCR odd draws an ID\r\n";
    client.asks("GET odd\r\n", refused);
    client.asks("SETNX odd 0\r\n", &refused.replace("GET", "SETNX"));
    client.send("INCRBY odd 0\r\n");
    assert!(client.line().starts_with("-ERR INCRBY of source odd can only add 1"));
    client.asks("INCRBY orders -1\r\n", "-BAD_COUNT found count -1, allowed 0 to 1000000\r\n");
    client.asks(
        "MULTI\r\nGET orders\r\nINCR orders\r\nEXEC\r\n",
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n$4\r\n1038\r\n:1039\r\n",
    );
    client.send("INCRBY odd 2\r\n");
    assert!(client.line().starts_with("-ERR INCRBY of source odd can only add 1"));
}

/// A key with a colon draws from the source before the colon, in every command.
#[test]
fn a_key_may_go_on_behind_a_colon() {
    let daemon = with_two_sources("resp");
    let mut client = Client::of(&daemon);
    client.send("INCR slow:1\r\nINCRBY slow:2:3 1\r\nSNOWBANK.NEXT slow:x 2\r\nINCR fast:\r\n");
    let mut slow = vec![client.integer(), client.integer()];
    slow.extend(client.list());
    assert!(slow.is_sorted_by(|left, right| left < right) && slow[3] < 1 << 53, "{slow:?}");
    assert!(client.integer() > 1 << 53);
    for key in ["a:fast", ":fast", "fastest:1"] {
        client.send(format!("INCR {key}\r\n"));
        assert!(client.line().starts_with("-UNKNOWN_SOURCE "), "{key}");
    }
}

/// Counters of libraries ask for a key and let it expire, and locks set one with a time to live.
#[test]
fn commands_around_a_counter_are_answered() {
    let setup = Setup::configured("[[sources]]\nname = \"orders\"\nkind = \"ticket\"").resp();
    setup.run(&["ticket", "set", "orders", "1000"]).printed();
    let daemon = setup.start();
    let mut client = Client::of(&daemon);
    for (request, reply) in [
        ("EXISTS orders:1", ":1"),
        ("EXISTS other", ":0"),
        ("EXISTS orders other orders:1", ":2"),
        ("TTL orders", ":-1"),
        ("PTTL other", ":-2"),
        ("EXPIRE other 1", ":0"),
        ("EXPIRE orders soon", "-ERR value is not an integer or out of range"),
        ("EXPIRE orders 60", ":0"),
        ("PEXPIRE orders 60 NX", ":0"),
        ("PERSIST orders", ":0"),
        ("SET orders 1 EX 5 NX", "$-1"),
        ("set orders 1 nx px 3000", "$-1"),
        ("SET orders 1 EX 60 NX GET", "$4\r\n1000"),
    ] {
        client.asks(&format!("{request}\r\n"), &format!("{reply}\r\n"));
    }
    client.asks(
        "MULTI\r\nINCR orders\r\nEXPIRE orders 5\r\nEXEC\r\n",
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1001\r\n:0\r\n",
    );
    client.send("SET orders 1 EX 5\r\n");
    assert!(client.line().starts_with("-ERR unknown command 'SET'"));
    // Lower case is no sign of a memcached client, also behind another command.
    client.asks("get orders\r\nauth any\r\nget orders:7\r\n", "$4\r\n1001\r\n+OK\r\n$4\r\n1001\r\n");
}

#[test]
fn refusals_of_long_requests_name_the_limit() {
    let daemon = with_two_sources("resp");
    for (request, reply) in [
        (
            "*1\r\n$70000\r\n".to_owned(),
            "Protocol error: invalid bulk length, allowed are 65536 bytes in a request",
        ),
        ("*1025\r\n".to_owned(), "Protocol error: invalid multibulk length, allowed are 1024 arguments"),
        (format!("CLIENT SETNAME {}\r\n", "a".repeat(257)), "found a client name of 257 bytes, allowed: 256"),
        ("CLIENT SETINFO foo x\r\n".to_owned(), "Unrecognized option 'foo'"),
    ] {
        let mut client = Client::of(&daemon);
        client.asks(&request, &format!("-ERR {reply}\r\n"));
    }
}

/// The keys fill the room of a transaction, and more than a thousand requests are refused.
#[test]
fn a_transaction_that_is_too_long_is_refused_at_its_end() {
    let daemon = with_two_sources("resp");
    let mut client = Client::of(&daemon);
    let requests: String = (0..4_000).map(|key| array(&["INCR", &format!("fast:{key}")])).collect();
    client.send(format!("MULTI\r\n{requests}EXEC\r\n"));
    let lines: Vec<String> = (0..4_001).map(|_| client.line()).collect();
    assert!(lines.iter().filter(|line| line.starts_with('-')).count() > 1_000);
    assert!(client.line().starts_with("-EXECABORT "));
}

/// A client that leaves out replies would take the next one for another's.
#[test]
fn client_reply_off_closes_the_connection() {
    let daemon = with_two_sources("resp");
    for mode in ["OFF", "SKIP"] {
        let mut client = Client::of(&daemon);
        client.send(format!("CLIENT REPLY {mode}\r\nINCR fast\r\n"));
        let rest = String::from_utf8(client.rest()).expect("text");
        assert!(rest.starts_with("-ERR CLIENT REPLY OFF and SKIP are not known here"), "{rest}");
        assert_eq!(rest.lines().count(), 1, "{rest}");
    }
}

/// As a Redis, the daemon takes a pipeline of any length from a client that reads nothing until it
/// has sent everything.
#[test]
fn a_client_may_send_hundreds_of_thousands_of_requests_before_it_reads() {
    const REQUESTS: usize = 300_000;
    // Nearly every request of the last source waits for its IDs.
    let narrow =
        "[[sources]]\nname = \"narrow\"\nlayout = \"time:41,worker:14,sequence:8\"\nworker_ids = 1\n";
    let daemon = Setup::configured(&format!("{TWO_SOURCES}{narrow}")).resp().admin().start();
    for request in ["INCR fast", "INCR narrow", "PING"] {
        let mut client = Client::of(&daemon);
        client.send(format!("{request}\r\n").repeat(REQUESTS));
        let mut last = 0;
        for _ in 0..REQUESTS {
            if request == "PING" {
                assert_eq!(client.line(), "+PONG");
            } else {
                let id = client.integer();
                assert!(last < id);
                last = id;
            }
        }
    }
    poll("an empty queue", || (sample(&scrape(&daemon), "snowbank_queued_bytes") == 0.0).then_some(()));
}

/// The daemon counts and logs why it closes a connection by itself.
#[test]
fn each_closing_has_a_reason() {
    let limits = "[limits]\nmax_queued_bytes = 1048576\nstall_timeout = \"1s\"\nidle_timeout = \"2s\"\n";
    let daemon = Setup::configured(&format!("{TWO_SOURCES}{limits}")).resp().admin().start();
    let mut half = Client::of(&daemon);
    half.send("*2\r\n$4\r\nINCR\r\n");
    let _idle = Client::of(&daemon);
    let mut bad = Client::of(&daemon);
    bad.send("*x\r\n");
    let mut wrong = Client::of(&daemon);
    wrong.send("NOTHING\r\n".repeat(1_000));
    // This client never reads, and sends more than the daemon queues for one.
    let deaf = Client::of(&daemon);
    let mut sender = deaf.0.get_ref().try_clone().expect("a copy");
    let sends = std::thread::spawn(move || sender.write_all(&b"PING\r\n".repeat(4_000_000)));
    for (reason, line) in [
        ("half_request", "the rest of a request did not arrive for 1s (limits.stall_timeout)"),
        ("idle", "closed an idle connection: it sent nothing for 2s (limits.idle_timeout)"),
        ("bad_request", "closed a connection: Protocol error: invalid multibulk length"),
        ("errors", "closed a connection: its last thousand requests were errors"),
        ("unread_replies", "it read no reply for 1s (limits.stall_timeout)"),
    ] {
        let name = format!("snowbank_connections_closed_total{{reason=\"{reason}\"}}");
        poll(reason, || (sample(&scrape(&daemon), &name) >= 1.0).then_some(()));
        daemon.assert_logs(line);
    }
    // The lines name the listener, and each listener has its own.
    let [native, resp] = [0, 1].map(|index| daemon.addresses[index].tcp());
    let mut stream = TcpStream::connect(native).expect("connected");
    stream.write_all(&[9]).expect("sent");
    for listener in [native, resp] {
        poll("a line for each listener", || {
            let is_of_it = |line: &str| {
                line.contains("the rest of a request") && line.contains(&format!("listener={listener}"))
            };
            daemon.log().lines().any(is_of_it).then_some(())
        });
    }
    assert!(sends.join().expect("the thread ends").is_err(), "the daemon closed the connection");
}

/// Requests that are queued for EXEC use memory, so a long transaction must not stall. A short one
/// may.
#[test]
fn a_long_transaction_that_stalls_closes_its_connection() {
    let config = format!("limits.stall_timeout = \"300ms\"\n{TWO_SOURCES}");
    let daemon = Setup::configured(&config).resp().start();
    let mut short = Client::of(&daemon);
    let mut long = Client::of(&daemon);
    short.asks("MULTI\r\nECHO a\r\n", "+OK\r\n+QUEUED\r\n");
    let different: String = (0..500).map(|number| format!("ECHO {number}\r\n")).collect();
    long.asks(&format!("MULTI\r\n{different}"), &format!("+OK\r\n{}", "+QUEUED\r\n".repeat(500)));
    long.is_closed();
    short.asks("EXEC\r\n", "*1\r\n$1\r\na\r\n");
    daemon.stop();
}

/// go-redis tries AUTH after a refused HELLO, and pipelines arrive in many reads. Each request gets
/// its refusal before the connection closes, and no other token is looked at.
#[test]
fn requests_behind_a_wrong_token_are_refused_one_by_one() {
    let setup = Setup::configured(&format!("auth.token_file = \"tokens\"\n{TWO_SOURCES}")).resp();
    std::fs::write(setup.path("tokens"), "secret\n").expect("written");
    let daemon = setup.start();
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let none = "-NOAUTH Authentication required.\r\n";
    let mut client = Client::of(&daemon);
    // What stands behind a misspelt AUTH may be a token, and is not repeated.
    client.asks("AUHT secret\r\n", "-ERR unknown command 'AUHT', with args beginning with: \r\n");
    client.asks("HELLO 3 AUTH default wrong\r\n", wrong);
    client.asks("AUTH wrong\r\n", wrong);
    client.asks("AUTH secret\r\n", wrong);
    client.asks("INCR fast\r\nPING\r\nQUIT\r\n", &format!("{none}{none}+OK\r\n"));
    client.is_closed();
    // A fault behind it is told as everywhere.
    let mut client = Client::of(&daemon);
    client.asks(
        "AUTH wrong\r\n*1\r\n:7\r\n",
        &format!("{wrong}-ERR Protocol error: expected '$', got ':'\r\n"),
    );
    client.is_closed();
    let mut client = Client::of(&daemon);
    // More than the errors in a row that close a connection with a token.
    const PIPELINED: usize = 1_100;
    let mut sender = client.0.get_ref().try_clone().expect("a socket");
    let sends = std::thread::spawn(move || {
        let requests = format!("AUTH wrong\r\n{}", "INCR fast\r\n".repeat(PIPELINED));
        sender.write_all(requests.as_bytes()).expect("the daemon reads all requests");
    });
    client.expect(wrong);
    (0..PIPELINED).for_each(|_| client.expect(none));
    sends.join().expect("all are sent");
    // A client that sends nothing is not waited for long.
    client.is_closed();
}
