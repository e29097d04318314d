//! The head of a request, parsed by a library.

use httparse::{Error, Header, Request, Status};

use crate::web::{AcceptedType, BadHeader, HEAD_BYTES_MAX, HEADERS_MAX, SiteHeaders};

/// The parts of a request's head that decide its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    /// The query, still encoded. Empty, if there is none.
    pub(crate) query: &'a str,
    /// How much the client wants JSON, and how much plain text.
    pub(crate) json: AcceptedType,
    pub(crate) text: AcceptedType,
    /// The headers that show where the request comes from, and the client's name for the daemon.
    pub(crate) site: SiteHeaders<'a>,
    /// The token of `Authorization: Bearer`.
    pub(crate) token: Option<&'a [u8]>,
    /// The number of Authorization headers.
    authorizations: usize,
    /// The body that the request has or may have, as a refusal names it.
    pub(crate) body: Option<&'static str>,
    /// True if the length of the body was sent.
    has_length: bool,
    /// True if the body comes in chunks.
    is_chunked: bool,
    /// True if the client may wait for leave to send its body in chunks.
    pub(crate) expects: bool,
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
#[expect(clippy::large_enum_variant, reason = "a head lives for one step, on the stack")]
pub(crate) enum Parsed<'a> {
    /// The head is not complete yet.
    Incomplete,
    /// A head of this size in bytes.
    Head(Head<'a>, usize),
    /// The body has not arrived, and the client may wait for leave to send it (`Expect`).
    Expects,
    /// The head is too long, or has too many headers.
    TooLong,
    /// The bytes are no request of HTTP/1, for this reason.
    Bad(Error),
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
        Err(error) => return Parsed::Bad(error),
    };
    let Some(method) = request.method else { return Parsed::Bad(Error::Token) };
    let Some(target) = request.path else { return Parsed::Bad(Error::Token) };
    let is_current = request.version == Some(1);
    let mut head = Head::new(method, is_current);
    for header in request.headers.iter() {
        head.read(header);
    }
    head.read_target(target);
    let size = match head.behind_chunks(bytes, size) {
        Some(size) => size,
        None if bytes.len() >= HEAD_BYTES_MAX => {
            head.body = Some("a body in chunks");
            size
        }
        None if head.expects => return Parsed::Expects,
        None => return Parsed::Incomplete,
    };
    // Empty lines behind a request count as a part of the request. Otherwise they would count as
    // the start of another request, and delay a stop.
    let size = size + bytes[size..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    head.has_next = bytes.len() > size;
    Parsed::Head(head, size)
}

impl<'a> Head<'a> {
    fn new(method: &'a str, is_current: bool) -> Self {
        Head {
            method,
            path: "",
            query: "",
            json: AcceptedType::new("application/json"),
            text: AcceptedType::new("text/plain"),
            site: SiteHeaders::default(),
            token: None,
            authorizations: 0,
            body: None,
            has_length: false,
            is_chunked: false,
            expects: false,
            takes_chunks: is_current,
            keeps_connection: is_current,
            has_next: false,
            says_close: false,
        }
    }

    /// Returns the size of the request with its body, if the body comes in chunks and is empty. Any
    /// other body is not read. Returns `None` if the end of the body has not arrived.
    fn behind_chunks(&mut self, bytes: &[u8], size: usize) -> Option<usize> {
        // Two lengths, or chunks in an old version, are how requests are smuggled through a proxy.
        if self.is_chunked && self.has_length {
            self.body = Some("a Content-Length and a Transfer-Encoding");
        } else if self.is_chunked && !self.takes_chunks {
            self.body = Some("a Transfer-Encoding in HTTP/1.0");
        }
        let may_be_empty = self.is_chunked && self.body.is_none();
        self.expects &= may_be_empty;
        if !may_be_empty {
            return Some(size);
        }
        match empty_chunks(&bytes[size..bytes.len().min(HEAD_BYTES_MAX).max(size)]) {
            Chunks::Empty(body) => Some(size + body),
            Chunks::Incomplete => None,
            Chunks::NotEmpty => {
                self.body = Some("a body in chunks");
                Some(size)
            }
        }
    }

