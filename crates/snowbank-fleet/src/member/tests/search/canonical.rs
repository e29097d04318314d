//! Decides which states are the same. Replaces the names of writes, terms, states and boots by
//! numbers, in the order of their first occurrence.
//!
//! The patterns name every field of a machine and its daemon. So the code does not compile with a
//! new field until somebody adds the field here, or leaves it out by name. Values that all states
//! share, texts for people, and copies of other fields do not matter.

use std::hash::{DefaultHasher, Hasher};

use super::machine::{Daemon, FLEET, Machine, Starting};
use super::wire::{Keys, Server, Wire};
use super::world::World;
use crate::member::{Held, Member};
use crate::{Note, Swap};

/// Returns a hash of everything that later events depend on, except the number of faults left.
pub(super) fn hash(world: &World) -> u128 {
    hash_in_order(world, [0, 1, 2]).min(hash_in_order(world, [1, 0, 2]))
}

/// Returns the hash with the machines in this order. The first two machines are configured alike.
fn hash_in_order(world: &World, order: [usize; 3]) -> u128 {
    let mut form = Form { words: Vec::with_capacity(200), ..Form::default() };
    order.into_iter().for_each(|at| form.machine(&world.machines[at]));
    form.server(&world.server);
    form.words.extend(world.used.iter().flat_map(|used| [*used as u64, (*used >> 64) as u64]));
    form.words.push(world.time.0 as u64);
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(salt);
        form.words.iter().for_each(|&word| hasher.write_u64(word));
        hasher.finish()
    };
    u128::from(half(0)) << 64 | u128::from(half(1))
}

/// The words of a state that are hashed.
#[derive(Default)]
struct Form<'a> {
    words: Vec<u64>,
    /// The names that have occurred, in the order of their first occurrence.
    writes: Vec<&'a str>,
    states: Vec<&'a str>,
    boots: Vec<u64>,
}

