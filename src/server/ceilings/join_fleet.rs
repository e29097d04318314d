//! The part of a start that takes the daemon's worker IDs from the coordinator of its fleet.

use std::net::IpAddr;
use std::path::Path;

use super::fleet_thread::InFleet;
use super::start_sources::{Found, FromFleet, counter_floor, refuse_low_maximum, rule_of};
use crate::ceiling::{Cause, Mark, beyond, latest_grant, lock_workers, new_identity};
use crate::clock::Reading;
use crate::config::{Address, Machine, Settings, SourceSettings};
use crate::fleet::rules::Proof;
use crate::fleet::{self, Access, Clocks, FleetError, Member, Names, Notes, Pool, Taken, Tried, Want};
use crate::keeper::FIRST_RANGE;
use crate::numbering::Numbering;
use crate::server::restored::KernelLog;
use crate::server::shared::note::Note;
use crate::server::shared::start_error::StartError;
use snowbank_id::layout::{Layout, UnixMicros, WorkerSet};

/// The reason why a start needs the coordinator if the clocks have jumped.
const AFTER_A_JUMP: &str = "since this state was last written, the wall clock was set or stood still, or the machine was \
                            restored from a snapshot, so only the coordinator knows whether these worker IDs are still \
                            this daemon's";

/// The facts that a start finds on its machine: the state, a reading of the clocks, and the
/// kernel's log.
#[derive(Clone, Copy)]
pub(crate) struct Here<'a> {
    pub(crate) found: &'a Found,
    pub(crate) reading: Reading,
    pub(crate) kernel_log: &'a KernelLog,
}

impl Here<'_> {
    fn clocks(&self, settings: &Settings) -> Clocks {
        Clocks::at(self.found.believed(settings.clock.step_rule(), self.reading), self.reading)
    }
}

/// The outcome of a start's requests to the coordinator.
pub(crate) struct Joined {
    pub(crate) in_fleet: InFleet,
    /// The coordinator's answers to this start.
    pub(crate) answers: FromFleet,
    /// True if the coordinator did not answer, and a source continues without an answer.
    is_silent: bool,
    /// Lines for the operator, which are logged once the daemon has started.
    pub(crate) notes: Vec<Note>,
}

impl Joined {
    /// Takes the worker IDs of all sources, and sets them in `settings`. Continues with the worker
    /// IDs that earlier tries of this process took. If this try cannot take them all, `tried`
    /// remembers those that it took.
    ///
    /// # Errors
    /// Another daemon holds a configured worker ID, or too few are free. Or the coordinator does
    /// not answer, and nothing shows that the stored state may continue with its worker IDs. Or a
    /// shared counter cannot be used.
    pub(crate) fn join(
        settings: &mut Settings,
        access: Access,
        here: Here<'_>,
        tried: &mut Tried,
    ) -> Result<Joined, StartError> {
        let found = here.found;
        let life = found.boot().map(|boot| here.kernel_log.life_of(boot));
        let endpoints: Vec<String> = access.endpoints.iter().map(ToString::to_string).collect();
        let fleet = format!("{} {}", settings.fleet.name, endpoints.join(" "));
        let notes = match found.path() {
            Some(path) => Notes::read(Some(path), life.as_deref(), &fleet),
            // A daemon without a state continues with the worker IDs that an earlier try took.
            None => tried.notes(),
        };
        let holder = holder(&Machine::here(), &settings.listen);
        let certificate = access.certificate.clone();
        let pools = pools(settings);
        let coordinator = fleet::open(access).map_err(|error| StartError::no_thread(&error))?;
        let state = &found.owner.state;
        let holder = holder.as_str();
        let names = Names { fleet: &settings.fleet.name, state, holder };
        let horizon = settings.fleet.horizon;
        let limits = settings.fleet_limits();
        let member =
            Member::new(coordinator, names, limits, notes, new_identity).after(std::mem::take(tried));
        let answers = FromFleet { horizon, ..FromFleet::default() };
        let in_fleet = InFleet { member, horizon, pools, certificate };
        let mut joined = Joined { in_fleet, answers, is_silent: false, notes: Vec::new() };
        let taken = match joined.take_all(settings, here) {
            Ok(taken) => taken,
            Err(error) => {
                *tried = joined.in_fleet.member.into_tried();
                return Err(error);
            }
        };
        for (source, taken) in settings.sources.iter_mut().zip(&taken) {
            let Some(taken) = taken else { continue };
            if source.is_assigned() {
                let name = &source.name;
                let numbers = taken.worker_ids.in_words();
                joined.notes.push(Note::Info(format!("source {name:?} has {numbers}, picked by the fleet")));
            }
            source.worker_ids.assign(taken.worker_ids.clone());
        }
        joined.answers.taken = taken;
        if let Err(error) = joined.take_ranges(settings, found) {
            // A daemon without a state would take other worker IDs at each start.
            joined.give_back(here.clocks(settings));
            return Err(error);
        }
        joined.answers.held = joined.held_records(settings, found).unwrap_or_default();
        Ok(joined)
    }

