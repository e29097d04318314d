//! From the settings as they were read to [`Settings`]: the defaults that depend on other settings,
//! and the rules between settings.

use std::num::NonZeroUsize;

use super::Settings;
use super::daemon::TlsSettings;
use super::findings::Findings;
use super::fleet::FleetSettings;
use super::identities;
use super::listeners::Purpose;
use super::mistake::Mistakes;
use super::reader::Reader;
use super::settle_source::{Place, check_open_overlaps, check_overlaps, label, settle_source};
use super::source::SourceSettings;
use super::state_dir::StateDirChoice;
use super::units::Plain;
use crate::fleet::CoordinatorKind;
use crate::fleet::rules::HORIZON_MAX;
use snowbank_client::address::{Address, UNIX_PATH_BYTES_MAX};
use snowbank_client::layout::UnixMicros;

/// Completes and checks the settings that were read.
///
/// # Errors
/// Every mistake found here and before.
pub(super) fn settle(reader: Reader, cores: NonZeroUsize, now: UnixMicros) -> Result<Settings, Mistakes> {
    let Reader { mut settings, mut findings } = reader;
    settings.shards = settings.shards.or_cores(cores);
    check_sockets(&settings, &mut findings);
    check_tls(&settings, &mut findings);
    check_distinct(&settings, &mut findings);
    check_any_key(&settings, &mut findings);
    for (key, text) in without_place_for_a_token(&settings) {
        findings.mistake_of(key, text);
    }
    check_fleet(&settings, &mut findings);
    let names = settings.sources.iter().map(|source| &*source.name);
    identities::check_names("sources", names, &mut findings);
    identities::check(
        &settings.identities,
        &settings.sources,
        settings.tls.client_ca.is_some(),
        &mut findings,
    );
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
    for (protocol, addresses) in settings.listeners() {
        if let Some(text) = exposure(addresses, sound.iter().copied()) {
            findings.mistake_of(protocol.listen_key(), text);
        }
    }
    check_horizon(&settings, &mut findings);
    settings.origins = findings.origins;
    Mistakes::new(findings.mistakes).map_or(Ok(settings), Err)
}

/// Returns every address that the daemon listens on, with the key of its setting.
fn all_addresses(settings: &Settings) -> impl Iterator<Item = (&'static str, &Address)> {
    let of_clients = settings.listeners().map(|(protocol, addresses)| (protocol.listen_key(), addresses));
    let all = of_clients.into_iter().chain([("admin.listen", &settings.admin.listen[..])]);
    all.flat_map(|(key, addresses)| addresses.iter().map(move |address| (key, address)))
}

/// Checks that the paths of Unix sockets are not too long.
fn check_sockets(settings: &Settings, findings: &mut Findings) {
    for (key, address) in all_addresses(settings) {
        if let Address::Unix(path) = address
            && path.as_os_str().len() > UNIX_PATH_BYTES_MAX
        {
            let text = format!(
                "{address} is a path of {} bytes, allowed: at most {UNIX_PATH_BYTES_MAX}",
                path.as_os_str().len()
            );
            findings.mistake_of(key, text);
        }
    }
}

/// Checks that TLS listeners have a certificate, and the certificate a key.
fn check_tls(settings: &Settings, findings: &mut Findings) {
    let TlsSettings { certificate, key, client_ca } = &settings.tls;
    if findings.is_refused("tls.certificate") || findings.is_refused("tls.key") {
        return;
    }
    match (certificate, key) {
        (Some(_), None) => findings.mistake_of(
            "tls.certificate",
            "tls.key is missing; name the file of this certificate's private key",
        ),
        (None, Some(_)) => findings
            .mistake_of("tls.key", "tls.certificate is missing; name the file of this key's certificate"),
        (None, None) => {
            let mut tls = all_addresses(settings).filter(|(_, address)| address.is_tls()).peekable();
            if tls.peek().is_none() && client_ca.is_some() {
                let text =
                    "only TLS listeners ask for client certificates; name tls.certificate and tls.key too";
                findings.mistake_of("tls.client_ca", text);
            }
            for (setting, address) in tls {
                findings.mistake_of(setting, without_certificate(address));
            }
        }
        (Some(_), Some(_)) => {}
    }
}

/// Checks that no two listeners have the same address. Each port 0 becomes a port of its own.
fn check_distinct(settings: &Settings, findings: &mut Findings) {
    let all: Vec<(&str, &Address)> =
        all_addresses(settings).filter(|(_, address)| !address.has_any_port()).collect();
    for (index, (key, address)) in all.iter().enumerate() {
        let earlier =
            all[..index].iter().find(|(earlier, other)| is_same_place(other, address) && earlier != key);
        if let Some((earlier, _)) = earlier {
            let text = format!("found {address}, an address of {earlier}, allowed: one of its own");
            findings.mistake_of(key, text);
        }
    }
}

