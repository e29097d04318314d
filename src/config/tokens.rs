//! The tokens that clients must send, read from their file.
//!
//! The daemon keeps the SHA-256 of each token. It keeps no token itself, except the one for its
//! peers. In the file, a hash may take the place of a token. Passwords need a slow hash, because
//! they can be guessed. Tokens are random, so a fast hash protects them. A slow hash would cost
//! each new connection the time of a thousand requests.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use hmac_sha256::Hash;
use subtle::{ConditionallySelectable, ConstantTimeEq};
use zeroize::Zeroizing;

use super::identities::IdentitySettings;

/// The longest token, in bytes: a HELLO carries no more.
pub const TOKEN_BYTES_MAX: usize = 512;

/// The prefix of a token that is given as its SHA-256, in hex.
const HASHED: &str = "sha256:";

/// A token with fewer bytes causes a warning, because it can be guessed.
const TOKEN_BYTES_SAFE: usize = 16;

/// The SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// The tokens of a file. There is at least one. They are never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Tokens {
    tokens: Vec<Token>,
    /// The number of tokens that are short enough to be guessed.
    short: usize,
}

/// One token.
#[derive(Clone, PartialEq, Eq)]
struct Token {
    hash: TokenHash,
    /// The name of the token's identity, if it has one.
    identity: Option<Box<str>>,
}

impl Tokens {
    /// Reads the tokens in the bytes of a file. `path` is for messages. A name before a token must
    /// be the name of one of `identities`.
    ///
    /// # Errors
    /// A line for each mistake. No line repeats a token.
    pub(crate) fn parse(
        path: &Path,
        bytes: &[u8],
        identities: &[IdentitySettings],
    ) -> Result<Self, Vec<String>> {
        let mut tokens = Vec::new();
        let mut errors = Vec::new();
        let mut short = 0;
        let mut first_lines = BTreeMap::new();
        for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            let number = index + 1;
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let place = format!("{}:{number}", path.display());
            let (identity, token) = split_name(line);
            errors
                .extend(unknown_name(identity.as_deref(), identities).map(|text| format!("{place}: {text}")));
            match hash_of(token) {
                Ok(hash) => {
                    let (first, owner) =
                        first_lines.entry(hash).or_insert_with(|| (number, identity.clone()));
                    if *owner != identity {
                        let text =
                            format!("found the token of line {first}, allowed: one identity for each token");
                        errors.push(format!("{place}: {text}"));
                    }
                    let is_plain = !token.starts_with(HASHED.as_bytes());
                    short += usize::from(is_plain && token.len() < TOKEN_BYTES_SAFE);
                    tokens.push(Token { hash, identity });
                }
                Err(text) => errors.push(format!("{place}: {text}")),
            }
        }
        if tokens.is_empty() && errors.is_empty() {
            errors.push(format!(
                "the token file {} holds no token, so no client could ever ask for IDs; write one per line",
                path.display()
            ));
        }
        if errors.is_empty() { Ok(Tokens { tokens, short }) } else { Err(errors) }
    }

    /// Returns the hash by which a token is known.
    pub fn hash(token: &[u8]) -> TokenHash {
        Hash::hash(token)
    }

    /// Returns the name of the identity of the token with this hash, if the token has an identity.
    /// The outer `None` means that no token has this hash. The time that the search takes depends
    /// only on the number of tokens, not on which of them matches.
    pub fn identity_of(&self, hash: &TokenHash) -> Option<Option<&str>> {
        // `found` is the index of the last match plus 1, or 0. All tokens are compared.
        let found = self.tokens.iter().zip(1_u64..).fold(0_u64, |found, (token, place)| {
            u64::conditional_select(&found, &place, token.hash.ct_eq(hash))
        });
        let token = self.tokens.get(usize::try_from(found).ok()?.checked_sub(1)?)?;
        Some(token.identity.as_deref())
    }

    /// Returns whether this is one of the tokens.
    pub fn accepts(&self, presented: &[u8]) -> bool {
        self.identity_of(&Tokens::hash(presented)).is_some()
    }

    /// Returns true if a token has this identity.
    pub(super) fn has_identity(&self, name: &str) -> bool {
        self.tokens.iter().any(|token| token.identity.as_deref() == Some(name))
    }

    /// Returns a warning if tokens are short enough to be guessed.
    pub(super) fn warning(&self) -> Option<String> {
        let short = self.short;
        (short > 0).then(|| {
            let tokens = if short == 1 { "1 token has".to_owned() } else { format!("{short} tokens have") };
            format!(
                "{tokens} fewer than {TOKEN_BYTES_SAFE} bytes and can be guessed; `snowbank token` makes one that cannot"
            )
        })
    }
}

