//! The settings of the daemon as a whole. The comments of the fields are the reference that
//! operators read.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use tracing::level_filters::LevelFilter;

use super::fields::{LEVELS, LogFormat, SHARDS_MAX, Shards};
use super::file_ref::FileRef;
use super::fleet::FleetSettings;
use super::identities::IdentitySettings;
use super::mistake::Origins;
use super::protocols::FrontEndSettings;
use super::setting::{Change::Reload, Change::Restart, LISTENERS_OPENED, Row, Section::Table, Section::Top};
use super::source::SourceSettings;
use super::state_dir::StateDirChoice;
use snowbank_core::clock::{STEP_BELIEVED_AT_ONCE, StepRule};
use snowbank_core::shard::Order;
use snowbank_fleet::FleetLimits;
use snowbank_wire::address::Address;

/// The default wait if ticks are short: long enough to outlast a burst, short enough to fail before
/// callers give up.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// Returns every setting but those of identities: first those of the daemon, then those of sources,
/// then those of each section.
pub(super) fn rows() -> impl Iterator<Item = &'static Row> {
    let sections = [
        Settings::ROWS,
        SourceSettings::ROWS,
        Limits::ROWS,
        ClockSettings::ROWS,
        AuthSettings::ROWS,
        TlsSettings::ROWS,
    ];
    let last = [AdminSettings::ROWS, FleetSettings::ROWS, LogSettings::ROWS];
    sections.into_iter().chain(FrontEndSettings::ROWS).chain(last).flatten()
}

/// Returns the settings of the daemon, and the settings of this many sources. Each setting of a
/// source has the source's index.
pub(super) fn rows_of(sources: usize) -> impl Iterator<Item = (&'static Row, Option<usize>)> {
    let once = rows().filter(|row| !row.is_of_source()).map(|row| (row, None));
    once.chain(
        (0..sources)
            .flat_map(|index| rows().filter(|row| row.is_of_source()).map(move |row| (row, Some(index)))),
    )
}

/// Returns every setting that a file can have: those of [`rows`], and those of identities, which no
/// environment variable can set.
pub(super) fn rows_of_file() -> impl Iterator<Item = &'static Row> {
    rows().chain(IdentitySettings::ROWS)
}

/// Returns the names of the sections, in the order of the reference.
pub(super) fn tables() -> Vec<&'static str> {
    let mut tables: Vec<_> = rows()
        .filter_map(|row| match row.section {
            Table(table) => Some(table),
            _ => None,
        })
        .collect();
    tables.dedup();
    tables
}

