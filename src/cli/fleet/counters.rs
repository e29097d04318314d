//! The shared counters of a fleet, as `snowbank fleet` shows them.

use std::io::{self, Write};

use serde::Serialize;

use crate::config::SourceSettings;
use crate::fleet::{Operator, OperatorError};

/// A shared counter at the coordinator.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CounterEntry {
    /// The source's name.
    counter: String,
    /// The next free number.
    next: String,
    /// The daemon or the command that wrote it last.
    writer: String,
}

impl CounterEntry {
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let CounterEntry { counter, next, writer } = self;
        writeln!(out, "counter {counter:?}: the next free number is {next}, last written by {writer}")
    }
}

/// An entry of a list in JSON.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Listed<N> {
    Number(N),
    Counter(CounterEntry),
}

/// Returns a list of worker IDs and counters.
pub(super) fn listed<N>(numbers: Vec<N>, counters: Vec<CounterEntry>) -> Vec<Listed<N>> {
    let counters = counters.into_iter().map(Listed::Counter);
    numbers.into_iter().map(Listed::Number).chain(counters).collect()
}

/// Reads the counters of these sources.
///
/// # Errors
/// Nobody has prepared one of them, or the coordinator did not answer.
pub(super) fn read(
    operator: &mut Operator<'_>,
    sources: &[SourceSettings],
) -> Result<Vec<CounterEntry>, OperatorError> {
    let shared = sources.iter().filter(|source| source.kind.takes_ranges());
    let read = shared.map(|source| {
        let key = operator.counter(&source.name)?;
        Ok(CounterEntry { counter: source.name.clone(), next: key.next.to_string(), writer: key.writer })
    });
    read.collect()
}
