//! The options of a client.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tls")]
use snowbank_tls::ClientFiles;
use snowbank_wire::address::{Address, AddressError};
use snowbank_wire::{DEFAULT_PORT, MAX_NAME_SIZE, MAX_TOKEN_SIZE};

use crate::error::Error;
use crate::stats::Event;

/// The longest deadline. A longer one is cut: thirty years are for ever.
pub(crate) const FOREVER: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);

/// The most bytes that are read of a token's file: the longest token and a few ends of lines.
const TOKEN_FILE_BYTES_MAX: u64 = 1_024;

/// The endpoints of a [`Client`](crate::Client), and its other options.
#[derive(Clone)]
pub struct ClientOptions {
    pub(crate) endpoints: Vec<Address>,
    pub(crate) source: Option<Arc<str>>,
    pub(crate) timeout: Duration,
    token: Option<Arc<[u8]>>,
    pub(crate) token_file: Option<PathBuf>,
    #[cfg(feature = "tls")]
    pub(crate) tls: ClientFiles,
    pub(crate) prefer_first: bool,
    pub(crate) take_turns: bool,
    pub(crate) fail_fast: bool,
    pub(crate) on_event: Option<Report>,
    pub(crate) limits: Limits,
}

/// The application's function for events.
pub(crate) type Report = Arc<dyn Fn(&Event) + Send + Sync>;

/// The times of the page that are no options. Tests shorten them.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// The limit to resolve a name, and for an address to accept.
    pub(crate) accept: Duration,
    /// The limit for a whole connection, with TLS and WELCOME.
    pub(crate) connect: Duration,
    /// The limit for an answer, beyond the wait of the request, and for its next byte.
    pub(crate) answer: Duration,
    /// The first round comes within this time of the first connection.
    pub(crate) first_round: Duration,
    /// The time between rounds.
    pub(crate) round: Duration,
}

impl Default for ClientOptions {
    /// Returns options for a daemon on this machine that was started without options.
    fn default() -> Self {
        Self::to([Address::Tcp { host: "127.0.0.1".to_owned(), port: DEFAULT_PORT }])
    }
}

impl ClientOptions {
    /// Creates options for the daemons at these addresses: `host:port`, `[IPv6]:port`,
    /// `tls:host:port` or `unix:PATH`.
    ///
    /// The client begins with a random one, stays as long as that one serves, and goes on to the
    /// next after a failure.
    ///
    /// # Errors
    /// Returns [`AddressError`] for the first text that is not an address.
    pub fn new<A: AsRef<str>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, AddressError> {
        let endpoints: Result<Vec<Address>, _> =
            addresses.into_iter().map(|address| Address::parse_remote(address.as_ref())).collect();
        Ok(Self::to(endpoints?))
    }

    /// Creates options for the daemons at these addresses.
    #[must_use]
    pub fn to(endpoints: impl IntoIterator<Item = Address>) -> Self {
        let mut different: Vec<Address> = Vec::new();
        for endpoint in endpoints {
            if !different.contains(&endpoint) {
                different.push(endpoint);
            }
        }
        Self {
            endpoints: different,
            source: None,
            timeout: Duration::from_secs(5),
            token: None,
            token_file: None,
            #[cfg(feature = "tls")]
            tls: ClientFiles::new(),
            prefer_first: false,
            take_turns: false,
            fail_fast: false,
            on_event: None,
            limits: Limits {
                accept: Duration::from_secs(1),
                connect: Duration::from_secs(2),
                answer: Duration::from_secs(1),
                first_round: Duration::from_secs(10),
                round: Duration::from_secs(60),
            },
        }
    }

    /// Sets the name of the source to draw from. The default is the daemon's first source.
    #[must_use]
    pub fn source(mut self, name: impl AsRef<str>) -> Self {
        self.source = Some(name.as_ref().into());
        self
    }

