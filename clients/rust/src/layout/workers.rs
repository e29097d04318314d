//! The worker IDs of one daemon.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use super::LayoutError;

/// The most worker IDs of one daemon. Each costs some memory and a record in the coordinator. Twitter's
/// layout has 1,024 in all.
pub const MAX_WORKER_IDS: usize = 4096;

/// The worker IDs of one daemon: at least one, sorted, distinct, and at most [`MAX_WORKER_IDS`].
///
/// Text form: `5`, `0-3`, `0-3,8`. [`Numbering::new`](super::Numbering::new) checks that the layout has them
/// all.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WorkerSet {
    ids: Arc<[u64]>,
}

impl WorkerSet {
    /// Creates a set of one worker ID.
    pub fn single(id: u64) -> Self {
        WorkerSet { ids: Arc::new([id]) }
    }

    /// Creates a set from a list in any order.
    ///
    /// # Errors
    /// Returns an error if the list is empty or too long, or has an ID twice.
    pub fn from_list(ids: impl IntoIterator<Item = u64>) -> Result<Self, LayoutError> {
        // One more than allowed is enough to see that there are too many.
        let mut ids: Vec<u64> = ids.into_iter().take(MAX_WORKER_IDS + 1).collect();
        if ids.len() > MAX_WORKER_IDS {
            return Err(LayoutError::TooManyWorkerIds);
        }
        ids.sort_unstable();
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(LayoutError::WorkerIdTwice { id: pair[0] });
        }
        if ids.is_empty() {
            return Err(LayoutError::WorkerIds { found: String::new() });
        }
        Ok(WorkerSet { ids: ids.into() })
    }

    /// Returns the worker IDs, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.ids.iter().copied()
    }

    /// Returns the number of worker IDs, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a set is never empty")]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns `worker ID 5` or `worker IDs 0-3`.
    pub fn in_words(&self) -> String {
        let noun = if self.len() == 1 { "worker ID" } else { "worker IDs" };
        format!("{noun} {self}")
    }

    /// Returns whether the set has this worker ID.
    pub fn contains(&self, id: u64) -> bool {
        self.ids.binary_search(&id).is_ok()
    }

    /// Returns the highest worker ID.
    pub fn highest(&self) -> u64 {
        self.ids[self.ids.len() - 1]
    }
}

impl FromStr for WorkerSet {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ranges: Vec<_> = text
            .split(',')
            .map(|part| worker_range(part).ok_or_else(|| LayoutError::WorkerIds { found: text.to_owned() }))
            .collect::<Result<_, _>>()?;
        // `from_list` stops at the limit, so `0-18446744073709551615` takes no memory.
        WorkerSet::from_list(ranges.into_iter().flatten())
    }
}

/// Parses `5` or `0-3`.
fn worker_range(part: &str) -> Option<RangeInclusive<u64>> {
    let number = |digits: &str| {
        let digits = digits.trim();
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    match part.split_once('-') {
        Some((first, last)) => Some(number(first)?..=number(last)?).filter(|range| !range.is_empty()),
        None => number(part).map(|id| id..=id),
    }
}

impl fmt::Display for WorkerSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stretches = self.ids.chunk_by(|left, right| left + 1 == *right);
        for (index, stretch) in stretches.enumerate() {
            let (first, last) = (stretch[0], stretch[stretch.len() - 1]);
            let comma = if index == 0 { "" } else { "," };
            match stretch.len() {
                1 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> Result<Vec<u64>, LayoutError> {
        text.parse::<WorkerSet>().map(|workers| workers.iter().collect())
    }

    #[test]
    fn sets_are_lists_of_numbers_and_ranges() {
        assert_eq!(set("5"), Ok(vec![5]));
        assert_eq!(set("0-3"), Ok(vec![0, 1, 2, 3]));
        assert_eq!(set("8, 0-3"), Ok(vec![0, 1, 2, 3, 8]));
        assert_eq!(set("18446744073709551615"), Ok(vec![u64::MAX]));
        assert_eq!("0-4095".parse::<WorkerSet>().unwrap().len(), MAX_WORKER_IDS);
    }

    #[test]
    fn sets_are_written_in_their_shortest_form() {
        for (written, canonical) in
            [("3,2,1,0", "0-3"), ("8,0-3", "0-3,8"), ("1,3,5", "1,3,5"), ("7", "7"), ("4-5", "4-5")]
        {
            assert_eq!(written.parse::<WorkerSet>().unwrap().to_string(), canonical);
        }
        let top: WorkerSet = "18446744073709551614-18446744073709551615".parse().unwrap();
        assert_eq!(top.to_string(), "18446744073709551614-18446744073709551615");
    }

    #[test]
    fn what_is_not_a_set_is_refused() {
        for wrong in
            ["", ",", "0,", "-1", "3-0", "a", "0-", "+1", "0x1", "1.5", "1-2-3", "18446744073709551616"]
        {
            assert_eq!(set(wrong), Err(LayoutError::WorkerIds { found: wrong.to_owned() }), "{wrong:?}");
        }
        assert_eq!(set("0-3,2"), Err(LayoutError::WorkerIdTwice { id: 2 }));
        assert_eq!(set("0-4096"), Err(LayoutError::TooManyWorkerIds));
        assert_eq!(set("0-18446744073709551615"), Err(LayoutError::TooManyWorkerIds));
        assert_eq!(set("0-4095,0-4095"), Err(LayoutError::TooManyWorkerIds));
        assert_eq!(WorkerSet::from_list([]), Err(LayoutError::WorkerIds { found: String::new() }));
        assert_eq!(WorkerSet::from_list(0..5000), Err(LayoutError::TooManyWorkerIds));
    }
}
