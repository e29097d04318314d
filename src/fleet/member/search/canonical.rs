//! The sameness of states: names of writes, states and boots are replaced by the order in which they are met, and versions
//! by their order.
//!
//! The patterns name every field of a machine and its daemon, so that a new one does not compile until it is added, or left
//! out for a reason. Left out is the value that all states share, what only people read, and a copy of another field.

use std::hash::{DefaultHasher, Hasher};

use super::machine::{Daemon, Machine, SOURCE, SPACE};
use super::wire::{Keys, Server};
use super::world::World;
use crate::fleet::member::{Held, Member};
use crate::fleet::{Note, Stored, Swap, Version};

/// Returns a hash of all that can matter for what follows, apart from the faults that may still happen.
pub(super) fn hash(world: &World) -> u128 {
    let versions = versions(world);
    hash_in_order(world, &versions, [0, 1, 2]).min(hash_in_order(world, &versions, [1, 0, 2]))
}

/// Returns the hash with the machines in this order. The first two are alike.
fn hash_in_order(world: &World, versions: &[Version], order: [usize; 3]) -> u128 {
    let mut form = Form { versions, words: Vec::with_capacity(200), ..Form::default() };
    order.into_iter().for_each(|at| form.machine(&world.machines[at]));
    form.server(&world.server);
    form.words.extend(world.used);
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(salt);
        form.words.iter().for_each(|&word| hasher.write_u64(word));
        hasher.finish()
    };
    u128::from(half(0)) << 64 | u128::from(half(1))
}

/// A state as words, as far as it was read.
#[derive(Default)]
struct Form<'a> {
    words: Vec<u64>,
    /// The names that were met, in their order.
    writes: Vec<&'a str>,
    states: Vec<&'a str>,
    boots: Vec<u64>,
    /// All versions, the oldest first.
    versions: &'a [Version],
}

/// Returns all versions that a state contains, the oldest first.
fn versions(world: &World) -> Vec<Version> {
    let server = &world.server;
    let keys = std::iter::once(&server.keys).chain(&server.before);
    let stored = keys.flat_map(|keys| keys.values().map(|stored| stored.version));
    let expected = server.late.iter().flatten().filter_map(|swap| swap.expected);
    let daemons = world.machines.iter().filter_map(|machine| machine.daemon.as_ref());
    let held = daemons.flat_map(|daemon| &daemon.member.sources).flat_map(|held| &held.numbers);
    let held = held.filter_map(|(_, holding)| holding.version());
    let mut all: Vec<Version> = stored.chain(expected).chain(held).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the text of a field of a value, without its quotes.
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let from = text.find(name).map_or(text.len(), |at| at + name.len());
    let rest = text[from..].trim_start_matches(['"', ':']);
    &rest[..rest.find(['"', ',', '}']).unwrap_or(rest.len())]
}

fn place<T: PartialEq>(known: &mut Vec<T>, found: T) -> u64 {
    let at = known.iter().position(|known| *known == found).unwrap_or_else(|| {
        known.push(found);
        known.len() - 1
    });
    at as u64
}

impl<'a> Form<'a> {
    /// The next version and the next name are new, whatever they are. [`Visited`](super::Visited) compares `left`, the
    /// faults that may still happen.
    fn server(&mut self, server: &'a Server) {
        let Server { keys, before, late, revision: _, drawn: _, left: _ } = server;
        self.keys(keys);
        self.words.push(u64::from(before.is_some()));
        before.iter().for_each(|keys| self.keys(keys));
        self.words.push(late.len() as u64);
        for Swap { key, expected, text } in late.iter().flatten() {
            self.name(key);
            self.version(*expected);
            self.text(text);
        }
    }

    fn keys(&mut self, keys: &'a Keys) {
        self.words.push(keys.len() as u64);
        for (key, Stored { version, text }) in keys {
            self.name(key);
            self.version(Some(*version));
            self.text(text);
        }
    }

