//! The search for unused worker IDs by a few reads, so that a start need not wait until all keys of
//! a large fleet are listed. Pure: a function reads places in a list of candidates.
//!
//! Numbers are taken in order, so the used ones are mostly the first candidates. Each read asks for
//! the first candidates of a window, and for samples of the others. The next window begins after
//! the last place that was read before the first unused sample.
//!
//! No promise depends on what is found: a number that is taken as unused is written only if it has
//! no key then.

use std::ops::Range;

/// The first candidates of a window, all of which are read. A small fleet needs one read.
const FIRST: usize = 32;
/// The samples of the others. With them one read is one transaction of etcd: at most
/// [`SWAPS_MAX`](super::SWAPS_MAX) keys.
const SAMPLES: usize = 64;
/// The most candidates that are read at once.
const READ_MAX: usize = FIRST + SAMPLES;
const _: () = assert!(READ_MAX <= super::SWAPS_MAX);
/// The most reads. Of [`CANDIDATES_MAX`] candidates, each read leaves a 64th, so the third one
/// reads all that is left. The fourth is for starts that want many numbers.
const READS_MAX: usize = 4;
/// The most unused candidates that these reads find. A start that wants more lists all keys at
/// once.
const FOUND_MAX: usize = (READS_MAX - 1) * FIRST + READ_MAX;
/// The most worker IDs that are looked through, so that a layout with millions of workers delays no
/// start. Unused ones beyond them are found in the list of all keys.
pub(super) const CANDIDATES_MAX: usize = 1 << 16;
const _: () = assert!(CANDIDATES_MAX.div_ceil(SAMPLES).div_ceil(SAMPLES) + FIRST <= READ_MAX);

/// Returns this many places of unused candidates, ascending, or fewer if the reads show no more.
/// `are_unused` reads candidates. In a list whose used candidates are the first ones, the lowest
/// unused ones are found.
///
/// # Errors
/// The candidates could not be read.
pub(super) fn search<E>(
    candidates: usize,
    count: usize,
    mut are_unused: impl FnMut(&[usize]) -> Result<Vec<bool>, E>,
) -> Result<Vec<usize>, E> {
    let mut found: Vec<usize> = Vec::new();
    let mut window = if count > FOUND_MAX { 0..0 } else { 0..candidates };
    for _ in 0..READS_MAX {
        if window.is_empty() {
            break;
        }
        let places = places(&window);
        let unused = are_unused(&places)?;
        let is_unused = |at: &usize| unused.get(*at) == Some(&true);
        // These places follow each other without a gap. In a later window the first of them
        // directly follows a place that was read before.
        let in_row = if places.len() == window.len() { places.len() } else { FIRST };
        found.extend((0..in_row).filter(is_unused).map(|at| places[at]));
        let sample = (in_row..places.len()).find(is_unused);
        let Some(at) = sample.filter(|_| found.len() < count) else { break };
        window = places[at - 1] + 1..candidates.min(places[at] + count - found.len());
    }
    found.truncate(count);
    Ok(found)
}

/// Returns the places of a window to read: all if they are few, else the first ones, and samples up
/// to the last one.
fn places(window: &Range<usize>) -> Vec<usize> {
    if window.len() <= READ_MAX {
        return window.clone().collect();
    }
    let from = window.start + FIRST;
    let others = window.len() - FIRST;
    let samples = (1..=SAMPLES).map(|sample| from + sample * others / SAMPLES - 1);
    (window.start..from).chain(samples).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches a list whose candidates are used as given. Returns what was found, and the number
    /// of reads.
    fn searched(candidates: usize, count: usize, is_used: impl Fn(usize) -> bool) -> (Vec<usize>, usize) {
        let mut reads = 0;
        let read = |places: &[usize]| {
            reads += 1;
            assert!(places.len() <= READ_MAX, "{} at once", places.len());
            assert!(places.is_sorted_by(|a, b| a < b) && places.iter().all(|&place| place < candidates));
            Ok::<_, ()>(places.iter().map(|&place| !is_used(place)).collect())
        };
        (search(candidates, count, read).unwrap(), reads)
    }

    #[test]
    fn in_a_dense_fleet_the_lowest_unused_numbers_are_found() {
        for (candidates, most_reads) in [(1, 1), (40, 1), (97, 2), (1_024, 2), (CANDIDATES_MAX, 3)] {
            for used in (0..candidates).step_by(candidates.div_ceil(2_000)).chain([candidates - 1]) {
                let (found, reads) = searched(candidates, 1, |place| place < used);
                assert_eq!(found, [used], "of {candidates}");
                assert!(reads <= most_reads, "{reads} reads, {used} of {candidates}");
            }
        }
        assert_eq!(
            searched(CANDIDATES_MAX, 1, |place| place < FIRST - 1),
            (vec![FIRST - 1], 1),
            "a small fleet"
        );
    }

    #[test]
    fn many_numbers_are_found_in_a_row() {
        for candidates in [1_024, CANDIDATES_MAX] {
            for count in [2, 20, FIRST, 60, 100] {
                for used in [0, 1, 31, 32, 33, 63, 500, 900, candidates - count] {
                    let (found, _) = searched(candidates, count, |place| place < used);
                    assert_eq!(found, (used..used + count).collect::<Vec<_>>(), "of {candidates}");
                }
            }
        }
    }

    #[test]
    fn what_is_found_is_unused_and_lies_behind_a_used_one() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..2_000 {
            let candidates = random.usize(1..3_000);
            let share = random.f64();
            let used: Vec<bool> = (0..candidates).map(|_| random.f64() < share).collect();
            let (found, reads) = searched(candidates, 1, |place| used[place]);
            assert!(reads <= 3, "{reads} reads");
            for &place in &found {
                assert!(!used[place] && (place == 0 || used[place - 1]));
            }
            let first = used.iter().take(FIRST).position(|is_used| !is_used);
            assert!(
                first.is_none() || found.first().copied() == first,
                "holes at the start are filled first"
            );
        }
    }

    #[test]
    fn a_list_without_unused_ones_is_read_once() {
        assert_eq!(searched(CANDIDATES_MAX, 1, |_| true), (Vec::new(), 1));
        assert_eq!(searched(3, 4, |place| place == 1), (vec![0, 2], 1), "fewer than wanted");
        assert_eq!(searched(0, 1, |_| false), (Vec::new(), 0));
        assert_eq!(searched(1_024, FOUND_MAX + 1, |_| false), (Vec::new(), 0), "more than the reads find");
    }

    #[test]
    fn other_starts_while_it_reads_do_not_lead_it_astray() {
        let mut reads = 0;
        let read = |places: &[usize]| {
            reads += 1;
            Ok::<_, ()>(places.iter().map(|&place| place >= 500 && reads == 1).collect())
        };
        assert_eq!(search(1_024, 1, read), Ok(Vec::new()));
    }
}
