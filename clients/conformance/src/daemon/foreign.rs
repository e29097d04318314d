//! Servers of other protocols.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::LINGER;
use super::connection::Stream;
use crate::case::Kind;

const HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
const REDIS: &[u8] = b"-ERR unknown command '\x0c', with args beginning with: \r\n";
const SSH: &[u8] = b"SSH-2.0-OpenSSH_9.2p1\r\n";
const TLS_ALERT: &[u8] = &[0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x0A];

/// Answers as a server of another protocol.
pub(super) async fn attend(mut stream: Box<dyn Stream>, kind: Kind) -> io::Result<()> {
    let answer = match kind {
        Kind::Http => HTTP,
        Kind::Redis => REDIS,
        Kind::TlsAlert => TLS_ALERT,
        _ => SSH,
    };
    let mut input = Vec::new();
    // An SSH server speaks first. A TLS server waits for a few bytes, the others for a line.
    while kind != Kind::Ssh && !is_readable(kind, &input) {
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    }
    stream.write_all(answer).await?;
    if kind != Kind::Ssh && kind != Kind::Redis {
        stream.shutdown().await?;
    }
    input.clear();
    drop(tokio::time::timeout(LINGER, stream.read_to_end(&mut input)).await);
    Ok(())
}

fn is_readable(kind: Kind, input: &[u8]) -> bool {
    match kind {
        Kind::TlsAlert => input.len() >= 5,
        _ => input.contains(&b'\n'),
    }
}
