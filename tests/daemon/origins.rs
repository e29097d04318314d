//! Worker IDs that a daemon takes from an address, the host name or a file of its machine.

use std::process::Command;

use crate::support::Setup;
use crate::support::ids::twitter_worker;
use crate::support::program::{Said, program};

#[test]
fn an_address_gives_the_worker_id() {
    let toml = "worker_id_from = \"ipv4\"\nlayout = \"kubernetes\"\nlisten = \"0.0.0.0:0\"\n";
    let daemon = Setup::bare().config(toml).env("SNOWBANK_IPV4", "10.94.100.191").start();
    let id = daemon.draw_one();
    // The layout has 28 bits of time, 24 of the node, and 11 of the sequence.
    assert_eq!((id >> 11) & 0xff_ffff, 94 * 65_536 + 100 * 256 + 191);
    daemon.assert_logs(
        "source \"default\" has worker ID 6186175, from the low 24 bits of 10.94.100.191, SNOWBANK_IPV4",
    );
    assert!(!daemon.log().contains("unknown"), "{}", daemon.log());
}

#[test]
fn a_file_gives_the_worker_id_once_it_is_there() {
    // The path is relative to the configuration's directory.
    let toml = "worker_id_from = \"file:number\"\nworker_ids = \"datacenter=1\"\n";
    let absent = Setup::configured(toml);
    let path = absent.path("number");
    absent.end().assert_refusal_for_now(&["worker_id_from", path.to_str().expect("UTF-8"), "one number"]);
    let with = |number: &str| {
        let setup = Setup::configured(toml);
        std::fs::write(setup.path("number"), number).expect("the number is written");
        setup
    };
    with("32\n").end().assert_refusal(&["worker_id_from", "found 32", "0 to 31"]);
    let daemon = with("5\n").start();
    // The configuration gives datacenter 1.
    assert_eq!(twitter_worker(daemon.draw_one()), 32 + 5);
}

#[test]
fn a_host_name_gives_the_worker_id() {
    // The daemon runs in a UTS namespace, in which the host has another name.
    let named = |name: &str| {
        let script = format!("hostname {name} && exec \"$@\"");
        Setup::configured("worker_id_from = \"hostname\"\n")
            .through("unshare", &["--uts", "--map-root-user", "sh", "-c", &script, "sh"])
    };
    let can = Command::new("unshare").args(["--uts", "--map-root-user", "hostname", "web-1"]).status();
    if !can.is_ok_and(|status| status.success()) {
        return crate::support::skip("this user cannot make a namespace with another host name");
    }
    let daemon = named("web-12.example").start();
    assert_eq!(twitter_worker(daemon.draw_one()), 12);
    daemon.assert_logs("source \"default\" has worker ID 12, from host name \"web-12.example\"");
    named("web").end().assert_refusal(&["worker_id_from", "\"web\"", "web-12"]);
}

#[test]
fn check_prints_the_worker_id_of_this_machine() {
    let directory = crate::support::directory();
    let path = directory.path().join("snowbank.toml");
    // The state is not that of who runs the tests.
    let check = || {
        let mut check = program();
        check.arg("check").arg(&path).env("SNOWBANK_IPV4", "10.0.0.5");
        check.env("XDG_STATE_HOME", directory.path());
        Said::by(&mut check)
    };
    for (toml, parts) in [
        (
            "worker_id_from = \"ipv4\"\n",
            [
                "on this machine, source \"default\" has worker ID 5, from the low 10 bits",
                "no other machine's address may end in the same 10 bits",
            ],
        ),
        // A missing file is only a warning, because the machine on which the daemon will run may
        // have the file.
        (
            "worker_id_from = \"file:absent\"\nlisten = \"0.0.0.0:7660\"\n",
            ["worker picked at the start (file:", "warning: `serve` would not start on this machine now: "],
        ),
    ] {
        std::fs::write(&path, toml).expect("the configuration is written");
        let said = check();
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(parts.iter().all(|part| said.out.contains(part)), "{said:?}");
    }
    // What does not start here without a change of the configuration is a mistake.
    std::fs::write(&path, "worker_id_from = \"ipv4:10.0.0.0/8\"\n").expect("written");
    let said = check();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("whose subnet has 24 bits for its addresses, allowed: at most 10"), "{said:?}");
}
