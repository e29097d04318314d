//! The start of a daemon of a fleet: takes its worker numbers from the coordinator before anything is handed out.

use super::start_sources::Found;
use crate::ceiling::{LockError, WorkerLocks, draw_identity, lock_workers};
use crate::clock::Reading;
use crate::config::{Settings, SourceSettings};
use crate::fleet::{self, Access, AnyCoordinator, Member, Notes, Taken, Want};
use crate::numbering::Numbering;
use crate::server::shared::note::Note;
use crate::server::shared::start_error::StartError;

/// The daemon's place in its fleet.
pub(crate) struct Joined {
    pub(crate) member: Member<AnyCoordinator>,
    /// By source. `None`: it has no worker IDs.
    pub(crate) taken: Vec<Option<Taken>>,
    /// Lines for the operator, once the daemon has started.
    pub(crate) notes: Vec<Note>,
}

impl Joined {
    /// Takes the numbers of all sources, and sets those that the coordinator lends.
    ///
    /// # Errors
    /// Another daemon holds one, or the coordinator cannot be asked and this state has none of its own.
    pub(crate) fn join(
        settings: &mut Settings,
        access: Access,
        found: &Found,
        reading: Reading,
    ) -> Result<Joined, StartError> {
        let notes = Notes::read(found.path(), found.boot());
        let holder = holder();
        let coordinator = fleet::open(access).map_err(|error| StartError::no_thread(&error))?;
        let identity = (found.state_identity(), holder.as_str());
        let member = Member::new(coordinator, &settings.fleet.name, identity, notes, draw_identity);
        let mut joined = Joined { member, taken: Vec::new(), notes: Vec::new() };
        let taken = joined.take_all(settings, reading)?;
        for (source, taken) in settings.sources.iter_mut().zip(&taken) {
            let Some(taken) = taken else { continue };
            if source.is_lent() {
                let (name, numbers) = (&source.name, taken.worker_ids.in_words());
                joined.notes.push(Note::Info(format!("source {name:?} has {numbers}, picked by the fleet")));
            }
            source.worker_ids.set = taken.worker_ids.clone();
            source.worker_ids.are_given = true;
        }
        joined.taken = taken;
        Ok(joined)
    }

    /// Takes the numbers of all sources: those that are given first, because they cannot give way.
    fn take_all(&mut self, settings: &Settings, reading: Reading) -> Result<Vec<Option<Taken>>, StartError> {
        let mut taken: Vec<Option<Taken>> = vec![None; settings.sources.len()];
        for is_lent in [false, true] {
            // A counter has no worker ID.
            let takes = |it: &SourceSettings| it.is_lent() == is_lent && !it.is_ticket();
            for (index, source) in settings.sources.iter().enumerate().filter(|(_, it)| takes(it)) {
                taken[index] = Some(self.take(settings, (index, source), &taken, reading)?);
            }
        }
        Ok(taken)
    }

    fn take(
        &mut self,
        settings: &Settings,
        (index, source): (usize, &SourceSettings),
        taken: &[Option<Taken>],
        reading: Reading,
    ) -> Result<Taken, StartError> {
        let want = want(settings, (index, source), reading);
        let given = &source.worker_ids;
        let asked = if source.is_lent() {
            // Numbers of the daemon's other sources, whatever their layouts.
            let is_used = |id| taken.iter().flatten().any(|other: &Taken| other.worker_ids.contains(id));
            let allowed = |id| (!given.are_given || given.set.contains(id)) && !is_used(id);
            let lock = |numbering: &Numbering| is_free_here(settings, numbering);
            self.member.pick(want, source.worker_count, allowed, lock)
        } else {
            self.member.take(want, &given.set).map_err(StartError::from)
        };
        match asked {
            Err(StartError::CoordinatorSilent(reason)) => {
                let only = Some(&given.set).filter(|_| !source.is_lent());
                let resumed = self.member.resume_unseen(want, only);
                let resumed = resumed.ok_or_else(|| StartError::CoordinatorSilent(reason.clone()))?;
                self.notes.push(Note::Warning(format!(
                    "source {:?} goes on with {} without its coordinator: {reason}",
                    source.name,
                    resumed.worker_ids.in_words()
                )));
                Ok(resumed)
            }
            asked => asked,
        }
    }
}

/// Returns the daemon's name for people: its machine and its process.
fn holder() -> String {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{machine} (process {})", std::process::id())
}

fn want<'a>(settings: &Settings, (index, source): (usize, &'a SourceSettings), reading: Reading) -> Want<'a> {
    Want {
        index,
        source: &source.name,
        layout: &source.layout,
        wall: reading.wall,
        max_ahead: source.max_ahead,
        horizon: settings.fleet.horizon,
    }
}

/// Returns whether no other daemon of this machine has locked these worker IDs.
fn is_free_here(settings: &Settings, numbering: &Numbering) -> Result<bool, StartError> {
    match lock_workers(&settings.lock_dir, numbering) {
        // Locked again by the start. Between the two, only a daemon outside the fleet could take them: that start fails.
        Ok(locks) => {
            drop::<WorkerLocks>(locks);
            Ok(true)
        }
        Err(LockError::Held { .. } | LockError::CollidingHeld { .. } | LockError::UnknownHeld { .. }) => {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}
