//! Whole replies, checked against the protocol's description.

/// A run of IDs: `first`, `first + stride` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// The first ID.
    pub first: u64,
    /// The number of IDs.
    pub count: u32,
    /// The distance between two IDs.
    pub stride: u32,
}

impl Run {
    /// Returns the last ID.
    pub fn last(&self) -> u64 {
        self.first + u64::from(self.count - 1) * u64::from(self.stride)
    }

    /// Returns all IDs, in order.
    pub fn ids(self) -> impl Iterator<Item = u64> {
        (0..u64::from(self.count)).map(move |index| self.first + index * u64::from(self.stride))
    }
}

/// A whole reply, of any number of frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// IDs as runs. The first member is the reply's tag, as in all variants.
    Runs(u16, Vec<Run>),
    /// IDs one by one.
    List(u16, Vec<u64>),
    /// The JSON of an INFO.
    Info(u16, String),
    /// The body of a PONG.
    Pong(u16, Vec<u8>),
    /// The greeting of a daemon.
    Welcome(u16, Welcome),
    /// A refusal.
    Error {
        /// The tag of the refused request.
        tag: u16,
        /// One of the codes of [`crate::wire`].
        code: u16,
        /// What the client is to do: 0 tell, 1 stay, 2 leave.
        action: u8,
        /// The time after which the client may ask again.
        retry_after_ms: u32,
        /// The reason, in one line.
        message: String,
    },
}

impl Reply {
    /// Decodes the joined bodies of a reply's frames, and checks them against the description.
    pub fn of(kind: u8, tag: u16, body: Vec<u8>) -> Reply {
        match kind {
            0x81 => Reply::Runs(tag, runs(&body)),
            0x82 => {
                assert!(
                    !body.is_empty() && body.len().is_multiple_of(8),
                    "a list must have whole IDs, found {} bytes",
                    body.len()
                );
                let (ids, _) = body.as_chunks::<8>();
                let ids: Vec<u64> = ids.iter().map(|id| u64::from_le_bytes(*id)).collect();
                assert!(ids.iter().all(|id| *id <= i64::MAX as u64), "an ID has more than 63 bits");
                assert!(ids.is_sorted_by(|a, b| a < b), "the IDs of a list do not increase");
                Reply::List(tag, ids)
            }
            0x83 => Reply::Info(tag, String::from_utf8(body).expect("UTF-8")),
            0x84 => Reply::Pong(tag, body),
            0x85 => Reply::Welcome(tag, Welcome::of(&body)),
            0xFF => {
                let (head, message) = body.split_first_chunk::<8>().expect("an error has a head");
                let message = String::from_utf8(message.to_vec()).expect("UTF-8");
                assert!(
                    !message.is_empty() && message.lines().count() == 1,
                    "a message must be one line, found {message:?}"
                );
                let code = u16::from_le_bytes([head[0], head[1]]);
                assert!((1..=10).contains(&code), "found the unknown error code {code}: {message}");
                assert_eq!(head[3], 0, "reserved");
                let action = head[2];
                let retry_after_ms = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
                assert_action(tag, code, action, retry_after_ms, &message);
                Reply::Error { tag, code, action, retry_after_ms, message }
            }
            _ => panic!("found a reply of the unknown kind {kind:#x}"),
        }
    }

    /// Returns the tag of the request that the reply answers.
    pub fn tag(&self) -> u16 {
        match self {
            Reply::Runs(tag, _)
            | Reply::List(tag, _)
            | Reply::Info(tag, _)
            | Reply::Pong(tag, _)
            | Reply::Welcome(tag, _)
            | Reply::Error { tag, .. } => *tag,
        }
    }

    /// Returns the greeting.
    #[track_caller]
    pub fn welcome(self) -> Welcome {
        match self {
            Reply::Welcome(_, welcome) => welcome,
            other => panic!("expected WELCOME, found {other:?}"),
        }
    }

    /// Returns the runs of a reply that has them.
    #[track_caller]
    pub fn runs(self) -> Vec<Run> {
        match self {
            Reply::Runs(_, runs) => runs,
            other => panic!("expected runs, found {other:?}"),
        }
    }

