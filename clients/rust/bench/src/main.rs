//! Measures how long an ID takes with the Rust client, and with the crate `redis`. `clients/bench`
//! runs this program.

use std::env;
use std::error::Error;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use redis::Commands;
use snowbank_client::{Client, ClientOptions, blocking};

const ROUNDS: usize = 7;
const STRETCHES: usize = 500;
/// The number of IDs whose time is measured at once. It is large enough for the clock's resolution,
/// and small enough that most measurements see no refill.
const STRETCH: u32 = 1_000;
const CALLS: u32 = 2_000;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main(worker_threads = 2)]
async fn main() -> Outcome {
    let arguments: Vec<String> = env::args().collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[1..] {
        ["ids", address, redis] => {
            let address = address.to_owned();
            let redis = format!("redis://{redis}");
            tokio::spawn(with_tokio(address.clone())).await??;
            tokio::task::spawn_blocking(move || without_tokio(&address, &redis)).await?
        }
        ["longest", addresses, seconds] => {
            let options = ClientOptions::new(addresses.split(','))?;
            tokio::spawn(longest(options.prefer_first(true), Duration::from_secs(seconds.parse()?))).await?
        }
        ["clients", address, count] => tokio::spawn(clients(address.to_owned(), count.parse()?)).await?,
        _ => Err("usage: ids ADDRESS REDIS | longest ADDRESSES SECONDS | clients ADDRESS COUNT".into()),
    }
}

/// Prints a row: the handle, the measurement, and the mean time in ns of the `count` IDs.
fn report(handle: &str, what: &str, began: Instant, count: u32) {
    println!("{handle}\t{what}\t{}", began.elapsed().as_nanos() as f64 / f64::from(count));
}

async fn with_tokio(address: String) -> Outcome {
    let client = Client::new(ClientOptions::new([address])?)?;
    let mut ids = client.ids();
    let shared = client.shared_ids();
    for _ in 0..ROUNDS {
        for _ in 0..STRETCHES {
            let began = Instant::now();
            for _ in 0..STRETCH {
                black_box(ids.next().await?);
            }
            report("Ids", "buffer", began, STRETCH);
        }
        for _ in 0..STRETCHES {
            let began = Instant::now();
            for _ in 0..STRETCH {
                black_box(shared.next().await?);
            }
            report("SharedIds", "buffer", began, STRETCH);
        }
        let began = Instant::now();
        for _ in 0..CALLS {
            black_box(client.batch(1).await?);
        }
        report("Ids", "one", began, CALLS);
        let began = Instant::now();
        for _ in 0..CALLS {
            for id in client.batch(STRETCH).await? {
                black_box(id);
            }
        }
        report("Ids", "batch", began, CALLS * STRETCH);
    }
    Ok(())
}

fn without_tokio(address: &str, redis: &str) -> Outcome {
    let client = blocking::Client::new(ClientOptions::new([address])?)?;
    let ids = client.ids();
    let mut redis = redis::Client::open(redis)?.get_connection()?;
    for _ in 0..ROUNDS {
        for _ in 0..STRETCHES {
            let began = Instant::now();
            for _ in 0..STRETCH {
                black_box(ids.next()?);
            }
            report("blocking::Ids", "buffer", began, STRETCH);
        }
        let began = Instant::now();
        for _ in 0..CALLS {
            black_box(redis.incr::<_, _, i64>("ids", 1)?);
        }
        report("redis", "incr", began, CALLS);
        let began = Instant::now();
        for _ in 0..CALLS {
            let last: i64 = redis.incr("ids", STRETCH)?;
            for id in last - i64::from(STRETCH) + 1..=last {
                black_box(id);
            }
        }
        report("redis", "incrby", began, CALLS * STRETCH);
    }
    Ok(())
}

/// Draws 100 IDs each millisecond, and prints the time of the slowest `next()` in ms.
async fn longest(options: ClientOptions, time: Duration) -> Outcome {
    let client = Client::new(options)?;
    let mut ids = client.ids();
    ids.next().await?;
    println!("drawing");
    let end = Instant::now() + time;
    let mut longest = Duration::ZERO;
    while Instant::now() < end {
        for _ in 0..100 {
            let began = Instant::now();
            black_box(ids.next().await?);
            longest = longest.max(began.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!("{}", longest.as_secs_f64() * 1e3);
    Ok(())
}

/// Creates clients that have one buffer each, and holds them for a minute.
async fn clients(address: String, count: usize) -> Outcome {
    let mut kept = Vec::new();
    for _ in 0..count {
        let client = Client::new(ClientOptions::new([&address])?)?;
        let mut ids = client.ids();
        ids.next().await?;
        kept.push((client, ids));
    }
    println!("ready");
    thread::sleep(Duration::from_secs(60));
    Ok(())
}
