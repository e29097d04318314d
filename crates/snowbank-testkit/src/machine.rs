//! A machine that keeps its state, its locks and its clock while daemons start and end on it.

use std::path::PathBuf;

use tempfile::TempDir;

use super::faketime::FakeClock;
use super::program::{Said, run_in};
use super::{Daemon, Setup};

/// A simulated machine with its own directories for the state and the locks.
pub struct Machine {
    directory: TempDir,
    clock: Option<FakeClock>,
}

impl Machine {
    /// Makes a machine with the right time.
    pub fn new() -> Machine {
        Machine { directory: super::directory(), clock: None }
    }

    /// Makes a machine whose wall clock can be set. Calls [`skip`](super::skip) if that is not
    /// possible here.
    pub fn with_clock() -> Option<Machine> {
        let machine = Machine::new();
        let clock = FakeClock::new(machine.directory.path())?;
        Some(Machine { clock: Some(clock), ..machine })
    }

    /// Returns the machine's wall clock.
    pub fn clock(&self) -> &FakeClock {
        self.clock.as_ref().expect("the machine was made with a clock")
    }

    /// Returns a path in the machine's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a daemon on this machine.
    pub fn setup(&self, toml: &str) -> Setup {
        let setup = Setup::configured(toml)
            .env("SNOWBANK_STATE_DIR", self.path("state"))
            .env("SNOWBANK_LOCK_DIR", self.path("locks"));
        match &self.clock {
            Some(clock) => clock.under(setup),
            None => setup,
        }
    }

    /// Returns a daemon on this machine with another state directory.
    pub fn beside(&self, toml: &str) -> Setup {
        self.setup(toml).env("SNOWBANK_STATE_DIR", self.path("other"))
    }

    /// Runs a command of `snowbank` with this machine's state and locks.
    pub fn run(&self, arguments: &[&str]) -> Said {
        run_in(self.directory.path(), arguments)
    }

    /// Starts a daemon on this machine.
    pub fn start(&self, toml: &str) -> Daemon {
        self.setup(toml).start()
    }
}
