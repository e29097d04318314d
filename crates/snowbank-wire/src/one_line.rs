//! Makes text of other programs and of configurations safe to print.

use std::borrow::Cow;

/// Returns text of another program as one line that is safe to print. A space replaces each
/// character that ends a line, moves a terminal's cursor or changes the reading direction.
#[must_use]
pub fn one_line(text: &str) -> String {
    text.replace(is_unsafe, " ")
}

/// Returns a text without the user and the password that an address may have before an `@`, as in
/// `http://user:password@host`. What follows a `?` is left out, too, and so is a key in PEM, which may
/// stand in place of its file's path. Messages repeat addresses and paths that are wrong. The path of
/// a Unix socket has none of these.
#[must_use]
pub fn hide_password(text: &str) -> Cow<'_, str> {
    if text.starts_with("unix:") {
        return Cow::Borrowed(text);
    }
    if let Some(begin) = text.find("-----BEGIN ") {
        return Cow::Owned(format!("{}…", &text[..begin]));
    }
    let scheme = text.find("://");
    let start = scheme.map_or(0, |scheme| scheme + "://".len());
    if let Some(at) = text[start..].rfind('@')
        && (scheme.is_some() || text[..at].contains(':'))
    {
        return Cow::Owned(format!("{}…{}", &text[..start], hide_password(&text[start + at..])));
    }
    match text.find('?') {
        Some(query) => Cow::Owned(format!("{}?…", &text[..query])),
        None => Cow::Borrowed(text),
    }
}

/// Returns whether a character moves a cursor, ends a line or changes the reading direction.
fn is_unsafe(shown: char) -> bool {
    shown.is_control()
        || matches!(shown, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_an_address_is_hidden() {
        for (text, shown) in [
            ("http://root:s3cret@etcd:2379", "http://…@etcd:2379"),
            ("http://root:p@ss:w@rd@[::1]:2379/", "http://…@[::1]:2379/"),
            ("root:s3cret@ids-1:7660", "…@ids-1:7660"),
            ("tls:root:s3cret@ids-1:7660", "…@ids-1:7660"),
            ("redis://s3cret@host", "redis://…@host"),
            ("http://etcd:2379?password=s3cret", "http://etcd:2379?…"),
            ("http://root:s3cret@etcd:2379?p=s3cret", "http://…@etcd:2379?…"),
            ("http://etcd:2379", "http://etcd:2379"),
            ("redis@host", "redis@host"),
            ("-----BEGIN PRIVATE KEY-----\nMC4CAQ==\n-----END PRIVATE KEY-----\n", "…"),
            ("unix:@name", "unix:@name"),
            ("unix:/run/a?b@c", "unix:/run/a?b@c"),
            ("", ""),
        ] {
            assert_eq!(hide_password(text), shown);
        }
    }

    #[test]
    fn unsafe_characters_become_blanks() {
        assert_eq!(one_line("a\r\nb\u{1b}[2Jc\u{202e}d\u{2028}é\u{61c} 🙂"), "a  b [2Jc d é  🙂");
    }
}
