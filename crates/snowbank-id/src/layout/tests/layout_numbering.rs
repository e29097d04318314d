//! Tests that convert positions to IDs and back, and compare them with a simple model: all IDs of a
//! tick, sorted.

use super::*;

fn numbering(name_or_spec: &str, workers: &str) -> LayoutNumbering {
    LayoutNumbering::new(layout(name_or_spec), workers.parse().unwrap()).unwrap()
}

/// Returns all IDs of tick 0 with 0 in random fields.
fn ids_of_tick_0(numbering: &LayoutNumbering) -> Vec<u64> {
    let layout = numbering.layout();
    let mut ids = Vec::new();
    for worker in numbering.workers().iter() {
        for sequence in 0..layout.ids_per_tick() {
            let mut rest_of_worker = worker;
            let id = layout.fields().iter().rev().map(|field| {
                let value = match field.role() {
                    Role::Time | Role::Random => 0,
                    Role::Sequence => sequence,
                    Role::Constant(value) => value,
                    Role::Node => {
                        let digit = rest_of_worker % field.values();
                        rest_of_worker /= field.values();
                        digit
                    }
                };
                value * field.weight()
            });
            ids.push(id.sum());
        }
    }
    ids.sort_unstable();
    ids
}

/// Returns how many of these IDs, from the first on, are one arithmetic progression.
fn progression(ids: &[u64]) -> usize {
    1 + ids.windows(2).take_while(|pair| pair[1] - pair[0] == ids[1] - ids[0]).count()
}

/// Returns the length of the longest run that begins at an index within the tick. Unless the whole
/// tick is one run, a run ends where a field above the sequence changes, or earlier.
fn longest_run(layout: &Layout, ids: &[u64], index: usize) -> usize {
    let rest = &ids[index..];
    if progression(ids) == ids.len() {
        return rest.len();
    }
    let sequence = layout.fields().iter().find(|field| field.name() == "sequence").unwrap();
    let above_sequence = |id: u64| id / sequence.weight() / sequence.values();
    let group = rest.iter().take_while(|&&id| above_sequence(id) == above_sequence(rest[0]));
    progression(&rest[..group.count()])
}

