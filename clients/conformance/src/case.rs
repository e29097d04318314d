//! The cases of `cases.json`. README.md describes the format.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::Outcome;

/// The text of `cases.json`.
const CASES: &str = include_str!("../cases.json");

/// One case: the scripts of its daemons, and the steps of the client's test.
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
    /// The steps of the client's test. This program only passes them on.
    pub(crate) steps: Vec<Value>,
}

/// One endpoint of a case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DaemonScript {
    #[serde(default)]
    pub(crate) listen: Listen,
    /// The client's list of endpoints has this one so many times. The default is 1.
    pub(crate) listed: Option<usize>,
    /// The endpoint's lives, one after the other. A `life` step of the test begins the next life.
    pub(crate) lives: Vec<Life>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Listen {
    #[default]
    Tcp,
    /// TCP on 127.0.0.1. The client gets the name `localhost`, which may have several addresses.
    Localhost,
    /// TCP on 127.0.0.1. The client gets the name `ids.example`, which the test resolves to this
    /// address, 127.0.0.2 and 127.0.0.3. The other two neither accept nor refuse a connection, like
    /// machines that are gone.
    Name,
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
    /// The life ends by itself so long after its first NEXT.
    pub(crate) lasts_ms: Option<u64>,
    /// The first ID of the daemon's ordinary replies. Later ordinary replies count up from this ID.
    /// The default is 1.
    pub(crate) first: Option<u64>,
    /// The names of the sources. The default is `default` alone.
    pub(crate) sources: Option<Vec<String>>,
    pub(crate) welcome: WelcomeSpec,
    /// The token that the daemon requires.
    pub(crate) token: Option<String>,
    /// The text that replaces that of `$token_file` when the life begins.
    pub(crate) token_file: Option<String>,
    /// True if a new authority signs new certificates when the life begins. The files of the case
    /// are replaced.
    pub(crate) new_certificates: bool,
    /// The answers to the first HELLOs. Later ones get an ordinary daemon's answers.
    pub(crate) hello: Vec<Answer>,
    /// The answers to the first NEXT requests. Later requests get an ordinary daemon's answers.
    pub(crate) next: Vec<Answer>,
    /// The answers to the first PINGs. Later ones get an ordinary daemon's answers.
    pub(crate) ping: Vec<Answer>,
    /// The answers to the first INFOs. Later ones get an ordinary daemon's answers.
    pub(crate) info: Vec<Answer>,
    /// The number of NEXT requests that the daemon reads from a connection before it answers them.
    /// With 0 or 1, the daemon answers each request at once.
    pub(crate) gather: usize,
    /// The most connections that the client may make in this life.
    pub(crate) max_connections: Option<usize>,
    /// The most connections that the client may have open at the same time.
    pub(crate) max_open: Option<usize>,
    /// The fewest and the most NEXT requests that the client may send in this life.
    pub(crate) min_next: usize,
    pub(crate) max_next: Option<usize>,
}

/// The members of WELCOME that are not those of an ordinary daemon.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WelcomeSpec {
    pub(crate) version: Option<u8>,
    pub(crate) good_for_ms: Option<u16>,
    pub(crate) max_count: Option<u32>,
    pub(crate) instance: Option<u64>,
    pub(crate) claims: Option<Vec<u64>>,
    /// So many claims, from 1 on, in place of `claims`.
    pub(crate) claim_count: Option<u64>,
}

/// The kinds of servers behind an endpoint.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    #[default]
    Daemon,
    /// Nothing listens.
    Down,
    /// Like a stopped process: connections stay open, also those of the life before, and none gets
    /// an answer.
    Frozen,
    /// Accepts each connection, and closes it at once.
    Closes,
    /// Sends `too_busy` on each connection before any request comes, and closes the connection.
    TooBusy,
    /// A web server.
    Http,
    /// A Redis server, which answers once it has read a whole line.
    Redis,
    /// An SSH server, which sends a line of text before the client has sent anything.
    Ssh,
    /// A TLS listener that answers a client without TLS with an alert.
    TlsAlert,
}

/// The answer to one request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Answer {
    /// The NEXT request that the case expects.
    pub(crate) expect: Expect,
    /// The frames of the reply. Without frames, the daemon sends an ordinary reply if `cut` is set
    /// or `then` is [`Then::GoOn`], and nothing otherwise.
    pub(crate) frames: Vec<FrameSpec>,
    /// True if the daemon prints the event `held`, and waits for the line `release` before it
    /// answers.
    pub(crate) hold: bool,
    /// The flags of the reply's first frame, if they are not those of the frame.
    pub(crate) flags: Option<u8>,
    /// The number of bytes of the reply that the daemon sends. The default is all.
    pub(crate) cut: Option<usize>,
    /// The daemon sends each byte with a write of its own, and pauses so long after each.
    pub(crate) trickle_ms: Option<u64>,
    pub(crate) then: Then,
    /// The number of requests that get this answer. The default is 1.
    pub(crate) times: Option<usize>,
    /// True if the client may omit the request that gets this answer.
    pub(crate) optional: bool,
}

/// The daemon's action after an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Then {
    #[default]
    GoOn,
    Close,
    /// Keeps the connection open, and answers nothing more on it.
    Silence,
}

/// The members that a NEXT request must have. A member that is missing here may have any value in
/// the request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Expect {
    pub(crate) count: Option<u32>,
    pub(crate) max_count: Option<u32>,
    pub(crate) min_count: Option<u32>,
    pub(crate) source: Option<String>,
    pub(crate) wait_ms: Option<u16>,
    pub(crate) max_wait_ms: Option<u16>,
    pub(crate) partial: Option<bool>,
}

/// A frame of a reply.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum FrameSpec {
    /// Runs, each with its first ID, count and stride. Another frame of the reply follows.
    RunsMore(Vec<[u64; 3]>),
    Runs(Vec<[u64; 3]>),
    ListMore(Vec<u64>),
    List(Vec<u64>),
    Error(ErrorSpec),
    Welcome(WelcomeSpec),
    /// The frame inside, with a tag that no request has.
    WrongTag(Box<FrameSpec>),
    /// The frame inside, with tag 0: it answers no request.
    Untagged(Box<FrameSpec>),
    /// Bytes in hex. `TTTT` stands for the request's tag.
    Bytes(String),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ErrorSpec {
    pub(crate) code: Code,
    /// The default is the one that the page gives to the code.
    pub(crate) action: Option<u8>,
    #[serde(default)]
    pub(crate) retry_after_ms: u32,
    #[serde(default)]
    pub(crate) message: String,
}

/// An error's code, by number or by name. Version 1 of the protocol need not define the number.
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
