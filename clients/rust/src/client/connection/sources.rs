//! The daemon's sources, as its INFO lists them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::client::error::Error;
use crate::layout::Layout;
use crate::protocol::info::Source;
use crate::protocol::{Info, one_line};

/// The longest time that a daemon holds a request that names no wait, unless [`DEFAULT_WAIT_TICKS`]
/// ticks of the source take longer.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// The number of ticks for which a daemon holds a request that names no wait, if these ticks take
/// longer than [`DEFAULT_WAIT`].
const DEFAULT_WAIT_TICKS: u64 = 2;

/// The sources of one daemon.
#[derive(Debug, Default)]
pub(super) struct Sources {
    by_name: HashMap<String, u16>,
    /// The default waits of sources with long ticks, by index.
    long_waits: HashMap<u16, Duration>,
}

impl Sources {
    pub(super) fn new(info: &Info) -> Self {
        let by_name = info.sources.iter().map(|source| (source.name.clone(), source.index)).collect();
        let long_waits = info.sources.iter().filter_map(|source| Some((source.index, long_wait(source)?)));
        Self { by_name, long_waits: long_waits.collect() }
    }

    /// Returns the index of the source of that name.
    pub(super) fn index(&self, endpoint: &Arc<str>, name: &Arc<str>) -> Result<u16, Error> {
        let index = self.by_name.get(&**name).copied();
        index.ok_or_else(|| Error::NoSuchSource {
            endpoint: endpoint.clone(),
            name: name.clone(),
            known: self.names().into(),
        })
    }

    /// Returns the longest time that the daemon holds a request that names no wait. The daemon's
    /// `max_wait`, which a client cannot know, may be shorter.
    pub(super) fn default_wait(&self, index: u16) -> Duration {
        self.long_waits.get(&index).copied().unwrap_or(DEFAULT_WAIT)
    }

    fn names(&self) -> String {
        const SHOWN: usize = 20;
        let mut names: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
        names.sort_unstable();
        names.truncate(SHOWN);
        let more = if self.by_name.len() > SHOWN { ", …" } else { "" };
        format!("{}{more}", one_line(&names.join(", ")))
    }
}

/// Returns the default wait of a source, if the source's ticks are so long that this wait exceeds
/// [`DEFAULT_WAIT`].
fn long_wait(source: &Source) -> Option<Duration> {
    let layout: Layout = source.layout.as_ref()?.parse().ok()?;
    let wait = Duration::from_millis(layout.tick_ms().saturating_mul(DEFAULT_WAIT_TICKS));
    (wait > DEFAULT_WAIT).then_some(wait)
}
