//! Failovers of a coordinator that may lose its last writes, within the limits of Snowbank's promise
//! (docs/fleet.md, "What Redis does not cover"). A replica may lack raises of less than a horizon, or the last
//! raise of any size. It never lacks the write by which a daemon took a number that was used.

use std::collections::{BTreeMap, VecDeque};

use snowbank::fleet::{NumberKey, Swap};
use snowbank_client::layout::UnixMicros;

use crate::server::Keys;
use crate::{HORIZON, numbering};

/// The most writes that a replica may lack.
const WRITES_MAX: usize = 8;

/// The keys before each of the last writes, and the positions that their holders may have used.
#[derive(Default)]
pub(crate) struct History {
    before: VecDeque<Keys>,
    used: BTreeMap<String, Used>,
}

/// The use of one key's number.
#[derive(Default)]
struct Used {
    /// The highest bound below which IDs may have been handed out. A bound is granted once the next one is
    /// acknowledged.
    granted: u64,
    /// The holder and the bound of the last acknowledged write.
    acknowledged: (String, u64),
}

impl History {
    pub(crate) fn note_write(&mut self, keys: &Keys, swaps: &[Swap]) {
        self.before.push_back(keys.clone());
        if self.before.len() > WRITES_MAX {
            self.before.pop_front();
        }
        for swap in swaps {
            // A holder that releases has sealed: it never hands out IDs above.
            if let Some(key) = NumberKey::parse(&swap.text).ok().filter(|key| key.released) {
                let used = self.used.entry(swap.key.clone()).or_default();
                used.granted = used.granted.min(key.id_bound);
            }
        }
    }

    pub(crate) fn note_acknowledged(&mut self, swaps: &[Swap]) {
        for swap in swaps {
            let Ok(NumberKey { holder, id_bound, released, .. }) = NumberKey::parse(&swap.text) else {
                continue;
            };
            let used = self.used.entry(swap.key.clone()).or_default();
            let before = std::mem::replace(&mut used.acknowledged, (holder.clone(), id_bound));
            if before.0 == holder && !released {
                used.granted = used.granted.max(before.1.min(id_bound));
            }
        }
    }

    /// Goes back by up to this many writes, without losing one that must not be lost. Returns the keys.
    pub(crate) fn go_back(&mut self, writes: usize) -> Option<Keys> {
        let covered = self.before.iter().rev().take(writes).take_while(|keys| self.covers(keys)).count();
        let at = self.before.len() - covered;
        self.before.drain(at..).next()
    }

    /// Returns whether all used positions lie below the starts of the next holders by these keys.
    fn covers(&self, keys: &Keys) -> bool {
        self.used.iter().all(|(key, used)| used.granted <= start_above(key, keys))
    }

    /// Forgets everything, as a fleet that is prepared again does.
    pub(crate) fn forget(&mut self) {
        *self = History::default();
    }
}

/// Returns the lowest bound at which the next holder of a key's number starts.
fn start_above(key: &str, keys: &Keys) -> u64 {
    let Some(found) = keys.get(key).and_then(|stored| NumberKey::parse(&stored.text).ok()) else { return 0 };
    if found.released {
        return found.id_bound;
    }
    let number = key.rsplit('/').next().and_then(|number| number.parse().ok()).expect("a number's key");
    let numbering = numbering(number);
    let until = numbering.start_of(numbering.tick_of(numbering.position_from(found.id_bound)));
    let horizon_us = i64::try_from(HORIZON.as_micros()).expect("a short one");
    numbering.id_bound(numbering.first_of(numbering.tick_at(UnixMicros(until.0 + horizon_us))))
}
