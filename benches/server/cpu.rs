//! CPU per request of the daemon, the echo server and Redis, in alternating rounds.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::load::{Load, Sample, Wire};
use crate::process::Process;
use crate::{Effort, median, micros};

/// The load before each measurement: afterwards buffers, caches and the processor's clock have
/// settled.
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

struct Contender {
    name: &'static str,
    process: Process,
    wire: Wire,
}

const INCR: &[u8] = b"*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n";

pub(crate) fn run(effort: &Effort) -> io::Result<()> {
    println!("\n## CPU per request\n");
    println!("NEXT of 1 ID. The first row is the floor; ratios are medians of the rounds' ratios to it.");
    for shape in &SHAPES {
        let contenders = contenders(shape)?;
        let stretch = effort.stretch(Duration::from_secs(1), Duration::from_millis(300));
        let mut samples: Vec<Vec<Sample>> = contenders.iter().map(|_| Vec::new()).collect();
        for _ in 0..effort.rounds(5, 3) {
            for (contender, samples) in contenders.iter().zip(&mut samples) {
                let mut load = Load::next(1, shape.connections, shape.depth);
                if contender.wire == Wire::Lines {
                    load.request = INCR.to_vec();
                    load.wire = Wire::Lines;
                }
                samples.push(load.run(&contender.process, WARM, stretch)?);
            }
        }
        print(shape, &contenders, &samples);
    }
    Ok(())
}

fn contenders(shape: &Shape) -> io::Result<Vec<Contender>> {
    let daemon = |name, shards, order| -> io::Result<Contender> {
        let options = ["--worker-id", shape.workers, "--shards", shards, "--order", order];
        Ok(Contender { name, process: Process::daemon(&options)?, wire: Wire::Native })
    };
    let mut contenders = vec![
        Contender { name: "echo", process: Process::echo()?, wire: Wire::Native },
        daemon("snowbank, 1 shard", "1", "relaxed")?,
        daemon("snowbank, 1 shard, strict", "1", "strict")?,
        daemon("snowbank, 2 shards", "2", "relaxed")?,
        daemon("snowbank, 2 shards, strict", "2", "strict")?,
    ];
    match Process::redis()? {
        Some(process) => contenders.push(Contender { name: "Redis INCR", process, wire: Wire::Lines }),
        None => println!("\nRedis is left out: no `redis-server` on PATH."),
    }
    Ok(contenders)
}

fn cpu_us(sample: &Sample) -> f64 {
    micros(sample.cpu) / sample.replies as f64
}

fn print(shape: &Shape, contenders: &[Contender], samples: &[Vec<Sample>]) {
    println!("\n### {} (target {}× with 1 shard)\n", shape.name, shape.target);
    println!(
        "| server | CPU µs/request | × echo | requests/s | p50 µs | p99 µs | p99.9 µs | client CPU µs/request |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    let mut refusals = Vec::new();
    for (contender, rounds) in contenders.iter().zip(samples) {
        let of = |figure: &dyn Fn(&Sample) -> f64| median(rounds.iter().map(figure).collect());
        let ratios = rounds.iter().zip(&samples[0]).map(|(sample, echo)| cpu_us(sample) / cpu_us(echo));
        let latency = merged(rounds);
        let quantile = |q| latency.value_at_quantile(q) as f64 / 1e3;
        println!(
            "| {} | {:.3} | {:.2} | {:.0} | {:.0} | {:.0} | {:.0} | {:.3} |",
            contender.name,
            of(&cpu_us),
            median(ratios.collect()),
            of(&|sample| sample.replies as f64 / sample.elapsed.as_secs_f64()),
            quantile(0.5),
            quantile(0.99),
            quantile(0.999),
            of(&|sample| micros(sample.own_cpu) / sample.replies as f64),
        );
        let refused: u64 = rounds.iter().map(|sample| sample.refused).sum();
        if refused > 0 {
            let first = rounds.iter().find_map(|sample| sample.first_refusal.as_deref()).unwrap_or_default();
            refusals.push(format!("{}: {refused} requests refused: {first}", contender.name));
        }
    }
    for refusal in refusals {
        println!("\n{refusal}");
    }
}

fn merged(samples: &[Sample]) -> Histogram<u64> {
    let mut all = samples[0].latency.clone();
    for sample in &samples[1..] {
        // All have the same bounds.
        let _ = all.add(&sample.latency);
    }
    all
}
