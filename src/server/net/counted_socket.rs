//! The socket beneath TLS. It counts the TLS records that arrive, and limits the bytes that TLS
//! reads.
//!
//! Each record costs a decryption or a key change, even if it has no data for the reader. So the
//! number of decrypted bytes does not show what a turn costs.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The size of a record's header in bytes. One is for the type, two for the version, and two for
/// the length of the rest (RFC 8446, 5.1).
const HEADER_BYTES: usize = 5;

/// The number of bytes that TLS 1.3 adds to a record's contents. These are the header, the type of
/// the contents, and the tag of 16 bytes.
pub(super) const RECORD_OVERHEAD: usize = HEADER_BYTES + 1 + 16;

/// The number of bytes and records that were read from a TLS socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsRead {
    /// The number of records whose headers were read in full.
    pub(crate) records: usize,
    /// The number of bytes that were read, before decryption.
    pub(crate) bytes: usize,
}

/// A TCP socket that counts the bytes and TLS records that are read from it.
#[derive(Debug)]
pub(crate) struct CountedSocket {
    pub(super) tcp: TcpStream,
    pub(super) count: RecordCount,
    /// The number of bytes that may still be read. At 0, a read returns `Pending` and does not
    /// register a waker.
    pub(super) left: usize,
}

impl CountedSocket {
    pub(super) fn new(tcp: TcpStream) -> Self {
        CountedSocket { tcp, count: RecordCount::default(), left: usize::MAX }
    }
}

impl AsyncRead for CountedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 {
            return Poll::Pending;
        }
        let size_max = self.left.min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(size_max));
        let polled = Pin::new(&mut self.tcp).poll_read(cx, &mut part);
        self.count.record(part.filled());
        let size = part.filled().len();
        self.left -= size;
        buffer.advance(size);
        polled
    }
}

impl AsyncWrite for CountedSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

/// Counts the records of a stream that is read in pieces.
#[derive(Debug, Default)]
pub(super) struct RecordCount {
    /// The last two bytes that were read of the current header. Once the whole header is read, they
    /// are its length field.
    length: [u8; 2],
    /// The number of bytes of the current header that were read.
    header_bytes: usize,
    /// The number of bytes of the current record that were not read yet.
    pub(super) rest: usize,
    read: TlsRead,
}

impl RecordCount {
    /// Returns what was read since the last [`take`](Self::take).
    pub(super) fn so_far(&self) -> TlsRead {
        self.read
    }

    /// Returns what was read since the last call.
    pub(super) fn take(&mut self) -> TlsRead {
        std::mem::take(&mut self.read)
    }

    fn record(&mut self, mut bytes: &[u8]) {
        self.read.bytes += bytes.len();
        while let Some((&first, behind)) = bytes.split_first() {
            if self.rest > 0 {
                let size = self.rest.min(bytes.len());
                self.rest -= size;
                bytes = &bytes[size..];
                continue;
            }
            self.length = [self.length[1], first];
            self.header_bytes += 1;
            bytes = behind;
            if self.header_bytes == HEADER_BYTES {
                self.header_bytes = 0;
                self.rest = u16::from_be_bytes(self.length).into();
                self.read.records += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_however_they_are_split() {
        let record = |size: u16| [&[23, 3, 3][..], &size.to_be_bytes(), &vec![0xff; size.into()]].concat();
        let stream = [record(300), record(0), record(22), record(1)].concat();
        for size in 1..=stream.len() {
            let mut count = RecordCount::default();
            stream.chunks(size).for_each(|piece| count.record(piece));
            let all = TlsRead { records: 4, bytes: stream.len() };
            assert_eq!((count.take(), count.take()), (all, TlsRead::default()), "in pieces of {size}");
        }
    }
}
