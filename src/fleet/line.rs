//! The connection to a coordinator: its endpoints, one connection at a time, and a deadline for each wait.
//!
//! Each call is tried at each endpoint once. A connection stays open between calls.

use std::fmt;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::NoAnswer;
use super::endpoint::{CoordinatorKind, Endpoint};
use snowbank_client::tls::{self, ClientFiles};

/// The time to connect, TLS included: an endpoint whose machine is gone must not use up the time of the others.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The time for an answer. It is far above a leader's election, and far below each horizon.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest answer: the keys of 30,000 numbers.
pub(super) const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The place and the credentials of a coordinator.
#[derive(Clone)]
pub struct Access {
    /// The coordinator's kind.
    pub kind: CoordinatorKind,
    /// Members of one cluster, at least one.
    pub endpoints: Vec<Endpoint>,
    /// The user and the password, where the coordinator asks for them.
    pub user: Option<(String, String)>,
    /// The authorities to trust, and this side's certificate.
    pub tls: ClientFiles,
}

impl fmt::Debug for Access {
    /// Writes no password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

/// A stream of bytes, over TLS or not.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Connects.
pub(super) async fn connect(endpoint: &Endpoint, tls: &ClientFiles) -> Result<Box<dyn Stream>, String> {
    let opened = tokio::time::timeout(CONNECT_TIMEOUT, connect_slowly(endpoint, tls)).await;
    opened.unwrap_or_else(|_| Err(format!("not connected within {CONNECT_TIMEOUT:?}")))
}

async fn connect_slowly(endpoint: &Endpoint, tls: &ClientFiles) -> Result<Box<dyn Stream>, String> {
    let stream = TcpStream::connect((endpoint.host(), endpoint.port())).await;
    let stream = stream.map_err(|error| error.to_string())?;
    let _ = stream.set_nodelay(true);
    if !endpoint.is_tls() {
        return Ok(Box::new(stream));
    }
    // The files are read for each connection, because they may be renewed.
    let connector = tls.read().map_err(|fault| fault.to_string())?;
    let stream = connector.connect(endpoint.host(), stream).await;
    let stream = stream.map_err(|error| tls::explain(&error).unwrap_or_else(|| error.to_string()))?;
    Ok(Box::new(stream))
}

/// Waits for a part of an answer, at most [`ANSWER_TIMEOUT`].
pub(super) async fn in_time<T>(part: impl Future<Output = std::io::Result<T>>) -> Result<T, Fault> {
    match tokio::time::timeout(ANSWER_TIMEOUT, part).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(Fault::Endpoint(error.to_string())),
        Err(_) => Err(Fault::Endpoint(format!("no answer within {ANSWER_TIMEOUT:?}"))),
    }
}

/// The reason why one endpoint did not answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Another endpoint may answer.
    Endpoint(String),
    /// No endpoint will answer otherwise.
    Lasting(String),
}

/// A connection to a member of a coordinator.
pub(super) trait Session: Sized {
    /// Connects and logs in.
    async fn open(access: &Access, endpoint: &Endpoint) -> Result<Self, Fault>;
}

/// The connection to a coordinator whose sessions have this type.
pub(super) struct Line<S> {
    access: Access,
    runtime: Runtime,
    /// The endpoint that answered last.
    current: usize,
    session: Option<S>,
}

impl<S: Session> Line<S> {
    /// Makes a line. It connects at its first call.
    pub(super) fn new(access: Access) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Line { access, runtime, current: 0, session: None })
    }

    /// Makes one exchange, at each endpoint once until one answers.
    pub(super) fn call<T>(
        &mut self,
        exchange: impl AsyncFn(&mut S) -> Result<T, Fault>,
    ) -> Result<T, NoAnswer> {
        let mut reasons = Vec::new();
        for _ in 0..self.access.endpoints.len() {
            let had_session = self.session.is_some();
            let mut tried = self.try_call(&exchange);
            if had_session && matches!(tried, Err(Fault::Endpoint(_))) {
                // The connection that was open before may have been closed.
                tried = self.try_call(&exchange);
            }
            let endpoint = &self.access.endpoints[self.current];
            match tried {
                Ok(answer) => return Ok(answer),
                Err(Fault::Lasting(reason)) => {
                    return Err(NoAnswer::lasting(format!("{endpoint}: {reason}")));
                }
                Err(Fault::Endpoint(reason)) => reasons.push(format!("{endpoint}: {reason}")),
            }
            self.current = (self.current + 1) % self.access.endpoints.len();
        }
        Err(NoAnswer::passing(reasons.join("; ")))
    }

    /// Makes one exchange at the current endpoint. A session stays only after an answer.
    fn try_call<T>(&mut self, exchange: &impl AsyncFn(&mut S) -> Result<T, Fault>) -> Result<T, Fault> {
        let (endpoint, session) = (&self.access.endpoints[self.current], self.session.take());
        let (session, answer) = self.runtime.block_on(async {
            let mut session = match session {
                Some(session) => session,
                None => S::open(&self.access, endpoint).await?,
            };
            let answer = exchange(&mut session).await?;
            Ok((session, answer))
        })?;
        self.session = Some(session);
        Ok(answer)
    }
}