/// Returns the first token in a file's bytes that is not given as a hash.
pub(super) fn first_plain(bytes: &[u8]) -> Option<Vec<u8>> {
    let lines = bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let mut tokens = lines.filter(|line| !line.starts_with(b"#")).map(|line| split_name(line).1);
    let plain = tokens.find(|token| !token.is_empty() && !token.starts_with(HASHED.as_bytes()))?;
    Some(plain.to_vec())
}

/// Splits a line into the name before the token, if there is one, and the token. A name ends with a
/// colon and a blank.
fn split_name(line: &[u8]) -> (Option<Box<str>>, &[u8]) {
    let word = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    let name = word.strip_suffix(b":").and_then(|name| str::from_utf8(name).ok());
    match name {
        Some(name) if word.len() < line.len() => (Some(name.into()), line[word.len()..].trim_ascii()),
        _ => (None, line),
    }
}

/// Returns a mistake if no identity has the name before a token.
fn unknown_name(name: Option<&str>, identities: &[IdentitySettings]) -> Option<String> {
    let name = name?;
    if identities.iter().any(|identity| identity.name == name) {
        return None;
    }
    let known: Vec<_> = identities.iter().map(|identity| format!("{:?}", identity.name)).collect();
    let known = if known.is_empty() { "none yet".to_owned() } else { known.join(", ") };
    // The name may be the start of a secret, so the message does not repeat it.
    Some(format!(
        "found a name before the token that no [[identities]] has, allowed: TOKEN alone, or NAME: TOKEN with one of these \
         names: {known}"
    ))
}

/// The reason why a line has no token. It repeats no byte of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum WrongToken {
    /// The bytes after [`HASHED`] are not the digits of a hash.
    #[error("found {HASHED} and {0} bytes, allowed: the 64 hex digits of a token's SHA-256")]
    Hash(usize),
    /// The token has this many bytes.
    #[error("found a token of {0} bytes, allowed: 1 to {TOKEN_BYTES_MAX}")]
    Size(usize),
}

/// Returns the hash of a token, or the hash that the line has in place of the token.
fn hash_of(token: &[u8]) -> Result<TokenHash, WrongToken> {
    if let Some(hex) = token.strip_prefix(HASHED.as_bytes()) {
        return parse_hex(hex).ok_or(WrongToken::Hash(hex.len()));
    }
    if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
        return Err(WrongToken::Size(token.len()));
    }
    Ok(Tokens::hash(token))
}

