//! The options of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::call::FOREVER;
use super::error::Error;
use super::{BadEndpoint, Endpoint};
use snowbank_wire::{DEFAULT_PORT, MAX_TOKEN_SIZE};

/// The endpoints of a [`Client`](super::Client), and its other options.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) token: Option<Token>,
    pub(super) tls: TlsChoice,
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) answer_timeout: Duration,
    pub(super) min_backoff: Duration,
    pub(super) max_backoff: Duration,
    pub(super) fail_fast: bool,
    pub(super) take_turns: bool,
    pub(super) prefer_first: bool,
}

impl Default for ClientOptions {
    /// Returns options for a daemon on this machine that was started without options.
    fn default() -> Self {
        Self::to([Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: DEFAULT_PORT }])
    }
}

impl ClientOptions {
    /// Creates options for the daemons at these addresses: `host:port`, `[IPv6]:port`,
    /// `tls:host:port` or `unix:PATH`.
    ///
    /// The client uses the first daemon as long as that daemon serves. When a daemon fails, the
    /// client moves on to the next, in a circle. The client stays with the next daemon that serves,
    /// unless [`prefer_first`](Self::prefer_first) is set. To spread many clients over a fleet,
    /// give each client a different order.
    ///
    /// # Errors
    /// Returns [`BadEndpoint`] for the first text that is not an address.
    pub fn new<A: AsRef<str>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, BadEndpoint> {
        let endpoints: Result<Vec<Endpoint>, _> =
            addresses.into_iter().map(|address| Endpoint::parse_remote(address.as_ref())).collect();
        Ok(Self::to(endpoints?))
    }

    /// Creates options for the daemons at these endpoints, in the order in which they are tried.
    #[must_use]
    pub fn to(endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        Self {
            endpoints: endpoints.into_iter().collect(),
            token: None,
            tls: TlsChoice::default(),
            timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(2),
            answer_timeout: Duration::from_secs(1),
            min_backoff: Duration::from_millis(50),
            max_backoff: Duration::from_secs(5),
            fail_fast: false,
            take_turns: false,
            prefer_first: false,
        }
    }

    /// Sets the token for daemons that require one: 1 to 512 bytes, no control characters.
    #[must_use]
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.token = Some(Token(token.into().into()));
        self
    }

    /// Sets the authorities to trust on `tls:` endpoints, and the client's own certificate. By
    /// default the client trusts the system's authorities and has no certificate.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, files: snowbank_tls::ClientFiles) -> Self {
        self.tls = files;
        self
    }

    /// Sets the deadline of a call (default 5 s). The deadline covers the queue, name resolution,
    /// connecting, and every retry. A call can have a deadline of its own.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the time (default 2 s) for resolving, connecting to and greeting one endpoint, before
    /// the client tries the next.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout.min(FOREVER);
        self
    }

    /// Sets the time (default 1 s) for a connected daemon to answer, beyond the wait that the
    /// request allows. That wait begins when the connection's earlier requests are answered. A
    /// daemon that takes longer counts as stalled, and the client tries the next daemon.
    #[must_use]
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.answer_timeout = timeout.min(FOREVER);
        self
    }

    /// Sets the pause before the client tries a failed endpoint again. After the endpoint's first
    /// failure, the pause is a random time up to `min` (default 50 ms). That limit doubles with
    /// each further failure, up to `max` (default 5 s).
    #[must_use]
    pub fn backoff(mut self, min: Duration, max: Duration) -> Self {
        (self.min_backoff, self.max_backoff) = (min.min(FOREVER), max.min(FOREVER));
        self
    }

    /// Makes a call fail as soon as every endpoint has failed, even before its deadline.
    #[must_use]
    pub fn fail_fast(mut self, fail_fast: bool) -> Self {
        self.fail_fast = fail_fast;
        self
    }

    /// Makes calls take turns over the endpoints, as clients of a pair of ticket servers do. The
    /// client then has a connection for each endpoint. While an endpoint fails, the calls of its
    /// turns go to the next endpoint. IDs of successive calls no longer increase.
    #[must_use]
    pub fn take_turns(mut self, take_turns: bool) -> Self {
        self.take_turns = take_turns;
        self
    }

    /// Makes the client go back to an earlier endpoint once that endpoint serves again. List the
    /// nearest endpoint first.
    ///
    /// By default the client stays with the endpoint that serves it.
    #[must_use]
    pub fn prefer_first(mut self, prefer_first: bool) -> Self {
        self.prefer_first = prefer_first;
        self
    }

    /// Returns the same options, with the endpoints rotated so that the one at `index` comes first.
    pub(super) fn beginning_with(&self, index: usize) -> Self {
        let mut options = self.clone();
        options.endpoints.rotate_left(index);
        options
    }

    /// Returns whether the client goes back to its first endpoint once that endpoint serves again.
    /// If the client takes turns, each of its connections has a first endpoint of its own.
    pub(super) fn returns_to_first(&self) -> bool {
        self.prefer_first || self.take_turns
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        check_time("timeout", self.timeout)?;
        check_time("connect_timeout", self.connect_timeout)?;
        check_time("answer_timeout", self.answer_timeout)?;
        if self.endpoints.is_empty() {
            return Err(Error::bad_option("no endpoint is given; at least one is needed"));
        }
        if let Some(endpoint) = self.endpoints.iter().find(|endpoint| endpoint.has_any_port()) {
            return Err(Error::bad_option(format!("{endpoint} has port 0, on which no daemon listens")));
        }
        #[cfg(not(feature = "tls"))]
        if let Some(endpoint) = self.endpoints.iter().find(|endpoint| endpoint.is_tls()) {
            return Err(Error::bad_option(format!(
                "{endpoint} asks for TLS, and this client is built without it: enable the cargo feature `tls` of \
                 snowbank-client"
            )));
        }
        #[cfg(feature = "tls")]
        if self.endpoints.iter().any(Endpoint::is_tls) {
            // Each connection reads the files again. Reading them here shows a mistake at once.
            self.tls.read().map_err(Error::bad_option)?;
        }
        if let Some(Token(token)) = &self.token
            && !(1..=MAX_TOKEN_SIZE).contains(&token.len())
        {
            return Err(Error::bad_option(format!(
                "the token has {} bytes; 1 to {MAX_TOKEN_SIZE} are allowed",
                token.len()
            )));
        }
        if let Some(Token(token)) = &self.token
            && let Some(at) = token.iter().position(u8::is_ascii_control)
        {
            return Err(Error::bad_option(format!(
                "the token has a control character at byte {at}, such as the line end of the file that it was read from; \
                 leave it out"
            )));
        }
        if self.take_turns && self.prefer_first {
            return Err(Error::bad_option("take_turns and prefer_first are both set; set one of them"));
        }
        if self.min_backoff.is_zero() || self.min_backoff > self.max_backoff {
            let min = self.min_backoff;
            let max = self.max_backoff;
            return Err(Error::bad_option(format!(
                "the back-off is {min:?} to {max:?}; the first must be above 0, and not above the second"
            )));
        }
        Ok(())
    }
}

