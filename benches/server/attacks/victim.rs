//! The servers under attack, and those who want something of them: a client that asks, and probes.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use snowbank_client::protocol::{MAX_PING_SIZE, Next, Wait, request};

use super::peers::Attack;
use crate::process::Process;

const TOKEN: &[u8] = b"a-token-of-the-benchmark";
/// The time between two probes.
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// The requests after which the client connects again.
const REQUESTS_PER_CONNECTION: usize = 250;
/// The time after which a request is lost.
const LOST_AFTER: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Snowbank,
    Redis,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Snowbank => "snowbank",
            Kind::Redis => "redis",
        }
    }
}

/// The contents of a request. Redis adds the count to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) count: u32,
    pub(crate) wait: Wait,
    pub(crate) partial: bool,
}

impl Wanted {
    pub(crate) const ONE: Wanted = Wanted { count: 1, wait: Wait::DEFAULT, partial: false };
}

/// The figures of a client or of probes.
pub(crate) struct Seen {
    pub(crate) latency: Histogram<u64>,
    /// The time to connect, the token included. No request is due meanwhile.
    pub(crate) to_connect: Histogram<u64>,
    pub(crate) lost: u64,
    pub(crate) all: u64,
}

impl Seen {
    fn new() -> io::Result<Seen> {
        let times = || Histogram::new_with_max(60_000_000_000, 3).map_err(io::Error::other);
        Ok(Seen { latency: times()?, to_connect: times()?, lost: 0, all: 0 })
    }

    fn add(&mut self, other: &Seen) -> io::Result<()> {
        (self.lost, self.all) = (self.lost + other.lost, self.all + other.all);
        self.latency.add(&other.latency).map_err(io::Error::other)
    }

    /// Counts a request that was due then.
    fn count(&mut self, is_answered: bool, due: Instant) {
        self.all += 1;
        self.lost += u64::from(!is_answered);
        self.latency.saturating_record(due.elapsed().as_nanos() as u64);
    }
}

/// A server under attack.
pub(crate) struct Victim {
    kind: Kind,
    process: Process,
    ports: Ports,
    needs_token: bool,
    /// The client's request, and the time between two of them.
    modest: (Wanted, Duration),
}

/// Addresses beside that of the process, for the listeners that an attack needs.
#[derive(Clone, Copy)]
struct Ports {
    tls: SocketAddr,
    http: SocketAddr,
    admin: SocketAddr,
}

impl Ports {
    fn free() -> io::Result<Ports> {
        Ok(Ports { tls: free_port()?, http: free_port()?, admin: free_port()? })
    }
}

/// A port that is free a moment before it is used.
fn free_port() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Makes a certificate with an RSA key. The signatures of other keys cost a tenth.
fn make_certificate(directory: &Path) -> io::Result<()> {
    let key = directory.join("key.pem");
    let certificate = directory.join("certificate.pem");
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    command.args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"]).arg(&key).arg("-out");
    let status = command.arg(&certificate).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("openssl made no certificate")) }
}

impl Victim {
    /// Starts a server. Returns `None` if it has nothing that could be attacked so, or is not
    /// installed.
    pub(crate) fn start(kind: Kind, attack: Attack) -> io::Result<Option<Victim>> {
        let needs_token = attack.needs_token();
        let modest = attack.modest();
        let ports = Ports::free()?;
        let directory = tempfile::tempdir()?;
        if attack == Attack::Handshakes {
            make_certificate(directory.path())?;
        }
        let process = match kind {
            Kind::Redis if matches!(attack, Attack::Admin | Attack::Http) => return Ok(None),
            Kind::Redis => match start_redis(directory.path(), attack, ports.tls)? {
                None => return Ok(None),
                Some(process) => process,
            },
            Kind::Snowbank => start_snowbank(directory.path(), attack, ports)?,
        };
        Ok(Some(Victim { kind, process, ports, needs_token, modest }))
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.process.address()
    }

    pub(crate) fn tls(&self) -> SocketAddr {
        self.ports.tls
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.ports.http
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.ports.admin
    }

    pub(crate) fn waited(&self) -> io::Result<Duration> {
        self.process.waited()
    }

    pub(crate) fn memory_mib(&self) -> io::Result<f64> {
        self.process.memory_kib().map(|(resident, _)| resident as f64 / 1_024.0)
    }

