//! Serves connections as a simulated daemon does.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::sleep;

use super::world::{Mode, Wire, World};
use snowbank_wire::{ErrorCode, ErrorReply, Parsed, Request, Welcome, reply, request};

/// Serves a connection until either side ends it.
pub(super) async fn serve<S>(wire: Wire, index: usize, mut life: watch::Receiver<u32>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    tokio::select! {
        biased;
        _ = life.changed() => {}
        () = converse(&wire, index, stream) => {}
    }
}

async fn converse(wire: &Wire, index: usize, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut input = Vec::new();
    while let Ok(size) = stream.read_buf(&mut input).await
        && size > 0
    {
        while let Parsed::Frame { content, tag, consumed } = request::parse(&input) {
            let mut out = Vec::new();
            let request = content.expect("the client sends sound requests");
            let (delay, ends) = wire.world().answer(index, &request, tag, &mut out);
            input.drain(..consumed);
            sleep(delay).await;
            if stream.write_all(&out).await.is_err() || ends {
                return;
            }
        }
    }
}

impl World {
    /// Encodes the reply to a request. Returns the reply's delay, and whether the connection ends
    /// with this reply.
    fn answer(
        &mut self,
        index: usize,
        request: &Request<'_>,
        tag: u16,
        out: &mut Vec<u8>,
    ) -> (Duration, bool) {
        match (self.daemons[index].mode, request) {
            (Mode::Down | Mode::Silent, _) | (Mode::Stalls, Request::Next(_)) => {}
            (Mode::Http, _) => {
                out.extend_from_slice(b"HTTP/1.1 400 Bad Request\r\n\r\n");
                return (Duration::ZERO, true);
            }
            (Mode::Refuses(code, wait), Request::Next(_)) => {
                reply::encode_error(out, tag, &ErrorReply::leave(code, wait, ""));
            }
            (_, Request::Ping(body)) => reply::encode_pong(out, tag, body),
            (_, Request::Hello(_)) => {
                let claims = reply::WireIds::new(&[]);
                let good_for = Duration::from_secs(1);
                let welcome = Welcome { version: 1, good_for, max_count: 1_000_000, instance: 1, claims };
                reply::encode_welcome(out, tag, &welcome);
            }
            (_, Request::Info) => reply::encode_info(out, tag, self.info(index).as_bytes()),
            (Mode::Serves, Request::Next(next)) => {
                match self.claim(index, next.count, next.partial) {
                    Ok(runs) => reply::encode_runs_frame(out, tag, &runs, false).expect("sound runs"),
                    Err(wait) => {
                        reply::encode_error(out, tag, &ErrorReply::stay(ErrorCode::Exhausted, wait, ""));
                    }
                }
                return self.spoil(out);
            }
        }
        (Duration::ZERO, false)
    }

    /// Delays a reply, or loses it wholly or in part.
    fn spoil(&mut self, out: &mut Vec<u8>) -> (Duration, bool) {
        let delay = Duration::from_micros(self.rng.u64(0..500));
        if self.loses_one_in == 0 || self.rng.u32(0..self.loses_one_in) > 0 {
            return (delay, false);
        }
        match self.rng.u32(0..3) {
            // This is longer than a client waits.
            0 => (Duration::from_secs(10), false),
            _ => {
                out.truncate(self.rng.usize(0..out.len()));
                (delay, true)
            }
        }
    }

    fn info(&self, index: usize) -> String {
        format!(
            r#"{{"protocol":1,"max_count":1000000,"instance":"{instance}","sources":[{{"name":"default",
               "layout":"time:41,worker:10,sequence:12","worker_ids":[{worker}]}}]}}"#,
            worker = self.daemons[index].worker,
            instance = self.daemons[index].instance,
        )
    }
}