    /// Gives back the worker IDs that the start took, because it does not continue.
    pub(crate) fn give_back(mut self, clocks: Clocks) {
        self.in_fleet.member.hurry();
        // If the coordinator does not answer, other daemons can take the worker IDs once the clock
        // has passed the worker IDs' bounds, as after a kill.
        let _ = self.in_fleet.member.give_back(&self.answers.taken, clocks);
    }

    /// Takes a first range for each shared counter. If the coordinator does not answer, the
    /// counter's source starts without a range, and requests to it wait.
    ///
    /// # Errors
    /// A counter's value at the coordinator is missing, unreadable or older than the state's value.
    /// Or the source's maximum is too low, or the coordinator refuses this daemon.
    fn take_ranges(&mut self, settings: &Settings, found: &Found) -> Result<(), StartError> {
        for (index, source) in settings.shared_counters() {
            let numbering = source.numbering().map_err(StartError::WrongSetting)?;
            let floor = counter_floor(&found.records, &numbering);
            self.in_fleet.member.add_counter(index, &source.name, &numbering, floor);
            match self.in_fleet.member.take_range(index, FIRST_RANGE, 0) {
                Ok(range) => {
                    // A counter that has reached its maximum does not prevent the start, because
                    // the daemon can serve its other sources.
                    refuse_low_maximum(&source.name, source.maximum, range.from)?;
                    self.answers.ranges.push((index, range));
                }
                Err(FleetError::NoAnswer(answer)) if !answer.is_lasting => {
                    self.notes.push(Note::Warning(format!(
                        "source {:?} has no numbers yet, and waits for its coordinator: {answer}",
                        source.name
                    )))
                }
                Err(FleetError::Unreadable(reason)) => return Err(StartError::MayPass(reason)),
                Err(error) => return Err(StartError::WrongSetting(error.reason())),
            }
        }
        Ok(())
    }

    /// Returns the keys of earlier records that the state may drop. They are records of worker IDs
    /// that the coordinator assigned and whose bounds the coordinator has. Returns `None` if the
    /// coordinator did not answer. The next start then asks again.
    fn held_records(&mut self, settings: &Settings, found: &Found) -> Option<Vec<String>> {
        if self.is_silent {
            return None;
        }
        let mut held = Vec::new();
        for (index, source) in settings.assigned() {
            let numbering = source.numbering().ok()?;
            for record in found.assigned_before(&source.name, &numbering) {
                let numbers = record.numbering.numbers_in_space();
                if self.in_fleet.member.holds(index, &numbers, record.id_bound).ok()? {
                    held.push(record.key());
                }
            }
        }
        Some(held)
    }

    /// Takes the worker IDs of all sources. Sources with configured worker IDs come first, so that
    /// no configured worker ID is picked for another source.
    fn take_all(&mut self, settings: &Settings, here: Here<'_>) -> Result<Vec<Option<Taken>>, StartError> {
        let clocks = here.clocks(settings);
        let mut taken: Vec<Option<Taken>> = vec![None; settings.sources.len()];
        // Ticket counters are left out, because they have no worker ID.
        let sources = settings.sources.iter().enumerate().filter(|(_, it)| it.own_layout().is_some());
        let mut sources: Vec<(usize, &SourceSettings)> = sources.collect();
        sources.sort_by_key(|(_, source)| source.is_assigned());
        for (index, _) in sources {
            let want = want(settings, index, clocks);
            taken[index] = Some(self.take(settings, want, &taken, here.found)?);
        }
        self.in_fleet.member.settle(&mut taken, clocks)?;
        Ok(taken)
    }

    fn take(
        &mut self,
        settings: &Settings,
        want: Want<'_>,
        taken: &[Option<Taken>],
        found: &Found,
    ) -> Result<Taken, StartError> {
        let source = &settings.sources[want.index];
        let given = &source.worker_ids;
        let allowed = |id| {
            // A worker ID that another source has is in use, even if the two sources have different
            // layouts.
            let is_used = taken.iter().flatten().any(|other| other.worker_ids.contains(id));
            if is_used || given.are_given && !given.set.contains(id) {
                return false;
            }
            !found.moved_away().any(|moved| has(moved, &source.layout, id))
        };
        // A source whose worker IDs are picked prefers those that it had last, even if that was
        // before the state belonged to a fleet.
        let own = source.own_workers().cloned().or_else(|| {
            let had =
                self.in_fleet.member.own(want).or_else(|| found.had_before(&source.name, &source.layout));
            had.filter(|own| own.len() == source.picks() && own.iter().all(allowed))
        });
        let proof = own.as_ref().map_or(Ok(Proof::None), |own| proof(settings, source, own, found))?;
        let want = Want { proof, ..want };
        if let Some(resumed) = own.as_ref().and_then(|own| self.in_fleet.member.resume_at_once(want, own)) {
            return Ok(resumed);
        }
        let asked = match source.own_workers() {
            Some(own) => self.in_fleet.member.take(want, own).map_err(StartError::from),
            None => self.in_fleet.member.pick(want, source.picks(), own.as_ref(), allowed, |numbering| {
                let rule = rule_of(source, numbering);
                is_free_here(numbering, &settings.lock_dir, latest_grant(&rule, want.clocks.wall))
            }),
        };
        let Err(StartError::CoordinatorSilent(reason)) = asked else { return asked };
        self.resume_unseen(want, own.as_ref(), reason)
    }

