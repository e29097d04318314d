//! The keys of aliases, for the commands that write and read them.

use super::Failure;
use super::tls_options::locate;
use crate::config::{FileRef, read_file};
use snowbank_id::format::{AliasKeys, Codec, Context, Format};

/// The option that names the keys of aliases.
#[derive(Debug, clap::Args)]
pub(super) struct KeyOptions {
    /// The file with the keys of the format alias, or credential:NAME of systemd's. Each line is a
    /// version and 64 hexadecimal digits. New aliases are written with the highest version.
    #[arg(long, value_name = "FILE")]
    alias_keys: Option<FileRef>,
}

impl KeyOptions {
    /// Makes a codec, and reads the keys if the format needs them.
    pub(super) fn codec(&self, format: &Format, context: Context<'_>) -> Result<Codec, Failure> {
        let keys = match (format, &self.alias_keys) {
            (Format::Alias, Some(file)) => read(file)?,
            (Format::Alias, None) => {
                return Err(Failure::usage(
                    "the format alias needs keys; name their file with --alias-keys: a line of version and 64 \
                     hexadecimal digits for each",
                ));
            }
            _ => return format.codec(context).map_err(Failure::usage),
        };
        format.codec(context.alias_keys(&keys)).map_err(Failure::usage)
    }
}

fn read(file: &FileRef) -> Result<AliasKeys, Failure> {
    let path = locate(file)?;
    let text = read_file(&path).map_err(|error| error.error.to_string());
    let keys = text.and_then(|text| AliasKeys::parse(&text).map_err(|error| error.to_string()));
    keys.map_err(|reason| {
        Failure::usage(format_args!("cannot use the alias keys {}: {reason}", path.display()))
    })
}
