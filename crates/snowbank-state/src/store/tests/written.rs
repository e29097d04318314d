//! Whatever a daemon writes it can read: histories of sources of each kind that start, rise, end,
//! are renamed and stop.

use super::*;
use snowbank_id::numbering::TicketCounter;

/// What happens next: a number chooses the source, or how much.
#[derive(Clone, Copy, Debug)]
enum Event {
    Start(usize),
    Raise(u64),
    /// A reload removes a source that has used some of what it was granted.
    End(usize, u64),
    Rename(usize),
    Unknown(usize),
    /// The process ends, cleanly or by a kill, and the next one starts the same sources.
    Again {
        is_clean: bool,
    },
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0_usize..8).prop_map(Event::Start),
        (0_u64..20).prop_map(Event::Raise),
        (0_usize..8, 0_u64..20).prop_map(|(source, used)| Event::End(source, used)),
        (0_usize..8).prop_map(Event::Rename),
        (0_usize..8).prop_map(Event::Unknown),
        any::<bool>().prop_map(|is_clean| Event::Again { is_clean }),
    ]
}

/// Returns the source with this number. Counters end soon, and some are shared in a fleet.
fn any_kind(number: usize) -> (Numbering, bool) {
    let counter = |name, increment, offset, maximum| {
        let counter = TicketCounter::new(name, increment, offset).unwrap();
        Numbering::from(counter.up_to(maximum).unwrap())
    };
    match number {
        0 => (numbering("twitter", "0-1"), false),
        1 => (numbering("twitter", "1-3"), false),
        2 => (numbering("time:41,sequence:12,node:10;epoch=1288834974657", "2"), false),
        3 => (numbering("clearing", "1"), false),
        4 => (counter("inv", 1, 1, 12), false),
        5 => (counter("odd", 2, 1, u64::MAX >> 1), false),
        6 => (counter("odd", 5, 3, 40), false),
        _ => (counter("shared", 1, 1, 60), true),
    }
}

struct Running {
    name: String,
    numbering: Numbering,
    in_fleet: bool,
    /// The bound by which the source started.
    start: u64,
    from: Position,
    ceiling: Position,
}

struct History<'a> {
    path: &'a Path,
    store: Option<DiskStore>,
    running: BTreeMap<usize, Running>,
    indices: usize,
}

