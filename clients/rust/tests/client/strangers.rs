//! Servers of other protocols at an endpoint: the client names each, and still uses the other
//! endpoints.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use snowbank_client::{Client, Error};
use tokio::time::sleep;

use crate::fake_daemon::FakeDaemon;
use crate::{ms, nobody, patient};

/// Starts a server that runs `answer` for each connection. Returns its address.
fn server(answer: impl Fn(TcpStream) + Send + Sync + Copy + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answer(stream.expect("a connection")));
        }
    });
    address
}

/// Starts a server that answers each line as Redis does, and sends nothing before the line's end.
fn server_of_redis() -> String {
    server(|stream| {
        let mut lines = BufReader::new(stream.try_clone().expect("a second handle"));
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|size| size > 0) {
            if (&stream).write_all(REDIS.as_bytes()).is_err() {
                return;
            }
            line.clear();
        }
    })
}

fn silent() -> String {
    server(|stream| {
        // Reads until the client leaves.
        let _ = std::io::copy(&mut &stream, &mut std::io::sink());
    })
}

const REDIS: &str = "-ERR unknown command '\u{c}', with args beginning with: \r\n";

#[tokio::test]
async fn a_server_that_closes_and_a_silent_one_are_named_with_their_address() {
    let closing = server(drop);
    let hasty = patient([&closing]).fail_fast(true);
    let error = Client::new(hasty).expect("a client").batch(1).await.expect_err("no daemon");
    assert!(matches!(error, Error::Lost { .. }) && error.to_string().contains(&closing), "{error}");

    let silent = silent();
    // Whichever limit is shorter, the text is clear.
    for (timeout, connect_timeout) in [(60_000, 6_000), (6_000, 60_000)] {
        let options = patient([&silent]).timeout(ms(timeout)).connect_timeout(ms(connect_timeout));
        let options = options.fail_fast(true);
        let error = Client::new(options).expect("a client").batch(1).await.expect_err("no daemon");
        assert!(error.to_string().contains(&format!("cannot reach {silent}: it accepted")), "{error}");
    }
}

#[tokio::test]
async fn an_endpoint_that_is_down_may_come_back_unlike_a_foreign_server() {
    let redis = server_of_redis();
    let down = nobody();
    let options = patient([&redis, &down]).timeout(ms(6_000));
    let error = Client::new(options).expect("a client").batch(1).await.expect_err("no daemon");
    assert!(matches!(error, Error::Deadline { .. }), "{error:?}");
    for part in ["within 6s", &format!("{redis} does not speak"), &format!("cannot reach {down}: Conn")] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
}

#[tokio::test]
async fn an_endpoint_that_becomes_a_daemon_serves() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let down = nobody();
    let client = Client::new(patient([address, down])).expect("a client");
    let call = tokio::spawn(async move { client.batch(1).await });
    let (stream, _) = tokio::task::spawn_blocking({
        let listener = listener.try_clone().expect("a second handle");
        move || listener.accept().expect("a connection")
    })
    .await
    .expect("no panic");
    (&stream).write_all(REDIS.as_bytes()).expect("the client reads");
    sleep(ms(20)).await;
    drop(stream);
    let _daemon = FakeDaemon::on(listener, |_, peer| {
        peer.greet();
        let (_, tag) = peer.read_next();
        peer.send_run(tag, 5, 1);
        peer.wait_for_close();
    });
    let batch = call.await.expect("no panic").expect("IDs in the end");
    assert_eq!(batch.iter().next(), Some(5));
}
