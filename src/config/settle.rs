//! From what was read to [`Settings`]: the defaults that depend on other settings, and what must hold between them.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::daemon::{SHARDS_MAX, TlsSettings};
use super::findings::Findings;
use super::mistake::{Mistakes, Origin};
use super::reader::Reader;
use super::source::{SourceDraft, SourceSettings};
use super::units::Plain;
use super::{Settings, daemon::Daemon};
use snowbank_client::address::{Address, UNIX_PATH_BYTES_MAX};
use snowbank_client::layout::{Layout, Life, Numbering, UnixMicros, WorkerSet, concurrent_collision};

/// Completes and checks what was read.
///
/// # Errors
/// Every mistake found here and before.
pub(super) fn settle(reader: Reader, cores: NonZeroUsize, now: UnixMicros) -> Result<Settings, Mistakes> {
    let Reader { daemon, sources: drafts, mut findings, .. } = reader;
    check_sockets(&daemon.listen, "listen", &mut findings);
    check_sockets(&daemon.admin, "admin.listen", &mut findings);
    check_tls(&daemon, &mut findings);
    check_admin(&daemon, &mut findings);
    check_waits(&daemon, &mut findings);
    check_names(&drafts, &mut findings);
    let sources: Vec<Option<SourceSettings>> = drafts
        .into_iter()
        .enumerate()
        .map(|(index, draft)| settle_source(index, draft, now, &mut findings))
        .collect();
    check_overlaps(&sources, &mut findings);
    check_exposure(&daemon.listen, &sources, &mut findings);
    if let Some(mistakes) = Mistakes::new(findings.mistakes) {
        return Err(mistakes);
    }
    let Daemon {
        listen,
        shards,
        order,
        limits,
        clock,
        state_dir,
        lock_dir,
        token_file,
        tls,
        unix_mode,
        admin,
        log,
    } = daemon;
    Ok(Settings {
        listen,
        shards: shards.unwrap_or_else(|| cores.min(NonZeroUsize::MIN.saturating_add(SHARDS_MAX - 1))),
        order,
        limits,
        clock,
        sources: sources.into_iter().flatten().collect(),
        state_dir,
        lock_dir,
        token_file,
        tls,
        unix_mode,
        admin,
        log,
        origins: findings.origins,
    })
}

