//! `snowbank state forget`: drops the records of worker IDs that no source has any more.

use std::io::Write;

use crate::os_clock;

use super::super::{Failure, Outcome};
use super::{Directory, in_words, open_own};
use crate::config::ClockSettings;
use snowbank_core::clock::{Reading, Remembered, Wall};
use snowbank_id::layout::UnixMicros;
use snowbank_state::HostIdentity;
use snowbank_state::store::{self, Record};

pub(super) const HELP: &str = "\
Stop the daemon first. A worker ID is dropped if no source of the last daemon had it, and the clock is past all IDs that were \
granted to it. The state keeps one bound for all of them, the highest: no worker ID without a record of its own starts below it, \
also if the clock goes back. `snowbank state lower --forgotten` lowers it. Worker IDs in use stay, and so do ticket counters, and what \
`snowbank state export` moved away. Worker IDs that a fleet assigned need no command.

Exit codes:
  0  forgotten, or there was nothing to forget
  1  no state, in use, or the clock is not past what was granted
  2  wrong use";

pub(super) fn run(directory: &Directory, out: &mut impl Write) -> Outcome {
    let (directory, mut records) = open_own(&directory.path()?)?;
    let now = believed(&records, &HostIdentity::here(), os_clock::read());
    let forgotten = store::forget(&mut records, now);
    if !forgotten.is_empty() {
        store::write(&directory, &records)?;
    }
    for record in &forgotten {
        writeln!(out, "forgot source {:?}, {}", record.name, in_words(record))?;
    }
    let ahead = records.iter().filter(|record| record.is_forgettable()).max_by_key(|record| record.instant());
    match ahead.and_then(|record| Some((record, record.instant()?))) {
        Some((record, until)) => Err(Failure::no(format_args!(
            "source {:?}, {}: IDs were granted until {}, and the clock is not past that; run this again then",
            record.name,
            in_words(record),
            until.rfc3339(0),
        ))),
        None if forgotten.is_empty() => Ok(writeln!(out, "nothing to forget")?),
        None => Ok(()),
    }
}

/// Returns the time that a daemon with the default settings would believe. Such a daemon does not
/// believe a large step forward since the last daemon ran. A wrong time server may have caused that
/// step.
fn believed(records: &[Record], here: &HostIdentity, reading: Reading) -> UnixMicros {
    let this_boot = records.iter().filter(|record| record.boot.is_some() && record.boot == here.boot);
    let remembered = match this_boot.max_by_key(|record| record.instant()) {
        Some(last) => Remembered::Offset(last.wall_minus_boot_us),
        None => {
            let until = records.iter().filter_map(Record::instant).max();
            until.map_or(Remembered::Nothing, Remembered::GrantedUntil)
        }
    };
    Wall::new(ClockSettings::default().step_rule(), reading, remembered).believe(reading).wall
}
