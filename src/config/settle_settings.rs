//! Turns the settings as they were read into [`Settings`]: adds the defaults that depend on other
//! settings, and checks the rules between settings.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path;

use super::Settings;
use super::conflict::{Conflict, MAX_AHEADS_IN_HORIZON};
use super::daemon::TlsSettings;
use super::fleet::FleetSettings;
use super::identities;
use super::input::Findings;
use super::mistake::Mistakes;
use super::reader::Reader;
use super::settle_source::{check_open_overlaps, check_overlaps, label, settle_source};
use super::source::SourceSettings;
use super::state_dir::StateDirChoice;
use snowbank_fleet::NUMBERS_MAX;
use snowbank_id::layout::{UnixMicros, WorkerSet};
use snowbank_wire::address::Address;

/// Completes and checks the settings that were read.
///
/// # Errors
/// Every mistake that was found here, or in the files that the configuration names.
pub(super) fn settle(reader: Reader, cores: NonZeroUsize, now: UnixMicros) -> Result<Settings, Mistakes> {
    let Reader { mut settings, mut findings } = reader;
    settings.shards = settings.shards.or_cores(cores);
    check_tls(&settings, &mut findings);
    check_distinct(&settings, &mut findings);
    check_any_key(&settings, &mut findings);
    check_tokens(&settings, &mut findings);
    check_fleet(&settings, &mut findings);
    let names = settings.sources.iter().map(|source| &*source.name);
    identities::check_names("sources", names, &mut findings);
    identities::check(&settings, &mut findings);
    check_state(&settings, &mut findings);
    let mut sound = Vec::new();
    for (index, source) in settings.sources.iter_mut().enumerate() {
        if settle_source(index, source, now, &mut findings) {
            sound.push(index);
        }
    }
    let sound: Vec<_> = sound.into_iter().map(|index| (index, &settings.sources[index])).collect();
    let given: Vec<_> = sound.iter().copied().filter(|(_, source)| source.has_worker_ids()).collect();
    check_overlaps(&given, &mut findings);
    check_open_overlaps(&sound, settings.fleet.coordinator.is_some(), &mut findings);
    check_exposure(&settings, &given, &mut findings);
    check_horizon(&settings, &mut findings);
    check_count(&settings, &mut findings);
    check_counters(&settings, &mut findings);
    settings.origins = findings.origins;
    Mistakes::new(findings.mistakes).map_or(Ok(settings), Err)
}

/// Returns every address that the daemon listens on, each with the key of its setting.
fn all_addresses(settings: &Settings) -> impl Iterator<Item = (&'static str, &Address)> {
    let front_ends = settings.listeners().map(|(protocol, addresses)| (protocol.listen_key(), addresses));
    let all = front_ends.into_iter().chain([("admin.listen", &settings.admin.listen[..])]);
    all.flat_map(|(key, addresses)| addresses.iter().map(move |address| (key, address)))
}

/// Checks that TLS listeners and a client CA have a certificate, and the certificate a key.
fn check_tls(settings: &Settings, findings: &mut Findings) {
    let TlsSettings { certificate, key, client_ca } = &settings.tls;
    check_pair("tls.certificate", certificate.is_some(), "tls.key", key.is_some(), findings);
    if certificate.is_some() || key.is_some() {
        return;
    }
    if client_ca.is_some() {
        findings.mistake_of("tls.client_ca", Conflict::ClientCaAlone);
    }
    for (setting, address) in all_addresses(settings).filter(|(_, address)| address.is_tls()) {
        findings.mistake_of(setting, Conflict::NoCertificate(address));
    }
}

/// Checks that two settings are both given, or neither.
fn check_pair(one: &str, has_one: bool, other: &str, has_other: bool, findings: &mut Findings) {
    if has_one != has_other {
        let given = if has_one { one } else { other };
        findings.mistake_of(given, Conflict::HalfOfPair { one, other });
    }
}