settings! {
    /// The configuration of a daemon after its checks: each value is in its range, and the values
    /// fit each other.
    pub struct Settings in Top, at |settings, _index| (settings) {
        /// The addresses where clients connect: IP address or host name and port (`[::1]:7660` for
        /// IPv6, port 0 for any free one), or "unix:/path" for a socket file. With "tls:" in front
        /// ("tls:0.0.0.0:7661") clients must speak TLS, see `[tls]`. Processes of the daemon's user
        /// or group can use a socket file.
        ///
        /// A daemon that other machines can reach needs worker_ids.
        listen: Vec<Address> = r#"["127.0.0.1:7660"]"#, Restart(LISTENERS_OPENED), |value| value.addresses();

        /// Threads that serve connections, 1 to 256. "auto" is one for each core. Set fewer to
        /// leave cores to other programs.
        shards: Shards = r#""auto""#, Restart("a connection stays on its shard's thread"),
            |value| value.or_word("auto", |value| value.count(1..=SHARDS_MAX as u64)).map(Shards);

        /// "relaxed": IDs of a source increase on each connection, and those of different
        /// connections are sorted to within burst_window. "strict": a request sent after a reply
        /// was received gets larger IDs, on any connection.
        ///
        /// Relaxed by default: each shard then hands out IDs that it has claimed ahead. The order
        /// applies to the whole daemon.
        order: Order = r#""relaxed""#, Restart("IDs already handed out are in the old order"),
            |value| value.choice(&[Order::Relaxed, Order::Strict].map(|order| (order.name(), order)));

        /// The directory of the state that must outlast a restart: the ceilings below which IDs may
        /// have been handed out. It is created with mode 0700 if it is missing, and one daemon at a
        /// time uses it. A relative path starts at this file's directory. "none" keeps nothing:
        /// uniqueness over restarts then depends on the clock alone.
        ///
        /// Empty: the first directory of $STATE_DIRECTORY, which systemd sets for a service, else
        /// "snowbank" in $XDG_STATE_HOME or ~/.local/state. If one user runs several daemons, each
        /// needs its own directory.
        state_dir: StateDirChoice = r#""""#, Restart("the ceilings are kept there"),
            |value| value.state_dir();

        /// The directory of the locks by which this machine refuses a second daemon with the same
        /// worker ID, and an older copy of a state. All daemons of the machine must share it. Only
        /// root and one user or group may write there: a missing directory is made for the daemon's
        /// user alone.
        ///
        /// /run/lock is local to the machine, writable from inside a hardened service, and empty
        /// after a boot.
        lock_dir: PathBuf = r#""/run/lock/snowbank""#, Restart("the locks of worker IDs are held there"),
            |value| value.directory();

        /// The source for keys that name no source, for clients of Redis, memcached and Leaf.
        /// Empty: such a key is refused, but clients of memcached draw from the first source,
        /// because those of katsubushi send any key.
        ///
        /// This source holds for all front ends: if it is set for Leaf, an INCR of a misspelt key
        /// draws an ID, too. Set it for tools whose key cannot be chosen, such as redis-benchmark.
        any_key: Option<String> = r#""""#, Reload, |value| value.source();
    }
    and {
        /// The section `[limits]`.
        limits: Limits,
        /// The section `[clock]`.
        clock: ClockSettings,
        /// The section `[auth]`.
        auth: AuthSettings,
        /// The section `[tls]`.
        tls: TlsSettings,
        /// The sections of the front ends.
        front_ends: FrontEndSettings,
        /// The section `[admin]`.
        admin: AdminSettings,
        /// The section `[fleet]`.
        fleet: FleetSettings,
        /// The section `[log]`.
        log: LogSettings,
        /// The sources, from 1 to [`SOURCES_MAX`](super::SOURCES_MAX) of them.
        sources: Vec<SourceSettings>,
        /// The identities, at most [`IDENTITIES_MAX`](super::IDENTITIES_MAX), each with a name of
        /// its own.
        identities: Vec<IdentitySettings>,
        /// The place where each setting was given. The messages of a refused reload, and of worker
        /// IDs that cannot be picked, name this place.
        origins: Origins,
        /// The configured `max_connections`, if open files allow fewer.
        connections_wanted: Option<usize>,
    }
}

settings! {
    /// Bounds on what clients can make the daemon do.
    pub struct Limits in Table("limits"), at |settings, _index| (settings.limits) {
        /// Connections open at once, 1 to 1,000,000. The daemon answers the next one with too_busy
        /// and closes it.
        ///
        /// If tokens are required, connections without one may use an eighth of this number, and 64
        /// at least. So may TLS handshakes. Beyond that, or if all connections are in use, the
        /// daemon closes the one whose token or handshake it has awaited longest.
        ///
        /// 10,000 idle connections fit in 20 MiB, and in the 20,000 open files that many systems
        /// allow.
        max_connections: usize = "10000", Reload, |value| value.count(1..=1_000_000);

        /// The bytes that all connections together may have queued, 1,048,576 (1 MiB) to
        /// 1,099,511,627,776: replies that clients have not taken, and requests that have arrived
        /// in part or wait for EXEC. Each connection may use a share of what is free, and in any
        /// case 8 KiB (over TLS 24 KiB), so 1,000 connections may exceed the number by 8 MiB. The
        /// daemon stops reading from a connection that has more, until its client has taken its
        /// replies, and closes it after stall_timeout. The connections themselves and the kernel's
        /// buffers are not counted.
        ///
        /// 128 MiB are enough for 400 clients that stop reading for seconds. With 50,000
        /// connections the daemon is then still below the MemoryMax= of its unit.
        max_queued_bytes: usize = "134217728", Reload, |value| value.count(1_048_576..=1_099_511_627_776);

        /// IDs per request, 1 to 4,294,967,295.
        ///
        /// A million is a quarter of a second of the twitter layout, and 8 MB if every ID is
        /// listed.
        max_count: NonZeroU32 = "1000000", Reload, |value| value.count(1..=u64::from(u32::MAX));

        /// The longest that a request may wait, even if it asks for more; "0": no request waits. A
        /// request that names no time waits up to 1s, or two ticks of the layout if that is longer.
        /// A request that would wait for longer than ten seconds is better refused.
        max_wait: Duration = r#""10s""#, Reload, |value| value.duration(Duration::ZERO..=HOUR);

        /// The longest time for which a peer may leave something unfinished: a request that has
        /// begun to arrive, a TLS handshake, replies that it does not read. Then the daemon closes
        /// the connection.
        ///
        /// Ten seconds outlast a garbage collector's pause and the retries of lost packets. A
        /// handshake has five seconds at most.
        stall_timeout: Duration = r#""10s""#, Reload, |value| value.duration(MS..=HOUR);

        /// The longest time for which a connection may be silent between requests; then the daemon
        /// closes it.
        ///
        /// Off by default: an idle connection costs about 1 KB, and reopening it costs its client a
        /// round trip at the worst moment. Set it if clients leak connections, or if a firewall
        /// drops idle ones without a notice.
        idle_timeout: Option<Duration> = r#""off""#, Reload,
            |value| value.or_word("off", |value| value.duration(SECOND..=720 * HOUR));

        /// The time between the signal to stop (SIGTERM) and the stop. Until then the daemon serves
        /// as before, but /readyz returns 503, so that load balancers send their connections
        /// elsewhere. It applies only with an admin listener. "0": no delay. SIGINT, or a second
        /// SIGTERM, stops at once.
        ///
        /// Set it to the time that your load balancer takes to react.
        drain_delay: Duration = r#""3s""#, Reload, |value| value.duration(Duration::ZERO..=HOUR);

        /// The longest time for which a stop waits for clients to take their last replies; "0": it
        /// does not wait. Five seconds are half of the time that container runtimes give a process
        /// before they kill it.
        drain_timeout: Duration = r#""5s""#, Reload, |value| value.duration(Duration::ZERO..=HOUR);
    }
}

