//! A daemon's ceilings without threads, on the clocks of a simulation. The start, the keeper, the
//! state file and the locks are those of a real daemon.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::start_sources::{Begun, Found, Joined, Locked, Starting};
use super::storage_thread::write_ceilings;
use crate::config::SourceSettings;
use crate::server::shared::start_error::StartError;
use snowbank_core::clock::{Reading, StepRule, Wall};
use snowbank_core::keeper::{Keeper, Outcome, Polled, Reach, Write};
use snowbank_state::store::DiskStore;
use snowbank_state::{HostIdentity, StateError, WorkerLocks, lock_workers_at_once};

/// The state and the machine with which a simulated process starts.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The state directory. `None`: the process keeps no state.
    pub directory: Option<&'a Path>,
    /// True to start with `--adopt-state`.
    pub adopt: bool,
    /// The machine's locks of worker IDs.
    pub lock_dir: &'a Path,
    /// The identity of the machine's boot.
    pub boot: &'a str,
}

/// The ceilings of one process.
#[derive(Debug)]
pub struct Ceilings {
    /// The keeper, which decides when ceilings rise.
    pub keeper: Keeper,
    /// The wall clock as the process believes it.
    pub wall: Arc<Wall>,
    locks: Vec<WorkerLocks>,
    store: Option<DiskStore>,
}

impl Ceilings {
    /// Starts a process.
    ///
    /// # Errors
    /// A daemon that starts here would be refused with this error.
    pub fn start(
        Place { directory, adopt, lock_dir, boot }: Place<'_>,
        settings: &[SourceSettings],
        rule: StepRule,
        reading: Reading,
    ) -> Result<Self, StartError> {
        let here = HostIdentity { boot: Some(boot.to_owned()), ..HostIdentity::here() };
        let (found, mut store) = Found::open(directory, lock_dir, adopt, here, None)?;
        let mut all_locks = Vec::new();
        for settings in settings {
            let numbering = settings.numbering().expect("the settings are checked");
            let mut locks = lock_workers_at_once(lock_dir, &numbering)?;
            locks.mark_for(found.owner());
            all_locks.push(locks);
        }
        let mut configured = Vec::new();
        for (index, (settings, locks)) in settings.iter().zip(&all_locks).enumerate() {
            let numbering = settings.numbering().expect("the settings are checked");
            configured.push(Locked { index, settings, numbering, locks });
        }
        let numberings = configured.iter().map(|source| &source.numbering);
        let wall = Arc::new(Wall::new(rule, reading, found.remembered(numberings, reading)));
        let no_fleet = Joined::default();
        let begun = found.begin(configured, &[], &no_fleet, Duration::ZERO, &wall, reading)?;
        let Begun { sources: starting, beginning, notes: _ } = begun;
        if let Some(store) = &mut store {
            store.begin(beginning, wall.carried_us())?;
        }
        let mut sources = Vec::new();
        for Starting { index, mut managed, first_ceiling, .. } in starting {
            let id_bound = managed.source().numbering().id_bound(first_ceiling);
            if store.is_some() {
                all_locks[index].mark_granted(id_bound).expect("the lock is ours");
            }
            managed.grant(first_ceiling);
            sources.push(managed);
        }
        let keeper = Keeper::new(sources, &[Reach::Local], Arc::clone(&wall), reading);
        Ok(Ceilings { keeper, wall, locks: all_locks, store })
    }

    /// Polls the keeper, as the keeper thread does.
    pub fn poll(&mut self, reading: Reading) -> Polled {
        let polled = self.keeper.poll(reading);
        for index in self.keeper.restored() {
            self.locks[index].mark_unknown().expect("the lock is ours");
        }
        polled
    }

    /// Writes ceilings to the state, as the storage thread does.
    pub fn write(&mut self, write: &Write) -> Outcome {
        let failure = self.store.as_mut().and_then(|store| write_ceilings(store, write).err());
        let failure = failure.map(|error| error.to_string());
        Outcome { writer: write.writer, number: write.number, failure }
    }

    /// Passes the outcome of a write to the keeper.
    pub fn written(&mut self, outcome: Outcome, reading: Reading) {
        let now = self.keeper.believe(reading);
        let keeps_state = self.store.is_some();
        self.keeper.written(outcome, now, |index, id_bound| {
            if keeps_state {
                self.locks[index].mark_granted(id_bound).expect("the lock is ours");
            }
        });
    }

    /// Stops cleanly.
    ///
    /// # Errors
    /// It is possible that the ceilings were not trimmed.
    pub fn stop(mut self) -> Result<(), StateError> {
        let trims = self.keeper.seal();
        for left in &trims {
            self.locks[left.source].mark_granted(left.id_bound).expect("the lock is ours");
        }
        let wall_minus_boot_us = self.keeper.wall_minus_boot_us();
        let unknown = self.keeper.restored();
        self.store.map_or(Ok(()), |mut store| {
            store.record_unknown(&unknown);
            store.trim(&trims, wall_minus_boot_us)
        })
    }
}
