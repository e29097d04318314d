//! The token that a target asks for.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use snowbank_wire::MAX_TOKEN_SIZE;

use crate::failure::Failure;

/// A secret of 1 to [`MAX_TOKEN_SIZE`] bytes: never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(Box<[u8]>);

impl Token {
    /// Reads the token in a file. Newlines at the end of the file do not count.
    ///
    /// # Errors
    /// [`Failure`] if the file cannot be read or does not hold one token. The line quotes no byte of
    /// the file.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display();
        let mut token = Vec::new();
        // If the path names a device, the read must not fill the memory.
        let limit = 2 * MAX_TOKEN_SIZE as u64;
        let read = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut token));
        read.map_err(|reason| Failure::usage(format_args!("cannot read the token file {name}: {reason}")))?;
        while token.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            token.pop();
        }
        if token.contains(&b'\n') {
            return Err(Failure::usage(format_args!(
                "found several lines in the token file {name}, allowed: one token, as a client sends it"
            )));
        }
        if !(1..=MAX_TOKEN_SIZE).contains(&token.len()) {
            let size = token.len();
            return Err(Failure::usage(format_args!(
                "found a token of {size} bytes in {name}, allowed: 1 to {MAX_TOKEN_SIZE}"
            )));
        }
        Ok(Self(token.into()))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Token, Failure> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), bytes).expect("written");
        Token::read(file.path())
    }

    #[test]
    fn a_token_is_read_from_a_file_and_never_printed() {
        let token = read(b"s3cret\r\n").expect("a token");
        assert_eq!((token.bytes(), format!("{token:?}")), (&b"s3cret"[..], "(secret)".to_owned()));
        assert!(read(&[b'x'; MAX_TOKEN_SIZE]).is_ok_and(|token| token.bytes().len() == MAX_TOKEN_SIZE));
        let too_long = [b'x'; MAX_TOKEN_SIZE + 1];
        for (wrong, reason) in
            [(&b"\n"[..], "0 bytes"), (b"one\ntwo\n", "several lines"), (&too_long, "513 bytes")]
        {
            let refused = read(wrong).expect_err("no token").reason;
            assert!(refused.contains(reason) && !refused.contains("two"), "{refused}");
        }
    }
}
