//! A session with a ZooKeeper server. Answers come in the order of the requests. No node depends on
//! a session, so a session may end at any time.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::jute::{Reader, Writer};
use crate::NoAnswer;
use crate::endpoint::Endpoint;
use crate::line::{self, ANSWER_BYTES_MAX, Access, Stream, in_time};

/// How long the server keeps the session without a request. The server may choose another time. If
/// the session has ended, the daemon connects again.
const SESSION_MS: i32 = 30_000;

/// The xid and the operation of a login.
const LOGIN_XID: i32 = -4;
const LOGIN: i32 = 100;

/// Errors of operations, by ZooKeeper's numbers.
pub(super) const NO_NODE: i32 = -101;
pub(super) const BAD_VERSION: i32 = -103;
pub(super) const NODE_EXISTS: i32 = -110;
/// The errors that only an operator can remove.
const LASTING_ERRORS: [(i32, &str); 4] = [
    (-102, "NoAuth: this user may not use its keys"),
    (-114, "InvalidACL: it accepts no permissions for this user"),
    (-115, "AuthFailed: it refuses the user and the password"),
    (-124, "it asks for a login by SASL, allowed: fleet.user and fleet.password_file"),
];

/// A request: an operation and its body.
pub(super) type Request = (i32, Vec<u8>);

#[derive(Debug)]
pub(super) struct Answer {
    /// 0, or the error.
    pub(super) error: i32,
    pub(super) body: Vec<u8>,
}

/// A connection with its own session.
pub(crate) struct Session {
    stream: Box<dyn Stream>,
    xid: i32,
    /// True if the session has logged in. Then only its user may use the nodes that it creates.
    pub(super) has_user: bool,
    /// The time for each part of an answer.
    pub(super) patience: Duration,
}

impl Session {
    /// Connects within this time, and logs in.
    pub(super) async fn connect(
        access: &Access,
        endpoint: &Endpoint,
        within: Duration,
    ) -> Result<Self, NoAnswer> {
        let stream = line::connect(endpoint, &access.tls, within).await?;
        let mut session = Session { stream, xid: 0, has_user: access.user.is_some(), patience: within };
        // The fields: the protocol version, the last transaction seen, the timeout, the session ID,
        // the session's password, and `false` to refuse a read-only server.
        let hello = Writer::default().int(0).long(0).int(SESSION_MS).long(0).bytes(&[0; 16]).boolean(false);
        session.write_frame(&hello.0).await?;
        session.read_frame().await?;
        if let Some(user) = &access.user {
            let password = user.password(within).await?;
            let login = Writer::default().int(LOGIN_XID).int(LOGIN).int(0).text("digest");
            session.write_frame(&login.text(&format!("{}:{password}", user.name)).0).await?;
            let answer = session.answer(LOGIN_XID).await?;
            fault_of(answer.error).map_or(Ok(()), Err)?;
        }
        Ok(session)
    }

    async fn write_frame(&mut self, frame: &[u8]) -> Result<(), NoAnswer> {
        let framed = Writer::default().bytes(frame).0;
        in_time(self.patience, self.stream.write_all(&framed)).await
    }

    async fn read_frame(&mut self) -> Result<Vec<u8>, NoAnswer> {
        let size = in_time(self.patience, self.stream.read_u32()).await?;
        let size = usize::try_from(size).ok().filter(|&size| size <= ANSWER_BYTES_MAX);
        let mut frame = vec![0; size.ok_or_else(no_zookeeper)?];
        in_time(self.patience, self.stream.read_exact(&mut frame)).await?;
        Ok(frame)
    }

    async fn answer(&mut self, xid: i32) -> Result<Answer, NoAnswer> {
        let frame = self.read_frame().await?;
        let mut reader = Reader(&frame);
        match header(&mut reader) {
            Some((found, error)) if found == xid => Ok(Answer { error, body: reader.0.to_vec() }),
            _ => Err(no_zookeeper()),
        }
    }

    /// Sends requests together, and returns their answers. Fails if an answer has an error that
    /// does not concern nodes.
    pub(super) async fn ask(&mut self, requests: &[Request]) -> Result<Vec<Answer>, NoAnswer> {
        let first = self.xid + 1;
        for (operation, body) in requests {
            self.xid += 1;
            let frame = [&Writer::default().int(self.xid).int(*operation).0, &body[..]].concat();
            self.write_frame(&frame).await?;
        }
        let mut answers = Vec::with_capacity(requests.len());
        for xid in first..=self.xid {
            let answer = self.answer(xid).await?;
            fault_of(answer.error).map_or(Ok(()), Err)?;
            answers.push(answer);
        }
        Ok(answers)
    }
}

/// Reads an answer's xid and error, and skips the transaction ID between them.
fn header(reader: &mut Reader<'_>) -> Option<(i32, i32)> {
    let xid = reader.int()?;
    reader.long()?;
    Some((xid, reader.int()?))
}

fn no_zookeeper() -> NoAnswer {
    NoAnswer::passing("found an answer in another protocol, allowed: ZooKeeper's")
}

/// Returns the fault for an error code, unless the error concerns a node.
pub(super) fn fault_of(error: i32) -> Option<NoAnswer> {
    if let Some((_, reason)) = LASTING_ERRORS.iter().find(|(lasting, _)| *lasting == error) {
        return Some(NoAnswer::lasting(*reason));
    }
    let is_of_nodes = [0, NO_NODE, BAD_VERSION, NODE_EXISTS].contains(&error);
    (!is_of_nodes).then(|| NoAnswer::passing(format!("ZooKeeper's error {error}")))
}