    /// Continues with the worker IDs that the state had, because the coordinator does not answer.
    ///
    /// # Errors
    /// Nothing shows that the worker IDs still belong to this state. Or the clocks have jumped, so
    /// the machine may have been restored from a snapshot, and another copy of it may run.
    fn resume_unseen(
        &mut self,
        want: Want<'_>,
        own: Option<&WorkerSet>,
        reason: String,
    ) -> Result<Taken, StartError> {
        let reason =
            if self.in_fleet.member.has_jumped(want) { format!("{reason}; {AFTER_A_JUMP}") } else { reason };
        let Some(taken) = own.and_then(|own| self.in_fleet.member.resume_unseen(want, own)) else {
            return Err(StartError::CoordinatorSilent(reason));
        };
        self.is_silent = true;
        self.notes.push(Note::Warning(format!(
            "source {:?} continues with {} without its coordinator: {reason}",
            want.source,
            taken.worker_ids.in_words()
        )));
        Ok(taken)
    }
}

/// The size of the largest pool that is counted. A larger pool never runs out of worker IDs.
const POOL_MAX: u64 = 65_536;

/// Returns the worker IDs that the coordinator may assign to each source.
fn pools(settings: &Settings) -> Vec<Pool> {
    let mut pools = Vec::new();
    for (source, settings) in settings.assigned() {
        let SourceSettings { layout, worker_ids, .. } = settings;
        let count = if worker_ids.are_given { worker_ids.set.len() as u64 } else { layout.workers() };
        if count > POOL_MAX {
            continue;
        }
        let numbers = if worker_ids.are_given {
            layout.numbers_in_space(&worker_ids.set)
        } else {
            (0..layout.workers()).map(|id| layout.number_in_space(id)).collect()
        };
        pools.push(Pool::new(source, numbers));
    }
    pools
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

/// Returns what the source with this index asks of the coordinator, without a proof.
fn want(settings: &Settings, index: usize, clocks: Clocks) -> Want<'_> {
    let source = &settings.sources[index];
    Want { index, source: &source.name, layout: &source.layout, clocks, proof: Proof::None }
}

/// Returns the proof that the state may continue with these worker IDs. There is no proof if the
/// coordinator assigned the worker IDs and another daemon of this machine has locked them.
fn proof(
    settings: &Settings,
    source: &SourceSettings,
    worker_ids: &WorkerSet,
    found: &Found,
) -> Result<Proof, StartError> {
    let numbering = Numbering::new(source.layout.clone(), worker_ids.clone());
    let numbering =
        numbering.map_err(|error| StartError::WrongSetting(format!("source {:?}: {error}", source.name)))?;
    match lock_workers(&settings.lock_dir, &numbering) {
        // The locks are released here, and the start locks the worker IDs again later. If a daemon
        // outside the fleet locks them in the meantime, the start fails.
        Ok(locks) => Ok(found.proof(&numbering, &locks)?),
        Err(error) if source.is_assigned() && error.cause() == Cause::WorkerIdHeld => Ok(Proof::None),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether a numbering can make IDs that belong to this worker ID.
fn has(numbering: &Numbering, layout: &Layout, id: u64) -> bool {
    let one = Numbering::new(layout.clone(), WorkerSet::single(id));
    one.is_ok_and(|one| one.shares_ids_with(numbering))
}

/// Returns whether this machine allows a start with these worker IDs. There are three conditions:
/// no other daemon has locked them; none of them was moved away; and no mark is later than the
/// latest grant that is possible by this clock.
fn is_free_here(numbering: &Numbering, lock_dir: &Path, latest: UnixMicros) -> Result<bool, StartError> {
    match lock_workers(lock_dir, numbering) {
        Ok(locks) => {
            let marks = locks.marks()?;
            let is_beyond = beyond(&marks, numbering, 0, latest).is_some();
            Ok(!is_beyond && !marks.iter().any(Mark::is_released))
        }
        Err(error) if error.cause() == Cause::WorkerIdHeld => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Interface;

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
