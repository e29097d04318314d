//! The address of a scripted daemon. It stays the same in all lives.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use snowbank_testkit::Port;
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use super::connection::Stream;
use crate::Outcome;
use crate::case::Listen;
use crate::certificates::Certificates;

/// The highest number of attempts to listen on an address that is in use.
const TRIES: usize = 200;

/// The pause between two attempts to listen.
const PAUSE: Duration = Duration::from_millis(10);

/// The addresses of [`Listen::Name`] at which nothing answers.
const SILENT: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];

#[derive(Clone)]
pub(super) struct Endpoint {
    listen: Listen,
    place: Place,
    /// Listeners whose queue is full, and the connections in it.
    _silent: Arc<Vec<(TcpListener, Vec<TcpStream>)>>,
    tls: Option<Arc<ServerConfig>>,
}

#[derive(Clone)]
enum Place {
    Tcp(Arc<Port>),
    Unix(PathBuf),
}

/// A listening socket.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Endpoint {
    pub(super) fn new(index: usize, listen: Listen, certificates: &Certificates) -> Outcome<Self> {
        let place = match listen {
            Listen::Unix => Place::Unix(certificates.directory().join(format!("socket-{index}"))),
            Listen::Tcp | Listen::Localhost | Listen::Name | Listen::Tls | Listen::MutualTls => {
                Place::Tcp(Arc::new(Port::take()))
            }
        };
        let mut silent = Vec::new();
        if let (Listen::Name, Place::Tcp(port)) = (listen, &place) {
            for ip in SILENT {
                silent.push(full_listener((ip, port.number()).into())?);
            }
        }
        let mut endpoint = Self { listen, place, _silent: Arc::new(silent), tls: None };
        endpoint.read_certificates(certificates)?;
        Ok(endpoint)
    }

    /// Shows the current certificates to connections from now on.
    pub(super) fn read_certificates(&mut self, certificates: &Certificates) -> Outcome {
        self.tls = match self.listen {
            Listen::Tcp | Listen::Localhost | Listen::Name | Listen::Unix => None,
            Listen::Tls => Some(certificates.server(false)?),
            Listen::MutualTls => Some(certificates.server(true)?),
        };
        Ok(())
    }

    pub(super) fn address(&self) -> String {
        match (&self.place, &self.tls) {
            (Place::Tcp(port), None) if self.listen == Listen::Localhost => {
                format!("localhost:{}", port.number())
            }
            (Place::Tcp(port), None) if self.listen == Listen::Name => {
                format!("ids.example:{}", port.number())
            }
            (Place::Tcp(port), None) => port.address().to_string(),
            (Place::Tcp(port), Some(_)) => format!("tls:{}", port.address()),
            (Place::Unix(path), _) => format!("unix:{}", path.display()),
        }
    }

    /// Begins to listen. Repeats the attempt while connections of an earlier life still use the
    /// address.
    pub(super) async fn bind(&self) -> Outcome<Listener> {
        for _ in 0..TRIES {
            match self.try_bind().await {
                Ok(listener) => return Ok(listener),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => sleep(PAUSE).await,
                Err(error) => return Err(format!("{}: {error}", self.address()).into()),
            }
        }
        Err(format!("{} is still in use after {TRIES} tries", self.address()).into())
    }

    async fn try_bind(&self) -> io::Result<Listener> {
        match &self.place {
            Place::Tcp(port) => TcpListener::bind(port.address()).await.map(Listener::Tcp),
            Place::Unix(path) => {
                drop(std::fs::remove_file(path));
                UnixListener::bind(path).map(Listener::Unix)
            }
        }
    }

    /// Makes the TLS handshake if the endpoint has TLS.
    pub(super) async fn secure(&self, stream: Box<dyn Stream>) -> io::Result<Box<dyn Stream>> {
        match &self.tls {
            None => Ok(stream),
            Some(tls) => Ok(Box::new(TlsAcceptor::from(Arc::clone(tls)).accept(stream).await?)),
        }
    }
}

/// Returns a listener with a queue of one connection, and so many connections that it takes no more.
fn full_listener(address: SocketAddr) -> io::Result<(TcpListener, Vec<TcpStream>)> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(address)?;
    let listener = socket.listen(0)?;
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, PAUSE) {
        queued.push(stream);
    }
    Ok((listener, queued))
}

impl Listener {
    pub(super) async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            Self::Unix(listener) => Ok(Box::new(listener.accept().await?.0)),
        }
    }
}
