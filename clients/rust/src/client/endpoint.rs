//! Connects to a daemon over TCP, TLS or a Unix socket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::options::TlsChoice;
use snowbank_wire::address::Address;

/// Both directions of a connection.
pub(super) struct Streams {
    pub(super) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) writer: Writer,
}

/// The address that accepted the connection, among the addresses of the endpoint's name.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChosenAddress {
    /// The IP address, if the name has several addresses.
    pub(super) ip: Option<IpAddr>,
    /// The number with which [`connect`] tries this address first.
    pub(super) number: usize,
}

/// The sending direction. With TLS, the writer may buffer bytes until it is flushed.
pub(super) struct Writer {
    inner: Box<dyn AsyncWrite + Send + Unpin>,
    pub(super) needs_flush: bool,
}

impl Streams {
    pub(super) fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let writer = Writer { inner: Box::new(writer), needs_flush: false };
        Streams { reader: Box::new(reader), writer }
    }
}

impl Writer {
    /// Returns whether [`push`](Self::push) has something to do.
    pub(super) fn has_work(&self, output: &BytesMut) -> bool {
        self.needs_flush || !output.is_empty()
    }

    /// Writes some of the output, or flushes if none is left. Dropping the future loses no bytes.
    pub(super) async fn push(&mut self, output: &mut BytesMut) -> io::Result<()> {
        if output.is_empty() {
            self.inner.flush().await?;
            self.needs_flush = false;
        } else {
            self.inner.write_buf(output).await?;
            self.needs_flush = true;
        }
        Ok(())
    }

    /// Writes and flushes all bytes.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_all(bytes).await?;
        self.inner.flush().await
    }
}

/// The parameters of an attempt to connect.
struct Dial<'a> {
    tls: &'a TlsChoice,
    deadline: Instant,
    /// The number of the name's address that is tried first.
    address_number: usize,
}

/// Resolves the endpoint's name, and tries the name's addresses in a circle until one accepts.
/// Begins with the address that has the number `address_number`. `limit` covers all of this, and
/// the TLS handshake.
pub(super) async fn connect(
    endpoint: &Address,
    tls: &TlsChoice,
    limit: Duration,
    address_number: usize,
) -> io::Result<(Streams, ChosenAddress)> {
    let dial = Dial { tls, deadline: Instant::now() + limit, address_number };
    let connected = timeout_at(dial.deadline, connect_patiently(endpoint, &dial)).await;
    connected.unwrap_or_else(|_| Err(timed_out(&format!("not connected within {limit:?}"))))
}

async fn connect_patiently(endpoint: &Address, dial: &Dial<'_>) -> io::Result<(Streams, ChosenAddress)> {
    #[cfg(test)]
    if let Some(dialed) = super::simulation::dial(endpoint, dial.address_number) {
        return dialed.await;
    }
    match endpoint {
        Address::Unix(path) => connect_unix(path, dial).await,
        Address::Tls { host, port } => connect_tls(host, *port, dial).await,
        Address::Tcp { host, port } => {
            let (stream, chosen) = connect_any(&look_up(host, *port).await?, dial).await?;
            let (reader, writer) = stream.into_split();
            Ok((Streams::new(reader, writer), chosen))
        }
    }
}

#[cfg(unix)]
async fn connect_unix(path: &Path, dial: &Dial<'_>) -> io::Result<(Streams, ChosenAddress)> {
    let (reader, writer) = tokio::net::UnixStream::connect(path).await?.into_split();
    Ok((Streams::new(reader, writer), ChosenAddress { ip: None, number: dial.address_number }))
}

#[cfg(not(unix))]
async fn connect_unix(_: &Path, _: &Dial<'_>) -> io::Result<(Streams, ChosenAddress)> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "no Unix sockets on this system"))
}

#[cfg(feature = "tls")]
async fn connect_tls(host: &str, port: u16, dial: &Dial<'_>) -> io::Result<(Streams, ChosenAddress)> {
    // The files are read before the client connects. So a mistake in them shows even if nobody
    // listens, and no daemon waits for a handshake while a slow disk is read. A blocking thread
    // reads the files, because other tasks share the current thread.
    let files = dial.tls.clone();
    let read = tokio::task::spawn_blocking(move || files.read()).await;
    let connector = read.map_err(io::Error::other)?.map_err(io::Error::other)?;
    let (stream, chosen) = connect_any(&look_up(host, port).await?, dial).await?;
    let handshake = connector.connect(host, stream);
    let silent = "it accepted the connection and did not finish the TLS handshake in time";
    let stream = timeout_at(dial.deadline, handshake).await.map_err(|_| timed_out(silent))??;
    let (reader, writer) = tokio::io::split(stream);
    Ok((Streams::new(reader, writer), chosen))
}

