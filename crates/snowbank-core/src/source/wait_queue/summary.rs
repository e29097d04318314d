//! A summary of the requests that wait: the positions promised by each deadline, and the positions
//! that all requests want.
//!
//! Requests that follow each other in the queue are summed up in groups. So an admission behind ten
//! thousand requests reads one sum for each group, not every request. When a tick is shared out,
//! all requests change, so the summary is then made again.

use std::mem;

use crate::clock::BootMicros;

/// The most requests of a group. Among 10,000 requests, a search then takes about as many steps
/// over groups as within one group.
const GROUP_REQUESTS_MAX: usize = 128;

/// What one request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Want {
    pub(super) due: BootMicros,
    /// The number of positions that it still wants.
    pub(super) wanted: u64,
    /// The part of `wanted` that is promised: the request gets it by its deadline.
    pub(super) promised: u64,
    /// The position after the last one that can be promised by its deadline.
    pub(super) limit_by_due: u64,
}

/// The wants of all requests, in order of deadlines.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// Invariant: no group is empty.
    groups: Vec<Group>,
}

/// Requests that follow each other in the queue, and the sums over them.
#[derive(Debug)]
struct Group {
    wants: Vec<Want>,
    wanted: u64,
    promised: u64,
    least_wanted: u64,
    most_wanted: u64,
    /// The lowest `limit_by_due` of its requests.
    first_limit: u64,
    /// The least `limit − promised` of its requests that are promised something. Here `promised` is
    /// what the group promises up to and including the request.
    laxity: i128,
    /// The largest `promised − limit × (1 − 1 / LEFT_OUT)` of its requests, with `promised` as for
    /// `laxity`. Multiplied by [`LEFT_OUT`], so that it is an integer.
    pressure: i128,
}

/// The fraction of positions to come, as a divisor, that [`Summary::due_now`] does not count on.
pub(super) const LEFT_OUT: u64 = super::BYPASS_SHARE;

impl Group {
    fn of(wants: Vec<Want>) -> Group {
        let mut group = Group {
            wants: Vec::new(),
            wanted: 0,
            promised: 0,
            least_wanted: u64::MAX,
            most_wanted: 0,
            first_limit: u64::MAX,
            laxity: i128::MAX,
            pressure: i128::MIN,
        };
        for want in &wants {
            group.wanted = group.wanted.saturating_add(want.wanted);
            group.promised = group.promised.saturating_add(want.promised);
            group.least_wanted = group.least_wanted.min(want.wanted);
            group.most_wanted = group.most_wanted.max(want.wanted);
            group.first_limit = group.first_limit.min(want.limit_by_due);
            let promised = i128::from(group.promised);
            let limit = i128::from(want.limit_by_due);
            // A request that is promised nothing more needs nothing by its deadline.
            if want.promised > 0 {
                group.laxity = group.laxity.min(limit - promised);
            }
            let all = i128::from(LEFT_OUT);
            let kept = i128::from(LEFT_OUT - 1);
            group.pressure = group.pressure.max(all * promised - kept * limit);
        }
        group.wants = wants;
        group
    }

    fn sum_up(&mut self) {
        *self = Group::of(mem::take(&mut self.wants));
    }

    /// Returns the sum of what its requests want, counting at most `most` for each.
    fn wanted_of_at_most(&self, most: u64) -> u64 {
        if self.most_wanted <= most {
            self.wanted
        } else if self.least_wanted >= most {
            most.saturating_mul(self.wants.len() as u64)
        } else {
            self.wants.iter().map(|want| want.wanted.min(most)).sum()
        }
    }

    /// Calls `missing` for each request with the number of positions promised up to and including
    /// that request. Returns the largest result.
    fn most_missing(&self, before: u64, missing: impl Fn(u64, &Want) -> u64) -> u64 {
        let mut promised = before;
        let each = self.wants.iter().map(|want| {
            promised = promised.saturating_add(want.promised);
            missing(promised, want)
        });
        each.max().unwrap_or(0)
    }
}

impl Summary {
    /// Makes the summary again from these wants.
    pub(super) fn renew(&mut self, wants: impl Iterator<Item = Want>) {
        let mut wants = wants.peekable();
        let mut spare: Vec<Vec<Want>> = self.groups.drain(..).map(|group| group.wants).collect();
        while wants.peek().is_some() {
            let mut members = spare.pop().unwrap_or_default();
            members.clear();
            // Groups are half full, so that an insertion usually finds room.
            members.extend(wants.by_ref().take(GROUP_REQUESTS_MAX / 2));
            self.groups.push(Group::of(members));
        }
    }

