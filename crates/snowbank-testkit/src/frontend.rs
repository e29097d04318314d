//! A client for front ends. It sends bytes and reads bytes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::{DEADLINE, Daemon};

/// A connection to a front end.
pub struct FrontEndClient(pub BufReader<TcpStream>);

impl FrontEndClient {
    /// Connects to a daemon's second listener.
    pub fn of(daemon: &Daemon) -> FrontEndClient {
        FrontEndClient::connect(daemon.addresses[1].tcp())
    }

    /// Connects to a front end.
    pub fn connect(address: SocketAddr) -> FrontEndClient {
        let stream = TcpStream::connect(address).expect("the front end is open");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        FrontEndClient(BufReader::new(stream))
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).expect("sent");
    }

    /// Reads this many bytes.
    pub fn read(&mut self, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        self.0.read_exact(&mut bytes).expect("the reply has this many bytes");
        bytes
    }

    /// Reads a line, and returns its text without the line end.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let size = self.0.read_until(b'\n', &mut line).expect("a line");
            assert!(size > 0, "the daemon closed the connection after {line:?}");
        }
        line.truncate(line.len() - 2);
        String::from_utf8(line).expect("text")
    }

    /// Reads until the daemon closes the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).expect("the daemon closes the connection without a reset");
        rest
    }
}