/// Checks that no address is given twice, whether with TLS or without, or beside that of all
/// addresses. Only port 0 may repeat, because the system gives each such listener a port of its own.
fn check_distinct(settings: &Settings, findings: &mut Findings) {
    let mut earlier: Vec<(&str, &Address)> = Vec::new();
    for (key, address) in all_addresses(settings).filter(|(_, address)| !address.has_any_port()) {
        if let Some(&(other, taken)) = earlier.iter().find(|(_, taken)| overlap(taken, address)) {
            findings.mistake_of(key, Conflict::AddressTwice { address, other, taken });
        }
        earlier.push((key, address));
    }
}

/// Returns whether only one of two listeners can be opened. Then they have the same address, or one
/// of them has the other's port for all addresses. `[::]` leaves IPv4 to a listener of its own.
fn overlap(one: &Address, other: &Address) -> bool {
    let socket = |address: &Address| place(address).parse::<SocketAddr>().ok();
    match (socket(one), socket(other)) {
        (Some(one), Some(other)) => {
            let is_for_all = one.ip().is_unspecified() || other.ip().is_unspecified();
            one == other || (is_for_all && one.port() == other.port() && one.is_ipv4() == other.is_ipv4())
        }
        _ => place(one) == place(other),
    }
}

/// Returns an address without its protocol. A path gets the form in which all its spellings are
/// equal.
fn place(address: &Address) -> String {
    if let Address::Unix(path) = address
        && let Ok(parent) =
            path::absolute(path).and_then(|path| path.parent().unwrap_or(&path).canonicalize())
    {
        return Address::Unix(parent.join(path.file_name().unwrap_or_default())).to_string();
    }
    address.to_string().trim_start_matches("tls:").to_owned()
}

/// Checks that `any_key` names an existing source.
fn check_any_key(settings: &Settings, findings: &mut Findings) {
    let sources: Vec<&str> = settings.sources.iter().map(|source| &*source.name).collect();
    if let Some(found) = settings.any_key.as_deref().filter(|wanted| !sources.contains(wanted)) {
        findings.mistake_of("any_key", Conflict::AnyKey { found, sources });
    }
}

/// If tokens are required, checks that a protocol without tokens has no listener, unless a setting
/// exempts the protocol.
fn check_tokens(settings: &Settings, findings: &mut Findings) {
    let Some(file) = &settings.auth.token_file else { return };
    for (protocol, addresses) in settings.listeners() {
        let Some(exemption) = protocol.token_exemption() else { continue };
        if addresses.is_empty() || settings.front_ends.exempt(protocol) {
            continue;
        }
        findings.mistake_of(protocol.listen_key(), Conflict::NoPlaceForTokens { file, exemption });
    }
}

/// Checks that the settings of a fleet fit each other and the sources.
fn check_fleet(settings: &Settings, findings: &mut Findings) {
    let FleetSettings { coordinator, endpoints, certificate, key, user, password_file, peers, .. } =
        &settings.fleet;
    match coordinator {
        &Some(kind) => {
            for endpoint in endpoints.iter().filter(|endpoint| endpoint.kind != kind) {
                findings.mistake_of("fleet.endpoints", Conflict::EndpointOfOtherKind { endpoint, kind });
            }
        }
        None => check_no_coordinator(settings, findings),
    }
    if coordinator.is_none() && peers.is_empty() {
        return;
    }
    check_pair("fleet.certificate", certificate.is_some(), "fleet.key", key.is_some(), findings);
    check_pair("fleet.user", !user.is_empty(), "fleet.password_file", password_file.is_some(), findings);
}

