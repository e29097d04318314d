//! `snowbank next`.

use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::time::Duration;

use super::lines::{LineOptions, Lines};
use super::tls_options::{TlsOptions, locate};
use super::{Failure, Outcome, whole};
use crate::config::{self, FileRef, TOKEN_BYTES_MAX};
use crate::server::StartError;
use snowbank_client::{Address, Client, ClientOptions, Error};
use snowbank_wire::{ErrorCode, Info};

/// Options of `snowbank next`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The number of IDs; more than the daemon's max_count are fetched in several batches.
    #[arg(short = 'n', long, value_name = "COUNT", default_value = "1", allow_hyphen_values = true, value_parser = |text: &str| whole(text, 1..=u64::MAX))]
    count: u64,

    #[command(flatten)]
    daemon: Daemon,

    /// The name of the source to draw from [default: the daemon's first source].
    #[arg(long, value_name = "NAME")]
    source: Option<String>,

    #[command(flatten)]
    lines: LineOptions,
}

/// How a command reaches a daemon: the addresses to try in order, token, TLS and timeout.
#[derive(Debug, clap::Args)]
pub(super) struct Daemon {
    /// The daemon's address: host:port, [IPv6]:port, tls:host:port or unix:PATH. Several, with
    /// commas: the next one is asked if one fails.
    #[arg(long, env = "SNOWBANK_ADDRESS", value_name = "ADDR", default_value = "127.0.0.1:7660", value_delimiter = ',', value_parser = Address::parse_remote)]
    pub(super) address: Vec<Address>,

    #[command(flatten)]
    access: Access,
}

/// What a command needs besides a daemon's address: token, TLS and timeout.
#[derive(Debug, clap::Args)]
pub(super) struct Access {
    /// A file with the token that the daemon asks for, or credential:NAME of systemd's; a newline
    /// at its end does not count.
    #[arg(long, value_name = "FILE")]
    token_file: Option<FileRef>,

    #[command(flatten)]
    tls: TlsOptions,

    /// The longest wait for each answer, such as 500ms or 2s.
    #[arg(long, value_name = "TIME", default_value = "5s", allow_hyphen_values = true, value_parser = parse_duration)]
    timeout: Duration,
}

impl Daemon {
    /// As [`Access::client`].
    pub(super) fn client(&self, addresses: &[Address]) -> Result<Client, Failure> {
        self.access.client(addresses)
    }
}

impl Access {
    /// Returns true if a token or an option of TLS was given.
    pub(super) fn is_given(&self) -> bool {
        self.token_file.is_some() || self.tls.is_given()
    }

    /// Returns a client of these daemons. The client fails at once if it can reach none of the
    /// daemons.
    pub(super) fn client(&self, addresses: &[Address]) -> Result<Client, Failure> {
        let options = ClientOptions::to(addresses.iter().cloned());
        let mut options = options.prefer_first(true).timeout(self.timeout).fail_fast(true);
        if let Some(file) = &self.token_file {
            options = options.token(read_token(&locate(file)?)?);
        }
        if let Some(files) = self.tls.files(addresses)? {
            options = options.tls(files);
        }
        Client::new(options).map_err(Failure::usage)
    }
}

/// The most bytes that are read from a token file: more than the longest token and a few newlines.
const TOKEN_FILE_BYTES_MAX: u64 = 1_024;

/// Reads the one token of a file.
pub(super) fn read_token(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut token = Vec::new();
    snowbank_tls::files::open(path)
        .and_then(|file| file.take(TOKEN_FILE_BYTES_MAX).read_to_end(&mut token))
        .map_err(|error| {
            Failure::usage(format_args!("cannot read the token file {}: {error}", path.display()))
        })?;
    while token.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        token.pop();
    }
    if token.contains(&b'\n') {
        return Err(Failure::usage(format_args!(
            "found several lines in the token file {}, allowed: one token, such as the first of the lines that `snowbank token` prints",
            path.display()
        )));
    }
    if !(1..=TOKEN_BYTES_MAX).contains(&token.len()) {
        return Err(Failure::usage(format_args!(
            "{}: the token has {} bytes; 1 to {TOKEN_BYTES_MAX} are allowed",
            path.display(),
            token.len()
        )));
    }
    Ok(token)
}

/// Reads a duration above zero: `500ms`, `2s`, `1m 30s`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = config::parse_duration(text).filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| "allowed: a duration above 0 with its unit, such as 500ms or 2s".to_owned())
}

/// Turns an error of the client into a failure, and adds advice where there is some.
pub(super) fn explain(error: Error) -> Failure {
    let hint = match &error {
        Error::Unreachable { endpoints }
            if endpoints.iter().any(|it| it.contains("cannot connect") && !it.contains("lookup")) =>
        {
            "; is `snowbank serve` running there?"
        }
        error if error.code() == Some(ErrorCode::Unauthorized) => {
            "; --token-file names the file with its token"
        }
        _ => "",
    };
    Failure::no(format_args!("{error}{hint}"))
}

/// Runs a command's conversation with a daemon on a runtime of its own.
pub(super) fn converse(talk: impl Future<Output = Outcome>) -> Outcome {
    let made = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = made.map_err(|error| StartError::no_thread(&error))?;
    let outcome = runtime.block_on(talk);
    // A name that is still being resolved must not delay the end.
    runtime.shutdown_background();
    outcome
}

/// Fetches a daemon's description of itself.
pub(super) async fn describe(client: &Client) -> Result<Info, Failure> {
    let json = client.info().await.map_err(explain)?;
    Info::from_json(json.as_bytes()).map_err(Failure::no)
}

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let mut out = BufWriter::new(out);
    converse(async {
        let mut client = arguments.daemon.client(&arguments.daemon.address)?;
        let source = arguments.source.as_deref();
        if let Some(name) = source {
            client = client.source(name).map_err(Failure::usage)?;
        }
        let info = if arguments.lines.need_info() { Some(describe(&client).await?) } else { None };
        let mut lines = Lines::new(&arguments.lines, source, info.as_ref(), &mut out)?;
        fetch(&client, arguments, &mut lines).await?;
        Ok(out.flush()?)
    })
}

/// Fetches and writes IDs, batch by batch. Batches are as large as the daemon allows. If a source
/// is too slow to fill a batch in time, the daemon sends a part of the batch.
async fn fetch(client: &Client, arguments: &Arguments, lines: &mut Lines<'_, impl Write>) -> Outcome {
    let mut left = arguments.count;
    while left > 0 {
        let count = u32::try_from(left).unwrap_or(u32::MAX);
        let batch = match client.batch_up_to(count).await {
            Ok(batch) => batch,
            Err(error) if left < arguments.count => {
                lines.flush()?;
                let written = arguments.count - left;
                return Err(Failure::no(format_args!(
                    "after {written} of {} IDs, which can be used, {} are missing: {error}",
                    arguments.count, left
                )));
            }
            Err(error) => return Err(explain(error)),
        };
        left = left.saturating_sub(batch.len() as u64);
        lines.write(&batch)?;
    }
    Ok(())
}