/// Refuses to connect. This is never called: without the feature `tls`, the check of the options
/// refuses TLS endpoints.
#[cfg(not(feature = "tls"))]
async fn connect_tls(_: &str, _: u16, dial: &Dial<'_>) -> io::Result<(Streams, ChosenAddress)> {
    // Without this line, nothing would read `dial.tls`, and the compiler would warn.
    let TlsChoice {} = dial.tls;
    Err(io::Error::new(io::ErrorKind::Unsupported, "built without TLS"))
}

/// Returns the addresses of a name. Every connection looks them up again, because a daemon may come
/// back at another address.
async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    #[cfg(test)]
    if host == tests::NAME {
        return Ok(vec![SocketAddr::new(tests::ADDRESS.get(), port)]);
    }
    Ok(tokio::net::lookup_host((host, port)).await?.collect())
}

/// Connects to the first address that accepts. Begins with the address whose index is
/// `dial.address_number` modulo the number of addresses. Each address gets an equal share of the
/// remaining time, so that time is left for the others if one address drops packets.
async fn connect_any(addresses: &[SocketAddr], dial: &Dial<'_>) -> io::Result<(TcpStream, ChosenAddress)> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let first = dial.address_number.checked_rem(addresses.len()).unwrap_or_default();
    let in_turn = addresses[first..].iter().chain(&addresses[..first]);
    for (index, address) in in_turn.enumerate() {
        let left = dial.deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Without this, the kernel may delay a small request until an earlier request is
                // acknowledged.
                stream.set_nodelay(true)?;
                let ip = (addresses.len() > 1).then(|| address.ip());
                return Ok((stream, ChosenAddress { ip, number: dial.address_number.wrapping_add(index) }));
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = timed_out(&format!("{address} did not accept within {share:?}")),
        }
    }
    Err(last)
}

fn timed_out(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, text)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt, BufWriter, duplex};
    use tokio::net::TcpListener;

    use super::*;

    /// A name that [`look_up`] resolves to [`ADDRESS`].
    pub(super) const NAME: &str = "ids.example";

    thread_local! {
        /// The address of [`NAME`], for the test that runs on this thread.
        pub(super) static ADDRESS: Cell<IpAddr> = const { Cell::new(IpAddr::V4(Ipv4Addr::LOCALHOST)) };
    }

    /// The address of the name changes between two connections.
    #[tokio::test]
    async fn a_name_is_looked_up_again() {
        let old = TcpListener::bind("127.0.0.2:0").await.expect("a free port");
        let port = old.local_addr().expect("an address").port();
        let moved = TcpListener::bind(("127.0.0.3", port)).await.expect("a free port");
        let address = Address::Tcp { host: NAME.to_owned(), port };
        let limit = Duration::from_secs(60);
        let tls = TlsChoice::default();
        for listener in [old, moved] {
            ADDRESS.set(listener.local_addr().expect("an address").ip());
            let connecting = connect(&address, &tls, limit, 0);
            tokio::try_join!(connecting, listener.accept()).expect("a connection");
        }
    }

    #[tokio::test]
    async fn each_address_of_a_name_has_its_turn() {
        let tls = TlsChoice::default();
        let dial = |address_number| Dial {
            tls: &tls,
            deadline: Instant::now() + Duration::from_secs(60),
            address_number,
        };
        let listeners = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let mut addresses: Vec<_> =
            listeners.iter().map(|listener| listener.local_addr().expect("an address")).collect();
        for number in 0..4 {
            let (stream, chosen) = connect_any(&addresses, &dial(number)).await.expect("both accept");
            assert_eq!(stream.peer_addr().expect("an address"), addresses[number % 2]);
            assert_eq!((chosen.ip, chosen.number), (Some(addresses[number % 2].ip()), number));
        }
        let (_, chosen) = connect_any(&addresses[..1], &dial(5)).await.expect("the address accepts");
        assert_eq!(chosen.ip, None, "a name with one address needs no IP address");
        // Nobody listens at the address that is tried first.
        addresses.insert(0, "127.0.0.1:1".parse().expect("an address"));
        let (stream, chosen) = connect_any(&addresses, &dial(3)).await.expect("the others accept");
        assert_eq!(stream.peer_addr().expect("an address"), addresses[1]);
        assert_eq!(chosen.number, 4, "the number of the address that accepted");
        connect_any(&[], &dial(3)).await.expect_err("no address");
    }

    #[tokio::test]
    async fn a_writer_flushes_what_it_has_buffered() {
        let (near, mut far) = duplex(1_024);
        let inner = Box::new(BufWriter::new(near));
        let mut writer = Writer { inner, needs_flush: false };
        let mut output = BytesMut::from(&b"request"[..]);
        while writer.has_work(&output) {
            writer.push(&mut output).await.expect("room");
        }
        let mut arrived = [0; 7];
        far.read_exact(&mut arrived).await.expect("the bytes are there already");
        assert_eq!(&arrived, b"request");
    }
}
