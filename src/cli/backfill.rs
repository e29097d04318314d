//! `snowbank backfill`: IDs for rows that exist already. The instants of the rows are the clock.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use crate::os_clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use snowbank_core::grant::Left;
use snowbank_id::layout::{Layout, Position, Tick, UnixMicros, WorkerSet};
use snowbank_id::numbering::Numbering;
use snowbank_state::store::{self, Claimant, DiskStore, Record, StateDir};
use snowbank_state::{HostIdentity, Mark, Owner, StateError, WorkerLocks, lock_workers};
use tokio::signal::unix::{SignalKind, signal};

use super::chosen::Chosen;
use super::range::instant;
use super::state::{Directories, refuse_foreign};
use super::{Failure, Outcome};
use snowbank_core::clock::{BootMicros, Now};
use snowbank_core::grant::Grant;
use snowbank_core::source::{OnStepBack, Rules, SequenceStart, Source};

const HELP: &str = "\
Reads an instant a line from standard input, sorted: RFC 3339 or Unix milliseconds. Prints an ID for each, in the same order, \
as if a daemon had made it at that instant. Reserve the worker ID for this: no daemon, on any machine, may ever use it in \
any layout for the same table.

The state directory keeps how far the IDs have come. Another run goes on with later instants; an earlier one is refused. \
Instants of one tick share its IDs; if it has too few, the next IDs are of the ticks behind it, by 10 s or four ticks at most.

Exit codes:
  0  an ID for each instant is printed
  1  an instant is refused, something is in use, the reader left, or Ctrl-C;
     printed IDs are good
  2  wrong use";

/// The most lines whose IDs are made durable together. A kill loses at most the instants of so many
/// lines.
const LINES_MAX: usize = 8_192;
/// The bytes that a read takes at most: several times what a pipe holds.
const READ_BYTES_MAX: usize = 256 * 1_024;
/// The longest line: more than any instant has.
const LINE_BYTES_MAX: usize = 64;
/// The bytes of a write. A pipe that polls as writable takes so many without a wait (`PIPE_BUF`).
const WRITE_BYTES_MAX: usize = 4_096;
/// How often a write that waits for its reader looks for Ctrl-C.
const LOOK_PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// The most by which an ID may be ahead of its instant, if a tick has more rows than IDs. A
/// daemon's IDs may be as far ahead of its clock by default.
const AHEAD_MAX: Duration = Duration::from_secs(10);
/// The same for long ticks.
const AHEAD_TICKS_MAX: u64 = 4;

/// Options of `snowbank backfill`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The IDs' layout: a preset's name, or a layout in text form; see `snowbank layout`
    #[arg(long, value_name = "NAME|SPEC")]
    layout: String,
    /// The worker ID, reserved for back-filling: a number, or the layout's node fields with their
    /// numbers
    #[arg(long, value_name = "N|FIELD=N")]
    worker_id: String,
    #[command(flatten)]
    directories: Directories,
}

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let Chosen { layout, .. } = Chosen::resolve(&arguments.layout)?;
    let workers = worker(&arguments.worker_id, &layout)?;
    let numbering = Numbering::new(layout, workers).map_err(Failure::usage)?;
    let is_stopped = Arc::new(AtomicBool::new(false));
    let events = start_threads(&is_stopped)?;
    let mut backfill = Backfill::open(numbering, &arguments.directories)?;
    let end = loop {
        let event = events.recv().unwrap_or(Event::End);
        if is_stopped.load(Ordering::Relaxed) {
            break Err(stopped());
        }
        match event {
            Event::Lines(lines) => {
                if let Err(failure) = backfill.answer(&lines, &is_stopped, out) {
                    break Err(failure);
                }
            }
            Event::Failed(reason) => {
                break Err(Failure::no(format_args!("cannot read standard input: {reason}")));
            }
            Event::End => break Ok(()),
        }
    };
    // What was claimed and not printed is free again, also after a refusal.
    backfill.trim()?;
    end
}

fn stopped() -> Failure {
    Failure::no("stopped; go on with the instants whose IDs are not printed")
}

fn worker(text: &str, layout: &Layout) -> Result<WorkerSet, Failure> {
    let set = if text.contains('=') { WorkerSet::by_field(text, layout) } else { text.parse() };
    let set = set.map_err(|error| Failure::usage(format_args!("--worker-id: {error}")))?;
    if set.len() != 1 {
        return Err(Failure::usage(format_args!(
            "--worker-id: found {}, allowed: one worker ID",
            set.in_words()
        )));
    }
    Ok(set)
}

