//! What an application of 0.1.0 may write with the Rust client. That it compiles is the test.
#![allow(dead_code, reason = "nothing runs")]

use std::time::Duration;

use snowbank_client::{
    Action, Client, ClientOptions, Error, ErrorCode, Event, Ids, SharedIds, Stats, blocking,
};

fn options() -> Result<ClientOptions, Box<dyn std::error::Error>> {
    let options = ClientOptions::new(["host:1", "host:2"])?;
    let options = options.source("orders").timeout(Duration::from_secs(1)).token("secret").token_file("file");
    Ok(options.prefer_first(true).take_turns(false).fail_fast(false).on_event(event))
}

fn event(event: &Event) {
    match event {
        Event::Connected { endpoint } => drop(endpoint.clone()),
        Event::Failed { endpoint, reason } => drop((endpoint.clone(), reason.clone())),
        Event::Refused(refusal) => {
            let _: (&str, u16, Action) = (&refusal.endpoint, refusal.code, refusal.action);
            let _: (Duration, &str) = (refusal.retry_after, &refusal.message);
        }
        Event::Collision(collision) => drop((collision.endpoints.clone(), collision.claim)),
        Event::CollisionOver(collision) => drop(collision.endpoints.clone()),
        _ => {}
    }
}

async fn calls(options: ClientOptions) -> Result<(), Error> {
    let client = Client::new(options)?.source("orders")?.timeout(Duration::from_secs(1)).clone();
    let _: Vec<u64> = client.batch(1_000).await?;
    let _: Vec<u64> = client.batch_up_to(1_000).await?;
    let _: (Duration, String) = (client.ping().await?, client.info().await?);
    let mut ids: Ids = client.ids();
    let _: (u64, Option<u64>) = (ids.next().await?, ids.try_next()?);
    let shared: SharedIds = client.shared_ids().clone().timeout(Duration::from_secs(1));
    let _: (u64, Option<u64>) = (shared.next().await?, shared.try_next()?);
    figures(&client.stats());
    client.close_within(Duration::from_secs(1)).await;
    client.close();
    Ok(())
}

fn blocking_calls(options: ClientOptions) -> Result<(), Error> {
    let client = blocking::Client::new(options)?.source("orders")?.timeout(Duration::from_secs(1)).clone();
    let _: (Vec<u64>, Duration) = (client.batch(1_000)?, client.ping()?);
    let ids: blocking::Ids = client.ids().timeout(Duration::from_secs(1)).clone();
    let _: u64 = ids.next()?;
    figures(&client.stats());
    client.close_within(Duration::from_secs(1))?;
    client.close();
    Ok(())
}

fn figures(stats: &Stats) {
    let _: [u64; 4] = [stats.calls, stats.retries, stats.refusals, stats.failures];
    let _: [u64; 3] = [stats.ids, stats.dropped, stats.oldest_ms];
    let _: Option<&str> = stats.endpoint.as_deref();
}

fn reason(error: &Error) -> Option<(ErrorCode, Duration)> {
    match error {
        Error::Refused(refusal) => drop(refusal.message.clone()),
        Error::Timeout { allowed, endpoints } => drop((*allowed, endpoints.to_vec())),
        Error::Collision(collision) => drop(collision.endpoints.clone()),
        Error::BadOption(words) => drop(words.clone()),
        Error::Forked | Error::NoRuntime | Error::Closed | _ => {}
    }
    Some((error.code()?, error.retry_after()?))
}

fn is_refused_for_good(code: ErrorCode, action: Action) -> bool {
    match (code, action) {
        // A later version may have more of both.
        (ErrorCode::BadCount | ErrorCode::UnknownSource | ErrorCode::Unauthorized, Action::Tell) => true,
        (
            ErrorCode::Malformed | ErrorCode::Unsupported | ErrorCode::Exhausted | ErrorCode::ClockBehind,
            _,
        )
        | (ErrorCode::NoCeiling | ErrorCode::ShuttingDown | ErrorCode::TooBusy | _, _) => false,
    }
}