/// A relative path in a file grows by the file's directory, which its parser did not know.
fn check_sockets(listen: &[Address], key: &str, findings: &mut Findings) {
    for address in listen {
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

/// TLS listeners have a certificate to show, and a certificate a key.
fn check_tls(daemon: &Daemon, findings: &mut Findings) {
    let TlsSettings { certificate, key, client_ca, .. } = &daemon.tls;
    if findings.is_refused("tls.certificate") || findings.is_refused("tls.key") {
        return;
    }
    match (certificate, key) {
        (Some(_), None) => findings.mistake_of(
            "tls.certificate",
            String::from("tls.key is missing; name the file of this certificate's private key"),
        ),
        (None, Some(_)) => findings.mistake_of(
            "tls.key",
            String::from("tls.certificate is missing; name the file of this key's certificate"),
        ),
        (None, None) => {
            let listeners = [("listen", &daemon.listen), ("admin.listen", &daemon.admin)];
            let tls = listeners.into_iter().find_map(|(setting, addresses)| {
                Some((setting, addresses.iter().find(|address| address.is_tls())?))
            });
            if let Some((setting, address)) = tls {
                let text = format!(
                    "{address} has no certificate to show; name one and its key in [tls] (certificate, key), or leave out tls:"
                );
                findings.mistake_of(setting, text);
            } else if client_ca.is_some() {
                findings.mistake_of("tls.client_ca", String::from("client certificates are asked for by TLS listeners alone; name tls.certificate and tls.key too"));
            }
        }
        (Some(_), Some(_)) => {}
    }
}

fn check_admin(daemon: &Daemon, findings: &mut Findings) {
    if let Some(address) =
        daemon.admin.iter().find(|address| daemon.listen.contains(address) && !address.has_any_port())
    {
        let text = format!("found {address}, where clients connect already, allowed: an address of its own");
        findings.mistake_of("admin.listen", text);
    }
}

fn check_waits(daemon: &Daemon, findings: &mut Findings) {
    let limits = &daemon.limits;
    let Some(default_wait) = limits.default_wait else { return };
    let (low, high) = ("limits.default_wait", "limits.max_wait");
    if default_wait <= limits.max_wait || findings.is_refused(low) || findings.is_refused(high) {
        return;
    }
    let text = format!(
        "found \"{}\", allowed: at most max_wait, \"{}\"",
        Plain(default_wait),
        Plain(limits.max_wait)
    );
    findings.mistake_of(low, text);
}

fn check_names(drafts: &[SourceDraft], findings: &mut Findings) {
    for (index, draft) in drafts.iter().enumerate() {
        let twin = drafts[..index].iter().position(|earlier| earlier.name == draft.name);
        if let Some(twin) = twin
            && !draft.name.is_empty()
        {
            let text = format!(
                "found {:?}, which sources[{twin}] is called already, allowed: a name of its own",
                draft.name
            );
            findings.mistake_of(&format!("sources[{index}].name"), text);
        }
    }
}

/// One source with its defaults; `None` if its layout or its worker IDs are not to be had, which was said.
fn settle_source(
    index: usize,
    draft: SourceDraft,
    now: UnixMicros,
    findings: &mut Findings,
) -> Option<SourceSettings> {
    let mut place = Place { index, findings };
    let layout = place.layout(draft.layout, now)?;
    let worker_ids_given = draft.worker_ids.is_some();
    let worker_ids = place.worker_ids(draft.worker_ids, &layout)?;

    let ticks = |count: u64| Duration::from_millis(layout.tick_ms().saturating_mul(count));
    let (two_ticks, four_ticks) = (ticks(2), ticks(4));
    let max_ahead = draft.max_ahead.unwrap_or(SourceDraft::MAX_AHEAD.max(four_ticks));
    // A crash leaves a ceiling that ends with the tick after the horizon, and a second one in that tick takes one more. The
    // ID clock is to reach the start of what comes next at once.
    let horizon_max = max_ahead.saturating_sub(two_ticks);
    let horizon = draft.horizon.unwrap_or(SourceDraft::HORIZON.max(two_ticks).min(horizon_max));
    let burst_window = draft.burst_window.unwrap_or(SourceDraft::BURST_WINDOW.min(max_ahead));
    if max_ahead < four_ticks {
        // What is compared with it below could not be right either.
        place.at_least("max_ahead", max_ahead, "four", four_ticks);
    } else {
        place.at_least("horizon", horizon, "two", two_ticks);
        place.horizon_at_most(horizon, horizon_max, max_ahead);
        place.at_most("burst_window", burst_window, max_ahead);
        place.at_most("first_start_guard", draft.first_start_guard.unwrap_or_default(), max_ahead);
    }
    Some(SourceSettings {
        name: draft.name,
        layout,
        worker_ids,
        worker_ids_given,
        burst_window,
        max_ahead,
        on_step_back: draft.on_step_back,
        sequence_start: draft.sequence_start,
        horizon,
        first_start_guard: draft.first_start_guard,
    })
}

/// Where the mistakes of one source go.
struct Place<'f> {
    index: usize,
    findings: &'f mut Findings,
}

impl Place<'_> {
    /// The full key and origin of a setting of this source. `None` if it was refused already.
    fn of(&self, key: &str) -> Option<(String, Origin)> {
        Some(self.findings.place_of(key, self.index)).filter(|(full, _)| !self.findings.is_refused(full))
    }

    fn mistake(&mut self, key: &str, text: String) {
        if let Some((full, origin)) = self.of(key) {
            self.findings.mistake(origin, full, text);
        }
    }

    fn at_least(&mut self, key: &str, found: Duration, count: &str, ticks: Duration) {
        if found < ticks {
            let (found, ticks) = (Plain(found), Plain(ticks));
            self.mistake(
                key,
                format!("found \"{found}\", allowed: at least {count} ticks of the layout, \"{ticks}\""),
            );
        }
    }

    fn horizon_at_most(&mut self, found: Duration, most: Duration, max_ahead: Duration) {
        if found > most && self.of("max_ahead").is_some() {
            let (found, most, max_ahead) = (Plain(found), Plain(most), Plain(max_ahead));
            let text = format!(
                "found \"{found}\", allowed: at most \"{most}\", two ticks of the layout less than max_ahead, \"{max_ahead}\""
            );
            self.mistake("horizon", text);
        }
    }

    fn at_most(&mut self, key: &str, found: Duration, max_ahead: Duration) {
        if found > max_ahead && self.of("max_ahead").is_some() {
            let (found, max_ahead) = (Plain(found), Plain(max_ahead));
            self.mistake(key, format!("found \"{found}\", allowed: at most max_ahead, \"{max_ahead}\""));
        }
    }

    /// The layout, if it is one that lives.
    fn layout(&mut self, given: Option<Layout>, now: UnixMicros) -> Option<Layout> {
        self.of("layout")?;
        let layout = match given.map_or_else(|| Layout::resolve(SourceDraft::DEFAULT_LAYOUT), Ok) {
            Ok(layout) => layout,
            Err(error) => {
                self.mistake("layout", error.to_string());
                return None;
            }
        };
        match layout.life(now) {
            Life::Running { .. } | Life::LastYear { .. } => Some(layout),
            Life::NotBegun => {
                let (now, first) = (layout.rfc3339(now), layout.rfc3339(layout.first()));
                let text = format!(
                    "found an epoch of {first}, allowed: not after now, {now} (or the clock is wrong)"
                );
                if let Some((full, origin)) = self.of("layout") {
                    self.findings.clock_behind(origin, full, text);
                }
                None
            }
            Life::Ended { at } => {
                let (now, at) = (layout.rfc3339(now), layout.rfc3339(at));
                let text = format!(
                    "found a layout that ended {at}, allowed: one that has IDs left at {now}: a later epoch, or more time"
                );
                self.mistake("layout", text);
                None
            }
        }
    }

    /// The worker IDs, if the layout has them.
    fn worker_ids(&mut self, given: Option<WorkerSet>, layout: &Layout) -> Option<WorkerSet> {
        self.of("worker_ids")?;
        let worker_ids = given.unwrap_or_else(|| WorkerSet::single(0));
        match Numbering::new(layout.clone(), worker_ids.clone()) {
            Ok(_) => Some(worker_ids),
            Err(error) => {
                self.mistake("worker_ids", error.to_string());
                None
            }
        }
    }
}

