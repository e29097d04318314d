//! CPU per request of the daemon, the echo server and Redis, measured in turn.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use snowbank_testkit::Ask;

use crate::load::{Exchange, Load};
use crate::server::{self, Server};
use crate::{Effort, median};

/// The time under load before each measurement. In this time, caches and the processor's clock rate
/// settle.
const WARM: Duration = Duration::from_millis(300);

struct Shape {
    name: &'static str,
    connections: usize,
    depth: usize,
    workers: &'static str,
    target: f64,
}

const SHAPES: [Shape; 3] = [
    Shape { name: "50 connections, depth 1", connections: 50, depth: 1, workers: "0", target: 1.15 },
    Shape { name: "50 connections, 16 deep", connections: 50, depth: 16, workers: "0", target: 1.2 },
    Shape {
        name: "4 connections, 64 deep, eight worker IDs",
        connections: 4,
        depth: 64,
        workers: "0-7",
        target: 1.5,
    },
];

/// The name, the number of shards and the order of each daemon.
const DAEMONS: [(&str, &str, &str); 4] = [
    ("snowbank, 1 shard", "1", "relaxed"),
    ("snowbank, 1 shard, strict", "1", "strict"),
    ("snowbank, 2 shards", "2", "relaxed"),
    ("snowbank, 2 shards, strict", "2", "strict"),
];

/// A server that is measured. `rounds` has the CPU time of a request in each round, in µs.
struct Contender<'a> {
    name: &'static str,
    address: SocketAddr,
    process: u32,
    exchange: &'a Exchange,
    rounds: Vec<f64>,
}

impl<'a> Contender<'a> {
    fn new(name: &'static str, address: SocketAddr, process: u32, exchange: &'a Exchange) -> Self {
        Contender { name, address, process, exchange, rounds: Vec::new() }
    }
}

pub(crate) fn run(effort: &Effort) -> io::Result<()> {
    println!("\n## CPU per request\n");
    println!("NEXT of 1 ID. A ratio to the first row, a bare echo server, is the median over the rounds.");
    let next = Exchange { request: Ask::of(1).default_wait().bytes(), reply_size: 24, marker: (4, 0x81) };
    // The counter starts so high that it never gets another digit, so all replies have one size.
    let incr = Exchange {
        request: b"*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n".to_vec(),
        reply_size: ":1000000000000\r\n".len(),
        marker: (0, b':'),
    };
    let directory = tempfile::tempdir()?;
    for shape in &SHAPES {
        let echo = Server::echo()?;
        let redis = Server::redis()?;
        let mut daemons = Vec::new();
        for (name, shards, order) in DAEMONS {
            let options = ["--worker-id", shape.workers, "--shards", shards, "--order", order];
            let state = directory.path().join(name).join(shape.workers);
            daemons.push((name, server::daemon(&state).args(options).start()));
        }
        let mut contenders = vec![Contender::new("echo", echo.address, echo.id(), &next)];
        for &(name, ref daemon) in &daemons {
            contenders.push(Contender::new(name, daemon.tcp(), daemon.id(), &next));
        }
        match &redis {
            Some(redis) => {
                redis.command("SET k 1000000000000", "+OK\r\n")?;
                contenders.push(Contender::new("Redis INCR", redis.address, redis.id(), &incr));
            }
            None => println!("\nRedis is left out: PATH has no `redis-server`."),
        }
        measure(effort, shape, &mut contenders)?;
        print(shape, &contenders);
    }
    Ok(())
}

fn measure(effort: &Effort, shape: &Shape, contenders: &mut [Contender<'_>]) -> io::Result<()> {
    let stretch = effort.stretch(Duration::from_secs(1), Duration::from_millis(300));
    for _ in 0..effort.rounds(5, 3) {
        for contender in &mut *contenders {
            let exchange = contender.exchange;
            let load = Load { exchange, connections: shape.connections, depth: shape.depth };
            contender.rounds.push(load.run(contender.address, contender.process, WARM, stretch)?);
        }
    }
    Ok(())
}

fn print(shape: &Shape, contenders: &[Contender<'_>]) {
    println!("\n### {} (target {}× with 1 shard)\n", shape.name, shape.target);
    println!("| server | CPU µs/request | × echo |");
    println!("|---|---:|---:|");
    let echo = &contenders[0].rounds;
    for Contender { name, rounds, .. } in contenders {
        let ratios = rounds.iter().zip(echo).map(|(round, echo)| round / echo);
        println!("| {name} | {:.3} | {:.2} |", median(rounds.clone()), median(ratios.collect()));
    }
}
