//! `snowbank token`: makes a token and its line for the daemon's token file.

use std::io::Write;
use std::path::PathBuf;

use super::next::read_token;
use super::{Failure, Outcome};
use crate::config::{SOURCE_NAME, hashed_line, is_source_name};
use snowbank_tls::provider;

/// The text of `--help` below the options.
const HELP: &str = "\
Prints two lines: a new random token, which the client gets, and its line for the file auth.token_file, which holds \
only the token's SHA-256. With --token-file it prints only that line, for the existing token in FILE.";

/// The number of random bytes in a token: as many as its hash has.
const RANDOM_BYTES: usize = 32;

/// Options of `snowbank token`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The identity that clients with the token have: the name of one of [[identities]]
    #[arg(value_name = "NAME")]
    identity: Option<String>,
    /// Make no token: print the line for the one token in FILE
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let identity = arguments.identity.as_deref();
    if let Some(name) = identity.filter(|name| !is_source_name(name)) {
        return Err(Failure::usage(format_args!("found {name:?}, allowed: {SOURCE_NAME}")));
    }
    let token = match &arguments.token_file {
        Some(path) => read_token(path)?,
        None => {
            let token = random_token()?;
            writeln!(out, "{token}")?;
            token.into_bytes()
        }
    };
    Ok(writeln!(out, "{}", hashed_line(identity, &token))?)
}

fn random_token() -> Result<String, Failure> {
    let mut bytes = [0; RANDOM_BYTES];
    let filled = provider().secure_random.fill(&mut bytes);
    filled.map_err(|_| Failure::no("the system has no random bytes; no token was made, try again"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
