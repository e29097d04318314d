//! The count of held worker IDs, for the operator. Each step of the count is one read, so that the
//! count delays no poll.

use super::{Clocks, Member, NoAnswer};
use crate::{Coordinator, NUMBERS_MAX, NumberKey, rules};

/// The numbers that a source may have, with an unfinished count of those that are held.
#[derive(Clone, Debug)]
pub struct Pool {
    source: usize,
    /// The pool's numbers in the source's ID space.
    numbers: Vec<u64>,
    /// How many of the numbers were read so far.
    read: usize,
    /// How many of the numbers that were read are held.
    held: u64,
}

impl Pool {
    /// Returns a pool of these numbers, for the source with this index. No number is counted yet.
    pub fn new(source: usize, numbers: Vec<u64>) -> Self {
        Pool { source, numbers, read: 0, held: 0 }
    }
}

/// The result of a count of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The source's index in the daemon.
    pub source: usize,
    /// How many numbers the pool has.
    pub numbers: u64,
    /// How many of the pool's numbers are held, so that no daemon can take them now.
    pub held: u64,
}

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Continues to count a pool's numbers. Returns the result once all numbers are counted. The
    /// call after that begins a new count.
    ///
    /// # Errors
    /// The coordinator did not answer.
    pub fn count_on(&mut self, pool: &mut Pool, clocks: Clocks) -> Result<Option<Counted>, NoAnswer> {
        let Some(held) = self.sources.iter().find(|held| held.index == pool.source) else { return Ok(None) };
        let next: Vec<u64> = pool.numbers.iter().skip(pool.read).take(NUMBERS_MAX).copied().collect();
        let keys: Vec<String> = next.iter().map(|&number| self.paths.number(held.place, number)).collect();
        let found = self.coordinator.as_mut().read(&keys)?;
        pool.read += next.len();
        let max_ahead = self.limits.max_ahead();
        for text in found.iter().flatten() {
            // No daemon takes a number whose key cannot be read.
            let is_free = NumberKey::parse(text).is_ok_and(|key| {
                let until = rules::instant_of(&held.numbering, key.id_bound);
                rules::free_at(&key, until, max_ahead) < clocks.wall
            });
            pool.held += u64::from(!is_free);
        }
        if pool.read < pool.numbers.len() {
            return Ok(None);
        }
        let counted = Counted { source: pool.source, numbers: pool.numbers.len() as u64, held: pool.held };
        (pool.read, pool.held) = (0, 0);
        Ok(Some(counted))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{WALL, clocks, five, member, store, take, want};
    use super::*;
    use crate::{Bound, Notes, Paths};
    use snowbank_id::layout::WorkerSet;

    #[test]
    fn a_pool_counts_held_numbers_and_those_that_cannot_be_read() {
        let store = store();
        let [mut one, mut two] = [(); 2].map(|()| member(&store, Notes::default()));
        take(&mut one, want(WALL, false), &five());
        take(&mut two, want(WALL, false), &WorkerSet::single(6));
        take(&mut member(&store, Notes::default()), want(WALL, false), &WorkerSet::single(9));
        store.put(&Paths::of("f").number(0, 7), "garbage");
        let mut pool = Pool::new(0, vec![5, 6, 7, 8]);
        let mut held = || {
            let counted = two.count_on(&mut pool, clocks(WALL)).unwrap();
            counted.map(|counted| (counted.held, counted.numbers))
        };
        assert_eq!(held(), Some((3, 4)), "5, 6 and 7 are held, and 9 is not in the pool");
        one.give_back(&[Bound { source: 0, id_bound: 1 }], &[], clocks(WALL), &|| true).unwrap();
        assert_eq!(held(), Some((2, 4)));
    }

    #[test]
    fn a_large_pool_is_counted_in_steps_of_one_read() {
        let store = store();
        let mut one = member(&store, Notes::default());
        take(&mut one, want(WALL, false), &WorkerSet::single(250));
        let mut pool = Pool::new(0, (0..301).collect());
        let before = store.0.lock().unwrap().reads;
        for held in [None, None, None, Some(1), None] {
            let counted = one.count_on(&mut pool, clocks(WALL)).unwrap();
            assert_eq!(counted.map(|counted| counted.held), held);
        }
        assert_eq!(store.0.lock().unwrap().reads, before + 5);
    }
}
