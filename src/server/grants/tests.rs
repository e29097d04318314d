use std::num::NonZeroUsize;

use super::*;
use crate::clock::BootMicros;
use crate::config::{self, Overrides};
use crate::layout::UnixMicros;

/// A third of a second into a tick of one second.
const NOW: Now =
    Now { wall: UnixMicros(1_800_000_000_333_000), boot: BootMicros(500_000_000), jumped: false };

fn source(toml: &str) -> (SourceSettings, Numbering) {
    let text = format!("layout = \"time:32,worker:10,sequence:12;tick=1s\"\n{toml}");
    let file = Some((Path::new("snowbank.toml"), text.as_str()));
    let settings = config::load(file, &Overrides::default(), NonZeroUsize::MIN, NOW.wall);
    let source = settings.unwrap_or_else(|mistakes| panic!("{mistakes}")).sources.remove(0);
    let numbering =
        Numbering::new(source.layout.clone(), source.worker_ids.clone()).expect("worker 0 exists");
    (source, numbering)
}

#[test]
fn a_first_start_lies_above_the_current_tick_by_the_guard() {
    for (toml, ticks) in [
        ("", 1),
        ("first_start_guard = \"0s\"", 1),
        ("first_start_guard = \"500ms\"", 1),
        ("first_start_guard = \"5s\"", 5),
        ("first_start_guard = \"5700ms\"", 6),
    ] {
        let (source, numbering) = source(toml);
        let tick = numbering.tick_at(NOW.wall);
        let start = first_start(&source, &numbering, NOW);
        assert_eq!(start, numbering.first_of(Tick(tick.0 + ticks)), "{toml}");
    }
}

#[test]
fn an_offset_of_another_boot_is_not_remembered() {
    let (_, numbering) = source("");
    let place = |boot: &str| Place { machine: None, boot: Some(boot.to_owned()) };
    let record = |boot, ceiling, wall_minus_boot_us| {
        let record = Record::new("default", &numbering, Position(ceiling), &Owner::new(), &place(boot));
        Record { wall_minus_boot_us, ..record }
    };
    let found = |records| Found {
        directory: None,
        adopt: false,
        records,
        owner: Owner::new(),
        here: place("this boot"),
        notes: Vec::new(),
    };
    let remembered = found(vec![
        record("this boot", 1_000_000, 1),
        record("this boot", 2_000_000, 2),
        record("an earlier boot", 3_000_000, 3),
    ]);
    assert_eq!(remembered.remembered(), Remembered::Offset(2), "what was believed last");
    assert_eq!(found(vec![]).remembered(), Remembered::Nothing);
}

#[test]
fn of_another_boot_it_is_remembered_how_far_ceilings_were_granted() {
    let (_, numbering) = source("");
    let place = |boot: &str| Place { machine: None, boot: Some(boot.to_owned()) };
    let record =
        |ceiling| Record::new("default", &numbering, ceiling, &Owner::new(), &place("an earlier boot"));
    let at = |seconds| numbering.first_of(Tick(seconds));
    let records = vec![record(at(1_000)), record(at(3_000)), record(at(2_000))];
    let found = Found {
        directory: None,
        adopt: false,
        records,
        owner: Owner::new(),
        here: place("this boot"),
        notes: Vec::new(),
    };
    assert_eq!(found.remembered(), Remembered::Granted(numbering.start_of(Tick(3_000))));
}