    /// Returns all IDs of a reply with runs or a list.
    #[track_caller]
    pub fn ids(self) -> Vec<u64> {
        match self {
            Reply::Runs(_, runs) => runs.into_iter().flat_map(Run::ids).collect(),
            Reply::List(_, ids) => ids,
            other => panic!("expected IDs, found {other:?}"),
        }
    }

    /// Returns the number of IDs. Returns `None` if the reply has another kind.
    pub fn id_count(&self) -> Option<u64> {
        match self {
            Reply::Runs(_, runs) => Some(runs.iter().map(|run| u64::from(run.count)).sum()),
            Reply::List(_, ids) => Some(ids.len() as u64),
            _ => None,
        }
    }

    /// Returns the code of an error, the time in ms after which the client may ask again, and the
    /// message.
    #[track_caller]
    pub fn error(self) -> (u16, u32, String) {
        match self {
            Reply::Error { code, retry_after_ms, message, .. } => (code, retry_after_ms, message),
            other => panic!("expected an error, found {other:?}"),
        }
    }

    /// Checks that this is an error with this tag and code, and returns its message.
    #[track_caller]
    pub fn assert_error(self, tag: u16, code: u16) -> String {
        assert_eq!(self.tag(), tag, "{self:?}");
        let (found, _, message) = self.error();
        assert_eq!(found, code, "{message}");
        message
    }
}

/// The body of a WELCOME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The most IDs of one request.
    pub max_count: u32,
    /// The number of the daemon's start.
    pub instance: u64,
    /// The claims.
    pub claims: Vec<u64>,
}

impl Welcome {
    fn of(body: &[u8]) -> Welcome {
        let (head, claims) = body.split_first_chunk::<16>().expect("a WELCOME has a head");
        assert_eq!(head[..4], [1, 0, 0xe8, 3], "version 1, IDs good for 1,000 ms");
        let (claims, rest) = claims.as_chunks::<8>();
        assert!(rest.is_empty(), "a WELCOME has whole claims");
        let claims: Vec<u64> = claims.iter().map(|claim| u64::from_le_bytes(*claim)).collect();
        assert!(claims.is_sorted_by(|a, b| a < b) && claims.len() <= 8_000, "{claims:?}");
        let max_count = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let [.., b0, b1, b2, b3, b4, b5, b6, b7] = *head;
        let instance = u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]);
        Welcome { max_count, instance, claims }
    }
}

/// Checks an error's action and time against the protocol's table.
fn assert_action(tag: u16, code: u16, action: u8, retry_after_ms: u32, message: &str) {
    let fits = match (code, action) {
        // malformed, unsupported, bad_count, unknown_source
        (1..=4, 0) => retry_after_ms == 0,
        // unauthorized: at once, or after a reload
        (5, 0) => retry_after_ms == 0,
        (5, 2) => retry_after_ms == 0 && tag == 0,
        // exhausted: never at this size; the client's own rate or soon; later
        (6, 0) => retry_after_ms == 0,
        (6, 1) => true,
        (6, 2) => retry_after_ms > 100,
        // clock_behind, no_ceiling, shutting_down: a client that leaves and comes back must not spin
        (7..=9, 2) => retry_after_ms > 0,
        // too_busy
        (10, 2) => retry_after_ms > 0 && tag == 0,
        _ => false,
    };
    assert!(fits, "code {code}, tag {tag}, action {action}, retry after {retry_after_ms} ms: {message}");
}

fn runs(body: &[u8]) -> Vec<Run> {
    let (pieces, rest) = body.as_chunks::<16>();
    assert!(
        rest.is_empty() && !pieces.is_empty(),
        "a reply must have whole runs, found {} bytes",
        body.len()
    );
    let mut runs: Vec<Run> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let word = |at: usize| u32::from_le_bytes([piece[at], piece[at + 1], piece[at + 2], piece[at + 3]]);
        let first = u64::from(word(0)) | u64::from(word(4)) << 32;
        let run = Run { first, count: word(8), stride: word(12) };
        assert!(run.count >= 1 && run.stride >= 1 && run.last() <= i64::MAX as u64, "{run:?}");
        if let Some(before) = runs.last() {
            assert!(before.last() < run.first, "{run:?} is not above {before:?}");
        }
        runs.push(run);
    }
    runs
}
