//! One connection: a name, an address, a socket, TLS, HELLO, WELCOME. Each step has its limit.
//! Rules 1 and 2 of the page.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use snowbank_wire::reply::{self, Reply as Frame};
use snowbank_wire::{Address, Hello, MAX_REPLY_LENGTH, MIN_LENGTH, Parsed, VERSION, one_line, request};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::sync::oneshot::{self, Receiver, error::TryRecvError};
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::Refusal;
use crate::options::{ClientOptions, FOREVER};

/// The tag of HELLO. Requests after it count on from here.
pub(crate) const HELLO_TAG: u16 = 1;

/// The least room for bytes that are read at once.
pub(crate) const READ_SIZE: usize = 16 << 10;

/// The most bytes of another protocol's answer that an error shows.
const SHOWN: usize = 60;

/// Both directions of a connection.
pub(crate) struct Streams {
    pub(crate) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(crate) writer: Box<dyn AsyncWrite + Send + Unpin>,
}

/// An open connection to a daemon that has greeted.
pub(crate) struct Opened {
    pub(crate) streams: Streams,
    /// Bytes that came behind WELCOME.
    pub(crate) input: BytesMut,
    pub(crate) welcome: Welcome,
}

/// The body of WELCOME.
#[derive(Clone, Debug)]
pub(crate) struct Welcome {
    pub(crate) good_for: Duration,
    pub(crate) max_count: u32,
    pub(crate) instance: u64,
    pub(crate) claims: Vec<u64>,
}

/// The reason why there is no connection.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The daemon's ERROR, in place of WELCOME or to a request.
    Refused(Arc<Refusal>),
    /// The daemon's ERROR with tag 0. It answers no call, so no call is told.
    Lost(Arc<Refusal>),
    Reason(Arc<str>),
}

impl Failure {
    pub(crate) fn new(reason: impl Into<Arc<str>>) -> Self {
        Self::Reason(reason.into())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(describe(&error))
    }
}

/// Where the connections to an endpoint go.
#[derive(Debug)]
pub(crate) struct Place {
    /// The number of the address that is tried next, among those of the name: at first a random one.
    next: AtomicUsize,
    /// The last look-up. The next connection may find it unfinished.
    lookup: Mutex<Option<Receiver<io::Result<Vec<SocketAddr>>>>>,
}

impl Place {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { next: AtomicUsize::new(fastrand::usize(..1 << 16)), lookup: Mutex::new(None) })
    }

    /// Looks a name up, and goes on with a look-up that has not ended.
    async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = host.parse() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        #[cfg(test)]
        if host == "ids.example" {
            return Ok([1, 2, 3].map(|last| SocketAddr::new([127, 0, 0, last].into(), port)).into());
        }
        let mut lookup = self.lookup.lock().await;
        if lookup.as_mut().is_some_and(|last| !matches!(last.try_recv(), Err(TryRecvError::Empty))) {
            *lookup = None;
        }
        let running = match &mut *lookup {
            Some(running) => running,
            none => {
                let host = host.to_owned();
                none.insert(on_a_thread(move || (host, port).to_socket_addrs().map(Iterator::collect))?)
            }
        };
        running.await.map_err(io::Error::other)?
    }
}

/// Does what may block on a thread of its own: the application may keep those of its runtime busy.
fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<Receiver<T>> {
    let (done, outcome) = oneshot::channel();
    thread::Builder::new().name("snowbank-client".to_owned()).spawn(move || drop(done.send(work())))?;
    Ok(outcome)
}

/// Connects to an endpoint and greets.
pub(crate) async fn dial(
    options: &ClientOptions,
    endpoint: &Address,
    name: &Arc<str>,
    place: &Place,
) -> Result<Opened, Failure> {
    // A service manager may accept for a daemon that it is about to start. The call's deadline comes
    // later, so that the error says what is missing.
    let waits = options.fail_fast && options.endpoints.len() == 1;
    let limit = if waits { options.timeout.min(FOREVER) * 9 / 10 } else { options.limits.connect };
    let deadline = Instant::now() + limit;
    let connect = connect(options, endpoint, place, deadline);
    let late = |_| Failure::new(format!("cannot connect within {limit:?}"));
    let connected = timeout_at(deadline, connect).await.map_err(late)?;
    let streams = connected.map_err(|error| Failure::new(format!("cannot connect: {}", describe(&error))))?;
    // A program that was blocked meanwhile finds only now that it is connected.
    let now = Instant::now();
    let deadline = if now < deadline { deadline } else { now + options.limits.answer };
    let silent = "it accepted the connection and sent no greeting: is the daemon stopped, or does another program listen there, such as a Redis?";
    let greeted = timeout_at(deadline, greet(options, streams, name)).await;
    let (streams, input, welcome) = greeted.map_err(|_| Failure::new(silent))??;
    Ok(Opened { streams, input, welcome })
}

