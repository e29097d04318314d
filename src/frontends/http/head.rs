//! The head of a request, parsed by a library.

use httparse::{Error, Header, Request, Status};

use crate::admin::{HEAD_BYTES_MAX, HEADERS_MAX, SiteHeaders};

/// The parts of a request's head that decide its answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    /// The query, still encoded. Empty, if there is none.
    pub(crate) query: &'a str,
    /// The media types that the client accepts. Empty, if the client does not name any.
    pub(crate) accept: &'a str,
    /// The headers that show where the request comes from, and the client's name for the daemon.
    pub(crate) site: SiteHeaders<'a>,
    /// The token of `Authorization: Bearer`.
    pub(crate) token: Option<&'a [u8]>,
    /// The number of Authorization headers.
    authorizations: usize,
    /// True if the request has a body.
    pub(crate) has_body: bool,
    /// True if the client reads bodies in chunks.
    pub(crate) takes_chunks: bool,
    /// True if the client may send another request on the connection.
    pub(crate) keeps_connection: bool,
    /// True if more bytes were read behind the request.
    pub(crate) has_next: bool,
    /// True if `Connection: close` was read. `close` wins over `keep-alive`.
    says_close: bool,
}

/// The outcome of parsing the head of a request.
pub(crate) enum Parsed<'a> {
    /// The head is not complete yet.
    Incomplete,
    /// A head of this size in bytes.
    Head(Head<'a>, usize),
    /// The head is too long, or has too many headers.
    TooLong,
    /// The bytes are no request of HTTP/1.
    Bad,
}

/// Parses the head at the start of `bytes`.
pub(crate) fn parse(bytes: &[u8]) -> Parsed<'_> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = Request::new(&mut headers);
    let size = match request.parse(&bytes[..bytes.len().min(HEAD_BYTES_MAX)]) {
        Ok(Status::Complete(size)) => size,
        Ok(Status::Partial) if bytes.len() >= HEAD_BYTES_MAX => return Parsed::TooLong,
        Ok(Status::Partial) => return Parsed::Incomplete,
        Err(Error::TooManyHeaders) => return Parsed::TooLong,
        Err(_) => return Parsed::Bad,
    };
    let Some(method) = request.method else { return Parsed::Bad };
    let Some(target) = request.path else { return Parsed::Bad };
    let is_current = request.version == Some(1);
    let mut head = Head { method, takes_chunks: is_current, keeps_connection: is_current, ..Head::default() };
    for header in request.headers.iter() {
        head.read(header);
    }
    head.read_target(target);
    // Empty lines behind a request count as a part of the request. Otherwise they would count as
    // the start of another request, and delay a stop.
    let size = size + bytes[size..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    head.has_next = bytes.len() > size;
    Parsed::Head(head, size)
}

impl<'a> Head<'a> {
    fn read(&mut self, header: &Header<'a>) {
        if header.name.eq_ignore_ascii_case("accept") {
            self.accept = std::str::from_utf8(header.value).unwrap_or_default();
        } else if header.name.eq_ignore_ascii_case("authorization") {
            self.token = bearer_of(header.value);
            self.authorizations += 1;
        } else if header.name.eq_ignore_ascii_case("content-length") {
            // A length that is no number means a body of unknown size.
            self.has_body |= header.value.is_empty() || header.value.iter().any(|&byte| byte != b'0');
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            self.has_body = true;
        } else if header.name.eq_ignore_ascii_case("connection") {
            for option in header.value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                if option.eq_ignore_ascii_case(b"close") {
                    self.keeps_connection = false;
                    self.says_close = true;
                } else if option.eq_ignore_ascii_case(b"keep-alive") && !self.takes_chunks && !self.says_close
                {
                    self.keeps_connection = true;
                }
            }
        } else {
            self.site.read(header.name, header.value);
        }
    }

    /// Checks that there is at most one Authorization header. If there are several, a proxy may use
    /// another of these headers than the daemon.
    ///
    /// # Errors
    /// There are several. The caller must refuse the request with 400.
    pub(crate) fn check_authorization(&self) -> Result<(), String> {
        let count = self.authorizations;
        if count <= 1 { Ok(()) } else { Err(format!("found {count} Authorization headers, allowed: 1")) }
    }

    /// Splits the target of the request. A target in the form for proxies begins with the scheme
    /// and the host.
    fn read_target(&mut self, target: &'a str) {
        let mut target = target;
        if let Some(rest) = target.strip_prefix("http://").or_else(|| target.strip_prefix("https://")) {
            let (host, _) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            self.site.host = Some(host.as_bytes());
            target = &rest[host.len()..];
        }
        (self.path, self.query) = target.split_once('?').unwrap_or((target, ""));
    }
}

/// Returns the token in the value of an Authorization header, if the scheme is Bearer.
fn bearer_of(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head<'_> {
        match parse(text.as_bytes()) {
            Parsed::Head(head, size) if size == text.len() => head,
            _ => panic!("{text:?} does not parse as one whole head"),
        }
    }

    #[test]
    fn a_target_splits_into_host_path_and_query() {
        for (target, host, path, query) in [
            ("/v1/ids?count=3&a=?", "h", "/v1/ids", "count=3&a=?"),
            ("/id", "h", "/id", ""),
            ("http://other:80/id?x", "other:80", "/id", "x"),
            ("http://other", "other", "", ""),
        ] {
            let text = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
            let head = head(&text);
            assert_eq!(
                (head.site.host, head.path, head.query),
                (Some(host.as_bytes()), path, query),
                "{target}"
            );
        }
    }

    #[test]
    fn version_and_connection_header_decide_on_keep_alive() {
        for (version, header, keeps) in [
            ("1.1", "x: y", true),
            ("1.1", "connection: Keep-Alive, Close", false),
            ("1.0", "x: y", false),
            ("1.0", "connection: keep-alive", true),
            ("1.0", "connection: close, keep-alive", false),
        ] {
            let text = format!("GET / HTTP/{version}\r\n{header}\r\n\r\n");
            assert_eq!(head(&text).keeps_connection, keeps, "{text}");
        }
    }
}