    /// Returns the bytes that bring a token.
    pub(crate) fn authorization(&self, token: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match self.kind {
            Kind::Snowbank => {
                let _ = request::encode_auth(&mut out, 0, token);
            }
            Kind::Redis => out = [b"AUTH ", token, b"\r\n"].concat(),
        }
        out
    }

    /// Returns a request.
    pub(crate) fn request(&self, Wanted { count, wait, partial }: Wanted) -> Vec<u8> {
        let mut out = Vec::new();
        match self.kind {
            Kind::Snowbank => {
                let next = Next { source: 0, count, wait, explicit: false, partial };
                request::encode_next(&mut out, 0, &next);
            }
            Kind::Redis => out = format!("INCRBY ids {count}\r\n").into_bytes(),
        }
        out
    }

    /// Returns this many requests whose replies are long, about 1 KB each, and need no IDs.
    pub(crate) fn long_requests(&self, count: usize) -> Vec<u8> {
        match self.kind {
            Kind::Snowbank => {
                let mut info = Vec::new();
                request::encode_info(&mut info, 0);
                info.repeat(count)
            }
            Kind::Redis => b"GET long\r\n".repeat(count),
        }
    }

    /// Returns this many of the largest requests that a client without a token may send.
    pub(crate) fn pings(&self, count: usize) -> Vec<u8> {
        let mut ping = Vec::new();
        match self.kind {
            Kind::Snowbank => _ = request::encode_ping(&mut ping, 0, &[0; MAX_PING_SIZE]),
            Kind::Redis => ping.extend_from_slice(b"PING\r\n"),
        }
        ping.repeat(count)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&self.address(), LOST_AFTER)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOST_AFTER))?;
        if self.needs_token {
            stream.write_all(&self.authorization(TOKEN))?;
            self.read_reply(&mut stream)?;
        }
        Ok(stream)
    }

    /// Reads a reply.
    ///
    /// # Errors
    /// The connection fails, or the reply is an error: [`io::ErrorKind::Other`].
    pub(crate) fn read_reply(&self, stream: &mut impl Read) -> io::Result<()> {
        /// The kind of a reply of Snowbank that is an error.
        const ERROR: u8 = 0xFF;
        /// The flag of a frame that is not the last of its reply.
        const MORE: u8 = 0x01;
        let refused = || Err(io::Error::other("refused"));
        match self.kind {
            Kind::Snowbank => loop {
                let mut head = [0; 4];
                stream.read_exact(&mut head)?;
                let mut body = vec![0; u32::from_le_bytes(head).min(65_536) as usize];
                stream.read_exact(&mut body)?;
                match body[..] {
                    [ERROR, ..] => return refused(),
                    [_, flags, ..] if flags & MORE != 0 => {}
                    _ => return Ok(()),
                }
            },
            Kind::Redis => {
                let mut first = None;
                let mut byte = [0];
                while byte != *b"\n" {
                    stream.read_exact(&mut byte)?;
                    first.get_or_insert(byte);
                }
                if first == Some(*b"-") { refused() } else { Ok(()) }
            }
        }
    }

    /// Asks for IDs at fixed instants after each connect, whether or not those before were
    /// answered. A reply counts from when its request was due.
    pub(crate) fn ask(&self, stretch: Duration) -> io::Result<Seen> {
        let (wanted, every) = self.modest;
        let request = self.request(wanted);
        let begin = Instant::now();
        let mut sum = Seen::new()?;
        thread::scope(|scope| {
            let mut readers = Vec::new();
            while begin.elapsed() < stretch {
                let asked = Instant::now();
                let connected = self.connect().and_then(|stream| Ok((stream.try_clone()?, stream)));
                sum.to_connect.saturating_record(asked.elapsed().as_nanos() as u64);
                let first = Instant::now();
                let due_at = move |index: usize| first + every * index as u32;
                let Ok((mut stream, replies)) = connected else {
                    sum.all += REQUESTS_PER_CONNECTION as u64;
                    sum.lost += REQUESTS_PER_CONNECTION as u64;
                    thread::sleep(due_at(REQUESTS_PER_CONNECTION).saturating_duration_since(Instant::now()));
                    continue;
                };
                readers.push(scope.spawn(move || self.read_replies(replies, first)));
                for index in 0..REQUESTS_PER_CONNECTION {
                    thread::sleep(due_at(index).saturating_duration_since(Instant::now()));
                    if stream.write_all(&request).is_err() {
                        break;
                    }
                }
            }
            for reader in readers {
                let seen = reader.join().map_err(|_| io::Error::other("a reader failed"))??;
                sum.add(&seen)?;
            }
            Ok(sum)
        })
    }

    /// Reads the replies to one connection's requests, the first of which was due then.
    fn read_replies(&self, mut stream: TcpStream, first_due: Instant) -> io::Result<Seen> {
        let mut seen = Seen::new()?;
        for index in 0..REQUESTS_PER_CONNECTION {
            if self.read_reply(&mut stream).is_err() {
                let rest = (REQUESTS_PER_CONNECTION - index) as u64;
                (seen.all, seen.lost) = (seen.all + rest, seen.lost + rest);
                break;
            }
            seen.count(true, first_due + self.modest.1 * index as u32);
        }
        Ok(seen)
    }

    /// Probes the admin listener's health at fixed instants, each time on a new connection.
    pub(crate) fn probe(&self, stretch: Duration) -> io::Result<Seen> {
        let mut seen = Seen::new()?;
        let begin = Instant::now();
        for index in 0_u32.. {
            let due = begin + PROBE_EVERY * index;
            if due > begin + stretch {
                break;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let asked = Instant::now();
            let answer = || -> io::Result<bool> {
                let mut stream = TcpStream::connect_timeout(&self.ports.admin, LOST_AFTER)?;
                stream.set_read_timeout(Some(LOST_AFTER))?;
                stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
                let mut answer = [0; 64];
                Ok(stream.read(&mut answer)? > 12 && answer.starts_with(b"HTTP/1.1 200"))
            };
            seen.count(answer().unwrap_or(false), asked);
        }
        Ok(seen)
    }
}

