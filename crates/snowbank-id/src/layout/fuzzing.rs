//! The fuzz body that reads any text as a layout, an instant, a set of worker IDs or an ID. It also
//! checks each layout with a few of its worker IDs.

use std::collections::BTreeSet;
use std::fmt::{Debug, Display};
use std::str::FromStr;

use super::{Layout, LayoutNumbering, LayoutTable, Position, UnixMicros, WorkerSet};

/// Reads a text as a layout, an instant, a set of worker IDs and an ID.
///
/// Checks that a refusal is one line. If a value was read, checks that its text reads as the same
/// value. The positions of a layout must convert to IDs and back, also at both ends of the layout's
/// life. IDs must increase with positions.
pub fn layout_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    reads_back::<UnixMicros>(text);
    reads_back::<WorkerSet>(text);
    let twitter = Layout::resolve("twitter").expect("a preset");
    if let Ok(workers) = accepted(WorkerSet::by_field(text, &twitter)) {
        assert!(workers.highest() < twitter.workers());
    }
    if let Ok(layout) = accepted(Layout::resolve(text)) {
        check_forms(&layout);
        check_ends(&layout);
        let digits = text.rsplit('=').next().unwrap_or_default();
        if let Ok(id) = accepted(layout.parse_id(digits)) {
            check_id(&layout, id);
        }
    }
}

fn accepted<T, E: Display>(result: Result<T, E>) -> Result<T, E> {
    result.inspect_err(|error| {
        let text = error.to_string();
        assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
    })
}

fn reads_back<T: FromStr<Err: Display + Debug> + Display + PartialEq + Debug>(text: &str) {
    if let Ok(value) = accepted(text.parse::<T>()) {
        assert_eq!(value.to_string().parse::<T>().expect("the canonical form"), value);
    }
}

fn check_forms(layout: &Layout) {
    let canonical = layout.to_string();
    let again: Layout = canonical.parse().expect(&canonical);
    assert_eq!(again, *layout);
    assert_eq!(again.to_string(), canonical);
    assert_eq!(again.space(), layout.space());
    assert_eq!(LayoutTable::from(layout).build().as_ref(), Ok(layout));
}

fn check_ends(layout: &Layout) {
    assert!(layout.first() <= layout.end() && layout.first() <= layout.last());
    assert!(layout.last_id() < 1 << 63 && layout.decode(layout.last_id() + 1).is_err());
    let (first, last) =
        layout.range(layout.first(), layout.last()).expect("every layout has a first and a last tick");
    assert!(first <= last && last <= layout.last_id());
    let _ = layout.range(UnixMicros(i64::MIN), UnixMicros(i64::MAX));
    for instant in [layout.first(), layout.last(), layout.end(), UnixMicros(i64::MIN), UnixMicros(i64::MAX)] {
        layout.life(instant);
        layout.rfc3339(instant);
    }
    for id in [0, first, last, layout.last_id(), u64::MAX] {
        check_id(layout, id);
    }
    let workers = WorkerSet::from_list(BTreeSet::from([0, layout.workers() / 2, layout.workers() - 1]));
    let workers = workers.expect("a few worker IDs");
    let numbering = LayoutNumbering::new(layout.clone(), workers).expect("worker IDs of the layout");
    let end = numbering.end().0;
    let turns = [0, numbering.ids_per_tick(), end / 2, end]
        .map(|turn| turn.saturating_sub(2)..turn.saturating_add(2));
    for position in turns.into_iter().flatten() {
        check_position(&numbering, Position(position));
    }
}

fn check_id(layout: &Layout, id: u64) {
    if let Ok(decoded) = accepted(layout.decode(id)) {
        assert!(decoded.worker < layout.workers() && decoded.sequence < layout.ids_per_tick());
        let fields = decoded.fields.iter().zip(layout.fields());
        let sum: u64 = fields.map(|((_, value), field)| value * field.weight()).sum();
        assert_eq!(sum, id, "the fields make the ID");
        assert_eq!(layout.parse_id(&id.to_string()), Ok(id));
    }
}

/// Checks that the ID of a position leads back to the position, and lies above the ID of the
/// position before. It must decode to its tick and to one of the workers.
fn check_position(numbering: &LayoutNumbering, position: Position) {
    let id = numbering.id_at(position);
    if position >= numbering.end() {
        assert!(id >= 1 << 63 && numbering.position_of(id).is_none());
        return;
    }
    assert!(id <= numbering.layout().last_id());
    assert_eq!(numbering.position_of(id), Some(position));
    let decoded = numbering.layout().decode(id).expect("an ID of the layout");
    assert_eq!(decoded.tick, numbering.tick_of(position));
    assert!(numbering.workers().contains(decoded.worker));
    assert_eq!(numbering.tick_at(decoded.instant), decoded.tick);
    if let Some(before) = position.0.checked_sub(1) {
        assert!(numbering.id_at(Position(before)) < id);
    }
}
