//! What a client can be told.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::error::Error;
use super::{BadEndpoint, Endpoint};
use crate::protocol::{DEFAULT_PORT, MAX_TOKEN_SIZE};

/// What a [`Client`](super::Client) connects to, and how patient it is.
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
    pub(super) max_queued: usize,
    pub(super) fail_fast: bool,
}

impl Default for ClientOptions {
    /// A daemon on this machine that was started without options.
    fn default() -> Self {
        Self::to([Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: DEFAULT_PORT }])
    }
}

impl ClientOptions {
    /// A client of the daemons at these addresses, each `host:port`, `[IPv6]:port`, `tls:host:port` or
    /// `unix:PATH`.
    ///
    /// The first is used while it serves; when it does not, the next one is, and so on in a circle. A client stays where
    /// it is while that daemon serves it: to spread many clients over a fleet, give each a different order.
    ///
    /// # Errors
    /// [`BadEndpoint`] names the first address that is none.
    pub fn new<A: AsRef<str>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, BadEndpoint> {
        let endpoints: Result<Vec<Endpoint>, _> =
            addresses.into_iter().map(|address| Endpoint::parse_remote(address.as_ref())).collect();
        Ok(Self::to(endpoints?))
    }

    /// A client of the daemons at these endpoints, in order of preference.
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
            max_queued: 1_024,
            fail_fast: false,
        }
    }

    /// The token for daemons that ask for one: 1 to 512 bytes.
    #[must_use]
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.token = Some(Token(token.into().into()));
        self
    }

    /// Whom to believe on `tls:` endpoints, and which certificate to show them. By default the system's authorities, and
    /// none.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, files: crate::tls::ClientFiles) -> Self {
        self.tls = files;
        self
    }

    /// How long a call may take in all, waiting in the queue, name resolution, connecting and every further try
    /// included (5 s). A call can have its own.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long one endpoint may take to be resolved, connected to and to greet before the next is tried (2 s).
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long a connected daemon may take to answer, beyond the wait that the request allows it, before it counts as
    /// stalled and the next is tried (1 s).
    #[must_use]
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.answer_timeout = timeout;
        self
    }

    /// How long an endpoint that failed is left alone: a random time up to `min` (50 ms) after its first failure, up to
    /// twice as much after each further one, never above `max` (5 s).
    #[must_use]
    pub fn backoff(mut self, min: Duration, max: Duration) -> Self {
        self.min_backoff = min;
        self.max_backoff = max;
        self
    }

    /// How many calls may wait to be sent (1,024); a further one waits, within its deadline, for a place.
    #[must_use]
    pub fn max_queued(mut self, calls: usize) -> Self {
        self.max_queued = calls;
        self
    }

    /// Let a call fail once every endpoint has failed it, not at its deadline only.
    #[must_use]
    pub fn fail_fast(mut self, fail_fast: bool) -> Self {
        self.fail_fast = fail_fast;
        self
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let bad = |text: String| Err(Error::BadOption(text.into()));
        if self.endpoints.is_empty() {
            return bad("no endpoint is given; at least one is needed".to_owned());
        }
        if let Some(endpoint) = self.endpoints.iter().find(|endpoint| endpoint.has_any_port()) {
            return bad(format!("{endpoint} has port 0, on which nobody listens"));
        }
        #[cfg(feature = "tls")]
        if self.endpoints.iter().any(Endpoint::is_tls) {
            // They are read again for each connection; a mistake shows now.
            self.tls.read().map_err(|fault| Error::BadOption(fault.to_string().into()))?;
        }
        if let Some(Token(token)) = &self.token
            && !(1..=MAX_TOKEN_SIZE).contains(&token.len())
        {
            return bad(format!("the token has {} bytes; 1 to {MAX_TOKEN_SIZE} are allowed", token.len()));
        }
        if !(1..=MAX_QUEUED).contains(&self.max_queued) {
            return bad(format!("max_queued is {}; 1 to {MAX_QUEUED} are allowed", self.max_queued));
        }
        if self.min_backoff.is_zero() || self.min_backoff > self.max_backoff {
            let (min, max) = (self.min_backoff, self.max_backoff);
            return bad(format!("the back-off is {min:?} to {max:?}; it must be above 0 and not fall"));
        }
        Ok(())
    }
}

/// What there is to say of TLS.
#[cfg(feature = "tls")]
pub(super) type TlsChoice = crate::tls::ClientFiles;

/// Nothing can be said of it without the feature.
#[cfg(not(feature = "tls"))]
#[derive(Debug, Clone, Default)]
pub(super) struct TlsChoice {}

/// A queue of this many calls takes some hundred megabytes when full; more would be a mistake.
const MAX_QUEUED: usize = 1 << 20;

/// A secret: never printed.
#[derive(Clone)]
pub(super) struct Token(pub(super) Arc<[u8]>);

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("(secret)")
    }
}

/// Which supply of IDs a call draws from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceChoice {
    /// By index, as the daemon counts its sources; 0 is the default source. Daemons of a fleet may count differently.
    Index(u16),
    /// By name, which each daemon that is connected to translates for itself.
    Name(Arc<str>),
}

impl From<u16> for SourceChoice {
    fn from(index: u16) -> Self {
        Self::Index(index)
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
        assert!(refused(ClientOptions::default().max_queued(0)).contains("max_queued is 0"));
        let second = Duration::from_secs(1);
        assert!(refused(ClientOptions::default().backoff(second * 2, second)).contains("2s to 1s"));
        assert_eq!(ClientOptions::default().token([1; 512]).check(), Ok(()));
    }

    #[test]
    fn a_token_is_not_printed() {
        let options = ClientOptions::default().token("s3cret");
        assert!(!format!("{options:?}").contains("s3cret"));
        assert!(!format!("{options:?}").contains("115"));
    }
}