fn parse_hex(hex: &[u8]) -> Option<TokenHash> {
    let mut hash = [0; 32];
    if hex.len() != 2 * hash.len() {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(hex.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    Some(hash)
}

/// Returns the line of a token file that has the hash of this token.
pub fn hashed_line(identity: Option<&str>, token: &[u8]) -> String {
    let hex: String = Hash::hash(token).iter().map(|byte| format!("{byte:02x}")).collect();
    let name = identity.map_or_else(String::new, |name| format!("{name}: "));
    format!("{name}{HASHED}{hex}")
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({} redacted)", self.tokens.len())
    }
}

/// Reads a token file: one token per line, without the blanks around it. Ignores empty lines and
/// lines that start with `#`.
///
/// # Errors
/// A line for each reason: the file cannot be read, is too large, or has a mistake as in
/// [`Tokens::parse`]. No line repeats a token.
pub(super) fn read_tokens(path: &Path, identities: &[IdentitySettings]) -> Result<Tokens, Vec<String>> {
    let bytes = super::read_bounded(path)
        .map_err(|error| vec![format!("cannot read the token file {}: {error}", path.display())])?;
    let bytes = Zeroizing::new(bytes);
    Tokens::parse(path, &bytes, identities)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Result<Tokens, Vec<String>> {
        let named = |name: &str| IdentitySettings { name: name.into(), ..IdentitySettings::default() };
        Tokens::parse(Path::new("tokens"), text, &["billing", "orders"].map(named))
    }

    fn errors(text: &[u8]) -> Vec<String> {
        read(text).unwrap_err()
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
    fn a_name_with_a_colon_before_a_token_is_its_identity() {
        let tokens = read(b"billing: first\norders:\tsecond token \nuser:password\nlast:\n").unwrap();
        let name_of =
            |token: &[u8]| tokens.identity_of(&Tokens::hash(token)).map(|name| name.map(str::to_owned));
        assert_eq!(name_of(b"first"), Some(Some("billing".to_owned())));
        assert_eq!(name_of(b"second token"), Some(Some("orders".to_owned())));
        // A colon with no blank behind it belongs to the token.
        assert_eq!((name_of(b"user:password"), name_of(b"last:")), (Some(None), Some(None)));
        assert_eq!((name_of(b"billing: first"), name_of(b"password")), (None, None));
    }

    #[test]
    fn peers_get_the_first_token_that_is_no_hash() {
        let hashed = hashed_line(None, b"other");
        let file = format!("# for the fleet\n\n{hashed}\nfleet: {hashed}\n daemons:  the token \nlater\n");
        assert_eq!(first_plain(file.as_bytes()).as_deref(), Some(&b"the token"[..]));
        assert_eq!(first_plain(b"\xff\xfe\n").as_deref(), Some(&b"\xff\xfe"[..]));
        assert_eq!(first_plain(hashed.as_bytes()), None);
    }

    #[test]
    fn a_hashed_line_stands_for_its_token_but_is_no_token() {
        let line = hashed_line(Some("billing"), b"let me in");
        // As `printf 'let me in' | sha256sum` prints it.
        let hex = "992db5e2595725ef68eb5066e014da8c7f6baca0afa96f1021b56b66782133f2";
        assert_eq!(line, format!("billing: {HASHED}{hex}"));
        let other = hashed_line(None, b"other").to_uppercase().replace("SHA", "sha");
        let tokens = read(format!("{line}\n{other}\n").as_bytes()).unwrap();
        assert_eq!(tokens.identity_of(&Tokens::hash(b"let me in")), Some(Some("billing")));
        assert!(tokens.accepts(b"other"));
        let hashed = line.strip_prefix("billing: ").unwrap();
        for token in [&*line, hashed, hashed.strip_prefix(HASHED).unwrap()] {
            assert!(!tokens.accepts(token.as_bytes()), "{token}");
        }
        let found = errors(b"sha256:\nsha256:12\nbilling: sha256:zz\n");
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[1].ends_with(
            "tokens:2: found sha256: and 2 bytes, allowed: the 64 hex digits of a token's SHA-256"
        ));
    }

    #[test]
    fn a_token_belongs_to_one_identity() {
        let hashed = hashed_line(None, b"s3cret");
        let text = format!("billing: s3cret\nbilling: {hashed}\norders: s3cret\n{hashed}\n");
        let found = errors(text.as_bytes());
        for (found, line) in found.iter().zip([3, 4]) {
            let end =
                format!("tokens:{line}: found the token of line 1, allowed: one identity for each token");
            assert!(found.ends_with(&end), "{found}");
        }
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(!format!("{found:?}").contains("s3cret"));
    }

    #[test]
    fn a_name_that_no_identity_has_is_refused_but_not_repeated() {
        let found = errors(b"billing: a\nhush: b\nc\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("tokens:2: found a name") && found[0].ends_with("\"billing\", \"orders\""),
            "{found:?}"
        );
        assert!(!found[0].contains("hush"));
    }

    #[test]
    fn short_tokens_are_warned_of() {
        let of = |text: &[u8]| read(text).unwrap().warning();
        assert_eq!(of(b"0123456789abcdef\n"), None);
        assert_eq!(of(hashed_line(None, b"x").as_bytes()), None);
        assert!(of(b"0123456789abcde\nx\n").unwrap().starts_with("2 tokens have fewer than 16 bytes"));
    }

    #[test]
    fn a_token_is_never_printed() {
        let tokens = read(b"hush\nsecret\n").unwrap();
        assert_eq!(format!("{tokens:?}"), "Tokens(2 redacted)");
        let long = "s".repeat(TOKEN_BYTES_MAX + 1);
        let error = read(format!("ok\n{long}\n").as_bytes()).unwrap_err();
        assert!(error[0].ends_with("tokens:2: found a token of 513 bytes, allowed: 1 to 512"));
        assert!(!error[0].contains(&long[..8]));
        let longest = &long.as_bytes()[1..];
        assert!(read(longest).unwrap().accepts(longest));
    }

    #[test]
    fn files_without_tokens_are_refused() {
        assert!(errors(b"# nothing\n\n").remove(0).contains("holds no token"));
        let directory = tempfile::tempdir().unwrap();
        let large = directory.path().join("large");
        std::fs::write(&large, vec![b'\n'; (1 << 20) + 1]).unwrap();
        for path in [directory.path(), &directory.path().join("missing"), &large] {
            let error = read_tokens(path, &[]).unwrap_err().remove(0);
            assert!(
                error.starts_with(&format!("cannot read the token file {}: ", path.display())),
                "{error}"
            );
        }
    }
}