/// Returns true if only one socket can have both addresses.
fn is_same_place(left: &Address, right: &Address) -> bool {
    use Address::{Tcp, Tls, Unix};
    match (left, right) {
        (Unix(left), Unix(right)) => left == right,
        (
            Tcp { host, port } | Tls { host, port },
            Tcp { host: other, port: at } | Tls { host: other, port: at },
        ) => host == other && port == at,
        _ => false,
    }
}

/// Checks that the source of any key exists.
fn check_any_key(settings: &Settings, findings: &mut Findings) {
    let names = identities::names_of(&settings.sources);
    if names.is_empty() {
        return;
    }
    if let Some(wanted) = settings.any_key.as_deref().filter(|wanted| !names.contains(wanted)) {
        let text = format!("found {wanted:?}, allowed: the name of a source: {}", names.join(", "));
        findings.mistake_of("any_key", text);
    }
}

/// Checks that the settings of a fleet fit each other, and those of the sources fit them.
fn check_fleet(settings: &Settings, findings: &mut Findings) {
    let fleet = &settings.fleet;
    match fleet.coordinator {
        Some(kind) => {
            for endpoint in fleet.endpoints.iter().filter(|endpoint| endpoint.kind != kind) {
                let allowed = kind.allowed();
                let text = format!("found \"{endpoint}\", allowed with this fleet.coordinator: {allowed}");
                findings.mistake_of("fleet.endpoints", text);
            }
        }
        None => check_no_coordinator(settings, findings),
    }
    check_shared_counters(settings, findings);
    if fleet.coordinator.is_none() && fleet.peers.is_empty() {
        return;
    }
    match (&fleet.certificate, &fleet.key) {
        (Some(_), None) => {
            findings.mistake_of("fleet.certificate", "fleet.key is missing; name its private key")
        }
        (None, Some(_)) => {
            findings.mistake_of("fleet.key", "fleet.certificate is missing; name its certificate")
        }
        _ => {}
    }
    if fleet.user.is_empty() != fleet.password_file.is_none() {
        let text = "fleet.user and fleet.password_file belong together; set both or none";
        let given = if fleet.user.is_empty() { "fleet.password_file" } else { "fleet.user" };
        findings.mistake_of(given, text);
    }
}

/// Checks that no source and no setting of `[fleet]` needs a coordinator where none is named.
fn check_no_coordinator(settings: &Settings, findings: &mut Findings) {
    if let Some((index, _)) = settings.assigned().next() {
        let text = "found \"coordinator\" and none in [fleet]; set fleet.coordinator";
        return Place { index, findings }.mistake("worker_id_from", String::from(text));
    }
    // With coordinator = "none" or peers = [] the operator has chosen: no line was forgotten.
    if findings.origins.of("fleet.coordinator").is_some() {
        return;
    }
    let has_peers = findings.origins.of("fleet.peers").is_some();
    let defaults = Settings::default();
    for row in FleetSettings::ROWS {
        let is_unused = match row.key {
            "endpoints" | "name" | "horizon" | "user" | "password_file" => true,
            "ca" | "certificate" | "key" => !has_peers,
            _ => false,
        };
        if is_unused && (row.show)(settings, 0) != (row.show)(&defaults, 0) {
            let key = row.full_key(None);
            let text = format!(
                "found {key} without fleet.coordinator, so that none keeps the worker IDs of machines apart; name one \
                 ({}), or remove {key}",
                CoordinatorKind::names()
            );
            return findings.mistake_of(&key, text);
        }
    }
}

/// Checks that shared counters have a coordinator.
fn check_shared_counters(settings: &Settings, findings: &mut Findings) {
    if settings.fleet.is_used() {
        return;
    }
    let text = "found \"fleet-ticket\" and no coordinator in [fleet]; set fleet.coordinator";
    for (index, _) in settings.shared_counters() {
        findings.mistake_of(&format!("sources[{index}].kind"), text);
    }
}

/// The least horizon, in units of `max_ahead`. A holder raises its bound when half of the horizon
/// is left, here 3 × `max_ahead`. When 2 × `max_ahead` are left, it counts the bound as passed
/// (`rules::may_be_abandoned`). So a raise may take one `max_ahead`.
const MAX_AHEADS_IN_HORIZON: u32 = 6;

/// Checks that the horizon is long enough for a running daemon to keep its worker IDs.
fn check_horizon(settings: &Settings, findings: &mut Findings) {
    let horizon = settings.fleet.horizon;
    let sources = settings.sources.iter().enumerate();
    let longest = sources.map(|(index, source)| (source.max_ahead, index)).max();
    let short = longest
        .filter(|&(max_ahead, _)| settings.fleet.is_used() && horizon < MAX_AHEADS_IN_HORIZON * max_ahead);
    let Some((max_ahead, index)) = short.filter(|_| !findings.is_refused("fleet.horizon")) else { return };
    let shortest = MAX_AHEADS_IN_HORIZON * max_ahead;
    let can_be_longer = shortest <= HORIZON_MAX;
    let found = Plain(horizon);
    let least = Plain(shortest);
    if can_be_longer && findings.origins.of("fleet.horizon").is_some() {
        let text = format!(
            "found \"{found}\", allowed: at least {MAX_AHEADS_IN_HORIZON} times the longest max_ahead, \"{least}\", so that a daemon that \
             lives keeps its worker IDs"
        );
        return findings.mistake_of("fleet.horizon", text);
    }
    let longest = if can_be_longer { horizon } else { HORIZON_MAX };
    let or =
        if can_be_longer { format!("; or set fleet.horizon to at least \"{least}\"") } else { String::new() };
    let text = format!(
        "found a max_ahead of \"{}\", allowed with a fleet.horizon of \"{}\": at most 1/{MAX_AHEADS_IN_HORIZON} of it, \"{}\"{or}",
        Plain(max_ahead),
        Plain(longest),
        Plain(longest / MAX_AHEADS_IN_HORIZON)
    );
    let mut place = Place { index, findings };
    // A default that is too long is four ticks of the layout.
    let key = if place.is_given("max_ahead") { "max_ahead" } else { "layout" };
    place.mistake(key, text);
}

