use proptest::prelude::*;

use super::*;
use crate::store::tests::{numbering, record};
use snowbank_id::layout::{PRESETS, Tick};

#[test]
fn a_record_reads_back_as_it_was_written() {
    let numbering = numbering("twitter", "0-3,8");
    let ceiling = numbering.first_of(Tick(500_000_000_000));
    let record = Record::new("orders", &numbering, ceiling, &Owner::new(), &HostIdentity::here());
    let text = serde_json::to_string(&record).unwrap();
    assert!(text.contains("\"worker_ids\":\"0-3,8\""), "{text}");
    assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    assert_eq!(record.instant(), Some(numbering.start_of(Tick(500_000_000_000))));
    let counter = Numbering::from(TicketCounter::new("orders", 2, 1).unwrap());
    let record = Record { numbering: counter, ..record.below(7) };
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&text).unwrap().numbering, record.numbering);
}

#[test]
fn the_bound_of_assigned_worker_ids_covers_earlier_ones_too() {
    let never = record("orders", "twitter", "1", 0);
    let of = |record: Record| record.bound_of_assigned();
    assert_eq!(of(never.clone()), None);
    assert_eq!(of(Record { assigned: true, ..never.clone() }), Some(never.id_bound));
    for (earlier, bound) in [(5, never.id_bound), (never.id_bound + 5, never.id_bound + 5)] {
        let assigned = Record { assigned: true, assigned_bound: Some(earlier), ..never.clone() };
        assert_eq!(of(assigned), Some(bound));
    }
    assert_eq!(of(Record { assigned_bound: Some(5), ..never }), Some(5), "the fleet is gone");
}

proptest! {
    #[test]
    fn bounds_and_positions_are_inverse(preset in 0..PRESETS.len(), at in any::<prop::sample::Index>(), two in any::<bool>()) {
        let numbering = numbering(PRESETS[preset].name, if two { "0,3" } else { "2" });
        let position = Position(at.index(numbering.end().0 as usize) as u64);
        let bound = numbering.id_bound(position);
        prop_assert_eq!(numbering.position_from(bound), position);
        prop_assert_eq!(numbering.position_from(bound + 1), Position(position.0 + 1));
        if let Some(before) = position.0.checked_sub(1) {
            let largest: u64 = numbering.random_parts().iter().map(|(size, weight)| (size - 1) * weight).sum();
            prop_assert!(numbering.id_at(Position(before)) + largest < bound, "random parts stay below the bound");
        }
    }
}