settings! {
    /// The rules for believing the machine's wall clock. A machine has one, so they hold for every
    /// source.
    pub struct ClockSettings in Table("clock"), at |settings, _index| (settings.clock) {
        /// The time that a forward step of the wall clock by more than a minute must last before
        /// the daemon believes it; "0": the daemon believes steps at once. Until then the time in
        /// IDs advances at its normal speed.
        ///
        /// A wrong time server is mostly corrected or outvoted within a minute.
        step_hold: Duration = r#""60s""#, Restart("it judges a step that is held"),
            |value| value.duration(Duration::ZERO..=24 * HOUR);
    }
}

settings! {
    /// The tokens of clients.
    pub struct AuthSettings in Table("auth"), at |settings, _index| (settings.auth) {
        /// A file of tokens, one on each line, 1 to 512 bytes. A client must send one of them
        /// before it asks for IDs. "NAME: TOKEN" gives clients with that token an identity, see
        /// `[[identities]]`. Instead of a token, a line can have its SHA-256, "sha256:" and 64 hex
        /// digits: `snowbank token` makes both. Empty lines and lines that start with # are
        /// ignored. A relative path starts at this file's directory. "credential:NAME" is systemd's
        /// credential of that name (LoadCredential=).
        ///
        /// A client has five seconds to send its token. It learns of a wrong one after a second.
        ///
        /// Empty: clients need no token.
        token_file: Option<FileRef> = r#""""#, Reload, |value| value.file();
    }
}

settings! {
    /// The certificates of TLS listeners. They speak TLS 1.3, which TLS libraries have had since
    /// 2018.
    pub struct TlsSettings in Table("tls"), at |settings, _index| (settings.tls) {
        /// The file of the certificate of "tls:" listeners, in PEM, followed by the intermediate
        /// certificates. A path or "credential:NAME", as for auth.token_file. Clients compare its
        /// names with the address that they connect to. The daemon refuses an expired certificate,
        /// as clients would.
        certificate: Option<FileRef> = r#""""#, Reload, |value| value.file();

        /// The file of the certificate's private key, in PEM without a passphrase: a path or
        /// "credential:NAME". Only the daemon's user should be able to read it.
        key: Option<FileRef> = r#""""#, Reload, |value| value.file();

        /// A file of CA certificates in PEM: a path or "credential:NAME". If it is set, a client of
        /// a "tls:" listener needs a valid certificate that one of these CAs signed, with any name.
        /// Revocation lists are not read: use a separate CA and certificates with a short life.
        ///
        /// Empty: clients need no certificate.
        client_ca: Option<FileRef> = r#""""#, Reload, |value| value.file();
    }
}