/// Returns an error for a time of 0, within which nothing can happen.
pub(super) fn check_time(name: &str, time: Duration) -> Result<(), Error> {
    if time.is_zero() { Err(Error::bad_option(format!("{name} is 0; it must be above 0"))) } else { Ok(()) }
}

/// The TLS options.
#[cfg(feature = "tls")]
pub(super) type TlsChoice = snowbank_tls::ClientFiles;

/// The TLS options of a client without the feature `tls`: there are none.
#[cfg(not(feature = "tls"))]
#[derive(Debug, Clone, Default)]
pub(super) struct TlsChoice {}

/// A secret that `Debug` does not print.
#[derive(Clone)]
pub(super) struct Token(pub(super) Arc<[u8]>);

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("(secret)")
    }
}

/// The source that a call takes IDs from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceChoice {
    /// The daemon's first source.
    First,
    /// The source of that name.
    Name(Arc<str>),
}

impl SourceChoice {
    /// Returns the name as NEXT has it.
    pub(super) fn on_wire(&self) -> &[u8] {
        match self {
            Self::First => b"",
            Self::Name(name) => name.as_bytes(),
        }
    }
}

impl From<&str> for SourceChoice {
    fn from(name: &str) -> Self {
        Self::Name(name.into())
    }
}

impl From<String> for SourceChoice {
    fn from(name: String) -> Self {
        Self::Name(name.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_refused_by_name() {
        let refused = |options: ClientOptions| options.check().expect_err("refused").to_string();
        assert!(refused(ClientOptions::to([])).contains("at least one is needed"));
        assert!(refused(ClientOptions::default().token("")).contains("0 bytes; 1 to 512"));
        assert!(refused(ClientOptions::default().token([0; 513])).contains("513 bytes"));
        assert!(refused(ClientOptions::default().token("s3cret\n")).contains("control character at byte 6"));
        let contrary = ClientOptions::default().take_turns(true).prefer_first(true);
        assert!(refused(contrary).contains("take_turns and prefer_first are both set"));
        let second = Duration::from_secs(1);
        let zero = Duration::ZERO;
        assert!(refused(ClientOptions::default().timeout(zero)).contains("timeout is 0; it must be above 0"));
        assert!(refused(ClientOptions::default().connect_timeout(zero)).contains("connect_timeout is 0"));
        assert!(refused(ClientOptions::default().answer_timeout(zero)).contains("answer_timeout is 0"));
        assert!(refused(ClientOptions::default().backoff(second * 2, second)).contains("2s to 1s"));
        assert_eq!(ClientOptions::default().token([b'x'; 512]).check(), Ok(()));
    }

    /// The client must not skip a TLS endpoint: the next endpoint may have no encryption.
    #[cfg(not(feature = "tls"))]
    #[test]
    fn tls_endpoints_are_refused_without_the_feature() {
        let options = ClientOptions::new(["tls:ids-1:7660", "ids-1:7661"]).expect("sound addresses");
        let error = options.check().expect_err("refused").to_string();
        assert!(error.contains("tls:ids-1:7660 asks for TLS") && error.contains("feature `tls`"), "{error}");
    }

    #[test]
    fn a_token_is_not_printed() {
        let options = ClientOptions::default().token("s3cret");
        assert!(!format!("{options:?}").contains("s3cret"));
        assert!(!format!("{options:?}").contains("115"));
    }
}