/// What the main thread waits for.
enum Event {
    /// Lines of the input, without their ends.
    Lines(Vec<String>),
    Failed(io::Error),
    /// The end of the input, or a signal.
    End,
}

/// Starts a thread that reads the input and a thread that waits for Ctrl-C. The channel holds one
/// event, so memory stays flat however long the input is.
fn start_threads(is_stopped: &Arc<AtomicBool>) -> Result<Receiver<Event>, Failure> {
    let (sender, events) = mpsc::sync_channel(1);
    let signals = sender.clone();
    let is_stopped = Arc::clone(is_stopped);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.map_err(|error| Failure::no(format_args!("cannot catch signals: {error}")))?;
    let caught = {
        let _entered = runtime.enter();
        [SignalKind::interrupt(), SignalKind::terminate()].map(signal)
    };
    let [interrupt, terminate] = caught;
    let failed = |error: io::Error| Failure::no(format_args!("cannot catch signals: {error}"));
    let (mut interrupt, mut terminate) = (interrupt.map_err(failed)?, terminate.map_err(failed)?);
    let waits = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        is_stopped.store(true, Ordering::Relaxed);
        // The main thread may have ended, or may look at the flag first.
        let _ = signals.send(Event::End);
    };
    let started = thread::Builder::new().name("signals".into()).spawn(waits);
    let started = started.and_then(|_| {
        thread::Builder::new().name("input".into()).spawn(move || read_input(io::stdin(), &sender))
    });
    started.map_err(|error| Failure::no(format_args!("cannot start a thread: {error}")))?;
    Ok(events)
}

/// Reads lines and sends them: all that have arrived, up to [`LINES_MAX`].
fn read_input(input: impl Read, events: &SyncSender<Event>) {
    let mut input = BufReader::with_capacity(READ_BYTES_MAX, input);
    let mut lines = Vec::new();
    loop {
        let mut line = Vec::new();
        // One byte more than allowed shows that the line is too long.
        let read = (&mut input).take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line);
        let is_end = match read {
            Err(error) => {
                let _ = events.send(Event::Lines(lines)).and_then(|()| events.send(Event::Failed(error)));
                return;
            }
            Ok(0) => true,
            Ok(_) => {
                let line = line.strip_suffix(b"\n").unwrap_or(&line);
                lines.push(String::from_utf8_lossy(line).into_owned());
                false
            }
        };
        let is_due = is_end || lines.len() == LINES_MAX || input.buffer().is_empty();
        if is_due && events.send(Event::Lines(std::mem::take(&mut lines))).is_err() {
            return;
        }
        if is_end {
            let _ = events.send(Event::End);
            return;
        }
    }
}

/// Removes what programs print around a value: blanks, a carriage return, double quotes, and the mark
/// with which a file of Windows begins.
fn bare(line: &str) -> &str {
    let line = line.trim_start_matches('\u{feff}').trim_matches([' ', '\t', '\r']);
    line.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(line)
}

/// A source whose clock is the input.
struct Backfill {
    source: Source,
    store: DiskStore,
    locks: WorkerLocks,
    rng: fastrand::Rng,
    /// The number of lines that were read.
    lines: u64,
    /// The number of the first empty line. Only the last lines may be empty.
    empty: Option<u64>,
    /// The instant of the line before, which may be the last one that an earlier run printed.
    newest: Option<UnixMicros>,
    /// The position after the last ID that was printed, and the instant of its line.
    printed: (Position, Option<UnixMicros>),
}