    /// Sets the deadline of each call. The default is 5 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the token for daemons that ask for one: 1 to 512 bytes, without the end of a line.
    #[must_use]
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.token = Some(token.into().into());
        self
    }

    /// Sets the file that has the token. Each connection reads it again, so the token can be
    /// replaced while the client runs. One newline at its end does not count.
    #[must_use]
    pub fn token_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.token_file = Some(file.into());
        self
    }

    /// Sets the files for addresses such as `tls:host:port`. Each connection reads them again. The
    /// default trusts the system's authorities and shows no certificate.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, files: ClientFiles) -> Self {
        self.tls = files;
        self
    }

    /// Says that the endpoints are in order of preference. The client begins with the first, and
    /// moves back to an earlier one within a minute after that one is there again.
    #[must_use]
    pub fn prefer_first(mut self, yes: bool) -> Self {
        self.prefer_first = yes;
        self
    }

    /// Says that calls use the endpoints in turn, as for pairs of ticket servers.
    #[must_use]
    pub fn take_turns(mut self, yes: bool) -> Self {
        self.take_turns = yes;
        self
    }

    /// Says that a call fails with [`Error::Unreachable`] as soon as every endpoint has failed since
    /// it began, and does not wait for one that is back before the deadline. An only endpoint that
    /// accepts has until the deadline to greet. This is for commands for which a person waits. The
    /// default is false.
    #[must_use]
    pub fn fail_fast(mut self, yes: bool) -> Self {
        self.fail_fast = yes;
        self
    }

    /// Sets a function that gets the client's events, in order, on a thread of its own. While it does
    /// not return, up to 1,000 later events wait.
    #[must_use]
    pub fn on_event(mut self, report: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.on_event = Some(Arc::new(report));
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.endpoints.is_empty() {
            return Err(Error::bad_option("no endpoint is given: give the address of at least one daemon"));
        }
        if let Some(address) = self.endpoints.iter().find(|address| address.has_any_port()) {
            return Err(Error::bad_option(format!(
                "{address} has port 0, where nobody listens: give the daemon's port"
            )));
        }
        self.source.as_deref().map_or(Ok(()), check_source)?;
        check_timeout(self.timeout)?;
        if self.prefer_first && self.take_turns {
            return Err(Error::bad_option(
                "prefer_first and take_turns exclude each other: choose one of them",
            ));
        }
        if let Some(token) = &self.token {
            check_token(token, "the token")?;
        }
        if self.token.is_some() && self.token_file.is_some() {
            return Err(Error::bad_option("found a token and a token_file, allowed: one of them"));
        }
        // Each connection reads the files again. Reading them here shows a mistake at once.
        self.read_token()?;
        let uses_tls = self.endpoints.iter().any(Address::is_tls);
        #[cfg(feature = "tls")]
        if !uses_tls && self.tls != ClientFiles::new() {
            return Err(Error::bad_option("TLS is set, and no endpoint uses it: write tls:host:port"));
        }
        if uses_tls {
            #[cfg(feature = "tls")]
            self.tls.read().map_err(Error::bad_option)?;
            #[cfg(not(feature = "tls"))]
            return Err(Error::bad_option(
                "an address tls:… needs the cargo feature `tls` of snowbank-client",
            ));
        }
        Ok(())
    }

    /// Returns the token for a connection, which is empty if there is none. Reads its file.
    pub(crate) fn read_token(&self) -> Result<Vec<u8>, Error> {
        match (&self.token, &self.token_file) {
            (Some(token), _) => Ok(token.to_vec()),
            (None, Some(path)) => read_token_file(path),
            (None, None) => Ok(Vec::new()),
        }
    }
}

fn read_token_file(path: &Path) -> Result<Vec<u8>, Error> {
    let name = format!("the token file {}", path.display());
    let mut token = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| {
            std::io::Read::read_to_end(&mut std::io::Read::take(file, TOKEN_FILE_BYTES_MAX), &mut token)
        })
        .map_err(|error| Error::bad_option(format!("{name} cannot be read: {error}")))?;
    // An editor ends the file with a newline.
    if token.last() == Some(&b'\n') {
        token.pop();
    }
    check_token(&token, &name)?;
    Ok(token)
}

fn check_token(token: &[u8], name: &str) -> Result<(), Error> {
    match token.len() {
        1..=MAX_TOKEN_SIZE if token.iter().any(|byte| matches!(byte, b'\r' | b'\n')) => {
            Err(Error::bad_option(format!("{name} has the end of a line; leave it out")))
        }
        1..=MAX_TOKEN_SIZE => Ok(()),
        size => Err(Error::bad_option(format!("{name} has {size} bytes; 1 to {MAX_TOKEN_SIZE} are allowed"))),
    }
}

pub(crate) fn check_source(source: &str) -> Result<(), Error> {
    match source.len() {
        1..=MAX_NAME_SIZE => Ok(()),
        size => Err(Error::bad_option(format!(
            "found the source {source:?} with {size} bytes, allowed: 1 to {MAX_NAME_SIZE} bytes"
        ))),
    }
}

pub(crate) fn check_timeout(timeout: Duration) -> Result<(), Error> {
    if timeout.is_zero() {
        return Err(Error::bad_option("found a timeout of 0, allowed: a time above 0, such as 5 s"));
    }
    Ok(())
}

impl fmt::Debug for ClientOptions {
    /// Leaves out the token.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("ClientOptions");
        shown
            .field("endpoints", &self.endpoints)
            .field("source", &self.source)
            .field("timeout", &self.timeout);
        shown.finish_non_exhaustive()
    }
}