async fn connect(
    options: &ClientOptions,
    endpoint: &Address,
    place: &Place,
    deadline: Instant,
) -> io::Result<Streams> {
    match endpoint {
        #[cfg(unix)]
        Address::Unix(path) => {
            let (reader, writer) = tokio::net::UnixStream::connect(path).await?.into_split();
            Ok(Streams { reader: Box::new(reader), writer: Box::new(writer) })
        }
        #[cfg(not(unix))]
        Address::Unix(_) => Err(io::Error::new(io::ErrorKind::Unsupported, "no Unix sockets on this system")),
        Address::Tcp { host, port } => {
            let (reader, writer) = connect_any(options, host, *port, place, deadline).await?.into_split();
            Ok(Streams { reader: Box::new(reader), writer: Box::new(writer) })
        }
        #[cfg(feature = "tls")]
        Address::Tls { host, port } => {
            let files = options.tls.clone();
            let read = on_a_thread(move || files.read())?.await.map_err(io::Error::other)?;
            let connector = read.map_err(io::Error::other)?;
            let stream = connect_any(options, host, *port, place, deadline).await?;
            let silent = "it accepted the connection and did not finish the TLS handshake";
            let late = |_| io::Error::new(io::ErrorKind::TimedOut, silent);
            let secured = timeout_at(deadline, connector.connect(host, stream)).await.map_err(late)??;
            let (reader, writer) = tokio::io::split(secured);
            Ok(Streams { reader: Box::new(reader), writer: Box::new(writer) })
        }
        #[cfg(not(feature = "tls"))]
        Address::Tls { .. } => {
            Err(io::Error::new(io::ErrorKind::Unsupported, "built without the feature `tls`"))
        }
    }
}

/// Resolves the name, and connects to the first of its addresses that accepts, from the one behind
/// the last that was tried on, in a circle.
async fn connect_any(
    options: &ClientOptions,
    host: &str,
    port: u16,
    place: &Place,
    deadline: Instant,
) -> io::Result<TcpStream> {
    let limit = options.limits.accept;
    let late = |what: &str| io::Error::new(io::ErrorKind::TimedOut, format!("{what} within {limit:?}"));
    let found = timeout(limit, place.look_up(host, port)).await;
    let mut addresses = found.map_err(|_| late("the name was not resolved"))??;
    // Resolvers change the order from one answer to the next.
    addresses.sort_unstable();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for _ in 0..addresses.len() {
        // Only an address that is tried in time counts as the last.
        if Instant::now() >= deadline {
            return Err(late("no address accepted"));
        }
        let address = addresses[place.next.fetch_add(1, Ordering::Relaxed) % addresses.len()];
        match timeout(limit, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Without this, the kernel may delay a small request until an earlier request is
                // acknowledged.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = late(&format!("{address} did not accept")),
        }
    }
    Err(last)
}

/// Sends HELLO and waits for WELCOME.
async fn greet(
    options: &ClientOptions,
    mut streams: Streams,
    name: &Arc<str>,
) -> Result<(Streams, BytesMut, Welcome), Failure> {
    let token = if options.token_file.is_some() {
        let options = options.clone();
        on_a_thread(move || options.read_token())?.await.map_err(io::Error::other)?
    } else {
        options.read_token()
    };
    let token = token.map_err(|none| Failure::new(none.to_string()))?;
    let mut hello = Vec::new();
    request::encode_hello(&mut hello, HELLO_TAG, &Hello { version: VERSION, token: &token })
        .map_err(|error| Failure::new(error.to_string()))?;
    // A daemon that is too busy sends its answer before it reads anything, and closes. That answer
    // says more than the error of the failed write, so read even after such an error.
    let sent = async {
        streams.writer.write_all(&hello).await?;
        streams.writer.flush().await
    };
    let sent = sent.await;
    let mut input = BytesMut::new();
    loop {
        let (welcome, consumed) = match reply::parse(&input) {
            Parsed::Incomplete => {
                input.reserve(READ_SIZE);
                match (streams.reader.read_buf(&mut input).await, sent.as_ref()) {
                    (Ok(0) | Err(_), Err(error)) => return Err(Failure::new(describe(error))),
                    (Err(error), Ok(())) => return Err(error.into()),
                    (Ok(0), Ok(())) => {
                        return Err(Failure::new("it closed the connection before its greeting"));
                    }
                    (Ok(_), _) => continue,
                }
            }
            Parsed::BadLength(length) => return Err(Failure::new(foreign(length, &input))),
            Parsed::Frame { content: Err(fault), .. } => return Err(Failure::new(broken(fault))),
            Parsed::Frame { content: Ok(Frame::Error(error)), .. } => {
                return Err(Failure::Refused(Arc::new(Refusal::new(name, &error))));
            }
            Parsed::Frame { content: Ok(Frame::Welcome(welcome)), tag: HELLO_TAG, consumed } => {
                (welcome, consumed)
            }
            Parsed::Frame { .. } => {
                return Err(Failure::new(broken("another frame came in place of WELCOME")));
            }
        };
        if welcome.version != VERSION {
            return Err(Failure::new(broken(format!("WELCOME has the unknown version {}", welcome.version))));
        }
        if welcome.good_for.is_zero() || welcome.max_count == 0 {
            return Err(Failure::new(broken("WELCOME allows no IDs, or for no time")));
        }
        let (good_for, max_count, instance) = (welcome.good_for, welcome.max_count, welcome.instance);
        let welcome = Welcome { good_for, max_count, instance, claims: welcome.claims.iter().collect() };
        input.advance(consumed);
        return Ok((streams, input, welcome));
    }
}

