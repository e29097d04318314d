//! Picks worker IDs from the machine at the start: from its address, its host name or a file.

use std::fmt;

use super::Settings;
use super::input::Findings;
use super::machine::{Machine, NoNumber};
use super::mistake::{Mistake, Mistakes};
use super::open_fields::OpenFields;
use super::settle_source::{check_overlaps, label};
use snowbank_wire::one_line;

/// The reason why worker IDs cannot be picked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unpicked {
    /// This machine has no number for a source. Another machine may have one.
    NoNumber {
        /// A line with the place of the setting.
        reason: String,
        /// True if the machine may have a number later.
        may_pass: bool,
    },
    /// Two sources would hand out the same IDs.
    Mistakes(Mistakes),
}

impl fmt::Display for Unpicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unpicked::NoNumber { reason, .. } => f.write_str(reason),
            Unpicked::Mistakes(mistakes) => f.write_str(&mistakes.first_line()),
        }
    }
}

impl Settings {
    /// Picks the worker IDs of all sources whose worker IDs come from the machine and are not
    /// picked yet. Returns a line for each of these sources.
    ///
    /// # Errors
    /// The machine has no number for a source, or two sources could hand out the same ID.
    pub fn pick_worker_ids(&mut self, machine: &Machine) -> Result<Vec<String>, Unpicked> {
        let mut lines = Vec::new();
        for index in 0..self.sources.len() {
            let source = &self.sources[index];
            if !source.is_unpicked() {
                continue;
            }
            let open = OpenFields::of(&source.layout, &source.worker_ids);
            let found = machine.number(&source.worker_id_from, open.values(), self.fleet.is_used());
            let (number, place) = found.map_err(|none| self.no_number(index, none))?;
            // `settle` has checked that every number gives worker IDs.
            let set = open.with(number).map_err(|error| self.no_number(index, error.into()))?;
            lines.push(format!("source {:?} has {}, from {place}", source.name, set.in_words()));
            let worker_ids = &mut self.sources[index].worker_ids;
            worker_ids.set = set;
            worker_ids.are_given = true;
            worker_ids.are_picked = true;
        }
        let known = self.sources.iter().enumerate();
        let known: Vec<_> = known.filter(|(_, source)| source.has_worker_ids()).collect();
        let mut findings = Findings { origins: self.origins.clone(), ..Findings::default() };
        check_overlaps(&known, &mut findings);
        Mistakes::new(findings.mistakes).map_or(Ok(lines), |mistakes| Err(Unpicked::Mistakes(mistakes)))
    }

    fn no_number(&self, index: usize, none: NoNumber) -> Unpicked {
        let (key, origin) = self.origins.in_source(index, "worker_id_from");
        let text = format!("{}: {none}", label(index, &self.sources[index]));
        let reason = Mistake { origin, key, text, is_clock_behind: false }.to_string();
        // A message is one line, whatever text a file has.
        Unpicked::NoNumber { reason: one_line(&reason), may_pass: none.may_pass() }
    }
}
