//! A client that asks and waits, for figures of single requests.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use snowbank_client::protocol::reply::{self, Reply};
use snowbank_client::protocol::{ErrorCode, Parsed, Wait};

use crate::load;

/// One connection that has one request in flight.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    input: Vec<u8>,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// This many IDs.
    Ids(u64),
    /// An error.
    Refused(Option<ErrorCode>),
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, input: Vec::new() })
    }

    /// Asks for this many IDs and waits for all of them.
    pub(crate) fn ask(&mut self, count: u32, wait: Wait) -> io::Result<Answer> {
        self.stream.write_all(&load::next(count, wait))?;
        let mut ids = 0;
        loop {
            match reply::parse(&self.input) {
                Parsed::Frame { content: Ok(Reply::Runs { runs, more }), consumed, .. } => {
                    ids += runs.iter().map(|run| u64::from(run.count)).sum::<u64>();
                    self.input.drain(..consumed);
                    if !more {
                        return Ok(Answer::Ids(ids));
                    }
                }
                Parsed::Frame { content: Ok(Reply::Error(error)), consumed, .. } => {
                    let code = ErrorCode::from_u16(error.code);
                    self.input.drain(..consumed);
                    return Ok(Answer::Refused(code));
                }
                Parsed::Incomplete => {
                    let mut bytes = [0; 4_096];
                    match self.stream.read(&mut bytes)? {
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        size => self.input.extend_from_slice(&bytes[..size]),
                    }
                }
                strange => return Err(io::Error::other(format!("not a reply to NEXT: {strange:?}"))),
            }
        }
    }

    /// Asks for this many IDs, all of which must come.
    pub(crate) fn take(&mut self, count: u32) -> io::Result<()> {
        match self.ask(count, Wait::DEFAULT)? {
            Answer::Ids(ids) if ids == u64::from(count) => Ok(()),
            answer => Err(io::Error::other(format!("asked for {count} IDs: {answer:?}"))),
        }
    }
}
