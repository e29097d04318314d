//! The same load on a Redis, if one is installed.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::port::Port;
use crate::support::{loadtest, until_judged};

/// Ends with the test, when this is dropped.
struct Redis(Child);

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_redis_is_loaded_and_checked_like_a_daemon() {
    let (port, directory) = (Port::take(), tempfile::tempdir().expect("a directory"));
    let address = port.address();
    let mut command = Command::new("redis-server");
    command.args([
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--port",
        &address.port().to_string(),
    ]);
    let Ok(child) = command.arg("--dir").arg(directory.path()).stdout(Stdio::null()).spawn() else {
        return crate::support::skip("redis-server is not installed");
    };
    let _redis = Redis(child);
    for _ in 0..6_000 {
        if TcpStream::connect(address).is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let address = address.to_string();
    let options = [
        "--resp",
        "--address",
        &address,
        "--rate",
        "1000",
        "--for",
        "1s",
        "--batch",
        "1:9,50:1",
        "--p99.9",
        "5s",
    ];
    let ran = until_judged(|| loadtest(&options));
    assert_eq!(ran.code, 0, "{ran:?}");
    let of = |name: &str| ran.figure("IDs", name).as_f64();
    assert!(of("IDs checked") > of("requests"), "{ran:?}");
}

#[test]
fn a_server_that_is_no_redis_is_no_target() {
    let ran = loadtest(&["--resp", "--address", "127.0.0.1:1"]);
    assert_eq!((ran.code, ran.stderr.lines().count()), (2, 1), "{ran:?}");
}
