//! The worker numbers that are left, for the operator.

use std::collections::HashSet;

use super::{Clocks, Member, NoAnswer};
use crate::clock;
use crate::fleet::{Coordinator, NumberKey, rules};

/// The numbers that a source may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The source's index in the daemon.
    pub source: usize,
    /// The numbers in its ID space.
    pub numbers: HashSet<u64>,
}

/// A pool, counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The source's index in the daemon.
    pub source: usize,
    /// All numbers.
    pub numbers: u64,
    /// Those that no other daemon can take now.
    pub held: u64,
}

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Counts a pool's numbers. Returns `None` if the daemon holds none of them.
    ///
    /// # Errors
    /// The coordinator did not answer.
    pub fn count(&mut self, pool: &Pool, clocks: Clocks) -> Result<Option<Counted>, NoAnswer> {
        let Some(at) = self.sources.iter().position(|held| held.index == pool.source) else {
            return Ok(None);
        };
        let keys = self.keys(self.sources[at].place)?;
        let held = &self.sources[at];
        let free_from = clocks.wall.0.saturating_add(clock::micros(held.max_ahead));
        let is_held = |text: &String| match NumberKey::parse(text) {
            Ok(key) => !key.released && rules::instant_of(&held.numbering, key.id_bound).0 >= free_from,
            // Nobody takes a number whose key cannot be read.
            Err(_) => true,
        };
        let of_pool = pool.numbers.iter().filter_map(|number| keys.get(number));
        let held = of_pool.filter(|text| is_held(text)).count() as u64;
        Ok(Some(Counted { source: pool.source, numbers: pool.numbers.len() as u64, held }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{WALL, clocks, member, store, take, want};
    use super::*;
    use crate::fleet::{Bound, Notes, Paths};
    use snowbank_client::layout::{Layout, WorkerSet};

    #[test]
    fn a_pool_counts_held_numbers_and_those_that_cannot_be_read() {
        let layout = Layout::resolve("twitter").unwrap();
        let store = store(&layout);
        let [mut one, mut two] = [(); 2].map(|()| member(&store, Notes::default()));
        let covered = take(&mut one, want(&layout, WALL, false), &WorkerSet::single(5)).covered;
        take(&mut two, want(&layout, WALL, false), &WorkerSet::single(6));
        take(&mut member(&store, Notes::default()), want(&layout, WALL, false), &WorkerSet::single(9));
        store.put(&Paths::of("f").number(0, 7), "garbage");
        let pool = Pool { source: 0, numbers: HashSet::from([5, 6, 7, 8]) };
        let mut held =
            || two.count(&pool, clocks(WALL)).unwrap().map(|counted| (counted.held, counted.numbers));
        assert_eq!(held(), Some((3, 4)), "9 is of another pool");
        one.release(&[Bound { source: 0, id_bound: covered }], clocks(WALL)).unwrap();
        assert_eq!(held(), Some((2, 4)));
    }
}