/// Two sources must not be able to hand out the same ID, whatever their fields are called and whenever it would be.
fn check_overlaps(sources: &[Option<SourceSettings>], findings: &mut Findings) {
    for (index, source) in sources.iter().enumerate() {
        let Some(source) = source else { continue };
        for (earlier_index, earlier) in sources[..index].iter().enumerate() {
            let Some(earlier) = earlier else { continue };
            let ids = (&earlier.layout, &earlier.worker_ids);
            let Some(workers) = concurrent_collision(ids, (&source.layout, &source.worker_ids)) else {
                continue;
            };
            let text = overlap((earlier_index, earlier), (index, source), workers);
            let (key, origin) = findings.place_of("worker_ids", index);
            findings.mistake(origin, key, text);
        }
    }
}

/// What to say of two sources, of which these two worker IDs can hand out the same ID.
fn overlap(
    (left_index, left): (usize, &SourceSettings),
    (index, right): (usize, &SourceSettings),
    (worker, other): (u64, u64),
) -> String {
    let (one, two) = (label(left_index, left), label(index, right));
    if left.layout.space() == right.layout.space() && worker == other {
        return format!(
            "{one} and {two} have the same layout and both use worker {worker}; give each worker IDs of its own"
        );
    }
    let when = apart(left, right).map_or_else(String::new, |apart| format!(", {apart} apart"));
    format!(
        "{one}, worker {worker}, and {two}, worker {other}, can make the same IDs{when}: their layouts differ, but the \
         IDs grow alike; give one of them other worker IDs"
    )
}

/// A source as a message names it; one without a name has only its index.
/// How far apart the epochs of two sources are, in words; `None` if they are the same.
pub(super) fn apart(left: &SourceSettings, right: &SourceSettings) -> Option<String> {
    match left.layout.epoch_unix_ms().abs_diff(right.layout.epoch_unix_ms()) {
        0 => None,
        apart_ms @ ..86_400_000 => Some(format!("{} s", apart_ms as f64 / 1000.0)),
        apart_ms => Some(format!("{} days", apart_ms / 86_400_000)),
    }
}

pub(super) fn label(index: usize, source: &SourceSettings) -> String {
    match &*source.name {
        "" => format!("sources[{index}]"),
        name => format!("sources[{index}] ({name:?})"),
    }
}

/// Worker 0 by default is for one machine alone: two that other machines can reach would hand out the same IDs.
fn check_exposure(listen: &[Address], sources: &[Option<SourceSettings>], findings: &mut Findings) {
    let sources = sources.iter().enumerate().filter_map(|(index, source)| Some((index, source.as_ref()?)));
    if let Some(text) = exposure(listen, sources) {
        findings.mistake_of("listen", text);
    }
}

/// Why these sources must not be served at these addresses, if they must not.
fn exposure<'s>(
    listen: &[Address],
    mut sources: impl Iterator<Item = (usize, &'s SourceSettings)>,
) -> Option<String> {
    let reachable = listen.iter().find(|address| !address.is_local())?;
    let (index, source) = sources.find(|(_, source)| !source.worker_ids_given)?;
    Some(format!(
        "{reachable} can be reached from other machines, and {} has no worker_ids; give it worker_ids \
         (--worker-id) that no other machine uses, or listen on loopback addresses and Unix sockets alone",
        label(index, source)
    ))
}

/// Where sockets listen that a service manager has opened, by protocol.
#[derive(Clone, Debug, Default)]
pub struct InheritedAddresses {
    /// For clients.
    pub native: Vec<Address>,
    /// For the operator.
    pub admin: Vec<Address>,
}

impl Settings {
    /// Has the daemon listen elsewhere than it was told: on sockets that it inherits, for each protocol that has some.
    ///
    /// # Errors
    /// In one line: these addresses can be reached from other machines, and a source has worker 0 by default.
    pub fn listen_at(&mut self, inherited: &InheritedAddresses) -> Result<(), String> {
        let replace = |configured: &mut Vec<Address>, inherited: &Vec<Address>| {
            if !inherited.is_empty() {
                configured.clone_from(inherited);
            }
        };
        replace(&mut self.listen, &inherited.native);
        replace(&mut self.admin, &inherited.admin);
        exposure(&self.listen, self.sources.iter().enumerate()).map_or(Ok(()), Err)
    }
}