    /// The last byte of a key tells numbers and the marker apart.
    fn name(&mut self, key: &str) {
        self.words.push(u64::from(key.as_bytes().last().copied().unwrap_or(0)));
    }

    /// A value: its write, its bound, and whether it was released. The marker has none of them.
    fn text(&mut self, text: &'a str) {
        self.write(field(text, "\"write\""));
        let bound = field(text, "\"id_bound\"").parse::<u64>().unwrap_or(u64::MAX);
        self.words.extend([bound, u64::from(field(text, "\"released\"") == "true")]);
    }

    fn write(&mut self, write: &'a str) {
        let place = place(&mut self.writes, write);
        self.words.push(place);
    }

    fn writes(&mut self, writes: &'a [String]) {
        self.words.push(writes.len() as u64);
        writes.iter().for_each(|write| self.write(write));
    }

    fn version(&mut self, version: Option<Version>) {
        let rank = version.map_or(u64::MAX, |version| {
            self.versions.binary_search(&version).map_or(u64::MAX - 1, |rank| rank as u64)
        });
        self.words.push(rank);
    }

    fn boot(&mut self, boot: u64) {
        let place = place(&mut self.boots, boot);
        self.words.push(place);
    }

    fn machine(&mut self, machine: &'a Machine) {
        let Machine { state, notes, noted_in, ceilings, marks, boot, daemon } = machine;
        self.state(state);
        self.boot(*boot);
        self.boot(*noted_in);
        self.words.extend(ceilings.map(|ceiling| ceiling.unwrap_or(u64::MAX)));
        for mark in marks {
            match mark {
                None => self.words.push(u64::MAX),
                Some((state, ceiling, fate)) => {
                    self.state(state);
                    self.words.extend([*ceiling, *fate as u64]);
                }
            }
        }
        match notes.of(SOURCE, &SPACE) {
            None => self.words.push(u64::MAX),
            Some(Note { worker_ids, writes, floor, covered, numbers: _, source: _, space: _, place: _ }) => {
                self.name(worker_ids);
                self.writes(writes);
                self.words.extend([*floor, *covered]);
            }
        }
        match daemon {
            None => self.words.push(u64::MAX),
            Some(daemon) => self.daemon(daemon),
        }
    }

    fn state(&mut self, state: &'a str) {
        let place = place(&mut self.states, state);
        self.words.push(place);
    }

    fn daemon(&mut self, daemon: &'a Daemon) {
        let Daemon { member, number, cursor, granted, newest, generation } = daemon;
        self.words.extend([*number as u64, *cursor, *granted, *newest]);
        // The machine has the same state and the same notes.
        let Member {
            sources,
            waiting,
            late_starts,
            counters,
            first_writes: _,
            are_compared: _,
            coordinator: _,
            paths: _,
            state: _,
            holder: _,
            notes: _,
            draw: _,
        } = member;
        assert!(waiting.is_empty() && late_starts.is_empty(), "no start of the search waits");
        assert!(counters.is_empty(), "the search has no ticket source");
        self.words.push(sources.len() as u64);
        sources.iter().for_each(|held| self.held(held, *generation));
    }

    /// `numbers` has the worker ID, `since_unix_s` is for people, and no connection is made again.
    fn held(&mut self, held: &'a Held, daemons: u64) {
        let Held {
            numbers,
            is_claimed,
            floor,
            covered,
            acknowledged,
            trying,
            generation,
            drawn_on: _,
            source: _,
            index: _,
            space: _,
            worker_ids: _,
            place: _,
            since_unix_s: _,
        } = held;
        let flags = [is_claimed, &(*generation == daemons)].map(|flag| u64::from(*flag));
        self.words.extend([*floor, *covered, *acknowledged].into_iter().chain(flags));
        self.writes(trying.as_slice());
        for (number, holding) in numbers {
            self.words.push(*number);
            self.version(holding.version());
            self.writes(holding.writes());
        }
    }
}