    /// Adds a request before the request at this index.
    pub(super) fn insert(&mut self, index: usize, want: Want) {
        let Some((group, at)) = self.find(index) else {
            match self.groups.last_mut().filter(|group| group.wants.len() < GROUP_REQUESTS_MAX) {
                Some(group) => {
                    group.wants.push(want);
                    group.sum_up();
                }
                None => self.groups.push(Group::of(vec![want])),
            }
            return;
        };
        self.groups[group].wants.insert(at, want);
        if self.groups[group].wants.len() > GROUP_REQUESTS_MAX {
            let second = self.groups[group].wants.split_off(GROUP_REQUESTS_MAX / 2);
            self.groups.insert(group + 1, Group::of(second));
        }
        self.groups[group].sum_up();
    }

    /// Removes the request at this index.
    pub(super) fn remove(&mut self, index: usize) {
        let Some((group, at)) = self.find(index) else { return };
        self.groups[group].wants.remove(at);
        if self.groups[group].wants.is_empty() {
            self.groups.remove(group);
        } else {
            self.groups[group].sum_up();
        }
    }

    /// Returns the index of the group that has the request at `index`, and the request's place in
    /// that group.
    fn find(&self, index: usize) -> Option<(usize, usize)> {
        let mut left = index;
        for (number, group) in self.groups.iter().enumerate() {
            if left < group.wants.len() {
                return Some((number, left));
            }
            left -= group.wants.len();
        }
        None
    }

    /// Returns the number of positions that all requests want, counting at most `most` for each.
    pub(super) fn wanted_of_at_most(&self, most: u64) -> u64 {
        let by_group = self.groups.iter().map(|group| group.wanted_of_at_most(most));
        by_group.fold(0, u64::saturating_add)
    }

    /// Returns how many positions must go to promises now, in order of deadlines. With fewer, some
    /// promise would need nearly every position up to its deadline, and other requests would get
    /// hardly any until then.
    ///
    /// `next` is the first position that is not available yet. Of the positions to come, the result
    /// counts on all but one in [`LEFT_OUT`].
    pub(super) fn due_now(&self, next: u64) -> u64 {
        self.most_missing(0, |group, before| {
            if group.first_limit < next {
                return group.most_missing(before, |promised, want| {
                    let to_come = want.limit_by_due.saturating_sub(next);
                    promised.saturating_sub(to_come - to_come / LEFT_OUT)
                });
            }
            let all = i128::from(LEFT_OUT);
            let kept = i128::from(LEFT_OUT - 1);
            positive((all * i128::from(before) + group.pressure + kept * i128::from(next)).div_euclid(all))
        })
    }

    /// Returns how many positions, from `next` on, can go to other requests without breaking a
    /// promise.
    pub(super) fn laxity(&self, next: u64) -> u64 {
        let mut before = 0_u64;
        let spare = self.groups.iter().map(|group| {
            let spare = group.laxity.saturating_sub(i128::from(before) + i128::from(next));
            before = before.saturating_add(group.promised);
            positive(spare)
        });
        spare.min().unwrap_or(u64::MAX)
    }

    /// Returns how many positions are promised to requests that are due by this deadline.
    pub(super) fn promised_by(&self, due: BootMicros) -> u64 {
        let begun = self.groups.iter();
        let begun = begun.take_while(|group| group.wants.first().is_some_and(|first| first.due <= due));
        let promised = begun.map(|group| match group.wants.last() {
            Some(last) if last.due <= due => group.promised,
            _ => group.wants.iter().take_while(|want| want.due <= due).map(|want| want.promised).sum(),
        });
        promised.fold(0, u64::saturating_add)
    }

    /// Returns the most positions that any request with a later deadline would lack. The question
    /// is whether `count` positions from `next` on can be promised to a request with the deadline
    /// `due`.
    pub(super) fn short_of_later(&self, count: u64, due: BootMicros, next: u64) -> u64 {
        self.most_missing(count, |group, before| {
            if group.wants.last().is_none_or(|last| last.due <= due) {
                return 0;
            }
            let is_split = group.wants.first().is_some_and(|first| first.due <= due);
            if is_split || group.first_limit < next {
                return group.most_missing(before, |promised, want| {
                    let held = want.limit_by_due.saturating_sub(next);
                    if want.due > due && want.promised > 0 { promised.saturating_sub(held) } else { 0 }
                });
            }
            positive(i128::from(before) + i128::from(next) - group.laxity)
        })
    }

