//! Why settings do not fit each other, in words for whoever writes the configuration.

use std::time::Duration;

use super::units::Plain;
use super::{Address, FileRef, WorkerIdFrom};
use snowbank_fleet::{CoordinatorKind, Endpoint, HORIZON_MAX, NUMBERS_MAX};
use snowbank_id::layout::LayoutError;

/// The least horizon, in units of `max_ahead`. With this horizon, a holder raises its bound when 3
/// × `max_ahead` are left, which is half of the horizon. When 2 × `max_ahead` are left, the holder
/// must assume that another daemon has taken the worker ID (`rules::may_be_abandoned`). So a raise
/// may take one `max_ahead`.
pub(super) const MAX_AHEADS_IN_HORIZON: u32 = 6;

/// The reason why settings, each allowed by itself, are refused together.
#[derive(Debug, thiserror::Error)]
pub(super) enum Conflict<'s> {
    #[error("found a client CA, which only TLS listeners use; set tls.certificate and tls.key too")]
    ClientCaAlone,
    #[error(
        "found {0} without a certificate; name one and its key in [tls] (certificate, key), or leave out tls:"
    )]
    NoCertificate(&'s Address),
    #[error("{one} and {other} belong together; set both or none")]
    HalfOfPair { one: &'s str, other: &'s str },
    #[error("found {address}, which {other} has already ({taken}), allowed: each address once")]
    AddressTwice { address: &'s Address, other: &'s str, taken: &'s Address },
    #[error("found {found:?}, allowed: the name of a source: {}", .sources.join(", "))]
    AnyKey { found: &'s str, sources: Vec<&'s str> },
    #[error(
        "found addresses beside auth.token_file = {file}, allowed: none, because the protocol has no place for a \
         token; or {exemption}, so that everyone who can connect draws IDs"
    )]
    NoPlaceForTokens { file: &'s FileRef, exemption: &'s str },
    #[error("found \"{endpoint}\", allowed with this fleet.coordinator: {}", .kind.allowed())]
    EndpointOfOtherKind { endpoint: &'s Endpoint, kind: CoordinatorKind },
    #[error("found {found:?} and no coordinator in [fleet]; set fleet.coordinator")]
    NeedsCoordinator { found: &'s str },
    #[error(
        "found {0} without fleet.coordinator, so nothing keeps two machines from using the same worker ID; name a \
         coordinator ({kinds}), or remove {0}",
        kinds = CoordinatorKind::names()
    )]
    ForgottenCoordinator(&'s str),
    #[error(
        "found a max_ahead of \"{}\" and a fleet.horizon of \"{}\", allowed: a horizon of at least \
         {MAX_AHEADS_IN_HORIZON} times the longest max_ahead, \"{}\", and at most \"{}\", so that a running daemon \
         keeps its worker IDs; or a max_ahead of at most \"{}\"",
        Plain(*.max_ahead),
        Plain(*.horizon),
        Plain(MAX_AHEADS_IN_HORIZON * *.max_ahead),
        Plain(HORIZON_MAX),
        Plain(Duration::from_secs((*.horizon / MAX_AHEADS_IN_HORIZON).as_secs()))
    )]
    ShortHorizon { max_ahead: Duration, horizon: Duration },
    #[error(
        "found {0} worker IDs in a fleet, allowed: at most {NUMBERS_MAX} for all sources of a daemon, so that one \
         message reads their keys; give the others to another daemon"
    )]
    TooManyWorkerIds(usize),
    #[error(
        "found {0} sources of kind \"fleet-ticket\", allowed: at most {NUMBERS_MAX} in a daemon, so that one message \
         reads their keys; give the others to another daemon"
    )]
    TooManyCounters(usize),
    #[error(
        "found \"none\", allowed with the ticket source {0:?}: a directory, because without a state its numbers would \
         repeat"
    )]
    CounterWithoutState(&'s str),
    #[error(
        "{address} can be reached from other machines, and {source_label} has no worker_ids; give it worker_ids \
         (--worker-id, SNOWBANK_WORKER_IDS) that no other machine uses, or listen only on loopback addresses and Unix \
         sockets"
    )]
    Exposed { address: &'s Address, source_label: String },
    #[error("found \"{}\", allowed: at least four ticks of the layout, \"{}\"", Plain(*.max_ahead), Plain(*.four_ticks))]
    ShortMaxAhead { max_ahead: Duration, four_ticks: Duration },
    #[error("found \"{}\", allowed: at most max_ahead, \"{}\"", Plain(*.burst_window), Plain(*.max_ahead))]
    LongBurstWindow { burst_window: Duration, max_ahead: Duration },
    #[error("found in a {kind} source, allowed: in a source of kind {other:?}")]
    SettingOfOtherKind { kind: &'s str, other: &'s str },
    #[error("found an epoch of {first}, allowed: not after now, {now} (or the clock is wrong)")]
    NotBegun { first: String, now: String },
    #[error(
        "found a layout that ended {end}, allowed: one that has IDs left at {now}: more time, or, for a table without \
         its IDs, a later epoch"
    )]
    Ended { end: String, now: String },
    #[error(
        "found worker IDs beside worker_id_from = \"{0}\", allowed: none, or some but not all of the layout's node \
         fields, as in \"datacenter=1\""
    )]
    WorkerIdsBesideOrigin(&'s WorkerIdFrom),
    #[error("found \"{0}\", allowed only with a layout that has a node field")]
    NoNodeField(&'s WorkerIdFrom),
    #[error(
        "found \"{from}\" and {values} worker IDs in the layout, allowed: a power of two, because they are low bits of \
         an address"
    )]
    NotBitsOfAddress { from: &'s WorkerIdFrom, values: u64 },
    /// The layout does not have the worker IDs.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(
        "{one} and {two} have the same layout and both use worker {worker}; give each worker IDs of its own"
    )]
    SameWorkerId { one: String, two: String, worker: u64 },
    #[error(
        "{one}, worker {}, and {two}, worker {}, can make the same IDs{}: their layouts differ, but the IDs grow \
         alike; give one of them other worker IDs",
        .workers.0,
        .workers.1,
        .apart.as_ref().map_or_else(String::new, |apart| format!(", {apart} apart"))
    )]
    SameIds { one: String, two: String, workers: (u64, u64), apart: Option<String> },
    #[error(
        "{one} and {two} can make the same IDs: their layouts differ, but the IDs grow alike, and {} other worker IDs; \
         give both the same layout",
        if *.in_fleet { "other daemons of the fleet may have" } else { "other machines may pick" }
    )]
    OpenSpaces { one: String, two: String, in_fleet: bool },
    #[error("found names, allowed: none, because {0:?} stands for clients without an identity")]
    NamesOfAnonymous(&'s str),
    #[error(
        "found names, but no client shows a certificate; name the authority of their certificates in tls.client_ca"
    )]
    NamesWithoutCa,
    #[error("found \"{name}\", which identities[{earlier}] has, allowed: each name once")]
    CertificateTwice { name: String, earlier: usize },
    #[error("found {found:?}, which is no source, allowed: {}", quoted_list(.sources))]
    NoSuchSource { found: &'s str, sources: &'s [&'s str] },
    #[error("found {name:?}, the name of {list}[{earlier}], allowed: a name of its own")]
    NameTwice { name: &'s str, list: &'s str, earlier: usize },
}

/// Returns items with commas between them.
pub(super) fn joined(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns names in quotes, with commas between them.
pub(super) fn quoted_list(names: &[impl AsRef<str>]) -> String {
    names.iter().map(|name| format!("{:?}", name.as_ref())).collect::<Vec<_>>().join(", ")
}