/// Reports a source or a setting of `[fleet]` that needs a coordinator, if none is named.
fn check_no_coordinator(settings: &Settings, findings: &mut Findings) {
    for (index, _) in settings.shared_counters() {
        findings.mistake_of_source(index, "kind", Conflict::NeedsCoordinator { found: "fleet-ticket" });
    }
    if let Some((index, _)) = settings.assigned().next() {
        let conflict = Conflict::NeedsCoordinator { found: "coordinator" };
        return findings.mistake_of_source(index, "worker_id_from", conflict);
    }
    // An explicit coordinator = "none" is a choice, not a forgotten line. If peers are given, even
    // as [], the settings for their TLS need no coordinator.
    if findings.origins.is_given("fleet.coordinator") {
        return;
    }
    let has_peers = findings.origins.is_given("fleet.peers");
    for row in FleetSettings::ROWS {
        let is_for_peers = ["peers", "ca", "certificate", "key"].contains(&row.key);
        let is_used = is_for_peers && has_peers;
        if !is_used && (row.show)(settings, 0) != row.default {
            let key = row.full_key(None);
            return findings.mistake_of(&key, Conflict::ForgottenCoordinator(&key));
        }
    }
}

/// Checks that the horizon is long enough for a running daemon to keep its worker IDs.
fn check_horizon(settings: &Settings, findings: &mut Findings) {
    let horizon = settings.fleet.horizon;
    let Some((index, max_ahead)) = settings.longest_max_ahead() else { return };
    let least = MAX_AHEADS_IN_HORIZON * max_ahead;
    if !settings.fleet.is_used() || horizon >= least {
        return;
    }
    let conflict = Conflict::ShortHorizon { max_ahead, horizon };
    if findings.origins.is_given("fleet.horizon") {
        return findings.mistake_of("fleet.horizon", conflict);
    }
    // If `max_ahead` has its default and is still too long, it is four ticks of the layout. So the
    // layout is at fault.
    let key = if findings.is_given_to(index, "max_ahead") { "max_ahead" } else { "layout" };
    findings.mistake_of_source(index, key, conflict);
}

/// Checks that one message to the coordinator can read the keys of all worker IDs.
fn check_count(settings: &Settings, findings: &mut Findings) {
    if !settings.fleet.is_used() {
        return;
    }
    let mut count = 0;
    let with_layout = settings.sources.iter().enumerate().filter(|(_, it)| it.kind.follows_the_clock());
    for (index, source) in with_layout {
        count += source.own_workers().map_or_else(|| source.picks(), WorkerSet::len);
        if count > NUMBERS_MAX {
            let key = if source.is_assigned() { "worker_id_from" } else { "worker_ids" };
            return findings.mistake_of_source(index, key, Conflict::TooManyWorkerIds(count));
        }
    }
}

/// Checks that one message to the coordinator can read the keys of all shared counters.
fn check_counters(settings: &Settings, findings: &mut Findings) {
    let count = settings.shared_counters().count();
    if let Some((index, _)) = settings.shared_counters().nth(NUMBERS_MAX) {
        findings.mistake_of_source(index, "kind", Conflict::TooManyCounters(count));
    }
}

/// Checks that a ticket source has a state. Without a state, each start would begin at the first
/// number again.
fn check_state(settings: &Settings, findings: &mut Findings) {
    if settings.state_dir != StateDirChoice::None {
        return;
    }
    if let Some(ticket) = settings.sources.iter().find(|source| source.kind.counts_by_itself()) {
        findings.mistake_of("state_dir", Conflict::CounterWithoutState(&ticket.name));
    }
}

/// Checks that other machines cannot reach a source that has worker 0 by default. Two daemons with
/// worker 0 would hand out the same IDs.
fn check_exposure(settings: &Settings, given: &[(usize, &SourceSettings)], findings: &mut Findings) {
    let exposed = given.iter().find(|(_, source)| !source.worker_ids.are_given);
    let Some(&(index, source)) = exposed else { return };
    for (protocol, addresses) in settings.listeners() {
        let Some(address) = addresses.iter().find(|address| !address.is_local()) else { continue };
        let conflict = Conflict::Exposed { address, source_label: label(index, source) };
        findings.mistake_of(protocol.listen_key(), conflict);
    }
}
