//! The settings of the daemon as a whole.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use super::log::{LogFormat, LogLevel, LogSettings};
use super::secrets::FileRef;
use super::setting::{Change, Draft, Section, Setting};
use super::state_dir::StateDirChoice;
use super::units::{self, duration, quoted};
use crate::shard::Order;
use crate::tls::MinVersion;
use snowbank_client::address::Address;

/// The most shards a daemon can have: more cores than any machine it is meant for, and few enough that a shard's
/// number fits a byte.
pub const SHARDS_MAX: usize = 256;

/// Where the machine's locks of worker IDs are unless set otherwise.
pub(super) const LOCK_DIR: &str = "/run/lock/snowbank";

/// The least bytes that may be queued for a slow reader: one reply frame on its way to the socket and one being filled.
pub const REPLY_QUEUE_BYTES_MIN: usize = 128 * 1024;

/// Bounds on what clients can make the daemon do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections open at once, over all listeners.
    pub max_connections: usize,
    /// IDs per request.
    pub max_count: NonZeroU32,
    /// How long a request waits that does not say; `None`: one second, or two ticks of its source if longer
    /// (see [`default_wait_for`](Self::default_wait_for)).
    pub default_wait: Option<Duration>,
    /// The longest that any request waits.
    pub max_wait: Duration,
    /// How long a frame may be under way from its first byte to its last.
    pub frame_timeout: Duration,
    /// How long a connection may stay silent; `None`: for ever.
    pub idle_timeout: Option<Duration>,
    /// How long a reader may take nothing of what is queued for it.
    pub write_timeout: Duration,
    /// Bytes queued for one connection before nothing more is read from it.
    pub max_reply_queue_bytes: usize,
    /// How long a stop waits for connections to take their last replies.
    pub drain_timeout: Duration,
}

impl Limits {
    /// How long a request of a source waits that does not say: `default_wait`, or if that is not set one second or two
    /// ticks, whichever is longer; never above `max_wait`.
    pub fn default_wait_for(&self, tick: Duration) -> Duration {
        self.default_wait
            .unwrap_or_else(|| Duration::from_secs(1).max(tick.saturating_mul(2)))
            .min(self.max_wait)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_count: NonZeroU32::MIN.saturating_add(999_999),
            default_wait: None,
            max_wait: Duration::from_secs(10),
            frame_timeout: Duration::from_secs(10),
            idle_timeout: None,
            write_timeout: Duration::from_secs(10),
            max_reply_queue_bytes: 256 * 1024,
            drain_timeout: Duration::from_secs(5),
        }
    }
}

/// When the daemon believes its machine's wall clock. A machine has one, so these hold for every source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockSettings {
    /// The largest forward step of the wall clock that is believed at once.
    pub max_step: Duration,
    /// How long a larger one must last until it is believed.
    pub step_hold: Duration,
}

impl Default for ClockSettings {
    fn default() -> Self {
        Self { max_step: Duration::from_secs(60), step_hold: Duration::from_secs(60) }
    }
}

/// What TLS listeners show and ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The daemon's certificate and those that lead to its authority's.
    pub certificate: Option<FileRef>,
    /// Its private key.
    pub key: Option<FileRef>,
    /// The authorities of which clients must have a certificate; `None`: they need none.
    pub client_ca: Option<FileRef>,
    /// The oldest version spoken.
    pub min_version: MinVersion,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self {
            certificate: None,
            key: None,
            client_ca: None,
            min_version: MinVersion::default(),
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

/// What the table below fills: the daemon's part of [`Settings`](super::Settings).
#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) listen: Vec<Address>,
    /// `None`: one per core.
    pub(super) shards: Option<NonZeroUsize>,
    pub(super) order: Order,
    pub(super) limits: Limits,
    pub(super) clock: ClockSettings,
    pub(super) state_dir: StateDirChoice,
    pub(super) lock_dir: PathBuf,
    pub(super) token_file: Option<FileRef>,
    pub(super) tls: TlsSettings,
    pub(super) unix_mode: u32,
    /// Empty: no admin listener.
    pub(super) admin: Vec<Address>,
    pub(super) log: LogSettings,
}

