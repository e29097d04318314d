//! The part of a start that takes the daemon's worker IDs from the coordinator of its fleet.
//!
//! The control thread decides which worker IDs to ask for, and locks them. The fleet thread only asks
//! the coordinator. So a lock directory that hangs delays no poll.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::ending::words;
use super::fleet_thread::{FleetMember, InFleet, Job, Work, watch_certificate};
use super::job_thread::{Asks, NoReply};
use super::start_sources::{Found, Joined, check_end, rule_of};
use crate::config::{Address, Machine, Settings, SourceSettings};
use crate::server::restored::{KernelLog, Life};
use crate::server::shared::note::Note;
use crate::server::shared::start_error::StartError;
use snowbank_core::keeper::reserved_at_start;
use snowbank_fleet::rules::Proof;
use snowbank_fleet::{self, Access, FleetError, Member, Names, Notes, Pool, Taken, Want, noticed_within};
use snowbank_id::layout::{Layout, UnixMicros, WorkerSet};
use snowbank_id::numbering::Numbering;
use snowbank_state::store::above_records;
use snowbank_state::{Cause, Fate, Mark, StateError, WorkerLocks, beyond, latest_grant, new_identity};

/// The reason why a start needs the coordinator if the clocks have jumped.
const AFTER_A_JUMP: &str = "since this state was last written, the wall clock was set or stood still, or the machine was \
                            restored from a snapshot, so only the coordinator knows whether these worker IDs are still \
                            this daemon's";

/// Opens the fleet's coordinator for a daemon with this state. Nothing is asked yet.
///
/// # Errors
/// The system has no reactor left, or a newer release wrote the notes.
pub(crate) fn open(
    settings: &Settings,
    access: Access,
    found: &Found,
    kernel_log: &KernelLog,
) -> Result<InFleet, StartError> {
    let life = found.boot().map(|boot| kernel_log.life_of(boot));
    let endpoints: Vec<String> = access.endpoints.iter().map(ToString::to_string).collect();
    let fleet = format!("{} {}", settings.fleet.name, endpoints.join(" "));
    // A daemon without a state continues with the worker IDs that an earlier try took.
    let read = found.path().map(|path| Notes::read(path, life.as_deref(), &fleet));
    let (notes, fault) = read.transpose()?.unwrap_or_default();
    if let Some(fault) = fault {
        tracing::warn!("{fault}");
    }
    let holder = holder(&Machine::here(), &settings.listen);
    let certificate_ends_unix_s = access.certificate.clone().map(watch_certificate).unwrap_or_default();
    let coordinator = snowbank_fleet::open(access).map_err(|error| StartError::no_thread(&error))?;
    let names = Names { fleet: &settings.fleet.name, state: &found.owner.state, holder: &holder };
    let member = Member::new(coordinator, names, settings.fleet_limits(), notes, new_identity);
    Ok(InFleet { member, pools: Vec::new(), certificate_ends_unix_s })
}

/// A start tries to pick worker IDs at most this many times. A try can fail because another daemon is
/// faster.
const TRIES_MAX: usize = 100;

/// What sources that start ask of the coordinator.
pub(crate) struct Joining<'a> {
    pub(crate) fleet: &'a Asks<Job>,
    /// Locks worker IDs on this machine.
    pub(crate) lock: &'a dyn Fn(&Numbering) -> Result<WorkerLocks, StateError>,
    /// The sources that start, by index: those with a layout, and shared counters.
    pub(crate) sources: BTreeMap<usize, Arc<SourceSettings>>,
    /// The worker IDs of the sources that run.
    pub(crate) in_use: Vec<WorkerSet>,
    pub(crate) found: Arc<Found>,
    /// The life of the machine in which the start began.
    pub(crate) life: Life,
    /// True once the daemon stops: then nothing that is taken will be granted.
    pub(crate) is_stopping: &'a AtomicBool,
    /// The later of the believed and the read wall clock at the beginning of the start.
    pub(crate) latest_wall: UnixMicros,
}

/// What a source had before this start.
struct Had {
    /// Its worker IDs. `None`: it had none, or they are not allowed any more.
    own: Option<WorkerSet>,
    proof: Proof,
    /// `None`: there are none, or another daemon of this machine has locked them.
    locks: Option<WorkerLocks>,
}