impl History<'_> {
    fn store(&mut self) -> &mut DiskStore {
        self.store.as_mut().unwrap()
    }

    /// Opens the state that the last process left.
    fn open(&mut self) {
        self.store = None;
        let directory = StateDir::lock(self.path).unwrap();
        let records = directory.read().unwrap();
        self.store = Some(DiskStore::new(directory, records, &HostIdentity::here()));
    }

    /// Starts a source, unless a source that runs has its IDs or its name, or its counter is
    /// unknown.
    fn start(&mut self, name: &str, numbering: Numbering, in_fleet: bool) {
        let name = numbering.ticket().map_or(name, TicketCounter::name).to_owned();
        let mut running = self.running.values();
        if running.any(|it| it.name == name || it.numbering.shares_ids_with(&numbering)) {
            return;
        }
        let indices: Vec<usize> = self.running.keys().copied().collect();
        let records = self.store().records(&indices);
        let running = self.running.values();
        let mut claimants: Vec<Claimant<'_>> = running
            .map(|it| Claimant { in_fleet: it.in_fleet, ..claimant(&it.name, &it.numbering) })
            .collect();
        claimants.insert(0, Claimant { in_fleet, ..claimant(&name, &numbering) });
        let Ok(Plan { starts, retired, .. }) = plan(&records, &claimants, WALL) else { return };
        if numbering.ticket().is_some() {
            let own = records.iter().filter(|record| record.name == name).map(|record| record.id_bound);
            assert_eq!(starts[0].map(|it| it.id_bound), own.max().or(in_fleet.then_some(0)), "{name}");
        }
        let start = starts[0].map_or(numbering.id_bound(at(&numbering, 1)), |start| start.id_bound);
        if start > numbering.without_maximum().id_bound(numbering.end()) {
            // The daemon refuses a maximum below a number that may have been handed out.
            return;
        }
        let from = numbering.position_from(start);
        let record = Record::new(&name, &numbering, from, &Owner::new(), &HostIdentity::here());
        let index = self.indices;
        let ceiling = Position((from.0 + 3).min(numbering.end().0));
        let beginning = Beginning {
            sources: vec![(index, record)],
            ceilings: vec![(index, ceiling)],
            retired,
            unknown: if in_fleet { vec![index] } else { Vec::new() },
            ..Beginning::default()
        };
        self.store().begin(beginning, 0).unwrap();
        self.indices += 1;
        self.running.insert(index, Running { name, numbering, in_fleet, start, from, ceiling });
    }

    fn raise(&mut self, by: u64) {
        let mut raises = Vec::new();
        for (index, source) in &mut self.running {
            source.ceiling = Position((source.ceiling.0 + by).min(source.numbering.end().0));
            raises.push((*index, source.ceiling));
        }
        self.store().raise(&raises, 0).unwrap();
    }

    /// Returns the end of a source that has used so many positions. If it used none, it keeps the
    /// bound by which it started, as `ManagedSource::seal` does.
    fn left(source: usize, running: &Running, used: u64) -> Left {
        let end = Position((running.from.0 + used).min(running.ceiling.0));
        let is_untouched = end == running.from;
        let id_bound = if is_untouched { running.start } else { running.numbering.id_bound(end) };
        Left { source, id_bound, is_untouched }
    }

    fn nth(&self, number: usize) -> Option<usize> {
        self.running.keys().nth(number % self.running.len().max(1)).copied()
    }

    fn play(&mut self, event: Event) {
        match event {
            Event::Start(number) => {
                let (numbering, in_fleet) = any_kind(number);
                self.start(["a", "b", "c"][number % 3], numbering, in_fleet);
            }
            Event::Raise(by) => self.raise(by),
            Event::End(number, used) => {
                let Some(index) = self.nth(number) else { return };
                let running = self.running.remove(&index).unwrap();
                let left = History::left(index, &running, used);
                self.store().end(&[left], true, 0).unwrap();
            }
            Event::Rename(number) => {
                let Some(index) = self.nth(number) else { return };
                let name = format!("renamed-{number}");
                let is_taken = self.running.values().any(|source| source.name == name);
                let source = self.running.get_mut(&index).unwrap();
                if source.numbering.ticket().is_none() && !is_taken {
                    source.name.clone_from(&name);
                    self.store().rename(vec![(index, name)]);
                }
            }
            Event::Unknown(number) => {
                let counter =
                    self.nth(number).filter(|index| self.running[index].numbering.ticket().is_some());
                counter.into_iter().for_each(|index| self.store().record_unknown(&[index]));
            }
            Event::Again { is_clean } => {
                let before = std::mem::take(&mut self.running);
                if is_clean {
                    let ends: Vec<Left> =
                        before.iter().map(|(index, source)| History::left(*index, source, 2)).collect();
                    self.store().trim(&ends, 0).unwrap();
                }
                self.open();
                for source in before.into_values() {
                    self.start(&source.name, source.numbering, source.in_fleet);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_a_daemon_writes_it_can_read(events in prop::collection::vec(any_event(), 1..30)) {
        let directory = tempfile::tempdir().unwrap();
        let home = StateDir::lock(directory.path()).unwrap();
        let set = |name, increment, offset| {
            let counter = Numbering::from(TicketCounter::new(name, increment, offset).unwrap());
            Record::new(name, &counter, Position(9), &Owner::new(), &HostIdentity::here())
        };
        write(&home, &[set("inv", 1, 1), set("odd", 2, 1)]).unwrap();
        drop(home);
        let mut history =
            History { path: directory.path(), store: None, running: BTreeMap::new(), indices: 0 };
        history.open();
        for event in events {
            history.play(event);
            let stored = super::super::read(directory.path()).unwrap();
            for running in history.running.values() {
                let own = stored.iter().find(|record| record.numbering == running.numbering.without_maximum());
                let own = own.expect("a record of each source that runs");
                prop_assert!(own.id_bound >= running.numbering.id_bound(running.ceiling), "{own:?}");
            }
        }
    }
}
