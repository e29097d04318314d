//! The tests' own arithmetic of IDs: a few layouts, distinctness, and uniformity.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::wire::Run;

/// IDs per ms of Twitter's layout.
pub const TWITTER_IDS_PER_MS: u64 = 1 << 12;
const TWITTER_EPOCH_UNIX_MS: u64 = 1_288_834_974_657;

/// The tick of an ID of Twitter's layout, in Unix ms.
pub fn twitter_unix_ms(id: u64) -> u64 {
    (id >> 22) + TWITTER_EPOCH_UNIX_MS
}

/// Datacenter and worker of Twitter's layout as one number.
pub fn twitter_worker(id: u64) -> u64 {
    id >> 12 & 0x3FF
}

/// Returns how many IDs one worker of Twitter's layout can make from `first` to `last`, both
/// included.
pub fn twitter_ids_between(first: u64, last: u64) -> u64 {
    ((last >> 22) - (first >> 22)) * TWITTER_IDS_PER_MS + (last & 0xFFF) + 1 - (first & 0xFFF)
}

/// The wall clock in Unix ms.
pub fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    now.as_millis() as u64
}

/// Checks that no ID is in two of the runs, nor twice in one. Runs with different strides may
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
    assert_eq!(total, ids.len(), "IDs handed out twice, {pair:?} among them");
}

/// Pearson's statistic of the residues of `ids` modulo `modulus` against the uniform distribution.
pub fn chi_square(ids: &[u64], modulus: u64) -> f64 {
    let mut counts = vec![0_u64; modulus as usize];
    for id in ids {
        counts[(id % modulus) as usize] += 1;
    }
    let expected = ids.len() as f64 / modulus as f64;
    counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum()
}

/// The value that the statistic exceeds once in 10^11 runs if the residues are uniform (Wilson and
/// Hilferty's approximation, which lies above the exact value for few degrees of freedom). A test
/// of all 63 moduli from 2 to 64 then fails falsely less than once in 10^9 runs, whatever the
/// dependence between them (Bonferroni).
pub fn chi_square_limit(modulus: u64) -> f64 {
    /// The normal deviate with an upper tail of 10^-11.
    const DEVIATE: f64 = 6.706;
    let freedom = (modulus - 1) as f64;
    let spread = 2.0 / (9.0 * freedom);
    freedom * (1.0 - spread + DEVIATE * spread.sqrt()).powi(3)
}
