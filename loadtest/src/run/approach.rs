//! From a target's address to open connections.

use std::time::{Duration, Instant};

use super::CannotRun;
use crate::load::Wire;
use crate::machine::owner::Owner;
use crate::promise::Promise;
use crate::scenario::{Protocol, Scenario};
use crate::target::{self, Access, GREETING_TIMEOUT, NoTarget, Stream};

/// The time limit of all connections together: tens of thousands on one machine take some seconds, and a
/// target that takes each of them only after a retry must not delay the run for hours.
const CONNECT_ALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A timeout of 0 is refused by the system.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);

/// Open connections, each with the index of its target, in one list for each thread.
pub(super) type Streams = Vec<Vec<(usize, Stream)>>;

/// Does all that comes before the load: each step blocks.
pub(super) fn approach(
    targets: &[Access],
    scenario: &Scenario,
) -> Result<(Vec<Greeted>, Streams), CannotRun> {
    let greeted: Vec<Greeted> =
        targets.iter().map(|access| greet(access, scenario)).collect::<Result<_, _>>()?;
    for (index, one) in greeted.iter().enumerate() {
        check_batch(scenario, &one.promise)?;
        for (other, address) in greeted[..index].iter().zip(targets) {
            check_distinct((&targets[index], &one.promise), (address, &other.promise))?;
        }
    }
    Ok((greeted, connect_all(targets, scenario)?))
}

/// Checks that two targets cannot hand out the same ID.
fn check_distinct(one: (&Access, &Promise), other: (&Access, &Promise)) -> Result<(), CannotRun> {
    let addresses = || (one.0.endpoint.to_string(), other.0.endpoint.to_string());
    let collision = one.1.collision(other.1).ok_or_else(|| {
        let (one, other) = addresses();
        CannotRun::OtherSpaces { one, other }
    })?;
    collision.map_or(Ok(()), |worker_id| {
        let (one, other) = addresses();
        Err(CannotRun::SameWorkerId { one, other, worker_id })
    })
}

/// Checks that the target allows the scenario's largest request.
///
/// # Errors
/// [`CannotRun::TooLargeBatch`] if it does not.
pub(crate) fn check_batch(scenario: &Scenario, promise: &Promise) -> Result<(), CannotRun> {
    let (asked, allowed) = (scenario.batch.max(), promise.max_count);
    if asked > allowed { Err(CannotRun::TooLargeBatch { asked, allowed }) } else { Ok(()) }
}

/// The answers of a target before it is loaded.
pub(super) struct Greeted {
    pub(super) wire: Wire,
    pub(super) promise: Promise,
    pub(super) version: Option<String>,
    pub(super) owner: Owner,
}

fn greet(access: &Access, scenario: &Scenario) -> Result<Greeted, CannotRun> {
    let of_counter = |wire, version: &str, owner| Greeted {
        wire,
        promise: Promise::of_counter(),
        version: Some(version.to_owned()),
        owner,
    };
    match scenario.protocol {
        Protocol::Snowbank => {
            let (info, owner) = target::greet(access)?;
            let promise = Promise::from_info(&info, scenario.source.as_deref())?;
            Ok(Greeted { wire: Wire::Native, promise, version: info.version, owner })
        }
        Protocol::Redis => {
            let owner = target::ask_resp(&access.endpoint, "PING", "+PONG")?;
            // No other client uses this key.
            let key = format!("snowbank-loadtest:{:016x}", fastrand::u64(..));
            Ok(of_counter(Wire::Resp { key }, "RESP, INCRBY", owner))
        }
        // A thread of this process.
        Protocol::Echo => Ok(of_counter(Wire::Echo, "a bare echo", Owner::Remote)),
    }
}

/// Opens one list of connections for each thread, to each target in turn.
fn connect_all(targets: &[Access], scenario: &Scenario) -> Result<Streams, CannotRun> {
    allow_open_files();
    let mut streams: Streams = (0..scenario.threads).map(|_| Vec::new()).collect();
    let (deadline, wanted) = (Instant::now() + CONNECT_ALL_TIMEOUT, scenario.connections);
    for taken in 0..wanted {
        let left = deadline.saturating_duration_since(Instant::now());
        let (peer, thread) = (taken % targets.len(), taken / targets.len() % scenario.threads);
        let opened = targets[peer].open(GREETING_TIMEOUT.min(left).max(SHORTEST_TIMEOUT));
        let stream = opened.map_err(|reason| match reason {
            NoTarget::Unreachable { reason, .. } if is_our_limit(&reason) => {
                CannotRun::TooManyConnections { taken, wanted, reason }
            }
            reason => CannotRun::Connections { taken, wanted, reason },
        })?;
        streams[thread].push((peer, stream));
    }
    Ok(streams)
}

/// Returns true if this machine has no more open files or local ports: the target is not at fault.
fn is_our_limit(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let limits = [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL];
    error.raw_os_error().is_some_and(|code| limits.iter().any(|limit| limit.raw_os_error() == code))
}

/// Raises the soft limit of open files to the hard one: each connection is one.
fn allow_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If that is not allowed, connecting fails when the limit is reached.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
