//! Joins the frames of one reply, and checks the promises that a client can check.

use super::info::{BadInfo, MAX_INFO_SIZE};
use super::reply::Reply;
use super::{Info, MAX_ID, Next};
use snowbank_id::layout::Run;

/// The state of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// Another frame of the same reply follows.
    More,
    /// The reply is complete.
    Done,
}

/// A reply that breaks the protocol's promises. The daemon is at fault, and no part of the reply is
/// usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadReply {
    /// A frame whose kind does not fit the request, or differs from that of the reply's first
    /// frame.
    #[error("the reply has a frame of the wrong kind")]
    Kind,
    /// A run of no IDs.
    #[error("the reply has a run of no IDs")]
    EmptyRun,
    /// A run whose last ID is above [`MAX_ID`].
    #[error("the reply has a run from {first} that ends beyond 63 bits")]
    Overflow {
        /// The run's first ID.
        first: u64,
    },
    /// An ID that is not above the one before it.
    #[error("the reply's IDs do not increase: {next} follows {previous}")]
    Order {
        /// The earlier ID.
        previous: u64,
        /// The later ID, which should be above `previous`.
        next: u64,
    },
    /// More IDs than the request asked for.
    #[error("the reply has more than the {asked} IDs asked for")]
    TooMany {
        /// The requested count.
        asked: u32,
    },
    /// Fewer IDs than the request asked for, although the request does not have PARTIAL.
    #[error("the reply has {found} IDs and {asked} were asked for")]
    TooFew {
        /// The number of IDs in the reply.
        found: u32,
        /// The requested count.
        asked: u32,
    },
    /// An INFO reply longer than [`MAX_INFO_SIZE`].
    #[error("the INFO reply exceeds {MAX_INFO_SIZE} bytes")]
    LongInfo,
}

/// Joins the frames of a reply to NEXT. Never stores more IDs than the request asked for.
#[derive(Debug)]
pub struct IdCollector {
    count: u32,
    explicit: bool,
    partial: bool,
    /// The IDs so far, strictly increasing.
    ids: Vec<u64>,
    /// True if the reply's first frame is a LIST. `None` before that frame.
    is_list: Option<bool>,
}

impl IdCollector {
    /// Creates a collector for the reply to `asked`.
    #[must_use]
    pub fn new(asked: &Next<'_>) -> Self {
        let &Next { count, explicit, partial, .. } = asked;
        Self { count, explicit, partial, ids: Vec::new(), is_list: None }
    }

    /// Adds the next frame.
    ///
    /// # Errors
    /// Returns [`BadReply`] if the frame does not fit the request or the frames before it.
    pub fn add(&mut self, frame: &Reply<'_>) -> Result<Progress, BadReply> {
        let is_list = matches!(frame, Reply::List { .. });
        if *self.is_list.get_or_insert(is_list) != is_list {
            return Err(BadReply::Kind);
        }
        let more = match frame {
            Reply::Runs { runs, more } if !self.explicit => {
                runs.iter().try_for_each(|run| self.add_run(run))?;
                *more
            }
            Reply::List { ids, more } => {
                ids.iter().try_for_each(|first| self.add_run(Run { first, count: 1, stride: 1 }))?;
                *more
            }
            _ => return Err(BadReply::Kind),
        };
        if more {
            return Ok(Progress::More);
        }
        // At most the request's count, which has 32 bits.
        let found = self.ids.len() as u32;
        if found < self.count && !self.partial {
            return Err(BadReply::TooFew { found, asked: self.count });
        }
        Ok(Progress::Done)
    }

    /// Returns the IDs, which are complete once [`add`](Self::add) has returned [`Progress::Done`].
    #[must_use]
    pub fn finish(self) -> Vec<u64> {
        self.ids
    }

    fn add_run(&mut self, run: Run) -> Result<(), BadReply> {
        check_end(&run)?;
        if let Some(&previous) = self.ids.last()
            && run.first <= previous
        {
            return Err(BadReply::Order { previous, next: run.first });
        }
        if run.count as usize > self.count as usize - self.ids.len() {
            return Err(BadReply::TooMany { asked: self.count });
        }
        self.ids.extend(run.ids());
        Ok(())
    }
}

/// Checks that a run has an ID, increases, and ends at [`MAX_ID`] or below.
fn check_end(run: &Run) -> Result<(), BadReply> {
    let steps = run.count.checked_sub(1).ok_or(BadReply::EmptyRun)?;
    if run.stride == 0 {
        return Err(BadReply::Order { previous: run.first, next: run.first });
    }
    // Both factors have 32 bits, so the product fits.
    let distance = u64::from(steps) * run.stride;
    match run.first.checked_add(distance) {
        Some(..=MAX_ID) => Ok(()),
        _ => Err(BadReply::Overflow { first: run.first }),
    }
}

/// Joins the frames of a reply to INFO, up to [`MAX_INFO_SIZE`].
#[derive(Debug, Default)]
pub struct InfoCollector {
    json: Vec<u8>,
}

impl InfoCollector {
    /// Adds the next frame.
    ///
    /// # Errors
    /// Returns [`BadReply`] if the frame is of another kind, or the JSON exceeds its limit.
    pub fn add(&mut self, frame: &Reply<'_>) -> Result<Progress, BadReply> {
        let Reply::Info { json, more } = frame else {
            return Err(BadReply::Kind);
        };
        if self.json.len() + json.len() > MAX_INFO_SIZE {
            return Err(BadReply::LongInfo);
        }
        self.json.extend_from_slice(json);
        Ok(if *more { Progress::More } else { Progress::Done })
    }

    /// Returns the JSON, which is complete once [`add`](Self::add) has returned [`Progress::Done`].
    #[must_use]
    pub fn into_json(self) -> Vec<u8> {
        self.json
    }

    /// Reads the JSON.
    ///
    /// # Errors
    /// Returns [`BadInfo`] if this is not the JSON that the protocol promises.
    pub fn finish(self) -> Result<Info, BadInfo> {
        Info::from_json(&self.json)
    }
}