/// Returns the text of a field in a JSON text, without its quotes.
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
    /// Adds the coordinator. Leaves out `identities`, because the next name is new in any state.
    /// Also leaves out `faults_left`, because [`Visited`](super::Visited) compares it, and
    /// `may_go_back`, which all states share.
    fn server(&mut self, server: &'a Server) {
        let Server {
            keys,
            before,
            late,
            backups,
            lost_writes,
            identities: _,
            faults_left: _,
            may_go_back: _,
        } = server;
        self.keys(keys);
        self.words.extend([u64::from(before.is_some()), u64::from(*lost_writes)]);
        before.iter().for_each(|keys| self.keys(keys));
        self.words.push(backups.len() as u64);
        backups.iter().for_each(|keys| self.keys(keys));
        self.words.push(late.len() as u64);
        for Swap { key, expected, text } in late.iter().flatten() {
            self.name(key);
            self.text(expected.as_deref().unwrap_or_default());
            self.text(text.as_deref().unwrap_or_default());
        }
    }

    fn keys(&mut self, keys: &'a Keys) {
        self.words.push(keys.len() as u64);
        for (key, text) in keys {
            self.name(key);
            self.text(text);
        }
    }

    fn name(&mut self, name: &str) {
        let mut hasher = DefaultHasher::new();
        hasher.write(name.as_bytes());
        self.words.push(hasher.finish());
    }

    /// Adds a value: its write and term, its bounds, and whether it was released. Of a marker, adds
    /// the identity, the spaces, the floor and the reach.
    fn text(&mut self, text: &'a str) {
        self.write(field(text, "\"write\""));
        self.write(field(text, "\"term\""));
        self.write(field(text, "\"identity\""));
        self.name(
            text.split_once("\"spaces\"").map_or("", |(_, rest)| rest.split(']').next().unwrap_or(rest)),
        );
        let number = |name| field(text, name).parse::<u64>().unwrap_or(0);
        self.words.extend([number("\"floor_unix_ms\""), number("\"from\"")]);
        self.words.extend([number("\"horizon_ms\""), number("\"max_ahead_ms\"")]);
        let bound = field(text, "\"id_bound\"").parse::<u64>().unwrap_or(u64::MAX);
        self.words.extend([bound, number("\"highest\""), u64::from(field(text, "\"released\"") == "true")]);
    }

    fn write(&mut self, write: &'a str) {
        let place = place(&mut self.writes, write);
        self.words.push(place);
    }

    fn writes(&mut self, writes: &'a [String]) {
        self.words.push(writes.len() as u64);
        writes.iter().for_each(|write| self.write(write));
    }

    fn boot(&mut self, boot: u64) {
        let place = place(&mut self.boots, boot);
        self.words.push(place);
    }

    fn machine(&mut self, machine: &'a Machine) {
        let Machine {
            space: _,
            given: _,
            state,
            notes,
            noted_in,
            ceilings,
            marks,
            boot,
            wall_minus_boot_us,
            clock,
            starting,
            daemon,
            has_lost,
            is_release_stale,
        } = machine;
        self.words.extend([*wall_minus_boot_us as u64, u64::from(*has_lost), u64::from(*is_release_stale)]);
        self.words.push(*clock as u64);
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
        match notes.of(FLEET, machine.space.source(), machine.space.text()) {
            None => self.words.push(u64::MAX),
            Some(note) => self.note(note),
        }
        match starting {
            None => self.words.push(u64::MAX),
            Some(Starting { member, taken, wall, is_revoked, is_settled }) => {
                self.words.extend([taken.floor, taken.covered, wall.0 as u64]);
                self.words.extend([u64::from(*is_revoked), u64::from(*is_settled)]);
                self.member(member, 0);
            }
        }
        match daemon {
            None => self.words.push(u64::MAX),
            Some(daemon) => self.daemon(daemon),
        }
    }

    fn note(&mut self, note: &'a Note) {
        let Note {
            worker_ids,
            writes,
            replaced,
            term,
            identity,
            acknowledged,
            floor,
            covered,
            is_held,
            wall_minus_boot_us,
            fleet: _,
            limits: _,
            numbers: _,
            source: _,
            space: _,
            place: _,
        } = note;
        self.name(worker_ids);
        self.writes(writes);
        self.writes(replaced);
        self.write(term);
        self.write(identity);
        self.words.extend([*acknowledged, *floor, *covered, *wall_minus_boot_us as u64, u64::from(*is_held)]);
    }

    fn state(&mut self, state: &'a str) {
        let place = place(&mut self.states, state);
        self.words.push(place);
    }

    fn daemon(&mut self, daemon: &'a Daemon) {
        let Daemon { member, ids, cursor, granted, newest, generation } = daemon;
        self.words.extend([*ids as u64, *cursor, *granted, *newest]);
        self.member(member, *generation);
    }

    fn member(&mut self, member: &'a Member<Wire>, generation: u64) {
        // The machine has the same state and the same notes, so the member's are left out here.
        let Member {
            sources,
            counters,
            marker,
            tried: _,
            polled,
            clocks: _,
            are_compared: _,
            coordinator: _,
            paths: _,
            fleet: _,
            limits: _,
            state: _,
            holder: _,
            notes: _,
            new_identity: _,
            doubt: _,
            idle,
            lost,
        } = member;
        assert!(idle.is_empty() && lost.is_none(), "one source, and a daemon that lost it has ended");
        assert!(counters.is_empty(), "the search has no ticket source");
        self.words.push(sources.len() as u64);
        sources.iter().for_each(|held| self.held(held, generation));
        self.text(marker.as_ref().map_or("", |known| &known.text));
        // No time passes, so another poll is due only after a poll without an answer.
        self.words.push(u64::from(polled.is_some_and(|last| !last.is_answered)));
    }

    /// Adds a source. The worker IDs are left out because `numbers` has them, `since_unix_s`
    /// because it is for people, and `made_on` because no connection is made again.
    fn held(&mut self, held: &'a Held, daemons: u64) {
        let Held {
            numbers,
            is_claimed,
            floor,
            covered,
            acknowledged,
            trying,
            generation,
            term,
            identity,
            wall_minus_boot_us,
            made_with_us,
            is_unsettled,
            passed,
            released_by,
            numbering: _,
            made_on: _,
            source: _,
            index: _,
            space: _,
            worker_ids: _,
            place: _,
            since_unix_s: _,
        } = held;
        let flags = [is_claimed, &(*generation == daemons)].map(|flag| u64::from(*flag));
        self.words.extend([*floor, *covered, *acknowledged].into_iter().chain(flags));
        self.words.extend([
            *wall_minus_boot_us as u64,
            u64::from(*is_unsettled),
            u64::from(released_by.is_some()),
        ]);
        self.words.extend([passed.unwrap_or(0), *made_with_us as u64]);
        self.write(term);
        self.write(identity);
        self.writes(trying.as_slice());
        for (number, holding) in numbers {
            self.words.push(*number);
            self.text(holding.text().map_or("", String::as_str));
            self.words.push(holding.acknowledged());
            self.writes(holding.writes());
            self.writes(holding.replaced());
        }
    }
}