impl Backfill {
    /// Locks the state directory and the worker ID. Begins above all that was granted under the
    /// worker ID, as far as this state and this machine know.
    fn open(numbering: Numbering, directories: &Directories) -> Result<Self, Failure> {
        let path = directories.state.path()?;
        let directory = StateDir::lock(&path)?;
        let records = directory.read()?;
        refuse_foreign(&records, &path)?;
        let mut locks = lock_workers(&directories.lock_dir, &numbering)?;
        let marks = locks.marks()?;
        if marks.iter().any(Mark::is_released) {
            return Err(StateError::released(NAME, &numbering, &directories.options(&path)).into());
        }
        let claimant = Claimant {
            name: NAME,
            numbering: &numbering,
            max_ahead: Duration::ZERO,
            catch_up: Duration::ZERO,
            in_fleet: false,
            options: &directories.options(&path),
        };
        let by_records = store::unique_from(&records, &claimant)?;
        let by_marks = marks.iter().map(|mark| mark.id_bound).max().unwrap_or(0);
        let start = numbering.position_from(by_records.max(by_marks));
        let owner = Owner::after(records.iter().map(|record| &record.owner));
        locks.mark_for(&owner);
        // The records of daemons remember their clock, so this run changes none of its own boot.
        let host = HostIdentity { boot: None, ..HostIdentity::here() };
        let record = Record::new(NAME, &numbering, start, &owner, &host);
        // Lines of one instant may lie in two runs.
        let before = records.iter().find(|old| old.key() == record.key() && old.ceiling() == start);
        let newest = before.filter(|old| old.boot.is_none()).and_then(|old| old.id_minus_boot_us);
        let newest = newest.map(UnixMicros);
        let others = records.into_iter().filter(|other| other.key() != record.key());
        let retire = |other: Record| Record { retired: other.retired || other.name == NAME, ..other };
        let others = others.map(retire).collect();
        let mut store = DiskStore::new(directory, others, &host);
        store.keep(0, record);
        store.await_names()?;
        let rules = Rules {
            burst_window: Duration::ZERO,
            max_ahead: Duration::ZERO,
            on_step_back: OnStepBack::Wait,
            sequence_start: SequenceStart::Spread,
        };
        // No ID leaves before a ceiling above it is durable (`answer`), so the grant need not end.
        let grant = Grant::new(numbering.end());
        let first = numbering.start_of(numbering.tick_of(start));
        let source = Source::new(NAME.to_owned(), numbering, rules, grant, start, at(first));
        Ok(Backfill {
            source,
            store,
            locks,
            rng: fastrand::Rng::new(),
            lines: 0,
            empty: None,
            newest,
            printed: (start, newest),
        })
    }

    /// Claims an ID for each line, makes the ceiling above them durable, and prints them.
    fn answer(&mut self, lines: &[String], is_stopped: &AtomicBool, out: &mut impl Write) -> Outcome {
        let mut claimed = Vec::with_capacity(lines.len());
        let mut refused = Ok(());
        for line in lines {
            self.lines += 1;
            match self.claim(line) {
                Ok(claim) => claimed.extend(claim),
                Err(failure) => {
                    refused = Err(failure);
                    break;
                }
            }
        }
        if let Some(&(last, instant)) = claimed.last() {
            self.raise(Position(last.0 + 1), instant)?;
            self.print(&claimed, is_stopped, out)?;
        }
        refused
    }

    /// Claims a position for a line's instant. Returns both, or `None` for an empty line.
    fn claim(&mut self, line: &str) -> Result<Option<(Position, UnixMicros)>, Failure> {
        let place = format!("line {}", self.lines);
        let line = bare(line);
        if line.is_empty() {
            self.empty.get_or_insert(self.lines);
            return Ok(None);
        }
        if let Some(empty) = self.empty {
            return Err(Failure::no(format_args!(
                "line {empty}: found an empty line, allowed: an instant; give each row one"
            )));
        }
        let wanted = instant(&place, line).map_err(|failure| match failure {
            Failure::Usage(reason) => Failure::No(reason),
            other => other,
        })?;
        let refuse = |text: String| Failure::no(format_args!("{place}: found {}, {text}", wanted.rfc3339(3)));
        let numbering = self.source.numbering();
        let Some((layout, _)) = numbering.snowflake() else { unreachable!("made of a layout") };
        if let Some(newest) = self.newest.filter(|&newest| wanted < newest) {
            let why = if self.lines > 1 {
                "that of the line before; sort the lines"
            } else {
                "that of the last line of an earlier run; for earlier instants use a worker ID that was never used"
            };
            return Err(refuse(format!("allowed: instants from {} on, {why}", newest.rfc3339(3))));
        }
        if wanted > os_clock::read().wall {
            return Err(refuse("which is in the future, allowed: an instant that has passed".into()));
        }
        if wanted < layout.first() || wanted >= layout.end() {
            let (first, last) = (layout.rfc3339(layout.first()), layout.rfc3339(layout.last()));
            return Err(refuse(format!("allowed: an instant of the layout, {first} to {last}")));
        }
        let cursor = self.source.cursor().expect("a source that was never sealed");
        let reached = numbering.start_of(numbering.tick_of(cursor));
        let tick = numbering.start_of(numbering.tick_at(wanted));
        if self.newest.is_none() && tick < reached {
            return Err(refuse(format!(
                "allowed: instants from {} on, because IDs up to it were granted under this worker ID, in this layout or one \
                 that makes the same IDs, or under one that `snowbank state forget` dropped; for earlier instants use a \
                 worker ID that was never used, and for another table a --state-dir of its own, too",
                layout.rfc3339(reached)
            )));
        }
        self.newest = Some(wanted);
        let ahead_max =
            AHEAD_MAX.max(Duration::from_millis(numbering.tick_ms().saturating_mul(AHEAD_TICKS_MAX)));
        let mut reading = wanted.max(reached);
        loop {
            let ahead_us = reading.0.saturating_sub(wanted.0).unsigned_abs();
            if Duration::from_micros(ahead_us) > ahead_max {
                return Err(refuse(format!(
                    "but so many lines have instants near it that the next free ID is {ahead_max:?} ahead; choose a \
                     layout with more IDs per tick, or give some of the lines another worker ID"
                )));
            }
            let window = self.source.window(at(reading));
            if let Some(position) = self.source.claim(&window, 1, &mut self.rng) {
                return Ok(Some((position, wanted)));
            }
            let next = numbering.start_of(Tick(numbering.tick_at(reading).0 + 1));
            if next <= reading {
                return Err(refuse(
                    "at the layout's end, allowed: an instant before, because no ID is left".into(),
                ));
            }
            reading = next;
        }
    }