impl Default for Daemon {
    fn default() -> Self {
        Self {
            listen: vec![Address::Tcp { host: "127.0.0.1".into(), port: 7660 }],
            shards: None,
            order: Order::default(),
            limits: Limits::default(),
            clock: ClockSettings::default(),
            state_dir: StateDirChoice::Default,
            lock_dir: PathBuf::from(LOCK_DIR),
            token_file: None,
            tls: TlsSettings::default(),
            unix_mode: 0o660,
            admin: Vec::new(),
            log: LogSettings::default(),
        }
    }
}

impl Draft for Daemon {
    type Settled = super::Settings;
}

/// Addresses as an array of texts.
fn listed(addresses: &[Address]) -> String {
    let addresses: Vec<_> = addresses.iter().map(quoted).collect();
    format!("[{}]", addresses.join(", "))
}

/// Why the clock's settings stay.
const CLOCK: &str = "a step that is held is judged by them";

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// Every setting of the daemon as a whole.
pub(super) const DAEMON: &[Setting<Daemon>] = &[
    Setting {
        section: Section::Top,
        key: "listen",
        default: r#"["127.0.0.1:7660"]"#,
        doc: "Where clients connect: IP address or host name and port (\"[::1]:7660\" for IPv6, port 0 for any \
              free one); with \"tls:\" in front (\"tls:0.0.0.0:7661\"), clients have to speak TLS as [tls] says; or \
              \"unix:/path\" for a socket file.\n\
              By default this machine alone can connect: being reachable is a choice, and needs worker_ids.",
        change: Change::Restart("listeners are opened at the start"),
        read: |daemon, value| value.addresses(&mut daemon.listen),
        show: |settings| listed(&settings.listen),
    },
    Setting {
        section: Section::Top,
        key: "shards",
        default: r#""auto""#,
        doc: "Threads that serve connections, 1 to 256. \"auto\" is one for each core: a shard never waits for \
              another, so more than that only take turns.",
        change: Change::Restart("a connection stays on its shard's thread"),
        read: |daemon, value| {
            let count = value.or_word("auto", |value| value.count(1..=SHARDS_MAX as u64))?;
            daemon.shards = count.and_then(|count| NonZeroUsize::new(usize::try_from(count).ok()?));
            Ok(())
        },
        show: |settings| settings.shards.to_string(),
    },
    Setting {
        section: Section::Top,
        key: "order",
        default: r#""relaxed""#,
        doc: "\"relaxed\": IDs increase on each connection, and over connections to within burst_window. \
              \"strict\": a request sent after a reply was received gets larger IDs, on any connection.\n\
              Relaxed by default, because shards then hand out IDs without touching shared memory. It holds for the \
              whole daemon: clients are told one order.",
        change: Change::Restart("IDs already handed out are in the old order"),
        read: |daemon, value| {
            let names = [Order::Relaxed, Order::Strict].map(|order| (order.name(), order));
            value.choice(&names).map(|order| daemon.order = order)
        },
        show: |settings| quoted(settings.order.name()),
    },
    Setting {
        section: Section::Top,
        key: "state_dir",
        default: r#""""#,
        doc: "The directory that keeps what must outlast a restart, above all the ceilings below which IDs may have \
              been handed out: created with mode 0700 if it is missing, and used by one daemon at a time. A \
              relative path is taken from this file's directory, so that it is the same one whatever directory the \
              daemon starts in. \"none\" keeps nothing: uniqueness over restarts then rests on the clock alone.\n\
              Empty, it is the first directory of $STATE_DIRECTORY, which systemd sets for a service, else \"snowbank\" \
              in $XDG_STATE_HOME or ~/.local/state: these outlast a boot and are writable where the daemon runs. \
              Several daemons of one user each need their own.",
        change: Change::Restart("the ceilings are kept there"),
        read: |daemon, value| value.path().map(|path| daemon.state_dir = path.into()),
        show: |settings| quoted(&settings.state_dir),
    },
    Setting {
        section: Section::Top,
        key: "lock_dir",
        default: r#""/run/lock/snowbank""#,
        doc: "The directory of the locks that keep two daemons of this machine from using one worker ID, shared by all \
              of them; they remember how far IDs were granted, so that an older copy of the state is refused. /run/lock is local to the machine, writable from inside a hardened service, and empty after a \
              boot.",
        change: Change::Restart("the locks of worker IDs are held there"),
        read: |daemon, value| match value.path()? {
            Some(path) => {
                daemon.lock_dir = path;
                Ok(())
            }
            None => Err(String::from("found \"\", allowed: a directory, for locks are never skipped").into()),
        },
        show: |settings| quoted(settings.lock_dir.display()),
    },
    Setting {
        section: Section::Top,
        key: "unix_mode",
        default: r#""0660""#,
        doc: "Permissions of Unix socket files, in octal. By default the daemon's user and group can connect, and \
              nobody else.",
        change: Change::Restart("socket files are made at the start"),
        read: |daemon, value| value.mode().map(|mode| daemon.unix_mode = mode),
        show: |settings| format!("\"{:04o}\"", settings.unix_mode),
    },
    Setting {
        section: Section::Limits,
        key: "max_connections",
        default: "10000",
        doc: "Connections open at once, 1 to 1,000,000; the next is told too_busy and closed. 10,000 idle ones fit \
              in 10 MiB, and in the 20,000 open files that many systems allow.",
        change: Change::Reload,
        read: |daemon, value| {
            let count = value.count(1..=1_000_000)?;
            daemon.limits.max_connections = usize::try_from(count).unwrap_or(usize::MAX);
            Ok(())
        },
        show: |settings| settings.limits.max_connections.to_string(),
    },
    Setting {
        section: Section::Limits,
        key: "max_count",
        default: "1000000",
        doc: "IDs per request, 1 to 4,294,967,295 (what the protocol's 32 bits can ask for). A request is only \
              admitted if its IDs can be had within its wait, so this bounds the work and the reply of one frame: \
              a million is a quarter of a second of the twitter layout, and 8 MB if every ID is listed.",
        change: Change::Reload,
        read: |daemon, value| {
            let count = value.count(1..=u64::from(u32::MAX))?;
            daemon.limits.max_count =
                u32::try_from(count).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX);
            Ok(())
        },
        show: |settings| settings.limits.max_count.to_string(),
    },
    Setting {
        section: Section::Limits,
        key: "default_wait",
        default: r#""auto""#,
        doc: "How long a request waits for its IDs if it does not say, at most max_wait. \"auto\" is 1s, or two \
              ticks of the layout if that is longer: long enough to ride out a burst, short enough to fail before \
              callers give up.",
        change: Change::Reload,
        read: |daemon, value| {
            daemon.limits.default_wait =
                value.or_word("auto", |value| value.duration(Duration::ZERO..=HOUR))?;
            Ok(())
        },
        show: |settings| settings.limits.default_wait.map_or_else(|| quoted("auto"), duration),
    },
    Setting {
        section: Section::Limits,
        key: "max_wait",
        default: r#""10s""#,
        doc: "The longest that a request may wait, whatever it asks for; \"0\": nobody waits. Ten seconds of \
              overload are a queue that is better refused than kept.",
        change: Change::Reload,
        read: |daemon, value| {
            value.duration(Duration::ZERO..=HOUR).map(|duration| daemon.limits.max_wait = duration)
        },
        show: |settings| duration(settings.limits.max_wait),
    },
    Setting {
        section: Section::Limits,
        key: "frame_timeout",
        default: r#""10s""#,
        doc: "How long a request may take from its first byte to its last; then the connection is closed. A request \
              is at most 1 KiB, so only a dead or hostile peer needs ten seconds.",
        change: Change::Reload,
        read: |daemon, value| {
            value.duration(MS..=HOUR).map(|duration| daemon.limits.frame_timeout = duration)
        },
        show: |settings| duration(settings.limits.frame_timeout),
    },
    Setting {
        section: Section::Limits,
        key: "idle_timeout",
        default: r#""off""#,
        doc: "How long a connection may be silent between requests; then it is closed. Off by default: an idle \
              connection costs under 1 KiB, and reopening it costs its client a round trip at the worst moment.",
        change: Change::Reload,
        read: |daemon, value| {
            daemon.limits.idle_timeout = value.or_word("off", |value| value.duration(SECOND..=720 * HOUR))?;
            Ok(())
        },
        show: |settings| settings.limits.idle_timeout.map_or_else(|| quoted("off"), duration),
    },
    Setting {
        section: Section::Limits,
        key: "write_timeout",
        default: r#""10s""#,
        doc: "How long a client may take nothing of the replies queued for it; then the connection is closed. Ten \
              seconds outlast a pause of its garbage collector and a lost packet's retries.",
        change: Change::Reload,
        read: |daemon, value| {
            value.duration(MS..=HOUR).map(|duration| daemon.limits.write_timeout = duration)
        },
        show: |settings| duration(settings.limits.write_timeout),
    },
    Setting {
        section: Section::Limits,
        key: "max_reply_queue",
        default: r#""256KiB""#,
        doc: "Bytes queued for a client that reads slowly, \"128KiB\" to \"1GiB\"; meanwhile nothing more is read \
              from it. At least two whole reply frames of 64 KiB, one leaving and one being filled; the default is \
              two of each.",
        change: Change::Reload,
        read: |daemon, value| {
            let bytes = value.bytes(REPLY_QUEUE_BYTES_MIN as u64..=1 << 30)?;
            daemon.limits.max_reply_queue_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            Ok(())
        },
        show: |settings| quoted(units::Bytes(settings.limits.max_reply_queue_bytes as u64)),
    },
    Setting {
        section: Section::Limits,
        key: "drain_timeout",
        default: r#""5s""#,
        doc: "How long a stop waits for clients to take their last replies; \"0\": not at all. Half of the ten seconds \
              that container runtimes give before they kill.",
        change: Change::Reload,
        read: |daemon, value| {
            value.duration(Duration::ZERO..=HOUR).map(|duration| daemon.limits.drain_timeout = duration)
        },
        show: |settings| duration(settings.limits.drain_timeout),
    },
    Setting {
        section: Section::Clock,
        key: "max_step",
        default: r#""60s""#,
        doc: "The largest forward step of the wall clock that is believed at once. A minute is more than a clock that \
              is kept is ever off, and if the step was wrong, a minute of IDs is all that it costs.",
        change: Change::Restart(CLOCK),
        read: |daemon, value| {
            value.duration(SECOND..=24 * HOUR).map(|duration| daemon.clock.max_step = duration)
        },
        show: |settings| duration(settings.clock.max_step),
    },
    Setting {
        section: Section::Clock,
        key: "step_hold",
        default: r#""60s""#,
        doc: "How long a larger step must last before it is believed; \"0\": believed at once. A time server that \
              is wrong is mostly put right, or outvoted, within a minute; until then time goes on at its own pace.",
        change: Change::Restart(CLOCK),
        read: |daemon, value| {
            value.duration(Duration::ZERO..=24 * HOUR).map(|duration| daemon.clock.step_hold = duration)
        },
        show: |settings| duration(settings.clock.step_hold),
    },
    Setting {
        section: Section::Auth,
        key: "token_file",
        default: r#""""#,
        doc: "A file of tokens, one of which a client must send before it asks for IDs: one on each line, 1 to 512 \
              bytes; empty lines and lines that start with # do not count. A relative path is taken from this file's \
              directory; \"credential:NAME\" is systemd's credential of that name (LoadCredential=). Tokens stand in a file \
              of their own because command lines and configurations are read by more people.\n\
              Empty, no token is asked for: by default only this machine can connect. Tokens are asked for besides \
              client certificates where both are set.",
        change: Change::Reload,
        read: |daemon, value| value.file().map(|file| daemon.token_file = file),
        show: |settings| show_file(&settings.token_file),
    },
    Setting {
        section: Section::Tls,
        key: "certificate",
        default: r#""""#,
        doc: "The file of the certificate that \"tls:\" listeners show, in PEM, followed by those that lead to its \
              authority's. A path or \"credential:NAME\", as of token_file. Clients compare its names with the address \
              that they connect to. One that has expired is refused, as clients would refuse it.",
        change: Change::Reload,
        read: |daemon, value| value.file().map(|file| daemon.tls.certificate = file),
        show: |settings| show_file(&settings.tls.certificate),
    },
    Setting {
        section: Section::Tls,
        key: "key",
        default: r#""""#,
        doc: "The file of the certificate's private key, in PEM without a passphrase: a path or \"credential:NAME\". Only \
              the daemon's user should be able to read it.",
        change: Change::Reload,
        read: |daemon, value| value.file().map(|file| daemon.tls.key = file),
        show: |settings| show_file(&settings.tls.key),
    },
    Setting {
        section: Section::Tls,
        key: "client_ca",
        default: r#""""#,
        doc: "A file of CA certificates in PEM: a path or \"credential:NAME\". If it is set, a client must have a valid \
              certificate of one of them, whatever its name, to be served on a \"tls:\" listener. Revocation lists are \
              not read: use a CA of its own, and certificates that end soon.\n\
              Empty, clients need no certificate.",
        change: Change::Reload,
        read: |daemon, value| value.file().map(|file| daemon.tls.client_ca = file),
        show: |settings| show_file(&settings.tls.client_ca),
    },
    Setting {
        section: Section::Tls,
        key: "min_version",
        default: r#""1.3""#,
        doc: "The oldest version of TLS spoken, \"1.2\" or \"1.3\". TLS libraries have had 1.3 since 2018, and what is \
              not spoken cannot be fallen back to.",
        change: Change::Reload,
        read: |daemon, value| {
            let names = [MinVersion::Tls12, MinVersion::Tls13].map(|version| (version.name(), version));
            value.choice(&names).map(|version| daemon.tls.min_version = version)
        },
        show: |settings| quoted(settings.tls.min_version.name()),
    },
    Setting {
        section: Section::Tls,
        key: "handshake_timeout",
        default: r#""10s""#,
        doc: "How long a client may take from connecting to the end of the handshake; then the connection is closed. \
              Three round trips to the far side of the world and a few lost packets take less.",
        change: Change::Reload,
        read: |daemon, value| {
            value.duration(MS..=HOUR).map(|duration| daemon.tls.handshake_timeout = duration)
        },
        show: |settings| duration(settings.tls.handshake_timeout),
    },
    Setting {
        section: Section::Admin,
        key: "listen",
        default: r#""""#,
        doc: "Where the daemon tells how it is, over HTTP: /metrics for Prometheus, /healthz and /readyz for probes, /status \
              as JSON, and / as a page. An address as in listen, several in an array, or a port alone (9660), which \
              is 127.0.0.1's. With \"tls:\" in front it is HTTPS, with the certificate of [tls], and with tls.client_ca for \
              those alone who have a client certificate. Empty: nowhere.\n\
              Off by default because it asks for no token: who reaches it reads what the daemon does, though no IDs, \
              and changes nothing. It is served away from the threads of clients: no request waits for it.",
        change: Change::Restart("listeners are opened at the start"),
        read: |daemon, value| value.admin_addresses(&mut daemon.admin),
        show: |settings| if settings.admin.is_empty() { quoted("") } else { listed(&settings.admin) },
    },
    Setting {
        section: Section::Log,
        key: "format",
        default: r#""auto""#,
        doc: "How the daemon says what an operator should know: \"text\" writes lines to standard error, with colours on \
              a terminal; \"json\" a JSON object on each line; \"journald\" sends to the journal, with priorities and \
              a field for each part (journalctl -o verbose).\n\
              \"auto\" is journald where standard error leads to the journal, as a systemd service's does, else text: \
              so each reader gets what it can show.",
        change: Change::Restart("events go where they went at the start"),
        read: |daemon, value| value.choice(&LogFormat::NAMES).map(|format| daemon.log.format = format),
        show: |settings| quoted(settings.log.format.name()),
    },
    Setting {
        section: Section::Log,
        key: "level",
        default: r#""info""#,
        doc: "The least that is said: \"error\" (IDs are not handed out), \"warn\" (that may come), \"info\" (what \
              changes), \"debug\" or \"trace\". Nothing is said for each request at any level, and what repeats is \
              said seldom, so \"info\" is a few lines a day.",
        change: Change::Reload,
        read: |daemon, value| value.choice(&LogLevel::NAMES).map(|level| daemon.log.level = level),
        show: |settings| quoted(settings.log.level.name()),
    },
];

fn show_file(file: &Option<FileRef>) -> String {
    file.as_ref().map_or_else(|| quoted(""), quoted)
}