settings! {
    /// The listeners for operators.
    pub struct AdminSettings in Table("admin"), at |settings, _index| (settings.admin) {
        /// The addresses where the daemon reports its state over HTTP: /metrics for Prometheus,
        /// /healthz and /readyz for probes, /status as JSON, and / as a page. An address as in
        /// listen, several in an array, or only a port (9660) of 127.0.0.1. With "tls:" in front it
        /// is HTTPS with the certificate of `[tls]`, and tls.client_ca applies. Empty: none.
        ///
        /// Off by default because it requires no token: everyone who can connect sees the daemon's
        /// status.
        listen: Vec<Address> = r#""""#, Restart(LISTENERS_OPENED), |value| value.admin_addresses();
    }
}

settings! {
    /// The form and the level of log messages.
    #[derive(Copy)]
    pub struct LogSettings in Table("log"), at |settings, _index| (settings.log) {
        /// The form of log messages: "text" writes lines to standard error, with colours on a
        /// terminal; "json" a JSON object on each line; "journald" starts each line with its
        /// priority, which journald reads.
        ///
        /// "auto" is journald where standard error leads to the journal, as a systemd service's
        /// does, else text.
        format: LogFormat = r#""auto""#, Restart("the log was opened at the start"), |value| value.variant();

        /// The least severe messages that are logged: "error" (requests or a reload are refused), "warn"
        /// (that may happen soon), "info" (changes), "debug" or "trace". No level logs each
        /// request, and messages that repeat are limited, so "info" is a few lines a day.
        level: LevelFilter = r#""info""#, Reload, |value| value.choice(&LEVELS);
    }
}

impl Settings {
    /// Returns the greatest age that an ID of any source can have when it is claimed: the
    /// `burst_window` of INFO.
    pub fn burst_window(&self) -> Duration {
        self.sources.iter().map(|source| source.burst_window).max().unwrap_or_default()
    }

    /// Returns the settings of the type [`FileRef`], by their keys.
    pub(crate) fn files(&self) -> [(&'static str, &Option<FileRef>); 8] {
        [
            ("auth.token_file", &self.auth.token_file),
            ("tls.certificate", &self.tls.certificate),
            ("tls.key", &self.tls.key),
            ("tls.client_ca", &self.tls.client_ca),
            ("fleet.password_file", &self.fleet.password_file),
            ("fleet.ca", &self.fleet.ca),
            ("fleet.certificate", &self.fleet.certificate),
            ("fleet.key", &self.fleet.key),
        ]
    }

    /// Returns how far an ID of any source can be ahead of the wall clock: the `max_ahead` of INFO.
    pub fn max_ahead(&self) -> Duration {
        self.sources.iter().map(|source| source.max_ahead).max().unwrap_or_default()
    }

    /// Returns the limits that the fleet must have: the horizon, and the longest `max_ahead` of the
    /// sources with worker IDs.
    pub fn fleet_limits(&self) -> FleetLimits {
        let max_ahead = self.longest_max_ahead().map(|(_, max_ahead)| max_ahead);
        FleetLimits::new(self.fleet.horizon, max_ahead.unwrap_or_default())
    }

    /// Returns the longest `max_ahead` of the sources with worker IDs, and the index of its source.
    pub(super) fn longest_max_ahead(&self) -> Option<(usize, Duration)> {
        let sources = self.sources.iter().enumerate().filter(|(_, source)| source.own_layout().is_some());
        let all = sources.map(|(index, source)| (index, source.max_ahead));
        all.max_by_key(|(_, max_ahead)| *max_ahead)
    }
}

impl Limits {
    /// Returns how long a request that names no time may wait. It is a second, or two ticks of its
    /// source if that is longer, and never above `max_wait`.
    pub fn default_wait_for(&self, tick: Duration) -> Duration {
        DEFAULT_WAIT.max(tick.saturating_mul(2)).min(self.max_wait)
    }
}

impl ClockSettings {
    /// Returns the rule by which forward steps are believed.
    pub fn step_rule(&self) -> StepRule {
        StepRule { max_step: STEP_BELIEVED_AT_ONCE, step_hold: self.step_hold }
    }
}
