//! A daemon's ceilings on clocks that a simulation provides, without threads: the shipped start, the shipped keeper, and the
//! shipped state file and locks in directories.

use std::path::Path;
use std::sync::Arc;

use super::keeper_thread::is_record_of;
use super::start_sources::{self, Durable, Found, FromFleet, Granted, Joining, Planned, State};
use super::storage_thread::write_ceilings;
use crate::ceiling::store::{DiskStore, Record};
use crate::ceiling::{Owner, StoreError, WorkerLocks, lock_workers_at_once};
use crate::clock::{Reading, StepRule, Wall};
use crate::config::SourceSettings;
use crate::keeper::{Keeper, Outcome, Reach, Write};
use crate::numbering::Numbering;
use crate::server::shared::start_error::StartError;

/// The state and the machine that a process starts on.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The state directory; `None`: nothing is kept.
    pub directory: Option<&'a Path>,
    /// Take over an older copy of a state that is lost.
    pub adopt: bool,
    /// The machine's locks of worker IDs.
    pub lock_dir: &'a Path,
    /// The identity of the machine's boot.
    pub boot: &'a str,
}

/// The ceilings of one process.
#[derive(Debug)]
pub struct Ceilings {
    /// Decides on raises.
    pub keeper: Keeper,
    /// The part of the wall clock that the process believes.
    pub wall: Arc<Wall>,
    owner: Option<Owner>,
    locks: Vec<WorkerLocks>,
    store: Option<DiskStore>,
    retired: Vec<Record>,
}

impl Ceilings {
    /// Starts with the state in a directory, or with none.
    ///
    /// # Errors
    /// As a daemon's start.
    pub fn start(
        Place { directory, adopt, lock_dir, boot }: Place<'_>,
        settings: &[SourceSettings],
        rule: StepRule,
        reading: Reading,
    ) -> Result<Self, StartError> {
        let mut found = Found::open(State { directory, adopt })?;
        found.here.boot = Some(boot.to_owned());
        let numberings: Vec<Numbering> = settings.iter().map(numbering).collect();
        let locks = numberings.iter().map(|numbering| lock_workers_at_once(lock_dir, numbering));
        let locks = locks.collect::<Result<_, _>>()?;
        let wall = Arc::new(Wall::new(rule, reading, found.remembered(&numberings, reading)));
        let (fleet, now) = (FromFleet::default(), wall.believe(reading));
        let granted = found.grant(settings, &numberings, locks, fleet, (now, &wall))?;
        let Granted { durable, owner, .. } = granted;
        let Durable { mut sources, locks, first_ceilings, stored, ranges: _ } = durable;
        for (managed, (index, ceiling)) in sources.iter_mut().zip(first_ceilings) {
            let id_bound = managed.source().numbering().id_bound(ceiling);
            locks[index].mark_granted(id_bound).expect("the lock is ours");
            managed.grant(ceiling);
        }
        let (store, retired) = stored.map_or((None, Vec::new()), |(store, retired)| (Some(store), retired));
        let keeper = Keeper::new(sources, &[Reach::Local], Arc::clone(&wall), reading);
        Ok(Ceilings { keeper, wall, owner, locks, store, retired })
    }

    /// Begins to take in a source, as a reload does.
    ///
    /// # Errors
    /// Why it cannot start, or not now.
    pub fn join(
        &mut self,
        lock_dir: &Path,
        settings: SourceSettings,
        reading: Reading,
    ) -> Result<(), String> {
        let now = self.keeper.believe(reading);
        let numbering = numbering(&settings);
        let mut locks = lock_workers_at_once(lock_dir, &numbering).map_err(|error| error.to_string())?;
        self.owner.iter().for_each(|owner| locks.mark_for(owner));
        let running: Vec<_> = self.keeper.sources().cloned().collect();
        let joining = vec![Joining { settings, numbering, locks }];
        let state_dir = self.store.as_ref().map(DiskStore::path);
        let believed = (now, now.held_step(reading));
        let planned = start_sources::plan_joining(&running, &self.retired, joining, state_dir, believed)?;
        let Planned { sources, locks, .. } = planned;
        self.keeper.join(sources, now).map_err(|_| String::from("an earlier one is still written"))?;
        self.locks.extend(locks);
        Ok(())
    }

    /// Makes a write, as the storage thread does.
    pub fn write(&mut self, write: &Write) -> Outcome {
        let joining: Vec<_> = self.keeper.joining().cloned().collect();
        let result = match &mut self.store {
            Some(store) => write_ceilings(store, write, &joining),
            None => Ok(()),
        };
        Outcome { writer: write.writer, number: write.number, result }
    }

    /// Takes the outcome of a write. Returns the number of sources that have joined.
    pub fn written(&mut self, outcome: Outcome, reading: Reading) -> usize {
        let now = self.keeper.believe(reading);
        let locks = &self.locks;
        let mark = |index: usize, id_bound| locks[index].mark_granted(id_bound).expect("the lock is ours");
        let joined = self.keeper.written(outcome, now, mark).map_or(0, |written| written.joined);
        if joined > 0 {
            let sources: Vec<_> = self.keeper.sources().cloned().collect();
            self.retired.retain(|record| !sources.iter().any(|source| is_record_of(record, source)));
        }
        // Sources that were given up have no locks.
        self.locks.truncate(self.keeper.sources().count() + self.keeper.joining().count());
        joined
    }

    /// Stops cleanly.
    ///
    /// # Errors
    /// The ceilings may not be trimmed.
    pub fn stop(mut self) -> Result<(), StoreError> {
        let trims = self.keeper.seal();
        for left in &trims {
            self.locks[left.source].mark_granted(left.id_bound).expect("the lock is ours");
        }
        let wall_minus_boot_us = self.keeper.wall_minus_boot_us();
        let unknown = self.keeper.restored();
        self.store.map_or(Ok(()), |mut store| {
            store.note_unknown(&unknown);
            store.trim(&trims, wall_minus_boot_us)
        })
    }
}

fn numbering(settings: &SourceSettings) -> Numbering {
    settings.numbering().expect("the settings are checked")
}
