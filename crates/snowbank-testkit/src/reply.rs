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
    /// The confirmation of a request that has no other reply.
    Ok(u16),
    /// A refusal.
    Error {
        /// The tag of the refused request.
        tag: u16,
        /// One of the codes of [`crate::wire`].
        code: u16,
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
                assert!(ids.is_sorted_by(|a, b| a < b), "the IDs of a list do not increase");
                Reply::List(tag, ids)
            }
            0x83 => Reply::Info(tag, String::from_utf8(body).expect("UTF-8")),
            0x84 => Reply::Pong(tag, body),
            0x85 => {
                assert!(body.is_empty(), "found an OK with a body");
                Reply::Ok(tag)
            }
            0xFF => {
                let (head, message) = body.split_first_chunk::<8>().expect("an error has a head");
                let message = String::from_utf8(message.to_vec()).expect("UTF-8");
                assert!(
                    !message.is_empty() && message.lines().count() == 1,
                    "a message must be one line, found {message:?}"
                );
                let code = u16::from_le_bytes([head[0], head[1]]);
                assert!((1..=10).contains(&code), "found the unknown error code {code}: {message}");
                assert_eq!(head[2..4], [0, 0], "reserved");
                let retry_after_ms = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
                Reply::Error { tag, code, retry_after_ms, message }
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
            | Reply::Ok(tag)
            | Reply::Error { tag, .. } => *tag,
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
        assert!(run.count >= 1 && (run.stride >= 1 || run.count == 1), "{run:?}");
        if let Some(before) = runs.last() {
            assert!(before.last() < run.first, "{run:?} is not above {before:?}");
        }
        runs.push(run);
    }
    runs
}