    fn read(&mut self, header: &Header<'a>) {
        if header.name.eq_ignore_ascii_case("accept") {
            self.json.read(header.value);
            self.text.read(header.value);
        } else if header.name.eq_ignore_ascii_case("authorization") {
            self.token = bearer_of(header.value);
            self.authorizations += 1;
        } else if header.name.eq_ignore_ascii_case("content-length") {
            // A second length, or one that is no number, means a body of unknown size.
            if self.has_length {
                self.body = Some("two Content-Length headers");
            } else if header.value.is_empty() || !header.value.iter().all(u8::is_ascii_digit) {
                self.body = Some("a Content-Length that is no number");
            } else if header.value.iter().any(|&byte| byte != b'0') {
                self.body = Some("a body");
            }
            self.has_length = true;
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            // Any other coding, or a second header, means a body of unknown form.
            if self.is_chunked {
                self.body = Some("two Transfer-Encoding headers");
            } else if !header.value.eq_ignore_ascii_case(b"chunked") {
                self.body = Some("a Transfer-Encoding other than chunked");
            }
            self.is_chunked = true;
        } else if header.name.eq_ignore_ascii_case("expect") {
            self.expects = header.value.eq_ignore_ascii_case(b"100-continue");
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
    pub(crate) fn check_authorization(&self) -> Result<(), BadHeader> {
        let count = self.authorizations;
        if count <= 1 { Ok(()) } else { Err(BadHeader::Count { name: "Authorization", count }) }
    }

    /// Splits the target of the request. A target in the form for proxies begins with the scheme
    /// and the host.
    fn read_target(&mut self, target: &'a str) {
        let mut target = target;
        let scheme = ["http://", "https://"].into_iter().find(|scheme| {
            target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        });
        if let Some(rest) = scheme.map(|scheme| &target[scheme.len()..]) {
            let (host, _) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            self.site.read_target(host.as_bytes());
            target = &rest[host.len()..];
        }
        (self.path, self.query) = target.split_once('?').unwrap_or((target, ""));
    }
}

/// A body in chunks.
enum Chunks {
    /// The body has no bytes. It ends after this many bytes.
    Empty(usize),
    Incomplete,
    NotEmpty,
}

/// Parses a body that has only the last chunk, perhaps with extensions and trailers.
fn empty_chunks(bytes: &[u8]) -> Chunks {
    let digits = bytes.iter().take_while(|&&byte| byte == b'0').count();
    let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else {
        let may_be_empty = bytes.is_empty() || digits > 0;
        return if may_be_empty { Chunks::Incomplete } else { Chunks::NotEmpty };
    };
    let extensions = bytes[digits.min(end)..end].trim_ascii_start();
    let is_last = digits > 0 && (extensions.is_empty() || extensions.starts_with(b";"));
    if !is_last || extensions.iter().any(|&byte| byte.is_ascii_control() && byte != b'\t') {
        return Chunks::NotEmpty;
    }
    let mut trailers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    match httparse::parse_headers(&bytes[end + 2..], &mut trailers) {
        Ok(Status::Complete((size, _))) => Chunks::Empty(end + 2 + size),
        Ok(Status::Partial) => Chunks::Incomplete,
        Err(_) => Chunks::NotEmpty,
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
            ("HTTPS://[::1]:1/id", "[::1]:1", "/id", ""),
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
    fn an_empty_body_in_chunks_is_no_body() {
        let parsed = |headers: &str, body: &str| {
            let text = format!("GET / HTTP/1.1\r\n{headers}\r\n{body}");
            match parse(text.as_bytes()) {
                Parsed::Head(head, size) if size == text.len() || head.body.is_some() => {
                    Some(head.body.is_some())
                }
                _ => None,
            }
        };
        let chunked = "Transfer-Encoding: Chunked\r\n";
        for body in [
            "0\r\n\r\n",
            "000\r\n\r\n",
            "0;name=\"value\";other\r\n\r\n",
            "0 ;a\r\n\r\n",
            "0\r\ntrailer: 1\r\nother: 2\r\n\r\n",
        ] {
            assert_eq!(parsed(chunked, body), Some(false), "{body:?}");
            for end in 0..body.len() {
                assert_eq!(parsed(chunked, &body[..end]), None, "{:?}", &body[..end]);
            }
        }
        for body in [
            "1\r\na\r\n0\r\n\r\n",
            "0x\r\n\r\n",
            "00a\r\n",
            "\r\n0",
            "0;\x01\r\n\r\n",
            "0\r\nbad trailer\r\n\r\n",
            "-0",
        ] {
            assert_eq!(parsed(chunked, body), Some(true), "{body:?}");
        }
        for headers in [
            "transfer-encoding: gzip, chunked\r\n",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            "transfer-encoding: chunked\r\ncontent-length: 0\r\n",
            "transfer-encoding:\r\n",
        ] {
            assert_eq!(parsed(headers, "0\r\n\r\n"), Some(true), "{headers:?}");
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
