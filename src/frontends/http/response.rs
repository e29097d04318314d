//! The bytes of a response.

use std::io::Write;
use std::time::{Duration, SystemTime};

use snowbank_id::layout::UnixMicros;

use super::Form;
use super::reply::Reply;

/// The body of a response.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body<'a> {
    /// The whole body follows the head.
    Whole(&'a [u8]),
    /// The head has the size of the body, but the body is not sent. This is the answer to HEAD.
    Left(&'a [u8]),
    /// The body follows piece by piece, or is not sent and has an unknown size.
    InPieces,
}

impl Reply {
    /// Appends the head, and the body if it is whole. The head forbids caching, because a cache
    /// could hand out an ID again.
    pub(super) fn encode(&self, out: &mut Vec<u8>, body: Body<'_>, form: Form) {
        begin(out, self.status, form.date);
        put(out, format_args!("content-type: {}\r\n", self.content_type));
        out.extend_from_slice(b"cache-control: no-store\r\nx-content-type-options: nosniff\r\n");
        if let Some(after) = self.retry_after {
            // Whole seconds, rounded up; the body has milliseconds.
            put(out, format_args!("retry-after: {}\r\n", whole_seconds(after)));
        }
        if let Some(methods) = self.allow {
            put(out, format_args!("allow: {methods}\r\n"));
        }
        if self.status == 401 {
            out.extend_from_slice(b"www-authenticate: Bearer\r\n");
        }
        if !form.keeps_connection {
            out.extend_from_slice(b"connection: close\r\n");
        } else if !form.takes_chunks {
            // An HTTP/1.0 connection closes unless both sides ask to keep it.
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
        match body {
            Body::Whole(body) | Body::Left(body) => {
                put(out, format_args!("content-length: {}\r\n\r\n", body.len()))
            }
            Body::InPieces if form.takes_chunks => {
                out.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n")
            }
            // The end of the connection ends the body.
            Body::InPieces => out.extend_from_slice(b"\r\n"),
        }
        if let Body::Whole(body) = body {
            out.extend_from_slice(body);
        }
    }
}

/// Appends a piece of a body. The piece must not be empty: an empty chunk would end the body.
pub(super) fn encode_piece(out: &mut Vec<u8>, piece: &[u8], in_chunks: bool, is_last: bool) {
    if !in_chunks {
        return out.extend_from_slice(piece);
    }
    put(out, format_args!("{:x}\r\n", piece.len()));
    out.extend_from_slice(piece);
    out.extend_from_slice(if is_last { b"\r\n0\r\n\r\n" } else { b"\r\n" });
}

/// Appends the first lines of a head.
fn begin(out: &mut Vec<u8>, status: u16, date: Option<UnixMicros>) {
    put(out, format_args!("HTTP/1.1 {status} {}\r\n", reason_of(status)));
    if let Some(date) = date {
        let since_epoch = Duration::from_micros(date.0.max(0).unsigned_abs());
        let date = httpdate::HttpDate::from(SystemTime::UNIX_EPOCH + since_epoch);
        put(out, format_args!("date: {date}\r\n"));
    }
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // A write to memory cannot fail.
    let _ = out.write_fmt(text);
}

fn reason_of(status: u16) -> &'static str {
    hyper::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or_default()
}

/// Returns a time in whole seconds, rounded up, at least 1.
fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}
