//! The tokens that clients must send, read from their file.
//!
//! The daemon keeps the SHA-256 of each token. It keeps no token itself, except the one for its
//! peers. In the file, a hash may take the place of a token. Passwords need a slow hash, because
//! they can be guessed. Tokens are random, so a fast hash protects them. A slow hash would cost
//! each new connection the time of a thousand requests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use hmac_sha256::Hash;
use subtle::{ConditionallySelectable, ConstantTimeEq};
use zeroize::Zeroizing;

use super::conflict::quoted_list;
use super::identities::IdentitySettings;
use super::warning::{TOKEN_BYTES_SAFE, Warning};

/// The longest token, in bytes: a HELLO carries no more.
pub const TOKEN_BYTES_MAX: usize = 512;

/// The prefix of a token that is given as its SHA-256, in hex.
const HASHED: &str = "sha256:";

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
    /// All mistakes of the file.
    pub(crate) fn parse(
        path: &Path,
        bytes: &[u8],
        identities: &[IdentitySettings],
    ) -> Result<Self, Vec<TokenMistake>> {
        let mut tokens = Vec::new();
        let mut mistakes = Vec::new();
        let mut short = 0;
        let mut first_lines = BTreeMap::new();
        for (index, line) in lines(bytes).enumerate() {
            let number = index + 1;
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let mut refuse = |wrong| {
                mistakes.push(TokenMistake::Line { path: path.to_owned(), number, wrong });
            };
            let (identity, token) = split_name(line);
            let has_name = identities.iter().any(|identity| has_name_without_blank(token, &identity.name));
            if has_name && hex_of(token).is_none() {
                refuse(WrongLine::NoBlank);
            }
            if let Some(name) = &identity
                && !identities.iter().any(|identity| identity.name == **name)
            {
                refuse(WrongLine::UnknownName(
                    identities.iter().map(|identity| identity.name.clone()).collect(),
                ));
            }
            match hash_of(token) {
                Ok(hash) => {
                    let (first, owner) =
                        first_lines.entry(hash).or_insert_with(|| (number, identity.clone()));
                    if *owner != identity {
                        refuse(WrongLine::OtherIdentity(*first));
                    }
                    let is_plain = hex_of(token).is_none();
                    short += usize::from(is_plain && token.len() < TOKEN_BYTES_SAFE);
                    tokens.push(Token { hash, identity });
                }
                Err(wrong) => refuse(wrong),
            }
        }
        if tokens.is_empty() && mistakes.is_empty() {
            mistakes.push(TokenMistake::NoToken(path.to_owned()));
        }
        if mistakes.is_empty() { Ok(Tokens { tokens, short }) } else { Err(mistakes) }
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
    pub(super) fn warning(&self) -> Option<Warning> {
        (self.short > 0).then_some(Warning::ShortTokens(self.short))
    }
}

/// Returns the first token in a file's bytes that is not given as a hash.
pub(super) fn first_plain(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut tokens = lines(bytes).filter(|line| !line.starts_with(b"#")).map(|line| split_name(line).1);
    let plain = tokens.find(|token| !token.is_empty() && hex_of(token).is_none())?;
    Some(plain.to_vec())
}

/// Returns whether a token begins with this name and a colon.
fn has_name_without_blank(token: &[u8], name: &str) -> bool {
    token.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b":"))
}

/// Splits a line into the name before the token, if there is one, and the token. A name ends with a
/// colon. A blank follows, or the token is missing.
fn split_name(line: &[u8]) -> (Option<Box<str>>, &[u8]) {
    let word = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    let word = if word.eq_ignore_ascii_case(HASHED.as_bytes()) { b"" } else { word };
    let name = word.strip_suffix(b":").and_then(|name| str::from_utf8(name).ok());
    match name {
        Some(name) => (Some(name.into()), line[word.len()..].trim_ascii()),
        _ => (None, line),
    }
}

/// A mistake in a token file. It repeats no token, and no name that may be the start of a secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenMistake {
    #[error("cannot read the token file {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("the token file {} holds no token, so no client could ever ask for IDs; write one per line", .0.display())]
    NoToken(PathBuf),
    #[error("{}:{number}: {wrong}", path.display())]
    Line { path: PathBuf, number: usize, wrong: WrongLine },
}