/// Logs that a source pauses, and for how long at least.
pub(crate) fn say_pause(name: &str, taken: Option<&Taken>) {
    let Some(Taken { worker_ids, .. }) = taken else { return };
    let least = noticed_within(Duration::ZERO).as_secs();
    tracing::info!(
        "source {name:?} has {} now, and pauses for {least} s or more, so that other daemons notice what a restored \
         coordinator may have lost",
        worker_ids.in_words()
    );
}

impl Joining<'_> {
    /// Takes the worker IDs of each source, and a first range for each shared counter. A source is
    /// refused if another daemon holds its worker ID, if too few are free, or if the coordinator
    /// does not answer and nothing shows that the stored state may continue with its worker IDs.
    ///
    /// # Errors
    /// The fleet thread has ended.
    pub(crate) fn join(&self) -> Result<Joined, StartError> {
        let sources = self.sources.keys().copied().collect();
        let restores = self.life.restores;
        self.ask(move |work| work.begin_start(sources, restores))?;
        let mut joined = Joined::default();
        // Sources with configured worker IDs come first, so that no configured worker ID is picked
        // for another source.
        let with_layout = self.sources.iter().filter(|(_, source)| !source.kind.takes_ranges());
        let (picked, given): (Vec<_>, Vec<_>) = with_layout.partition(|(_, source)| source.is_assigned());
        let (mut resumed, mut asking) = (Vec::new(), Vec::new());
        for (&index, _) in given.into_iter().chain(picked) {
            let had = match self.had(index, &joined) {
                Ok(had) => had,
                Err(error) => {
                    joined.refused.push((index, error));
                    continue;
                }
            };
            match self.resume_at_once(index, &had)? {
                Some(taken) => {
                    joined.taken.insert(index, taken);
                    resumed.extend(had.locks.map(|locks| (index, locks)));
                }
                None => asking.push((index, had)),
            }
        }
        let takes_ranges = self.sources.values().any(|source| source.kind.takes_ranges());
        if !asking.is_empty() || takes_ranges || self.ask(|work| work.member().serves())? {
            // An answer may be a loss, which is one of all sources, and this process may be killed before
            // its disk has stored that. Only a grant takes this back.
            let locks = asking.iter().filter_map(|(_, had)| had.locks.as_ref());
            let resumed = resumed.iter().map(|(_, locks)| locks);
            locks.chain(resumed).for_each(|locks| warn_unless_marked(locks.mark_as(Fate::Lost)));
        }
        let locked = asking.iter().filter(|(_, had)| had.locks.is_some());
        let locked = locked.filter_map(|(index, had)| {
            let layout = &self.sources[index].layout;
            Some((layout.space(), layout.numbers_in_space(had.own.as_ref()?)))
        });
        let locked: Vec<_> = locked.collect();
        if let Err(error) = self.ask(move |work| work.member().keep_ceilings_of(&locked))? {
            let all = resumed.drain(..).map(|(index, _)| index);
            for index in all.chain(asking.drain(..).map(|(index, _)| index)) {
                joined.taken.remove(&index);
                joined.refused.push((index, StartError::from(error.clone())));
            }
        }
        joined.locks.extend(resumed);
        for (index, had) in asking {
            match self.take(index, had, &mut joined) {
                Ok((taken, locks)) => {
                    joined.taken.insert(index, taken);
                    joined.locks.insert(index, locks);
                }
                Err(error) => joined.refused.push((index, error)),
            }
        }
        if self.is_stopping.load(Ordering::Acquire) {
            // Then nothing that was taken will be granted.
            return Ok(joined);
        }
        self.take_ranges(&mut joined);
        joined.held = self.held_records(&joined)?;
        for (&index, source) in &self.sources {
            if let Some(taken) = joined.taken.get(&index).filter(|_| source.is_assigned()) {
                let name = &source.name;
                let numbers = taken.worker_ids.in_words();
                joined.notes.push(Note::Info(format!("source {name:?} has {numbers}, picked by the fleet")));
            }
        }
        let refused: Vec<usize> = joined.refused.iter().map(|(index, _)| *index).collect();
        if !refused.is_empty() {
            // A range was taken before its source was refused.
            let rests = joined.unused_ranges(&refused);
            let life = self.life.clone();
            self.ask(move |work| {
                let clocks = work.clocks();
                let _ = work.member().give_back(&[], &rests, clocks, &|| !life.is_over());
                work.member().give_up(&refused);
            })?;
        }
        Ok(joined)
    }

    /// Takes a first range for each shared counter that reserves numbers ahead. If the coordinator
    /// does not answer, the counter's source starts without a range, and requests to it wait. A source
    /// is refused if its counter's value at the coordinator is missing, unreadable or older than the
    /// state's value, if its maximum is too low, or if the coordinator refuses this daemon.
    fn take_ranges(&self, joined: &mut Joined) {
        for (&index, source) in &self.sources {
            if !source.kind.takes_ranges() {
                continue;
            }
            match self.take_range(index, source, joined) {
                Ok(()) => {}
                Err(StartError::CoordinatorSilent(answer)) => joined.notes.push(Note::Warning(format!(
                    "source {:?} has no numbers yet, and waits for its coordinator: {answer}",
                    source.name
                ))),
                Err(error) => joined.refused.push((index, error)),
            }
        }
    }

    fn take_range(
        &self,
        index: usize,
        source: &Arc<SourceSettings>,
        joined: &mut Joined,
    ) -> Result<(), StartError> {
        let numbering = source.numbering()?;
        let floor = above_records(&self.found.records, &numbering);
        let settings = Arc::clone(source);
        let taken = self.ask(move |work| {
            work.member().add_counter(index, &settings.name, &numbering, floor);
            work.member().take_range(index, reserved_at_start(settings.reserve), 0)
        })?;
        match taken {
            Ok(range) => {
                // An empty range would say that the counter has ended.
                if reserved_at_start(source.reserve) > 0 {
                    joined.ranges.insert(index, range);
                }
                // A counter that has reached its maximum does not prevent the start, because the
                // daemon can serve its other sources.
                check_end(&source.name, &source.numbering()?, range.from)
            }
            Err(FleetError::NoAnswer(answer)) if !answer.is_lasting => {
                Err(StartError::CoordinatorSilent(answer.to_string()))
            }
            Err(FleetError::Unreadable(reason)) => Err(StartError::MayPass(reason)),
            Err(error) => Err(StartError::WrongSetting(error.reason())),
        }
    }

    /// Returns the keys of earlier records that the state may drop, each with the index of the source
    /// that had them and starts now. They are records of worker IDs that the coordinator assigned and
    /// whose bounds the coordinator has. If the coordinator did not answer, returns none, and the next
    /// start asks again.
    fn held_records(&self, joined: &Joined) -> Result<Vec<(usize, String)>, StartError> {
        if joined.silence.is_some() {
            return Ok(Vec::new());
        }
        let mut held = Vec::new();
        for (&index, source) in self.sources.iter().filter(|(_, source)| source.is_assigned()) {
            let Some(taken) = joined.taken.get(&index) else { continue };
            let Ok(numbering) = source.numbering_with(&taken.worker_ids) else { continue };
            for record in self.found.assigned_before(&source.name, &numbering) {
                let numbers = record.numbering.numbers_in_space();
                let id_bound = record.id_bound;
                match self.ask(move |work| work.member().holds(index, &numbers, id_bound))? {
                    Ok(true) => held.push((index, record.key())),
                    Ok(false) => {}
                    Err(_) => return Ok(Vec::new()),
                }
            }
        }
        Ok(held)
    }

    /// Finds what a source had, and locks that.
    fn had(&self, index: usize, joined: &Joined) -> Result<Had, StartError> {
        let found = &*self.found;
        let source = &*self.sources[&index];
        // A source whose worker IDs are picked prefers those that it had last, even if that was
        // before the state belonged to a fleet.
        let own = match source.own_workers() {
            Some(own) => Some(own.clone()),
            None => {
                let had = self.ask_for(index, Proof::None, |member, want| member.own(want))?;
                let had = had.or_else(|| found.had_before(&source.name, &source.layout));
                let allowed = self.allowed(index, &joined.taken);
                had.filter(|own| own.len() == source.picks() && own.iter().all(&allowed))
            }
        };
        let (proof, mut locks) = match &own {
            Some(own) => self.proof(source, own)?,
            None => (Proof::None, None),
        };
        if let Some(locks) = &mut locks {
            locks.mark_for(found.owner());
        }
        if let Some(given) = source.own_workers().filter(|_| locks.is_some()).cloned() {
            self.ask_for(index, proof, move |member, want| member.claim_note(want, &given))?;
        }
        Ok(Had { own, proof, locks })
    }

    fn resume_at_once(&self, index: usize, had: &Had) -> Result<Option<Taken>, StartError> {
        let Some(own) = had.own.clone() else { return Ok(None) };
        self.ask_for(index, had.proof, move |member, want| member.resume_at_once(want, &own))
    }

    /// Takes the worker IDs of a source that cannot go on without asking.
    fn take(&self, index: usize, had: Had, joined: &mut Joined) -> Result<(Taken, WorkerLocks), StartError> {
        let source = &*self.sources[&index];
        let Had { mut own, proof, mut locks } = had;
        let asked = match (&joined.silence, source.own_workers().cloned()) {
            (Some(silence), _) => Err(StartError::CoordinatorSilent(silence.clone())),
            (None, Some(own)) => {
                let taken = self.ask_for(index, proof, move |member, want| member.take(want, &own))?;
                taken.map_err(StartError::from)
            }
            (None, None) => {
                let allowed = self.allowed(index, &joined.taken);
                self.pick(index, proof, &mut own, allowed, &mut locks)
            }
        };
        let taken = match asked {
            Err(StartError::CoordinatorSilent(reason)) => {
                joined.silence.get_or_insert_with(|| reason.clone());
                self.resume_unseen(index, proof, own, reason, joined)?
            }
            asked => asked?,
        };
        // A source whose own worker IDs another daemon of this machine has locked has picked others.
        let locks =
            locks.ok_or_else(|| StartError::WorkerIdHeld(format!("source {:?}: not locked", source.name)))?;
        let numbering = source.numbering_with(&taken.worker_ids)?;
        assert!(
            locks.are_of(&numbering),
            "the locks that keep other daemons out are those of what was taken"
        );
        Ok((taken, locks))
    }

    /// Takes free worker IDs that this machine allows, and locks them before it takes them. `locks` has
    /// those of `own`, the worker IDs that the source had. Lets both go before it locks others.
    fn pick(
        &self,
        index: usize,
        mut proof: Proof,
        own: &mut Option<WorkerSet>,
        allowed: impl Fn(u64) -> bool + Clone + Send + 'static,
        locks: &mut Option<WorkerLocks>,
    ) -> Result<Taken, StartError> {
        let source = &*self.sources[&index];
        let count = source.picks();
        let mut busy: HashSet<u64> = HashSet::new();
        let mut tried = 0;
        while tried < TRIES_MAX {
            let (had, allowed, not) = (own.clone(), allowed.clone(), busy.clone());
            let free = self.ask_for(index, proof, move |member, want| {
                member.find_free(want, count, had.as_ref(), |id| allowed(id) && !not.contains(&id), tried)
            })??;
            if own.as_ref().is_some_and(|own| own != free.worker_ids()) {
                // Without its lock, a worker ID is not the source's own any more: another daemon of
                // this machine may use it from now on.
                (*own, proof, *locks) = (None, Proof::None, None);
                continue;
            }
            tried += 1;
            let own_locks = locks.take().filter(|_| own.is_some());
            *locks = self.lock_if_free(source, free.numbering(), own_locks)?;
            let Some(locked) = locks else {
                busy.extend(free.worker_ids().iter());
                continue;
            };
            locked.mark_for(self.found.owner());
            warn_unless_marked(locked.mark_as(Fate::Lost));
            if let Some(taken) =
                self.ask_for(index, proof, move |member, want| member.take_free(want, free))??
            {
                return Ok(taken);
            }
        }
        Err(StartError::HeldInFleet(format!(
            "source {:?}: other daemons or the locks of this machine took them at each try",
            source.name
        )))
    }

    /// Returns which worker IDs a source may pick, if the sources so far have taken these.
    fn allowed(
        &self,
        index: usize,
        taken: &BTreeMap<usize, Taken>,
    ) -> impl Fn(u64) -> bool + Clone + Send + use<> + 'static {
        // A worker ID that another source has, or is configured to have, is in use, even if the two
        // sources have different layouts.
        let mut used: Vec<WorkerSet> = taken.values().map(|other| other.worker_ids.clone()).collect();
        used.extend(self.in_use.iter().cloned());
        let with_layout = self.sources.values().filter(|other| !other.kind.takes_ranges());
        used.extend(with_layout.filter_map(|other| other.own_workers().cloned()));
        let (source, found) = (Arc::clone(&self.sources[&index]), Arc::clone(&self.found));
        move |id| {
            let given = &source.worker_ids;
            let is_given = !given.are_given || given.set.contains(id);
            let is_used = used.iter().any(|worker_ids| worker_ids.contains(id));
            is_given && !is_used && !found.moved_away().any(|moved| has(moved, &source.layout, id))
        }
    }

    /// Asks the fleet thread, and waits for the answer.
    ///
    /// # Errors
    /// The fleet thread has ended.
    fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Work) -> R + Send + 'static,
    ) -> Result<R, StartError> {
        self.fleet.question(Duration::MAX, question).map_err(no_fleet)
    }

    /// Asks for a source.
    ///
    /// # Errors
    /// As [`ask`](Joining::ask).
    fn ask_for<R: Send + 'static>(
        &self,
        index: usize,
        proof: Proof,
        question: impl FnOnce(&mut FleetMember, Want<'_>) -> R + Send + 'static,
    ) -> Result<R, StartError> {
        let source = Arc::clone(&self.sources[&index]);
        self.ask(move |work| {
            let clocks = work.clocks();
            let want = Want { index, source: &source.name, layout: &source.layout, clocks, proof };
            question(work.member(), want)
        })
    }

    /// Continues with the worker IDs that the state had, because the coordinator does not answer.
    ///
    /// # Errors
    /// Nothing shows that the worker IDs still belong to this state. Or the clocks have jumped, so
    /// the machine may have been restored from a snapshot, and another copy of it may run.
    fn resume_unseen(
        &self,
        index: usize,
        proof: Proof,
        own: Option<WorkerSet>,
        reason: String,
        joined: &mut Joined,
    ) -> Result<Taken, StartError> {
        let (has_jumped, taken) = self.ask_for(index, proof, move |member, want| {
            (member.has_jumped(want), own.and_then(|own| member.resume_unseen(want, &own)))
        })?;
        let reason = if has_jumped { format!("{reason}; {AFTER_A_JUMP}") } else { reason };
        let Some(taken) = taken else { return Err(StartError::CoordinatorSilent(reason)) };
        joined.notes.push(Note::Warning(format!(
            "source {:?} continues with {} without its coordinator: {reason}",
            self.sources[&index].name,
            taken.worker_ids.in_words()
        )));
        Ok(taken)
    }

    /// Locks these worker IDs, and returns the proof that the state may continue with them. There is no
    /// proof and no lock if the coordinator assigned the worker IDs and another daemon of this machine
    /// has locked them.
    fn proof(
        &self,
        source: &SourceSettings,
        worker_ids: &WorkerSet,
    ) -> Result<(Proof, Option<WorkerLocks>), StartError> {
        let numbering = source.numbering_with(worker_ids);
        let numbering = numbering
            .map_err(|error| StartError::WrongSetting(format!("source {:?}: {error}", source.name)))?;
        match (self.lock)(&numbering) {
            Ok(locks) => Ok((self.found.proof(&numbering, &locks)?, Some(locks))),
            Err(error) if source.is_assigned() && error.cause() == Cause::WorkerIdHeld => {
                Ok((Proof::None, None))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Locks worker IDs that the coordinator may assign, if this machine allows a start with them:
    /// no other daemon has locked them, none of them was moved away, and no mark is later than the
    /// latest grant that is possible by this clock. `locks` has the locks of the worker IDs that the
    /// source had, if these are asked for.
    fn lock_if_free(
        &self,
        source: &SourceSettings,
        numbering: &Numbering,
        locks: Option<WorkerLocks>,
    ) -> Result<Option<WorkerLocks>, StartError> {
        let locks = match locks.map_or_else(|| (self.lock)(numbering), Ok) {
            Ok(locks) => locks,
            Err(error) if error.cause() == Cause::WorkerIdHeld => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let marks = locks.marks()?;
        let latest = latest_grant(&rule_of(source, numbering), self.latest_wall);
        let is_beyond = beyond(&marks, numbering, 0, latest).is_some();
        let is_free = !is_beyond && !marks.iter().any(Mark::is_released);
        Ok(is_free.then_some(locks))
    }
}

/// Returns the worker IDs that the coordinator may assign to each source, with its index.
pub(crate) fn pools<'a>(
    sources: impl Iterator<Item = (usize, &'a Arc<SourceSettings>)>,
) -> Vec<(usize, Pool)> {
    let numbers = sources.filter_map(|(source, settings)| Some((source, settings.pool()?)));
    numbers.map(|(source, numbers)| (source, Pool::new(source, numbers))).collect()
}

/// Returns a name of the daemon for people: its machine, its address and its process number. The
/// address tells containers apart, which may have equal names and process numbers.
fn holder(machine: &Machine, listen: &[Address]) -> String {
    let address = match listen.first() {
        Some(Address::Tcp { host, port } | Address::Tls { host, port }) => {
            let is_unspecified = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
            let own = machine.reachable_address().filter(|_| is_unspecified).map(|ip| ip.to_string());
            format!(", {}:{port}", own.as_deref().unwrap_or(host))
        }
        Some(other) => format!(", {other}"),
        None => String::new(),
    };
    format!("{}{address} (process {})", machine.host_name, std::process::id())
}

/// Warns if worker IDs could not be marked.
pub(crate) fn warn_unless_marked(marked: Result<(), StateError>) {
    if let Err(error) = marked {
        tracing::warn!("{error}; start this daemon again only once the coordinator answers");
    }
}

pub(crate) fn no_fleet(reason: NoReply) -> StartError {
    StartError::HeldInFleet(words("the fleet thread", reason))
}

/// Returns whether a numbering can make IDs that belong to this worker ID.
fn has(numbering: &Numbering, layout: &Layout, id: u64) -> bool {
    let one = Numbering::new(layout.clone(), WorkerSet::single(id));
    one.is_ok_and(|one| one.shares_ids_with(numbering))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::path::{Path, PathBuf};
    use std::sync::{Mutex, mpsc};
    use std::thread;

    use super::super::fleet_thread::tests::{start_beside_others, start_in_fleet};
    use super::*;
    use crate::config::{self, Interface, Overrides};
    use snowbank_core::clock::{BootMicros, Reading};
    use snowbank_fleet::Clocks;
    use snowbank_id::layout::Position;
    use snowbank_state::store::{self, Record, StateDir};
    use snowbank_state::{HostIdentity, Owner, lock_workers_at_once};

    const BEGAN: Reading = Reading { wall: UnixMicros(1_800_000_000_000_000), boot: BootMicros(0) };

    /// Starts sources.
    fn join(
        sources: &[Arc<SourceSettings>],
        found: Found,
        fleet: &Asks<Job>,
        lock: &dyn Fn(&Numbering) -> Result<WorkerLocks, StateError>,
    ) -> Joined {
        let joining = Joining {
            fleet,
            lock,
            sources: sources.iter().cloned().enumerate().collect(),
            in_use: Vec::new(),
            found: Arc::new(found),
            life: Life { began: BEGAN, restores: 0, reported: Arc::default() },
            is_stopping: &AtomicBool::new(false),
            latest_wall: BEGAN.wall,
        };
        joining.join().unwrap()
    }

    /// Returns what a start finds, and the lock directory, if an earlier run had these worker IDs.
    fn had_before(
        directory: &Path,
        settings: &Settings,
        source: &SourceSettings,
        numbering: &Numbering,
    ) -> (Found, PathBuf) {
        let (path, locks) = (directory.join("state"), directory.join("locks"));
        let (host, owner) = (HostIdentity::default(), Owner::new());
        let record = Record::new(&source.name, numbering, Position(7), &owner, &host);
        store::write(&StateDir::lock(&path).unwrap(), &[record]).unwrap();
        let (found, _store) = Found::open(Some(&path), &settings.lock_dir, false, host, None).unwrap();
        let mut locked = lock_workers_at_once(&locks, numbering).unwrap();
        locked.mark_for(&owner);
        locked.mark_granted(numbering.id_bound(Position(7))).unwrap();
        assert_eq!(found.proof(numbering, &locked).unwrap(), Proof::Held);
        (found, locks)
    }

    #[test]
    fn a_lock_directory_that_hangs_delays_no_job() {
        let settings = config::load(None, &Overrides::default(), NonZeroUsize::MIN, BEGAN.wall).unwrap();
        let (found, _) = Found::open(None, &settings.lock_dir, false, HostIdentity::default(), None).unwrap();
        let clocks = Clocks::at(BEGAN.wall, BEGAN);
        let fleet = start_in_fleet(&settings.sources[0].layout, settings.fleet_limits(), clocks);
        let asks = fleet.asks();
        let (hangs, is_hanging) = mpsc::channel();
        let (end, until) = mpsc::channel::<()>();
        let until = Mutex::new(until);
        let lock = move |_: &Numbering| {
            let _ = (hangs.send(()), until.lock().unwrap().recv());
            Err(StateError::storage(String::from("it hangs no longer")))
        };
        let source = Arc::new(settings.sources[0].clone());
        let starting = thread::spawn(move || join(&[source], found, &asks, &lock).refused.len());
        is_hanging.recv().unwrap();
        assert_eq!(fleet.asks().question(Duration::from_secs(60), |_| ()), Ok(()));
        drop(end);
        assert_eq!(starting.join().unwrap(), 1);
    }

    #[test]
    fn a_source_whose_own_worker_id_is_taken_locks_what_it_picks() {
        let clocks = Clocks::at(BEGAN.wall, BEGAN);
        let file = "layout = \"twitter\"\nworker_ids = \"0-1\"\nworker_id_from = \"coordinator\"\n\
                    [fleet]\ncoordinator = \"etcd\"\nendpoints = \"http://127.0.0.1:2379\"";
        let file = Some((Path::new("f.toml"), file));
        let settings = config::load(file, &Overrides::default(), NonZeroUsize::MIN, BEGAN.wall).unwrap();
        let source = Arc::new(settings.sources[0].clone());
        let numbering = |id| source.numbering_with(&WorkerSet::single(id)).unwrap();
        // The state had worker ID 0, which another daemon has by now.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let had = numbering(0);
        let host = HostIdentity::default();
        let record = Record::new(&source.name, &had, Position(7), &Owner::after(std::iter::empty()), &host);
        store::write(&StateDir::lock(&path).unwrap(), &[record]).unwrap();
        let (found, _store) = Found::open(Some(&path), &settings.lock_dir, false, host, None).unwrap();
        let (fleet, keys) = start_beside_others(&source.layout, settings.fleet_limits(), clocks, 0);
        let asks = fleet.asks();
        let locks = directory.path().join("locks");
        let lock = |of: &Numbering| {
            if *of == numbering(1) {
                // Another daemon is faster, and the holder of 0 gives it back.
                keys.move_holder(0, 1);
            }
            lock_workers_at_once(&locks, of)
        };
        let joined = join(&[Arc::clone(&source)], found, &asks, &lock);
        assert!(joined.refused.is_empty(), "{:?}", joined.refused);
        let taken = &joined.taken[&0];
        assert_eq!(taken.worker_ids, WorkerSet::single(0));
        assert!(joined.locks[&0].are_of(&numbering(0)));
    }

    /// Its ceiling may have gone only in memory, because the disk is slow.
    #[test]
    fn a_source_that_may_not_go_on_says_so_in_its_lock() {
        let file = "layout = \"twitter\"\nworker_ids = 0\n[fleet]\ncoordinator = \"etcd\"\n\
                    endpoints = \"http://127.0.0.1:2379\"";
        let file = Some((Path::new("f.toml"), file));
        let settings = config::load(file, &Overrides::default(), NonZeroUsize::MIN, BEGAN.wall).unwrap();
        let source = Arc::new(settings.sources[0].clone());
        let numbering = source.numbering_with(&WorkerSet::single(0)).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (found, locks) = had_before(directory.path(), &settings, &source, &numbering);
        let lock = |of: &Numbering| lock_workers_at_once(&locks, of);
        let clocks = Clocks::at(BEGAN.wall, BEGAN);
        let (fleet, _keys) = start_beside_others(&source.layout, settings.fleet_limits(), clocks, 0);
        let joined = join(&[source], found.clone(), &fleet.asks(), &lock);
        assert_eq!(joined.refused.len(), 1, "another daemon holds it");
        assert_eq!(found.proof(&numbering, &lock(&numbering).unwrap()).unwrap(), Proof::Lost);
    }

    /// The answer to the first source's question may be a loss, and the process may be killed then.
    #[test]
    fn a_start_that_asks_says_so_in_all_its_locks_first() {
        let file = "worker_id_from = \"coordinator\"\n[fleet]\ncoordinator = \"etcd\"\n\
                    endpoints = \"http://127.0.0.1:2379\"\n\
                    [[sources]]\nname = \"first\"\nlayout = \"twitter\"\nworker_ids = \"0-1\"\n\
                    [[sources]]\nname = \"second\"\nlayout = \"twitter\"\nworker_ids = \"2-3\"";
        let file = Some((Path::new("f.toml"), file));
        let settings = config::load(file, &Overrides::default(), NonZeroUsize::MIN, BEGAN.wall).unwrap();
        let [first, second] = [0, 1].map(|at: usize| Arc::new(settings.sources[at].clone()));
        let numbering = second.numbering_with(&WorkerSet::single(2)).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (found, locks) = had_before(directory.path(), &settings, &second, &numbering);
        let lock = |of: &Numbering| lock_workers_at_once(&locks, of);
        let clocks = Clocks::at(BEGAN.wall, BEGAN);
        let fleet = start_in_fleet(&first.layout, settings.fleet_limits(), clocks);
        let seen = Mutex::new(Vec::new());
        // The first source locks what it picks after it has asked.
        let spying = |of: &Numbering| {
            let texts = std::fs::read_dir(&locks).unwrap().map(|file| file.unwrap().path());
            let texts = texts.filter_map(|path| std::fs::read_to_string(path).ok());
            seen.lock().unwrap().push(texts.filter(|text| text.contains("lost")).count());
            lock(of)
        };
        let joined = join(&[first, second], found.clone(), &fleet.asks(), &spying);
        assert!(joined.refused.is_empty(), "{:?}", joined.refused);
        assert_eq!(*seen.lock().unwrap(), [0, 1], "the second source's lock, then the first one's");
        // It may still be killed before it has a grant, while it asks again.
        assert_eq!(found.proof(&numbering, &joined.locks[&1]).unwrap(), Proof::Lost);
    }

    #[test]
    fn a_holders_name_has_an_address_that_others_can_reach() {
        let interfaces = [("lo", "127.0.0.1"), ("eth0", "10.0.0.7")];
        let interfaces = interfaces.map(|(name, ip)| Interface {
            name: name.into(),
            address: ip.parse().unwrap(),
            prefix: 24,
        });
        let host_name = String::from("web");
        let given_ipv4 = None;
        let machine = Machine { host_name, given_ipv4, interfaces: Ok(interfaces.into()) };
        for (listen, expected) in [
            ("0.0.0.0:7660", "web, 10.0.0.7:7660 (process "),
            ("192.0.2.1:7660", "web, 192.0.2.1:7660 (process "),
            ("unix:/run/ids", "web, unix:/run/ids (process "),
        ] {
            let found = holder(&machine, &[listen.parse().unwrap()]);
            assert!(found.starts_with(expected), "{found}");
        }
        assert!(holder(&machine, &[]).starts_with("web (process "));
    }
}