/// Describes an I/O error in one line.
pub(crate) fn describe(error: &io::Error) -> String {
    #[cfg(feature = "tls")]
    if let Some(text) = snowbank_tls::explain(error) {
        return text;
    }
    one_line(&error.to_string())
}

/// Describes an answer that breaks the protocol.
pub(crate) fn broken(rule: impl std::fmt::Display) -> String {
    format!("it does not speak Snowbank's protocol: {rule}")
}

/// Describes an answer that cannot be a frame, because `length` is out of range.
pub(crate) fn foreign(length: u32, input: &[u8]) -> String {
    let line =
        input.split(|byte| matches!(byte, b'\r' | b'\n')).find(|line| !line.is_empty()).unwrap_or_default();
    let line = one_line(&String::from_utf8_lossy(&line[..line.len().min(SHOWN)]));
    broken(match input {
        // A TLS alert: the listener took the request for a broken handshake.
        [0x15, 0x03, ..] => "it speaks TLS: write tls:host:port".to_owned(),
        _ if input.iter().take(4).all(|byte| matches!(byte, b' '..=b'~' | b'\r' | b'\n')) => format!(
            "it answers {line:?}: is this the port of a web server, of a Redis, or of the daemon's admin listener?"
        ),
        _ => format!("a frame with a length of {length}; {MIN_LENGTH} to {MAX_REPLY_LENGTH} are allowed"),
    })
}

#[cfg(test)]
mod unit {
    use super::*;

    #[tokio::test]
    async fn an_address_without_time_left_is_not_tried() {
        let options = ClientOptions::new(["127.0.0.1:7660"]).expect("an address");
        let place = Place::new();
        let next = place.next.load(Ordering::Relaxed);
        connect_any(&options, "127.0.0.1", 7660, &place, Instant::now()).await.expect_err("no time");
        assert_eq!(place.next.load(Ordering::Relaxed), next);
    }

    #[tokio::test]
    async fn a_look_up_that_has_not_ended_is_not_begun_again() {
        let place = Place::new();
        let (ends, running) = oneshot::channel();
        *place.lookup.lock().await = Some(running);
        for _ in 0..2 {
            timeout(Duration::from_millis(50), place.look_up("localhost", 1)).await.expect_err("it runs");
        }
        ends.send(Ok(Vec::new())).expect("the place waits for it");
        // It ended before this dial began.
        assert_ne!(place.look_up("localhost", 1).await.expect("addresses"), []);
    }

    #[test]
    fn servers_of_other_protocols_are_named() {
        for (answer, name) in [
            (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], r#"answers "HTTP/1.1 400 Bad Request""#),
            (b"<html>\r\n<head><title>400", r#"answers "<html>""#),
            (b"-ERR unknown command '\x0c'\r\n", "answers \"-ERR unknown command ' '\""),
            (b"SSH-2.0-OpenSSH_9.2\r\n", r#"answers "SSH-2.0-OpenSSH_9.2""#),
            (b"\x15\x03\x01\x00\x02\x02\x0a", "write tls:host:port"),
            (b"\xff\xff\xff\xff", "a length of 7; 4 to 65536"),
        ] {
            let named = foreign(7, answer);
            assert!(named.contains(name), "{named}");
        }
        assert_eq!(foreign(0, &[b'x'; 10_000]).matches('x').count(), SHOWN);
    }
}