/// The reason why a line of a token file is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WrongLine {
    /// No identity has the name before the token. These are the names of all identities.
    #[error(
        "found a name before the token that no [[identities]] has, allowed: TOKEN alone, or NAME: TOKEN with one of \
         these names: {}",
        if .0.is_empty() { String::from("none yet") } else { quoted_list(.0) }
    )]
    UnknownName(Vec<String>),
    /// The token begins with the name of an identity and a colon.
    #[error(
        "found the name of an identity and a colon without a blank behind it; write NAME: TOKEN, or, if both are \
         the token, its sha256: line"
    )]
    NoBlank,
    /// The token stands in this earlier line, with another identity or with none.
    #[error("found the token of line {0}, allowed: one identity for each token")]
    OtherIdentity(usize),
    /// The bytes after [`HASHED`] are not the digits of a hash.
    #[error("found {HASHED} and {0} bytes, allowed: the 64 hex digits of a token's SHA-256")]
    Hash(usize),
    /// The token has a control character, such as each second byte of UTF-16.
    #[error(
        "found a control character in a token, allowed: text in UTF-8; if it is a part of the token, write its sha256: \
         line"
    )]
    Control,
    /// The token has this many bytes.
    #[error("found a token of {0} bytes, allowed: 1 to {TOKEN_BYTES_MAX}")]
    Size(usize),
}

/// Returns what follows [`HASHED`] if a line has a hash in place of a token.
fn hex_of(token: &[u8]) -> Option<&[u8]> {
    let (word, hex) = token.split_at_checked(HASHED.len())?;
    word.eq_ignore_ascii_case(HASHED.as_bytes()).then_some(hex)
}

/// Returns the lines of a token file without blanks at their ends.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    // Some editors begin a file with a mark of its encoding.
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii)
}