/// Checks that a ticket source has a state: without one it would begin again at its first number.
fn check_state(settings: &Settings, findings: &mut Findings) {
    if settings.state_dir != StateDirChoice::None {
        return;
    }
    if let Some(ticket) = settings.sources.iter().find(|source| source.kind.counts_by_itself()) {
        let name = &ticket.name;
        let text = format!(
            "found \"none\", allowed with the ticket source {name:?}: a directory, because no clock keeps its numbers from coming twice"
        );
        findings.mistake_of("state_dir", text);
    }
}

/// Returns the listeners that would be open although tokens are required, by their key, each with
/// the mistake.
fn without_place_for_a_token(settings: &Settings) -> Vec<(&'static str, String)> {
    let mut open = Vec::new();
    let Some(file) = &settings.auth.token_file else { return open };
    for (protocol, addresses) in settings.listeners() {
        let Some(exemption) = &protocol.about().token_exemption else { continue };
        if addresses.is_empty() || (exemption.is_set)(&settings.front_ends) {
            continue;
        }
        let text = format!(
            "found addresses beside auth.token_file = {file}, allowed: none, because the protocol has no place for a \
             token; or {}, so that everyone who can connect draws IDs",
            exemption.line
        );
        open.push((protocol.listen_key(), text));
    }
    open
}

fn without_certificate(address: &Address) -> String {
    format!(
        "{address} has no certificate to show; name one and its key in [tls] (certificate, key), or leave out tls:"
    )
}

/// Returns why these sources must not be served at these addresses, if so. Worker 0 by default is
/// for one machine: two daemons with it, reachable from other machines, would hand out the same
/// IDs.
fn exposure<'s>(
    listen: &[Address],
    mut sources: impl Iterator<Item = (usize, &'s SourceSettings)>,
) -> Option<String> {
    let reachable = listen.iter().find(|address| !address.is_local())?;
    let (index, source) =
        sources.find(|(_, source)| source.has_worker_ids() && !source.worker_ids.are_given)?;
    Some(format!(
        "{reachable} can be reached from other machines, and {} has no worker_ids; give it worker_ids \
         (--worker-id) that no other machine uses, or listen only on loopback addresses and Unix sockets",
        label(index, source)
    ))
}

/// The addresses of sockets that a service manager has opened, each with its use.
pub type InheritedAddresses = Vec<(Purpose, Address)>;

/// Replaces addresses by the inherited ones of this use, if there are any.
fn replace_by_inherited(configured: &mut Vec<Address>, inherited: &InheritedAddresses, purpose: Purpose) {
    let of_it = inherited.iter().filter(|(of, _)| *of == purpose);
    let addresses: Vec<Address> = of_it.map(|(_, address)| address.clone()).collect();
    if !addresses.is_empty() {
        *configured = addresses;
    }
}

impl Settings {
    /// Makes the daemon listen on sockets that it inherits in place of its own, for each protocol
    /// that has some.
    ///
    /// # Errors
    /// The settings do not allow clients at these addresses: other machines can reach one, and a
    /// source has worker 0 by default; one is for TLS without a certificate; or one's protocol
    /// cannot carry the token that clients must send. In one line.
    pub fn listen_at(&mut self, inherited: &InheritedAddresses) -> Result<(), String> {
        for (protocol, configured) in self.listeners_mut() {
            replace_by_inherited(configured, inherited, Purpose::Clients(protocol));
        }
        replace_by_inherited(&mut self.admin.listen, inherited, Purpose::Admin);
        let mut exposed = self
            .listeners()
            .into_iter()
            .filter_map(|(_, addresses)| exposure(addresses, self.sources.iter().enumerate()));
        let has_certificate = self.tls.certificate.is_some();
        let bare = all_addresses(self).find(|(_, address)| address.is_tls() && !has_certificate);
        let refused = exposed.next().or_else(|| bare.map(|(_, address)| without_certificate(address)));
        let mut untold =
            without_place_for_a_token(self).into_iter().map(|(key, text)| format!("{key}: {text}"));
        refused.or_else(|| untold.next()).map_or(Ok(()), Err)
    }
}
