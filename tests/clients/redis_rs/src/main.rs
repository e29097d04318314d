//! Checks redis-rs: redis_rs PORT PORT. The second daemon asks for a token. The test stops the first
//! one when it reads READY. Fails by a panic.

use std::time::Duration;

use redis::{Client, Commands, Connection, RedisResult};

const PIPELINED: usize = 80_000;

fn client(port: &str, password: &str) -> Client {
    Client::open(format!("redis://{password}127.0.0.1:{port}")).expect("an address")
}

fn main() {
    let ports: Vec<String> = std::env::args().skip(1).collect();
    let refused = client(&ports[1], ":wrong@").get_connection();
    assert!(refused.is_err_and(|error| error.to_string().contains("uthentication failed")));
    // A token in the pipeline itself: the refusal comes before the close.
    let mut connection = client(&ports[1], "").get_connection().expect("a connection");
    for requests in [1, 100] {
        let mut pipeline = redis::pipe();
        pipeline.cmd("AUTH").arg("wrong");
        for _ in 0..requests {
            pipeline.cmd("INCR").arg("fast");
        }
        let refused: RedisResult<Vec<u64>> = pipeline.query(&mut connection);
        let error = refused.expect_err("a wrong token").to_string();
        assert!(error.contains("invalid username-password"), "{requests}: {error}");
        connection = client(&ports[1], "").get_connection().expect("a connection");
    }

    let mut connection: Connection = client(&ports[0], "").get_connection().expect("a connection");
    connection.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
    for is_atomic in [false, true] {
        let mut pipeline = redis::pipe();
        if is_atomic {
            pipeline.atomic();
        }
        for _ in 0..PIPELINED {
            pipeline.cmd("INCR").arg("fast");
        }
        let ids: Vec<u64> = pipeline.query(&mut connection).expect("IDs");
        assert!(ids.len() == PIPELINED && ids[0] > 1 << 53 && ids.is_sorted_by(|one, two| one < two));
    }
    let id: u64 = connection.incr("fast:7", 1).expect("an ID");
    assert!(id > 1 << 53);
    assert!(!connection.set_nx::<_, _, bool>("tickets", 0).expect("an answer"));
    assert_eq!(connection.get("tickets"), Ok(1000));
    assert_eq!(connection.incr("tickets", 0), Ok(1000));
    assert_eq!(connection.incr("tickets:7", 5), Ok(1005));

    println!("READY");
    std::io::stdin().read_line(&mut String::new()).expect("a line");
    let late: RedisResult<u64> = connection.incr("fast", 1);
    assert!(late.is_err(), "a stopped daemon answered");
}