/// Returns the hash of a token, or the hash that the line has in place of the token.
fn hash_of(token: &[u8]) -> Result<TokenHash, WrongLine> {
    if let Some(hex) = hex_of(token) {
        let hash = parse_hex(hex).ok_or(WrongLine::Hash(hex.len()))?;
        // An empty file of a token has this hash, and everybody can send an empty password.
        return if hash == Tokens::hash(b"") { Err(WrongLine::Size(0)) } else { Ok(hash) };
    }
    if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
        return Err(WrongLine::Size(token.len()));
    }
    if token.iter().any(u8::is_ascii_control) {
        return Err(WrongLine::Control);
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
/// The file cannot be read or is too large, or has the mistakes of [`Tokens::parse`].
pub(super) fn read_tokens(path: &Path, identities: &[IdentitySettings]) -> Result<Tokens, Vec<TokenMistake>> {
    let bytes = super::read_bounded(path)
        .map_err(|error| vec![TokenMistake::Unreadable { path: path.to_owned(), error }])?;
    let bytes = Zeroizing::new(bytes);
    Tokens::parse(path, &bytes, identities)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Result<Tokens, Vec<TokenMistake>> {
        let named = |name: &str| IdentitySettings { name: name.into(), ..IdentitySettings::default() };
        Tokens::parse(Path::new("tokens"), text, &["billing", "orders"].map(named))
    }

    /// Returns the wrong lines, each with its number.
    fn wrong_lines(text: &[u8]) -> Vec<(usize, WrongLine)> {
        let wrong = |mistake: TokenMistake| match mistake {
            TokenMistake::Line { number, wrong, .. } => (number, wrong),
            other => panic!("{other}"),
        };
        read(text).unwrap_err().into_iter().map(wrong).collect()
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
        let tokens = read(b"billing: first\norders:\tsecond token \nuser:password\n").unwrap();
        let name_of =
            |token: &[u8]| tokens.identity_of(&Tokens::hash(token)).map(|name| name.map(str::to_owned));
        assert_eq!(name_of(b"first"), Some(Some("billing".to_owned())));
        assert_eq!(name_of(b"second token"), Some(Some("orders".to_owned())));
        // A colon with no blank behind it belongs to the token.
        assert_eq!(name_of(b"user:password"), Some(None));
        assert_eq!((name_of(b"billing: first"), name_of(b"password")), (None, None));
        // A script wrote these, with an empty variable or without the blank.
        let found = wrong_lines(b"billing: \nlast:\nbilling:first\n");
        let names = WrongLine::UnknownName(vec!["billing".into(), "orders".into()]);
        let (empty, glued) = (WrongLine::Size(0), WrongLine::NoBlank);
        assert_eq!(found, [(1, empty.clone()), (2, names), (2, empty), (3, glued)]);
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
        let other = hashed_line(None, b"other").to_uppercase();
        let tokens = read(format!("\u{feff}{line}\n{other}\n").as_bytes()).unwrap();
        assert_eq!(tokens.identity_of(&Tokens::hash(b"let me in")), Some(Some("billing")));
        assert!(tokens.accepts(b"other"));
        let hashed = line.strip_prefix("billing: ").unwrap();
        for token in [&*line, hashed, hashed.strip_prefix(HASHED).unwrap()] {
            assert!(!tokens.accepts(token.as_bytes()), "{token}");
        }
        let found = wrong_lines(b"sha256:\nsha256:12\nbilling: sha256:zz\n");
        assert_eq!(found, [(1, WrongLine::Hash(0)), (2, WrongLine::Hash(2)), (3, WrongLine::Hash(2))]);
        assert_eq!(wrong_lines(hashed_line(None, b"").as_bytes()), [(1, WrongLine::Size(0))]);
    }

    #[test]
    fn a_token_has_no_control_characters() {
        let utf_16: Vec<u8> = "\u{feff}a token".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for text in [&utf_16[..], b"first\rsecond", b"zero\0", b"a\ttab"] {
            assert_eq!(wrong_lines(text), [(1, WrongLine::Control)], "{text:?}");
        }
    }

    #[test]
    fn a_token_belongs_to_one_identity() {
        let hashed = hashed_line(None, b"s3cret");
        let text = format!("billing: s3cret\nbilling: {hashed}\norders: s3cret\n{hashed}\n");
        let found = wrong_lines(text.as_bytes());
        assert_eq!(found, [(3, WrongLine::OtherIdentity(1)), (4, WrongLine::OtherIdentity(1))]);
    }

    #[test]
    fn a_name_that_no_identity_has_is_refused_but_not_repeated() {
        let found = wrong_lines(b"billing: a\nhush: b\nc\n");
        let known = vec![String::from("billing"), String::from("orders")];
        assert_eq!(found, [(2, WrongLine::UnknownName(known))]);
        assert!(found[0].1.to_string().ends_with("with one of these names: \"billing\", \"orders\""));
    }

    #[test]
    fn short_tokens_are_warned_of() {
        let of = |text: &[u8]| read(text).unwrap().warning();
        assert_eq!(of(b"0123456789abcdef\n"), None);
        assert_eq!(of(hashed_line(None, b"x").as_bytes()), None);
        assert_eq!(of(b"0123456789abcde\nx\n"), Some(Warning::ShortTokens(2)));
    }

    #[test]
    fn a_token_is_never_printed() {
        let tokens = read(b"hush\nsecret\n").unwrap();
        assert_eq!(format!("{tokens:?}"), "Tokens(2 redacted)");
        let long = "s".repeat(TOKEN_BYTES_MAX + 1);
        let mistakes = read(format!("ok\n{long}\n").as_bytes()).unwrap_err();
        assert_eq!(mistakes[0].to_string(), "tokens:2: found a token of 513 bytes, allowed: 1 to 512");
        let longest = &long.as_bytes()[1..];
        assert!(read(longest).unwrap().accepts(longest));
    }

    #[test]
    fn files_without_tokens_are_refused() {
        assert!(matches!(&read(b"# nothing\n\n").unwrap_err()[..], [TokenMistake::NoToken(_)]));
        let directory = tempfile::tempdir().unwrap();
        let large = directory.path().join("large");
        std::fs::write(&large, vec![b'\n'; (1 << 20) + 1]).unwrap();
        for path in [directory.path(), &directory.path().join("missing"), &large] {
            let mistakes = read_tokens(path, &[]).unwrap_err();
            assert!(matches!(&mistakes[..], [TokenMistake::Unreadable { .. }]), "{mistakes:?}");
        }
    }
}
