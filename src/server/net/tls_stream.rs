//! A TLS connection as a shard uses it. It differs from a plain socket in three ways:
//!
//! - Bytes that are decrypted and not read yet do not make the socket readable. A reader whose
//!   buffer was full must read again.
//! - Bytes that were accepted for writing may still be unsent: see [`TlsStream::has_unsent`].
//! - The end of the stream must be sent as a TLS alert. Without the alert, the peer takes the end
//!   for a truncation attack.

use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::counted_socket::{CountedSocket, RECORD_OVERHEAD};
use crate::access::Shown;
use crate::tls::ServerStream;

/// The most records without data for the reader that one read may meet. Such records are key
/// changes and empty records. The library allows 32 of each kind in a row, and any number if both
/// kinds alternate. Honest clients send such a record now and then.
const RECORDS_WITHOUT_BYTES_MAX: usize = 16;

/// The most bytes that TLS keeps encrypted and unsent, apart from the overhead of records: about
/// one record. The library's default is 64 KiB.
pub(crate) const UNSENT_BYTES_MAX: usize = 16 * 1024;

/// A connection whose handshake has succeeded.
#[derive(Debug)]
pub(crate) struct TlsStream {
    pub(super) inner: ServerStream<CountedSocket>,
    /// The digest of the authorities that the client's certificate was checked against.
    checked_by: u64,
}

impl TlsStream {
    pub(crate) fn new(mut inner: ServerStream<CountedSocket>, checked_by: u64) -> Self {
        // The records of the handshake do not count as a cost of the first turn.
        inner.get_mut().0.count.take();
        inner.get_mut().1.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        TlsStream { inner, checked_by }
    }

    pub(crate) fn shown(&self) -> Shown<'_> {
        let chain = self.inner.get_ref().1.peer_certificates().unwrap_or_default();
        Shown { chain, checked_by: self.checked_by }
    }

    /// Works as `SocketStream::is_readable`, but also returns true if decrypted bytes are left.
    pub(crate) fn is_readable(&self, cx: &mut Context<'_>) -> bool {
        let (socket, session) = self.inner.get_ref();
        !session.wants_read() || socket.tcp.poll_read_ready(cx).is_ready()
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.inner.get_ref().1.wants_write()
    }

    /// Works as `SocketStream::poll_send`. While earlier bytes are being sent, returns 0 after each
    /// write, so that the caller sees that a slow reader makes progress.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        while self.has_unsent() {
            let (socket, session) = self.inner.get_mut();
            ready!(socket.tcp.poll_write_ready(cx))?;
            match session.write_tls(&mut SocketWriter(&socket.tcp)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => return Poll::Ready(Ok(0)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        if bytes.is_empty() { Poll::Ready(Ok(0)) } else { Pin::new(&mut self.inner).poll_write(cx, bytes) }
    }

    /// Works as `SocketStream::poll_read`. Each round reads at most as many bytes as fit in
    /// `buffer` after decryption. If the rest of a record is longer, it reads that. Without this
    /// limit, the library reads until `buffer` is full.
    ///
    /// # Errors
    /// The connection failed, or the peer sent more than [`RECORDS_WITHOUT_BYTES_MAX`] records
    /// without data.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = self.socket().count.so_far().records;
        loop {
            let socket = self.socket();
            // TLS can decrypt only whole records.
            socket.left = (buffer.remaining() + RECORD_OVERHEAD).max(socket.count.rest);
            let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
            let socket = self.socket();
            if polled.is_ready() || socket.left > 0 {
                return polled;
            }
            if socket.count.so_far().records - before > RECORDS_WITHOUT_BYTES_MAX {
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "too many records without data",
                )));
            }
        }
    }

    pub(super) fn socket(&mut self) -> &mut CountedSocket {
        self.inner.get_mut().0
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.inner.get_ref().0.tcp
    }
}

impl Drop for TlsStream {
    /// Sends the TLS alert that marks an intended end, if the socket has room for the alert.
    fn drop(&mut self) {
        let (socket, session) = self.inner.get_mut();
        session.send_close_notify();
        // If the alert does not fit, the peer is not reading anyway.
        let _ = session.write_tls(&mut SocketWriter(&socket.tcp));
    }
}

/// Writes as much as the socket takes without waiting.
struct SocketWriter<'a>(&'a TcpStream);

impl Write for SocketWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore, ServerConfig};
    use snowbank_tls::provider;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    /// Returns both ends of a connection after its handshake.
    async fn connect() -> (tokio_rustls::client::TlsStream<TcpStream>, TlsStream) {
        let key = rcgen::generate_simple_self_signed([String::from("localhost")]).expect("a certificate");
        let certificate = key.cert.der().clone();
        let key = PrivateKeyDer::try_from(key.signing_key.serialize_der());
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).expect("a certificate");
        let server = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let server = server.expect("TLS 1.3").with_no_client_auth();
        let server = server.with_single_cert(vec![certificate], key.expect("a key")).expect("a pair");
        let client = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let client = client.expect("TLS 1.3").with_root_certificates(roots).with_no_client_auth();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let socket =
            TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a listener");
        let (accepted, _) = listener.accept().await.expect("a connection");
        let acceptor = TlsAcceptor::from(Arc::new(server));
        let connector = TlsConnector::from(Arc::new(client));
        let name = ServerName::try_from("localhost").expect("a name");
        let (server, client) =
            tokio::join!(acceptor.accept(CountedSocket::new(accepted)), connector.connect(name, socket));
        (client.expect("a handshake"), TlsStream::new(server.expect("a handshake"), 0))
    }

    #[test]
    fn too_many_tls_records_without_data_end_the_connection() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        // Without [`RECORDS_WITHOUT_BYTES_MAX`], the library would allow both numbers of records.
        for (changes, is_abandoned) in [(12, false), (24, true)] {
            runtime.block_on(async {
                let (mut client, mut server) = connect().await;
                let (socket, session) = client.get_mut();
                let mut records = Vec::new();
                for _ in 0..changes {
                    session.refresh_traffic_keys().expect("TLS 1.3");
                    session.write_tls(&mut records).expect("memory");
                }
                session.writer().write_all(b"x").expect("memory");
                session.write_tls(&mut records).expect("memory");
                socket.write_all(&records).await.expect("the records are sent");
                let mut byte = [0; 1];
                let read = poll_fn(|cx| server.poll_read(cx, &mut ReadBuf::new(&mut byte))).await;
                assert_eq!((read.is_err(), byte), (is_abandoned, if is_abandoned { [0] } else { *b"x" }));
                assert!(server.socket().count.take().records > 12);
            });
        }
    }

    /// The client reads nothing.
    #[test]
    fn tls_keeps_about_one_unsent_record() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        runtime.block_on(async {
            let (_client, mut server) = connect().await;
            let bytes = vec![0; 1 << 20];
            while let Poll::Ready(Ok(_)) =
                poll_fn(|cx| Poll::Ready(Pin::new(&mut server.inner).poll_write(cx, &bytes))).await
            {
            }
            let session = server.inner.get_mut().1;
            let mut unsent = Vec::new();
            while session.wants_write() {
                session.write_tls(&mut unsent).expect("memory");
            }
            assert!((1..=2 * UNSENT_BYTES_MAX).contains(&unsent.len()), "{} bytes", unsent.len());
        });
    }
}
