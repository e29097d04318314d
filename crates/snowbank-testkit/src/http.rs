//! A small HTTP/1.1 client for the tests. A connection to the admin listener carries one request. A
//! connection to the front end stays open for more requests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use super::DEADLINE;
use super::address::Address;
use super::daemon::Daemon;
use super::frontend::FrontEndClient;

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub code: u16,
    /// The headers. Their names are in lower case.
    headers: Vec<(String, String)>,
    /// Everything after the headers.
    pub body: String,
}

impl Answer {
    /// Returns the value of a header whose name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns whether the answer has this header: `name: value`, in lower case.
    pub fn has(&self, header: &str) -> bool {
        let same = |(name, value): &(String, String)| format!("{name}: {}", value.to_lowercase()) == header;
        self.headers.iter().any(same)
    }

    /// Returns all numbers in the body.
    pub fn ids(&self) -> Vec<u64> {
        self.body.split(|byte: char| !byte.is_ascii_digit()).filter_map(|text| text.parse().ok()).collect()
    }

    /// Parses the body.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }
}

/// Sends these bytes and reads until the connection closes.
pub fn exchange(address: &Address, request: &[u8]) -> Vec<u8> {
    fn talk(mut stream: impl Read + Write, request: &[u8]) -> Vec<u8> {
        stream.write_all(request).expect("the request is sent");
        let mut answer = Vec::new();
        // The daemon may also end the connection by a reset after its answer.
        let _ = stream.read_to_end(&mut answer);
        answer
    }
    match address {
        Address::Tls(address) => panic!("tls:{address} is a TLS listener, and this client has no TLS"),
        Address::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, DEADLINE).expect("the admin listener is there");
            stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
            talk(stream, request)
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).expect("the admin listener is there");
            stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
            talk(stream, request)
        }
    }
}

/// Sends a request and reads the answer. Each header in `headers` ends with a line end.
pub fn ask(address: &Address, method: &str, path: &str, headers: &str) -> Answer {
    let host = if headers.to_ascii_lowercase().contains("host:") { "" } else { "Host: localhost\r\n" };
    let request = format!("{method} {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n");
    parse(&exchange(address, request.as_bytes()))
}

impl FrontEndClient {
    /// Sends a GET and reads the answer. Each header in `headers` ends with a line end.
    pub fn get(&mut self, target: &str, headers: &str) -> Answer {
        self.send(format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n"));
        self.answer(true)
    }

    /// Reads an answer and leaves the connection open.
    pub fn answer(&mut self, has_body: bool) -> Answer {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head += &format!("{}\r\n", self.line());
        }
        let mut answer = parse(head.as_bytes());
        if has_body {
            let body = match answer.header("content-length") {
                Some(size) => self.read(size.parse().expect("a size")),
                None => self.chunks(),
            };
            answer.body = String::from_utf8(body).expect("text");
        }
        answer
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let size = usize::from_str_radix(&self.line(), 16).expect("a chunk's size");
            body.extend(self.read(size));
            assert_eq!(self.line(), "");
            if size == 0 {
                return body;
            }
        }
    }
}

/// Gets a path from the admin listener, which is the daemon's last listener.
pub fn get(daemon: &Daemon, path: &str) -> Answer {
    ask(daemon.addresses.last().expect("an admin listener"), "GET", path, "")
}

/// Returns the finding of this name in the daemon's status.
pub fn finding(daemon: &Daemon, name: &str) -> Option<serde_json::Value> {
    let status = get(daemon, "/status").json();
    let findings = status["findings"].as_array().expect("findings");
    findings.iter().find(|finding| finding["name"] == name).cloned()
}

/// Parses an answer whose body is not chunked.
pub fn parse(bytes: &[u8]) -> Answer {
    let text = std::str::from_utf8(bytes).expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP answer: {text:?}"));
    let mut lines = head.lines();
    let code = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("the line is no header: {line:?}"));
        (name.to_ascii_lowercase(), value.trim().to_owned())
    });
    let code = code.unwrap_or_else(|| panic!("no HTTP answer: {text:?}"));
    Answer { code, headers: headers.collect(), body: body.to_owned() }
}

/// Scrapes the daemon's metrics. Returns the value of each sample. The name and the labels are one
/// string, as in the metrics' text.
pub fn scrape(daemon: &Daemon) -> Vec<(String, f64)> {
    let answer = get(daemon, "/metrics");
    assert_eq!(answer.code, 200, "{answer:?}");
    let samples = answer.body.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) =
            line.rsplit_once(' ').unwrap_or_else(|| panic!("the line is no sample: {line:?}"));
        (name.to_owned(), value.parse().unwrap_or_else(|error| panic!("{line:?}: {error}")))
    };
    samples.map(sample).collect()
}

/// Returns the value of the sample with this name and these labels.
#[track_caller]
pub fn sample(samples: &[(String, f64)], name: &str) -> f64 {
    let found = samples.iter().find(|(other, _)| other == name);
    found.unwrap_or_else(|| panic!("expected {name} in {samples:#?}")).1
}