    /// Calls `missing` for each group with the number of positions promised before that group.
    /// Returns the largest result.
    fn most_missing(&self, before: u64, missing: impl Fn(&Group, u64) -> u64) -> u64 {
        let mut promised = before;
        let each = self.groups.iter().map(|group| {
            let missing = missing(group, promised);
            promised = promised.saturating_add(group.promised);
            missing
        });
        each.max().unwrap_or(0)
    }
}

fn positive(positions: i128) -> u64 {
    u64::try_from(positions.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Computes the sums of [`Summary`] request by request.
    struct Naive(Vec<Want>);

    impl Naive {
        /// Returns each request with the number of positions promised up to and including it.
        fn promised(&self) -> impl Iterator<Item = (u64, &Want)> {
            self.0.iter().scan(0, |promised, want| {
                *promised += want.promised;
                Some((*promised, want))
            })
        }

        fn due_now(&self, next: u64) -> u64 {
            let missing = self.promised().map(|(promised, want)| {
                let to_come = want.limit_by_due.saturating_sub(next);
                promised.saturating_sub(to_come - to_come / LEFT_OUT)
            });
            missing.max().unwrap_or(0)
        }

        fn laxity(&self, next: u64) -> u64 {
            let spare = self
                .promised()
                .filter(|(_, want)| want.promised > 0)
                .map(|(promised, want)| want.limit_by_due.saturating_sub(next).saturating_sub(promised));
            spare.min().unwrap_or(u64::MAX)
        }

        fn short_of_later(&self, count: u64, due: BootMicros, next: u64) -> u64 {
            let later = self.promised().filter(|(_, want)| want.due > due && want.promised > 0);
            let short = later.map(|(promised, want)| {
                (count + promised).saturating_sub(want.limit_by_due.saturating_sub(next))
            });
            short.max().unwrap_or(0)
        }
    }

    fn a_want() -> impl Strategy<Value = Want> {
        let limit = prop_oneof![8 => 0_u64..100_000, 1 => Just(u64::MAX)];
        let wanted = prop_oneof![1_u64..4, 1_u64..2_000];
        // A partial request is promised one position, and no more once it has one.
        let promised = prop_oneof![1 => Just(Some(0)), 1 => Just(Some(1)), 2 => Just(None)];
        (0_i64..500, wanted, promised, limit).prop_map(|(due, wanted, promised, limit_by_due)| {
            let promised = promised.unwrap_or(wanted);
            Want { due: BootMicros(due), wanted, promised, limit_by_due }
        })
    }

    proptest! {
        #[test]
        fn sums_of_groups_equal_sums_over_requests(
            first in prop::collection::vec(a_want(), 0..400),
            changes in prop::collection::vec((any::<bool>(), a_want(), any::<prop::sample::Index>()), 0..300),
            looks in prop::collection::vec((1_u64..3_000, 0_i64..500, 0_u64..100_000), 1..20),
        ) {
            let mut naive = Naive(first);
            naive.0.sort_by_key(|want| want.due);
            let mut summary = Summary::default();
            summary.renew(naive.0.iter().copied());
            for (is_insertion, want, index) in changes {
                if is_insertion {
                    let at = naive.0.partition_point(|other| other.due <= want.due);
                    naive.0.insert(at, want);
                    summary.insert(at, want);
                } else if !naive.0.is_empty() {
                    let at = index.index(naive.0.len());
                    naive.0.remove(at);
                    summary.remove(at);
                }
            }
            let by_group = summary.groups.iter().flat_map(|group| group.wants.iter().copied());
            prop_assert_eq!(&by_group.collect::<Vec<_>>(), &naive.0);
            prop_assert!(summary.groups.iter().all(|group| (1..=GROUP_REQUESTS_MAX).contains(&group.wants.len())));
            for (count, due, next) in looks {
                let due = BootMicros(due);
                prop_assert_eq!(summary.due_now(next), naive.due_now(next));
                prop_assert_eq!(summary.laxity(next), naive.laxity(next));
                prop_assert_eq!(summary.short_of_later(count, due, next), naive.short_of_later(count, due, next));
                let by_then = naive.0.iter().filter(|want| want.due <= due).map(|want| want.promised);
                prop_assert_eq!(summary.promised_by(due), by_then.sum::<u64>());
                let wanted = naive.0.iter().map(|want| want.wanted.min(count));
                prop_assert_eq!(summary.wanted_of_at_most(count), wanted.sum::<u64>());
            }
        }
    }
}
