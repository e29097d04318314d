//! The same load on a Redis, if one is installed.

use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::support::port::Port;
use crate::support::{Server, has_program, loadtest, poll, until_in_time};

#[test]
fn a_redis_is_loaded_and_checked_like_a_daemon() {
    if !has_program("redis-server", "redis-server") {
        return;
    }
    let port = Port::take();
    let directory = tempfile::tempdir().expect("a directory");
    let address = port.address();
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
    command.args(["--save", "", "--appendonly", "no"]);
    command.arg("--dir").arg(directory.path()).stdout(Stdio::null());
    let _redis = Server(command.spawn().expect("a Redis"));
    poll("a Redis", || TcpStream::connect(address).ok());
    let address = address.to_string();
    let open = ["--rate", "10000", "--batch", "50", "--for", "1s", "--p99.9", "5s"];
    for load in [&open[..], &["--closed", "--for", "300ms"]] {
        let target = ["--resp", "--address", &address];
        let ran = until_in_time(|| loadtest(&[&target[..], load].concat()));
        assert_eq!(ran.code, 0, "{ran:?}");
        let of = |name: &str| ran.figure("IDs", name).as_f64();
        assert!(of("IDs checked") > of("requests"), "{ran:?}");
        let version = ran.figure("target", "version");
        assert!(version.as_str().is_some_and(|it| it.starts_with("Redis ")), "{ran:?}");
    }
}
