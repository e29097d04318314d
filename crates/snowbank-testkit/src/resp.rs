//! A client of Redis' protocol that compares bytes.

use std::io::Read;

pub use super::frontend::FrontEndClient as Client;

impl Client {
    /// Reads as many bytes as `expected` has, and compares them.
    pub fn expect(&mut self, expected: &str) {
        let mut found = vec![0; expected.len()];
        let mut at = 0;
        while at < found.len() {
            match self.0.read(&mut found[at..]) {
                Ok(0) => break,
                Ok(size) => at += size,
                Err(error) => {
                    panic!("{error}, after {:?} of {expected:?}", String::from_utf8_lossy(&found[..at]))
                }
            }
            if found[..at] != expected.as_bytes()[..at] {
                break;
            }
        }
        assert_eq!(String::from_utf8_lossy(&found[..at]), expected);
    }

    /// Sends a request and compares the reply.
    pub fn asks(&mut self, request: &str, reply: &str) {
        self.send(request);
        self.expect(reply);
    }

    /// Reads an integer reply.
    pub fn integer(&mut self) -> u64 {
        let line = self.line();
        line.strip_prefix(':')
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("expected an integer, found {line:?}"))
    }

    /// Reads an array of strings that are numbers.
    pub fn list(&mut self) -> Vec<u64> {
        let line = self.line();
        let count = line.strip_prefix('*').unwrap_or_else(|| panic!("expected an array, found {line:?}"));
        let count = count.parse().expect("a count");
        (0..count).map(|_| self.bulk().parse().expect("a number")).collect()
    }

    /// Reads a bulk string of one line.
    pub fn bulk(&mut self) -> String {
        let line = self.line();
        let size: usize = line.strip_prefix('$').expect("a bulk string").parse().expect("a size");
        let text = self.line();
        assert_eq!(text.len(), size);
        text
    }

    /// Reads a bulk string of several lines, with its line end.
    pub fn text(&mut self) -> String {
        let line = self.line();
        let size: usize = line.strip_prefix('$').expect("a bulk string").parse().expect("a size");
        String::from_utf8(self.read(size + 2)).expect("UTF-8")
    }

    /// Reads lines until `is_found` returns true for a line. Returns all these lines, including the
    /// last one.
    pub fn lines_until(&mut self, is_found: impl Fn(&str) -> bool) -> Vec<String> {
        let mut lines = vec![self.line()];
        while !lines.last().is_some_and(|line| is_found(line)) {
            lines.push(self.line());
        }
        lines
    }

    /// Reads to the end of the connection, and checks that this text came.
    pub fn is_closed_after(&mut self, text: &str) {
        let rest = self.rest();
        let rest = String::from_utf8_lossy(&rest);
        assert!(rest.contains(text), "{rest:?}");
    }

    /// Checks that the connection ends without further bytes.
    pub fn is_closed(&mut self) {
        assert_eq!(String::from_utf8_lossy(&self.rest()), "");
    }
}

/// Returns a request as an array of bulk strings.
pub fn array(words: &[&str]) -> String {
    let mut out = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| out += &format!("${}\r\n{word}\r\n", word.len()));
    out
}