    /// Makes a ceiling durable with the instant of the line that reached it. Checks that state and
    /// worker ID are still ours, as a daemon does around each raise.
    fn raise(&mut self, ceiling: Position, instant: UnixMicros) -> Outcome {
        let lost = |error: snowbank_core::grant::TakenOver| Failure::no(error.0);
        self.store.still_ours().map_err(lost)?;
        // The clock of a back-fill is its input: it has no boot clock beside it.
        self.store.record_id_time(Some(instant.0));
        self.store.raise(&[(0, ceiling)], 0)?;
        self.mark(ceiling)?;
        self.store.still_ours().map_err(lost)?;
        self.locks.still_ours().map_err(lost)
    }

    fn mark(&self, ceiling: Position) -> Outcome {
        let marked = self.locks.mark_granted(self.source.numbering().id_bound(ceiling));
        marked.map_err(|error| Failure::no(format_args!("cannot mark the worker ID's lock: {error}")))
    }

    /// Prints the IDs of these positions. Stops between two writes after Ctrl-C.
    fn print(
        &mut self,
        claimed: &[(Position, UnixMicros)],
        is_stopped: &AtomicBool,
        out: &mut impl Write,
    ) -> Outcome {
        let mut text = Vec::with_capacity(WRITE_BYTES_MAX);
        for (index, &(position, instant)) in claimed.iter().enumerate() {
            let numbering = self.source.numbering();
            let random = numbering.random_parts().iter().map(|&(size, weight)| self.rng.u64(..size) * weight);
            let id = numbering.id_at(position) + random.sum::<u64>();
            writeln!(text, "{id}")?;
            let is_full = text.len() + "9223372036854775807\n".len() > WRITE_BYTES_MAX;
            if is_full || index + 1 == claimed.len() {
                await_reader(is_stopped)?;
                // A write that fails may have reached the reader in part.
                self.printed = (Position(position.0 + 1), Some(instant));
                out.write_all(&text).map_err(|error| not_written(error, instant))?;
                text.clear();
            }
        }
        Ok(out.flush()?)
    }

    /// Lowers the ceiling to the end of what was printed.
    fn trim(mut self) -> Outcome {
        let (printed, instant) = self.printed;
        let id_bound = self.source.numbering().id_bound(printed);
        self.mark(printed)?;
        self.store.record_id_time(instant.map(|instant| instant.0));
        let left = Left { source: 0, id_bound, is_untouched: false };
        Ok(self.store.trim(&[left], 0)?)
    }
}

/// Returns the failure of a write. Not all IDs reached a reader that has gone, so unlike other
/// commands this one has then failed. `instant` is that of the last line whose ID may have been written.
fn not_written(error: io::Error, instant: UnixMicros) -> Failure {
    let goes_on = format!(
        "this worker ID goes on at {}, and rows before it that got no ID need another worker ID",
        instant.rfc3339(3)
    );
    if error.kind() != io::ErrorKind::BrokenPipe {
        return Failure::no(format_args!(
            "cannot write the output: {error}; if its last line has no line end, remove it: it is a part of an ID; \
             {goes_on}"
        ));
    }
    Failure::no(format_args!("the reader of the output is gone; {goes_on}"))
}

/// The name of the records of back-filling.
const NAME: &str = "backfill";

/// Returns the reading of a clock that shows this instant.
fn at(instant: UnixMicros) -> Now {
    Now { wall: instant, boot: BootMicros(instant.0), jumped: false }
}

/// Waits until standard output takes a write. Fails after Ctrl-C.
fn await_reader(is_stopped: &AtomicBool) -> Outcome {
    loop {
        if is_stopped.load(Ordering::Relaxed) {
            return Err(stopped());
        }
        let stdout = io::stdout();
        match poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], Some(&LOOK_PERIOD)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(Failure::Output(error.into())),
        }
    }
}