fn start_snowbank(directory: &Path, attack: Attack, ports: Ports) -> io::Result<Process> {
    let mut config = String::new();
    if attack.needs_token() {
        fs::write(directory.join("tokens"), TOKEN)?;
        config.push_str("[auth]\ntoken_file = \"tokens\"\n");
    }
    if attack == Attack::Handshakes {
        config.push_str("[tls]\ncertificate = \"certificate.pem\"\nkey = \"key.pem\"\n");
    }
    let file = directory.join("snowbank.toml");
    fs::write(&file, config)?;
    let file = file.display().to_string();
    let tls = format!("tls:{}", ports.tls);
    let http = ports.http.to_string();
    let admin = ports.admin.to_string();
    let mut options = vec!["--config", &file, "--admin", &admin];
    options.extend(attack.options());
    if attack == Attack::Handshakes {
        options.extend(["--listen", &tls]);
    }
    if attack == Attack::Http {
        options.extend(["--http", &http]);
    }
    Process::daemon(&options)
}

fn start_redis(directory: &Path, attack: Attack, tls: SocketAddr) -> io::Result<Option<Process>> {
    let key = directory.join("key.pem");
    let certificate = directory.join("certificate.pem");
    let key = key.display().to_string();
    let certificate = certificate.display().to_string();
    let port = tls.port().to_string();
    let mut options = vec!["--maxclients", "10000", "--maxmemory-clients", "128mb"];
    options.extend(["--client-output-buffer-limit", "normal 256kb 256kb 0"]);
    if attack.needs_token() {
        options.extend(["--requirepass", "a-token-of-the-benchmark"]);
    }
    if attack == Attack::Handshakes {
        options.extend(["--tls-port", &port, "--tls-auth-clients", "no", "--tls-key-file", &key]);
        options.extend(["--tls-cert-file", &certificate, "--tls-ca-cert-file", &certificate]);
    }
    let Some(process) = Process::redis_with(&options)? else { return Ok(None) };
    if let Some(size) = attack.long_reply() {
        let mut stream = TcpStream::connect(process.address())?;
        stream.write_all(&[b"SET long ", &vec![b'x'; size][..], b"\r\n"].concat())?;
        let _ = stream.read(&mut [0; 16])?;
    }
    Ok(Some(process))
}
