//! A ticket source on a machine that is restored: the client that draws from the source, and the
//! events that the console must show. No clock tells a copy which numbers another copy has handed
//! out. So requests are refused once the daemon has noticed the restore, even after a restart,
//! until `snowbank ticket set` says where the counter continues.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::check;
use crate::guest::{Said, connect, wall_us};
use crate::support::wire::{Ask, NO_CEILING, Reply};

/// The name of the ticket source.
const SOURCE: &str = "orders";
/// If no number comes for this long, the counter has stopped. The syncs of ceilings take far less.
const REFUSED_FOR_US: i64 = 5_000_000;
/// The exit code of a start that needs an operator.
const REFUSED: i32 = 2;

/// An event of the ticket source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ticket {
    /// A request got these numbers.
    Came { asked_us: i64, first: u64, last: u64 },
    /// A request was refused.
    Refused { asked_us: i64, code: u16 },
    /// The daemon ended with this exit code.
    Ended(i32),
    /// A start was refused because of the restored counter. The message of the refusal names
    /// `snowbank ticket set`.
    Named,
    /// `snowbank ticket set` stored this value.
    Set(u64),
}

impl Ticket {
    pub(crate) fn read(line: &str) -> Option<Ticket> {
        let named = ["\"orders\"", "restored from a snapshot", "`snowbank ticket set orders VALUE"];
        if named.iter().all(|part| line.contains(part)) {
            return Some(Ticket::Named);
        }
        if let Some(value) = line.strip_prefix("source \"orders\" goes on above ") {
            let (value, _directory) = value.split_once(',')?;
            return value.parse().ok().map(Ticket::Set);
        }
        if let Some(code) = line.strip_prefix("TICKETS the daemon ended with ") {
            return code.parse().ok().map(Ticket::Ended);
        }
        let mut words = line.strip_prefix("TICKETS ")?.split_whitespace();
        let kind = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let asked_us = number()? as i64;
        match kind {
            "came" => Some(Ticket::Came { asked_us, first: number()?, last: number()? }),
            "refused" => Some(Ticket::Refused { asked_us, code: u16::try_from(number()?).ok()? }),
            _ => None,
        }
    }
}

/// Runs in the guest: draws and prints numbers until no number has come for a while. Then writes
/// the highest number to a file.
pub(crate) fn client(address: &str, highest_file: &str) {
    let mut wire = connect(address);
    let mut highest = 0;
    let mut came_us = wall_us();
    while wall_us() - came_us < REFUSED_FOR_US {
        let asked_us = wall_us();
        match wire.call(&Ask::of(3).source(SOURCE).wait_ms(500).bytes()) {
            Reply::Runs(_, runs) => {
                for run in runs {
                    println!("TICKETS came {asked_us} {} {}", run.first, run.last());
                    (highest, came_us) = (run.last(), wall_us());
                }
            }
            Reply::Error { code, .. } => println!("TICKETS refused {asked_us} {code}"),
            other => panic!("{other:?}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
    fs::write(highest_file, highest.to_string()).expect("the highest number is written");
}

/// Checks that the numbers of a machine come without a gap or a refusal.
pub(crate) fn check_counts(tickets: &[Ticket], name: &str) -> Result<(), String> {
    let mut next = 1;
    for ticket in tickets {
        match *ticket {
            Ticket::Came { first, last, .. } if first == next => next = last + 1,
            Ticket::Set(0) => {}
            _ => return Err(format!("{name}: expected the number {next}, found {ticket:?}")),
        }
    }
    check(next > 1, &format!("{name}: no ticket came"))
}

/// Returns true once a restored machine has handed out a number after `ticket set`.
pub(crate) fn goes_on(tickets: &[Ticket]) -> bool {
    let set = tickets.iter().rposition(|ticket| matches!(ticket, Ticket::Set(_)));
    set.is_some_and(|at| tickets[at..].iter().any(|ticket| matches!(ticket, Ticket::Came { .. })))
}

/// Checks a machine that was restored: each request from the notice on is refused, and so is the
/// next start. After `ticket set`, the numbers are above all earlier ones.
pub(crate) fn check_stops(before: &[Ticket], after: &Said, name: &str) -> Result<(), String> {
    let noticed_us = after.noticed_us.unwrap_or_default();
    let set = after.tickets.iter().position(|ticket| matches!(ticket, Ticket::Set(_)));
    let (until_set, since_set) =
        after.tickets.split_at(set.ok_or(format!("{name}: the guest has not run `ticket set`"))?);
    let life: Vec<Ticket> = before.iter().chain(until_set).copied().collect();
    let numbers: Vec<Ticket> = life
        .iter()
        .filter(|ticket| matches!(ticket, Ticket::Came { .. } | Ticket::Set(_)))
        .copied()
        .collect();
    check_counts(&numbers, name)?;

    let late = until_set.iter().find(|ticket| {
        matches!(ticket, Ticket::Came { asked_us, .. } if *asked_us >= noticed_us)
            || matches!(ticket, Ticket::Refused { code, .. } if *code != NO_CEILING)
    });
    check(late.is_none(), &format!("{name}: {late:?} after the notice at {noticed_us}"))?;
    let refused = until_set.iter().filter(|ticket| matches!(ticket, Ticket::Refused { .. })).count();
    check(refused > 0, &format!("{name}: no ticket was refused"))?;
    let ends = until_set.iter().filter(|ticket| matches!(ticket, Ticket::Ended(_)));
    let has_ended = ends.eq(&[Ticket::Ended(0), Ticket::Ended(REFUSED)]);
    check(has_ended, &format!("{name}: expected a clean stop and a refused start, found {until_set:?}"))?;
    check(after.tickets.contains(&Ticket::Named), &format!("{name}: no message names `ticket set`"))?;

    let highest = numbers.iter().filter_map(last_number).max().unwrap_or_default();
    // The journal may show a line later than it was logged.
    let mut since_set = since_set.iter().filter(|ticket| **ticket != Ticket::Named);
    let goes_on = since_set.next() == Some(&Ticket::Set(highest))
        && matches!(since_set.next(), Some(Ticket::Came { first, .. }) if *first == highest + 1);
    check(goes_on, &format!("{name}: expected numbers above {highest}, found {:?}", after.tickets))?;
    println!(
        "{name}: {refused} requests for tickets were refused, also after a restart; set to {highest}, the counter \
         goes on above"
    );
    Ok(())
}

fn last_number(ticket: &Ticket) -> Option<u64> {
    match ticket {
        Ticket::Came { last, .. } => Some(*last),
        _ => None,
    }
}
