//! The tests' own arithmetic of IDs: the fields of Twitter's layout, and a search for duplicates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::wire::Run;

const TWITTER_IDS_PER_MS: u64 = 1 << 12;
const TWITTER_EPOCH_UNIX_MS: u64 = 1_288_834_974_657;

/// Returns the tick of an ID of Twitter's layout, in Unix ms.
pub fn twitter_unix_ms(id: u64) -> u64 {
    (id >> 22) + TWITTER_EPOCH_UNIX_MS
}

/// Returns the worker ID of an ID of Twitter's layout: datacenter and worker as one number.
pub fn twitter_worker(id: u64) -> u64 {
    id >> 12 & 0x3FF
}

/// Returns how many IDs one worker of Twitter's layout can make from `first` to `last`, both
/// included.
pub fn twitter_ids_between(first: u64, last: u64) -> u64 {
    ((last >> 22) - (first >> 22)) * TWITTER_IDS_PER_MS + (last & 0xFFF) + 1 - (first & 0xFFF)
}

/// Returns the wall clock in Unix ms.
pub fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    now.as_millis() as u64
}

/// Checks that no ID is in two of the runs or twice in one of them. Runs with different strides may
/// interleave.
#[track_caller]
pub fn assert_distinct(mut runs: Vec<Run>) {
    runs.sort_unstable();
    let overlaps = |pair: &&[Run]| pair[0].last() >= pair[1].first;
    let Some(pair) = runs.windows(2).find(overlaps) else {
        return;
    };
    // Interleaving runs are compared ID by ID.
    let mut ids: Vec<u64> = runs.iter().copied().flat_map(Run::ids).collect();
    let total = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(total, ids.len(), "IDs were handed out twice; these runs overlap: {pair:?}");
}
