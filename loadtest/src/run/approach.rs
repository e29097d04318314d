//! Opens connections to the targets, and reads their promises.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use crate::failure::{Blame, Failure};
use crate::frontend;
use crate::frontend::{Access, Conversation};
use crate::load::{Clock, Peer};
use crate::machine::owner::Owner;
use crate::promise::Promise;
use crate::scenario::Scenario;
use crate::target::{GREETING_TIMEOUT, Stream};

/// The time in which all connections together must open. On one machine, tens of thousands of
/// connections take some seconds. A target that accepts each connection only after a retry must not
/// delay the run for hours.
const CONNECT_ALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The shortest timeout, because the system refuses 0.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);

/// Open connections, each with the index of its target, in one list for each thread.
pub(super) type Streams = Vec<Vec<(usize, Stream)>>;

/// The name of a daemon's process.
const DAEMON_NAME: &str = "snowbank";

/// Greets the targets and opens all connections. Blocks.
pub(super) fn approach(scenario: &Scenario) -> Result<(Vec<Peer>, Streams), Failure> {
    let mut peers: Vec<Peer> = Vec::new();
    for number in 0..scenario.addresses.len() {
        let next = greet(scenario, number)?;
        for other in &peers {
            let apart = next.promise.check_apart(&other.promise);
            apart.map_err(|Failure { blame, reason }| {
                let [one, other] = [&next, other].map(|peer| &peer.access.endpoint);
                Failure { blame, reason: format!("{one} and {other} {reason}") }
            })?;
        }
        peers.push(next);
    }
    let streams = connect_all(&peers, scenario)?;
    Ok((peers, streams))
}

/// Returns the clock of a target. A daemon on this machine uses this machine's clock. Any other
/// process on this machine may forward connections to a daemon elsewhere.
fn clock_of(owner: Owner) -> Clock {
    match owner {
        Owner::Remote => Clock::Other,
        Owner::Process(_) if owner.name().as_deref() == Some(DAEMON_NAME) => Clock::Same,
        Owner::Unknown | Owner::Process(_) => Clock::Nearby,
    }
}

/// Greets the target `number` of the scenario. If the target has a separate INFO address, asks
/// there first, because that INFO names the source to draw from.
///
/// # Errors
/// [`Failure`], also if the target does not allow requests as large as the scenario's.
pub(crate) fn greet(scenario: &Scenario, number: usize) -> Result<Peer, Failure> {
    let endpoint = scenario.addresses[number].clone();
    let Scenario { protocol, tls, token, .. } = scenario;
    let access = Access { endpoint, protocol, tls: tls.clone(), token: token.clone() };
    let source = scenario.source.as_deref();
    let mut info = None;
    if let Some(endpoint) = scenario.info.get(number) {
        let native = Access { endpoint: endpoint.clone(), protocol: &frontend::NATIVE, ..access.clone() };
        let mut conversation = Conversation::begin(&native, GREETING_TIMEOUT)?;
        info = (native.protocol.meet)(&mut conversation, source)?.info;
    }
    let described = info.as_ref().map(|info| Promise::from_info(info, source)).transpose()?;
    let named = described.map(|promise| promise.source_name);
    let mut conversation = Conversation::begin(&access, GREETING_TIMEOUT)?;
    let met = (access.protocol.meet)(&mut conversation, named.as_deref().or(source))?;
    let owner = conversation.stream.owner();
    let info = info.or(met.info);
    let mut promise = match &info {
        _ if met.front_end.is_counter() => Promise::from_counter(),
        Some(info) => Promise::from_info(info, source)?,
        None => Promise::unknown(source),
    };
    promise.max_count = promise.max_count.min(met.front_end.max_count());
    let asked = scenario.batch;
    let allowed = promise.max_count;
    if asked > allowed {
        return Err(Failure::usage(format_args!(
            "found --batch {asked}, allowed: at most {allowed}, the target's limit"
        )));
    }
    Ok(Peer {
        access,
        front_end: met.front_end,
        version: met.version.or_else(|| info?.version),
        promise,
        owner,
        clock: clock_of(owner),
        highest: AtomicU64::new(0),
    })
}

/// Opens the connections of each thread, which go to the targets in turn.
fn connect_all(peers: &[Peer], scenario: &Scenario) -> Result<Streams, Failure> {
    allow_open_files();
    let mut streams: Streams = (0..scenario.threads).map(|_| Vec::new()).collect();
    let deadline = Instant::now() + CONNECT_ALL_TIMEOUT;
    let wanted = scenario.connections;
    for taken in 0..wanted {
        let left = deadline.saturating_duration_since(Instant::now());
        let peer = taken % peers.len();
        let thread = taken / peers.len() % scenario.threads;
        let opened = peers[peer].access.open(GREETING_TIMEOUT.min(left).max(SHORTEST_TIMEOUT));
        let stream = opened.map_err(|Failure { blame, reason }| match blame {
            Blame::Machine => Failure {
                blame,
                reason: format!(
                    "opened only {taken} of {wanted} connections: {reason}; use fewer --connections, or raise this machine's limit"
                ),
            },
            _ => Failure::from_target(format_args!(
                "the target accepted only {taken} of {wanted} connections: {reason}"
            )),
        })?;
        streams[thread].push((peer, stream));
    }
    Ok(streams)
}

/// Raises the soft limit of open files to the hard limit: each connection is an open file.
fn allow_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If this fails, the soft limit stays, and opening a connection fails at that limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
