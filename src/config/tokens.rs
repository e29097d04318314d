//! The tokens that clients must send, read from their file.

use std::fmt;
use std::path::Path;

use subtle::ConstantTimeEq;

use super::FILE_BYTES_MAX;

/// The longest token, in bytes: an AUTH request carries no more.
pub const TOKEN_BYTES_MAX: usize = 512;

/// The tokens of a file, at least one, each of 1 to [`TOKEN_BYTES_MAX`] bytes. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Tokens(Vec<Box<[u8]>>);

impl Tokens {
    /// Reads the tokens of a file's bytes; `path` is for messages.
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, TokenError> {
        let mut tokens = Vec::new();
        for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            let token = line.trim_ascii();
            if token.is_empty() || token.starts_with(b"#") {
                continue;
            }
            if token.len() > TOKEN_BYTES_MAX {
                return Err(TokenError(format!(
                    "{}:{}: found a token of {} bytes, allowed: 1 to {TOKEN_BYTES_MAX}",
                    path.display(),
                    index + 1,
                    token.len()
                )));
            }
            tokens.push(Box::from(token));
        }
        if tokens.is_empty() {
            return Err(TokenError(format!(
                "the token file {} holds no token, so no client could ever ask for IDs; write one per line",
                path.display()
            )));
        }
        Ok(Tokens(tokens))
    }

    /// Returns whether this is one of the tokens. The time that it takes depends only on lengths, not on the bytes or on the
    /// token that they match.
    pub fn accepts(&self, presented: &[u8]) -> bool {
        let matched =
            self.0.iter().fold(subtle::Choice::from(0), |matched, token| matched | token.ct_eq(presented));
        matched.into()
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({} redacted)", self.0.len())
    }
}

/// The reason why a token file cannot be used, in one line. Never repeats a byte of it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TokenError(String);

/// Reads a token file: one token per line, without the blanks around it; empty lines and lines that start with `#` do
/// not count.
///
/// # Errors
/// The file cannot be read, is too large, holds a token that is too long, or holds none.
pub fn read_tokens(path: &Path) -> Result<Tokens, TokenError> {
    let bytes = super::read_bounded(path)
        .map_err(|error| TokenError(format!("cannot read the token file {}: {error}", path.display())))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(TokenError(format!(
            "the token file {} has more than {FILE_BYTES_MAX} bytes, allowed: one token per line",
            path.display()
        )));
    }
    Tokens::parse(path, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Result<Tokens, TokenError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        std::fs::write(&path, text).unwrap();
        read_tokens(&path)
    }

    #[test]
    fn tokens_are_lines_without_comments_and_blanks() {
        let tokens =
            read(b"# for the orders service\nfirst-token\r\n\n  second token\t\n\xff\xfe\n").unwrap();
        for token in [&b"first-token"[..], b"second token", b"\xff\xfe"] {
            assert!(tokens.accepts(token), "{token:?}");
        }
        for token in [&b""[..], b"first-toke", b"first-token\r", b"# for the orders service", b"second"] {
            assert!(!tokens.accepts(token), "{token:?}");
        }
    }

    #[test]
    fn a_token_is_never_printed() {
        let tokens = read(b"hush\nsecret\n").unwrap();
        assert_eq!(format!("{tokens:?}"), "Tokens(2 redacted)");
        let long = "s".repeat(TOKEN_BYTES_MAX + 1);
        let error = read(format!("ok\n{long}\n").as_bytes()).unwrap_err();
        assert!(error.to_string().ends_with("tokens:2: found a token of 513 bytes, allowed: 1 to 512"));
        assert!(!format!("{error:?}").contains("ss"));
    }

    #[test]
    fn the_longest_token_is_accepted() {
        let long = "s".repeat(TOKEN_BYTES_MAX);
        assert!(read(long.as_bytes()).unwrap().accepts(long.as_bytes()));
    }

    #[test]
    fn files_without_tokens_are_refused() {
        let refusal = |text: &[u8]| read(text).unwrap_err().to_string();
        assert!(refusal(b"# nothing\n\n").contains("holds no token"));
        assert!(refusal(&vec![b'\n'; (1 << 20) + 1]).contains("has more than 1048576 bytes"));
        let directory = tempfile::tempdir().unwrap();
        for path in [directory.path(), &directory.path().join("missing")] {
            let error = read_tokens(path).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("cannot read the token file {}: ", path.display())),
                "{error}"
            );
        }
    }
}
