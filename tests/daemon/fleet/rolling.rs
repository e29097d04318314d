//! A fleet whose daemons are upgraded one after the other, and taken back again.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};

use super::*;
use crate::support::program::{Said, command};

/// The start of a daemon by the program at this path.
fn start(machine: &Machine, toml: &str, program: &OsStr) -> Daemon {
    let args = ["-c", "program=$0; shift; exec \"$program\" \"$@\""].map(OsString::from);
    let args = [&args[..], &[program.to_owned()]].concat();
    machine.setup(toml).through("sh", &args).start()
}

/// `tests/rolling` builds the earlier program, and names it.
#[test]
#[ignore = "it needs the program of an earlier release: tests/rolling"]
fn a_fleet_of_two_releases_repeats_no_id() {
    let earlier = std::env::var_os("SNOWBANK_EARLIER").expect("SNOWBANK_EARLIER names a program");
    let present = crate::support::program::path().expect("it is built").into_os_string();
    on_one(|at| {
        let toml = toml(at, None, SHORT);
        let prepared = Machine::new();
        std::fs::write(prepared.path("fleet.toml"), &toml).expect("written");
        let config = prepared.path("fleet.toml");
        let init = ["fleet", "init", "--new", "--config"];
        let init = Said::by(command(earlier.as_ref()).args(init).arg(&config));
        assert_eq!(init.code, Some(0), "{init:?}");

        let mut machines: Vec<(Machine, Option<Daemon>)> = Vec::new();
        for _ in 0..3 {
            let machine = Machine::new();
            let daemon = start(&machine, &toml, &earlier);
            machines.push((machine, Some(daemon)));
        }
        let mut runs = Vec::new();
        let mut workers: HashMap<u64, usize> = HashMap::new();
        // Up, back, and up again: stopped daemons and killed ones.
        for (round, program) in [&present, &earlier, &present, &earlier].into_iter().enumerate() {
            for index in 0..machines.len() {
                for (_, daemon) in &machines {
                    let drawn = draw(daemon.as_ref().expect("it runs"));
                    *workers.entry(worker_of(&drawn)).or_default() += 1;
                    runs.extend(drawn);
                }
                let (machine, daemon) = &mut machines[index];
                let mut ended = daemon.take().expect("it runs");
                // Draws until the end, so that the next program has to start above these IDs.
                runs.extend(draw(&ended));
                if (round + index).is_multiple_of(2) {
                    drop(ended.stop());
                } else {
                    ended.kill();
                }
                *daemon = Some(start(machine, &toml, program));
                runs.extend(draw(daemon.as_ref().expect("it runs")));
            }
        }
        machines.iter().for_each(|(_, daemon)| runs.extend(draw(daemon.as_ref().expect("it runs"))));
        println!("{} runs of IDs, from worker IDs {workers:?}", runs.len());
        assert_distinct(runs);
    });
}