/// Generates the numbering of a layout and some of its workers. A tick has so few IDs that a test
/// can check every ID.
fn a_numbering() -> impl Strategy<Value = LayoutNumbering> {
    let picks = prop_oneof![
        // Neighbouring workers, whose runs may continue each other.
        (any::<u64>(), 1..=24_u64)
            .prop_map(|(first, count)| (0..count).map(|n| first.wrapping_add(n)).collect()),
        vec(any::<u64>(), 1..=24),
        vec(0..40_u64, 1..=24),
    ];
    (a_layout(), picks).prop_filter_map("too many IDs in a tick", |(layout, picks): (Layout, Vec<u64>)| {
        let mut ids: Vec<u64> = picks.into_iter().map(|pick| pick % layout.workers()).collect();
        ids.sort_unstable();
        ids.dedup();
        let numbering = LayoutNumbering::new(layout, WorkerSet::from_list(ids).unwrap()).unwrap();
        (numbering.ids_per_tick() <= 2000).then_some(numbering)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn positions_follow_the_order_of_ids(numbering in a_numbering(), tick in any::<u64>()) {
        let model = ids_of_tick_0(&numbering);
        prop_assert_eq!(model.len() as u64, numbering.ids_per_tick());
        let ticks = numbering.tick_of(numbering.end()).0;
        for tick in [0, tick % ticks, ticks - 1] {
            let start = numbering.first_of(Tick(tick)).0;
            let above = tick * numbering.layout().fields()[0].weight();
            for (index, in_tick) in model.iter().enumerate() {
                let position = Position(start + index as u64);
                let id = above + in_tick;
                prop_assert_eq!(numbering.id_at(position), id);
                prop_assert_eq!(numbering.position_of(id), Some(position));
                prop_assert_eq!(numbering.tick_of(position), Tick(tick));
                prop_assert!(id <= i64::MAX as u64);
            }
        }
    }

    #[test]
    fn runs_are_as_long_as_they_can_be(numbering in a_numbering(), max in 1..50_u64) {
        let model = ids_of_tick_0(&numbering);
        for (index, &first) in model.iter().enumerate() {
            let longest = longest_run(numbering.layout(), &model, index);
            for (max, count) in [(u64::MAX, longest), (max, longest.min(max as usize)), (1, 1), (0, 1)] {
                let run = numbering.run_at(Position(index as u64), max);
                prop_assert_eq!(run.count as usize, count);
                prop_assert!(run.ids().eq(model[index..index + count].iter().copied()));
                prop_assert_eq!((run.first, run.last()), (first, model[index + count - 1]));
                prop_assert!(run.stride > 0);
                prop_assert!(numbering.needs_list() || u32::try_from(run.stride).is_ok());
            }
        }
    }

    #[test]
    fn random_fields_do_not_change_the_position(numbering in a_numbering(), position in any::<u64>(), draw in any::<u64>()) {
        let position = Position(position % numbering.end().0);
        let mut id = numbering.id_at(position);
        for (size, weight) in numbering.random_parts() {
            id += draw % size * weight;
        }
        prop_assert_eq!(numbering.position_of(id), Some(position));
    }

    #[test]
    fn ids_of_other_workers_have_no_position(numbering in a_numbering(), id in any::<u64>()) {
        if let Some(position) = numbering.position_of(id) {
            prop_assert!(position < numbering.end());
            let random: u64 = numbering.random_parts().iter().map(|(size, weight)| id / weight % size * weight).sum();
            prop_assert_eq!(numbering.id_at(position), id - random);
        } else if let Ok(decoded) = numbering.layout().decode(id) {
            let made = decoded.tick < numbering.tick_of(numbering.end());
            prop_assert!(!made || !numbering.workers().contains(decoded.worker));
        }
    }

    #[test]
    fn ticks_and_instants_agree(numbering in a_numbering(), tick in any::<u64>(), within_us in any::<i64>()) {
        let tick = Tick(tick % numbering.tick_of(numbering.end()).0);
        let start = numbering.start_of(tick);
        let tick_us = numbering.layout().tick_ms() as i64 * 1000;
        prop_assert_eq!(numbering.tick_at(start), tick);
        prop_assert_eq!(numbering.tick_at(UnixMicros(start.0 + within_us.rem_euclid(tick_us))), tick);
        prop_assert_eq!(numbering.tick_at(UnixMicros(start.0 + tick_us)), Tick(tick.0 + 1));
        let before = numbering.tick_at(UnixMicros(start.0 - 1));
        prop_assert_eq!(before, Tick(tick.0.saturating_sub(1)));
    }
}

#[test]
fn a_whole_tick_of_neighbours_in_twitters_layout_is_one_run() {
    for (workers, count) in
        [("0", 4096), ("1023", 4096), ("0-255", 256 * 4096), ("7-9", 3 * 4096), ("0-1023", 1 << 22)]
    {
        let numbering = numbering("twitter", workers);
        let run = numbering.run_at(numbering.first_of(Tick(1000)), u64::MAX);
        assert_eq!((run.count, run.stride), (count, 1), "{workers}");
        assert_eq!(run.first, (1000 << 22) + (numbering.workers().iter().next().unwrap() << 12));
        assert!(!numbering.needs_list());
    }
}

#[test]
fn random_fields_and_wide_strides_need_lists() {
    assert!(numbering("clearing", "81").needs_list());
    assert_eq!(numbering("clearing", "81").random_parts(), [(1000, 1)]);
    assert!(numbering("time:20,sequence:8,node:33", "0").needs_list());
    assert!(!numbering("time:20,sequence:8,node:31", "0").needs_list());
    assert!(
        !numbering("time:20,node:30,sequence:8", "0,100000000").needs_list(),
        "no run has IDs of two workers"
    );
}

#[test]
fn a_run_is_no_longer_than_u32_max() {
    let numbering = numbering("time:20,sequence:40", "0");
    assert_eq!(numbering.run_at(Position(0), u64::MAX).count, u32::MAX);
}
