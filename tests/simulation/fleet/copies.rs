//! Copies: memory snapshots that are resumed twice, and state directories that are put back.

use std::collections::BTreeMap;

use super::daemon::{Begin, Daemon, Served};
use super::machine::Machine;
use super::server::{Link, SlowDisk};
use super::world::World;
use snowbank_fleet::Member;

/// The saved memory of a machine, with its disk.
#[derive(Clone)]
pub(crate) struct Saved {
    pub(crate) machine: Machine,
    /// `None` if the daemon starts only after the restore.
    pub(crate) process: Option<Process>,
    is_resumed: bool,
}

/// The memory of a daemon.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) member: Member<Link>,
    pub(crate) disk: SlowDisk,
    pub(crate) sources: Vec<Begin>,
}

impl World {
    /// Saves a machine's memory, and switches the machine off. Then the machine boots.
    pub(crate) fn save(&mut self, at: usize) {
        let Daemon { machine, member, disk, sources, .. } = self.daemons.swap_remove(at);
        let is_resumed = sources.iter().any(|served| served.is_copy);
        let begin = |Served { source, workers, fleet, .. }: Served| Begin {
            workers,
            start: source.cursor().expect("not sealed"),
            covered: fleet,
            losses: source.grant().generation(),
        };
        let sources = sources.into_iter().map(begin).collect();
        let process = Process { member, disk, sources };
        // The process may have been killed just before the save.
        let process = Some(process).filter(|_| self.rng.bool());
        // All copies get the same new boot identity, so their kernels look the same.
        self.boots += 1;
        let saved = Machine { boot: self.boots, ..self.machines[machine].clone() };
        self.saved = Some(Saved { machine: saved, process, is_resumed });
        self.boot(machine);
    }

    /// Resumes a saved machine once more, as a new machine with the same disk. The new machine's
    /// kernel reports the restore.
    pub(crate) fn resume(&mut self) {
        let Some(saved) = &mut self.saved else { return };
        saved.is_resumed = true;
        let Saved { machine, process, .. } = saved.clone();
        self.machines.push(machine);
        let machine = self.machines.len() - 1;
        let Some(Process { member, disk, sources }) = process else { return };
        let mut daemon = self.daemon(machine, member, disk, sources);
        for served in &mut daemon.sources {
            served.source.grant().revoke();
            served.is_copy = true;
        }
        self.daemons.push(daemon);
    }

    /// Before a restore of the coordinator, ends all copies of a memory that have written nothing
    /// yet. Normally such a copy ends when it finds a write of the copy that continued, but the
    /// restore may lose that write. `docs/fleet.md` says that a fleet does not protect against this
    /// case.
    pub(crate) fn end_copies(&mut self) {
        self.daemons.retain(|daemon| !daemon.is_copy());
        self.saved.take_if(|saved| saved.is_resumed);
    }

    /// Copies a machine's state directory. The two files in it may be copied at two instants.
    pub(crate) fn copy(&mut self, machine: usize) {
        let disk = self.machines[machine].disk.clone();
        match &mut self.copied {
            Some((of, copied)) if *of == machine && self.rng.bool() => {
                (copied.notes, copied.noted_in) = (disk.notes, disk.noted_in);
                copied.written_in = disk.written_in;
            }
            copied => *copied = Some((machine, disk)),
        }
    }

    /// Puts the copy where a daemon may start on it: in place of a machine's state, in a container
    /// with its own locks beside the original, or on a new machine.
    pub(crate) fn put_back(&mut self, machine: usize) {
        let Some((of, disk)) = self.copied.clone() else { return };
        let is_used = self.daemons.iter().any(|daemon| daemon.machine == machine)
            || self.starting.iter().any(|starting| starting.machine == machine);
        if !is_used && self.rng.bool() {
            (self.machines[machine].disk, self.machines[machine].waiting) = (disk, None);
        } else if self.machines.len() < self.machines_max {
            let marks = BTreeMap::new();
            self.machines.push(Machine { disk, marks, waiting: None, ..self.machines[of].clone() });
            if self.rng.bool() {
                self.boot(self.machines.len() - 1);
            }
        }
    }
}
