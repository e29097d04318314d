//! The cases of `cases.json`. README.md describes the format.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::Outcome;

/// The file of cases beside this program's source.
const CASES: &str = include_str!("../cases.json");

/// One case: the script of its daemons, and what the client's test does meanwhile.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) about: String,
    /// The abilities that a client needs for the case. If a client lacks one of them, the client's
    /// test skips the case.
    #[serde(default)]
    pub(crate) needs: Vec<String>,
    /// Options for the client.
    #[serde(default)]
    pub(crate) options: Map<String, Value>,
    pub(crate) daemons: Vec<DaemonScript>,
    /// Steps for the test, to which this program passes them on.
    pub(crate) steps: Vec<Value>,
}

/// One endpoint of a case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DaemonScript {
    #[serde(default)]
    pub(crate) listen: Listen,
    /// The endpoint's lives, one after the other. A `life` step of the test begins the next life.
    pub(crate) lives: Vec<Life>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Listen {
    #[default]
    Tcp,
    Unix,
    Tls,
    /// TLS that asks for a client's certificate.
    MutualTls,
}

/// The behaviour of an endpoint until its next life.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Life {
    pub(crate) is: Kind,
    /// The first ID that the daemon hands out in answers without a script. Later IDs count up from
    /// it. The default is 1.
    pub(crate) first: Option<u64>,
    /// Members of INFO that replace those of an ordinary daemon.
    pub(crate) info: Map<String, Value>,
    /// The size of one more member of INFO, in bytes.
    pub(crate) info_padding: usize,
    /// The token that the daemon asks for.
    pub(crate) token: Option<String>,
    /// The answers to the first NEXT requests. Later requests get an ordinary daemon's answers.
    pub(crate) next: Vec<Answer>,
    /// The number of NEXT requests that the daemon reads from a connection before it answers them.
    /// With 0 or 1, it answers each at once.
    pub(crate) gather: usize,
    /// The most connections that the client may make.
    pub(crate) max_connections: Option<usize>,
    /// The most NEXT requests that the client may send.
    pub(crate) max_next: Option<usize>,
}

/// The kinds of servers behind an endpoint.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    #[default]
    Daemon,
    /// Nothing listens.
    Down,
    /// A stopped process: connections stay open, even those of the life before, and get no answer.
    Frozen,
    /// Accepts and closes.
    Closes,
    /// Refuses each connection with `too_busy` before it reads, and closes.
    TooBusy,
    /// A web server.
    Http,
    /// A Redis, which answers after the end of a line.
    Redis,
    /// A server that speaks first, in text.
    Ssh,
    /// A TLS listener that answers a client without TLS with an alert.
    TlsAlert,
}

/// The answer to one NEXT request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Answer {
    /// The request that the case expects.
    pub(crate) expect: Expect,
    /// The frames of the reply. Without frames, the daemon sends an ordinary reply, except that it
    /// sends nothing if `then` is not [`Then::GoOn`] and `cut` is missing.
    pub(crate) frames: Vec<FrameSpec>,
    /// Prints the event `held`, and waits for the test's `release`.
    pub(crate) hold: bool,
    /// Sends only this many bytes of the reply.
    pub(crate) cut: Option<usize>,
    /// Sends each byte in a packet of its own.
    pub(crate) trickle: bool,
    pub(crate) then: Then,
    /// The number of requests that get this answer. The default is 1.
    pub(crate) times: Option<usize>,
    /// True if the client need not send the request that gets this answer.
    pub(crate) optional: bool,
}

/// The step after an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Then {
    #[default]
    GoOn,
    Close,
    /// Answers nothing more on this connection.
    Silence,
}

/// The members that a NEXT request must have. A member that is missing here may have any value in
/// the request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Expect {
    pub(crate) count: Option<u32>,
    pub(crate) source: Option<u16>,
    pub(crate) max_wait_ms: Option<u64>,
    pub(crate) explicit: Option<bool>,
    pub(crate) partial: Option<bool>,
}

/// A frame of a reply.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum FrameSpec {
    /// Runs of first, count and stride. Another frame of the reply follows.
    RunsMore(Vec<[u64; 3]>),
    Runs(Vec<[u64; 3]>),
    ListMore(Vec<u64>),
    List(Vec<u64>),
    Error(ErrorSpec),
    /// A reply of tests/vectors by its name, with the request's tag.
    Vector(String),
    /// The frame inside, with a tag that no request has.
    WrongTag(Box<FrameSpec>),
    /// The frame inside, with tag 0: it answers no request.
    Untagged(Box<FrameSpec>),
    /// Bytes in hex.
    Bytes(String),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ErrorSpec {
    pub(crate) code: Code,
    #[serde(default)]
    pub(crate) retry_after_ms: u32,
    #[serde(default)]
    pub(crate) message: String,
}

/// An error's code: its name, or its number, which version 1 need not define.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Code {
    Number(u16),
    Name(String),
}

/// Reads all cases.
pub(crate) fn all() -> Outcome<Vec<Case>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        cases: Vec<Case>,
    }
    Ok(serde_json::from_str::<File>(CASES)?.cases)
}

/// Returns the case of that name.
pub(crate) fn find(name: &str) -> Outcome<Case> {
    let found = all()?.into_iter().find(|case| case.name == name);
    Ok(found.ok_or_else(|| format!("there is no case {name}; `snowbank-conformance list` lists them"))?)
}
