//! ID spaces: which sources can make the same IDs.

use std::collections::BTreeSet;

use super::*;
use crate::numbering::Numbering;

fn space(spec: &str) -> String {
    layout(spec).space().to_string()
}

#[test]
fn a_space_counts_the_values_of_node_fields_and_constants() {
    for (spec, numbers) in [
        ("twitter", 1_024),
        ("time:40,a:=16,sequence:=4096,b:6", 1_024),
        ("time:30,r:1:constant(1),s:2:constant(2),sequence:1", 8),
        ("time:41,sequence:12", 1),
    ] {
        let layout = layout(spec);
        assert_eq!(layout.space().numbers(), numbers, "{spec}");
        assert!(layout.number_in_space(layout.workers() - 1) < numbers, "{spec}");
    }
}

fn meet(left: (&str, &str), right: (&str, &str)) -> Option<(u64, u64)> {
    let built = |(spec, workers): (&str, &str)| (layout(spec), workers.parse::<WorkerSet>().unwrap());
    let left = built(left);
    let right = built(right);
    left.0.collision(&left.1, &right.0, &right.1)
}

#[test]
fn spaces_are_equal_if_their_ids_are_equal() {
    assert_eq!(space("twitter"), "time,node:=1024,sequence:=4096;tick=1ms;epoch=1288834974657");
    assert_eq!(space("twitter"), space("time:41,worker:10,sequence:12;epoch=2010-11-04T01:42:54.657Z"));
    assert_eq!(space("twitter"), space("time:40,a:=16,b:6,sequence:=4096;epoch=1288834974657"));
    assert_eq!(
        space("time:30,r:1:constant(1),s:2:constant(2),sequence:1,x:1:random,y:1:random"),
        "time,node:=8,sequence:=2,random:=4;tick=1ms;epoch=0"
    );
    let mut spaces: Vec<String> = PRESETS.iter().map(|preset| space(preset.spec)).collect();
    spaces.extend(
        [
            "time:41,sequence:12,worker:10;epoch=1288834974657",
            "time:41,worker:5,sequence:12,worker_2:5;epoch=1288834974657",
            "time:41,worker:10,sequence:12;epoch=1288834974658",
            "time:41,worker:10,sequence:12;epoch=1288834974657;tick=2ms",
            "time:30,r:3:constant(5),sequence:1,x:2:random",
        ]
        .map(space),
    );
    let count = spaces.len();
    spaces.sort();
    spaces.dedup();
    assert_eq!(spaces.len(), count);
}

/// Lock files are named after the text of a space, and daemons of two releases must see each
/// other's locks.
#[test]
fn a_tick_ends_where_the_next_one_starts() {
    for preset in PRESETS {
        let layout = Layout::resolve(preset.name).unwrap();
        let numbering = Numbering::new(layout.clone(), WorkerSet::single(1)).unwrap();
        let tick = numbering.tick_at(UnixMicros(1_800_000_000_000_000));
        let id = numbering.id_bound(numbering.first_of(tick));
        assert_eq!(layout.space().end_of_tick(id), numbering.start_of(Tick(tick.0 + 1)), "{}", preset.name);
    }
}

#[test]
fn only_the_canonical_text_of_a_space_is_read() {
    for preset in PRESETS {
        let space = layout(preset.name).space();
        assert_eq!(space.to_string().parse(), Ok(space));
    }
    let good = space("js53");
    for wrong in [
        "",
        "time;tick=1ms;epoch=0",
        "time,node:=0;tick=1ms;epoch=0",
        "time,node:=2;tick=0ms;epoch=0",
        "time,node:=2,node:=2;tick=1ms;epoch=0",
        "time,constant:=4(1),node:=256,sequence:=4096;tick=1ms;epoch=0",
        "time,node:=4294967296,sequence:=4294967296;tick=1ms;epoch=0",
        &good.replace(":=", ":=0"),
        &format!("{good} "),
    ] {
        assert!(wrong.parse::<Space>().is_err(), "{wrong:?}");
    }
}

#[test]
fn constants_are_part_of_the_number() {
    let layout = layout("time:41,region:2:constant(1),worker:8,sequence:6,zone:2:constant(2),host:4");
    assert_eq!(layout.space().to_string(), "time,node:=1024,sequence:=64,node:=64;tick=1ms;epoch=0");
    // The worker ID consists of worker 5 and host 3.
    assert_eq!(layout.number_in_space(5 * 16 + 3), ((256 + 5) * 4 + 2) * 16 + 3);
    let workers = WorkerSet::from_list([0, 1, 15, 16, 4095]).unwrap();
    assert!(layout.numbers_in_space(&workers).is_sorted_by(|left, right| left < right));
}

#[test]
fn sources_that_grow_alike_collide_if_their_epochs_are_less_than_a_year_apart() {
    let found = |days: i64, spec: &str| {
        let at = |text: &str, epoch_ms: i64| layout(&format!("{text};epoch={epoch_ms}"));
        let worker = WorkerSet::single(5);
        let one = at("time:41,worker:10,sequence:12", 0);
        one.concurrent_collision(&worker, &at(spec, days * 86_400_000), &worker).is_some()
    };
    for days in [-364, 364] {
        assert!(found(days, "time:41,worker:10,sequence:12"));
        assert!(!found(days, "time:40,worker:10,sequence:13"), "they do not grow alike");
    }
    assert!(![-365, 365].map(|days| found(days, "time:41,worker:10,sequence:12")).contains(&true));
}

#[test]
fn layouts_that_make_the_same_ids_collide() {
    let constant = "time:41,region:2:constant(1),worker:8,sequence:12";
    let node = "time:41,region:2,worker:8,sequence:12";
    assert_eq!(meet((constant, "5"), (node, "261")), Some((5, 261)));
    assert_eq!(meet((constant, "0-5"), (node, "261-300")), Some((5, 261)));
    assert_eq!(meet((constant, "5"), (node, "5")), None);
    // These layouts divide the same bits into fields at different places.
    assert_eq!(meet((node, "5"), ("time:41,worker:11,sequence:11", "9-11")), Some((5, 10)));
    // Ten ticks of the short layout are one tick of the long layout.
    let short = "time:13d,worker:2d,sequence:3d";
    let long = "time:12d,worker:2d,sequence:4d;tick=10ms";
    assert_eq!(meet((short, "7"), (long, "0-99")), Some((7, 0)));
    let zero = "time:12d,zero:1d:constant(0),worker:2d,sequence:3d;tick=10ms";
    assert_eq!(meet((short, "7"), (zero, "7")), Some((7, 7)));
    assert_eq!(meet((short, "7"), (zero, "6")), None);
    // A constant below the sequence keeps sources apart, even with a random field below the
    // constant.
    let kind = |kind: u64| format!("time:41,worker:2d,sequence:2d,kind:1d:constant({kind}),table:1d:random");
    assert_eq!(meet((&kind(1), "3"), (&kind(2), "3")), None);
    assert_eq!(meet((&kind(1), "3"), (&kind(1), "3")), Some((3, 3)));
    // The sizes of these layouts do not divide each other.
    let hundreds = "time:40,worker:=60,sequence:=100";
    let sixties = "time:40,worker:=100,sequence:=60";
    assert_eq!(meet((hundreds, "3"), (sixties, "4-5")), Some((3, 4)), "these workers may collide");
}

/// Returns a layout that has few IDs and fields of these sizes, or `None` if such a layout is not
/// allowed.
fn small_layout(factors: &[u64], kinds: &[u8], constant: u64, tick_ms: u64, epoch: i64) -> Option<Layout> {
    let mut fields = vec![FieldSpec { name: "time".into(), size: FieldSize::Count(6), role: Role::Time }];
    let mut has_sequence = false;
    for (index, (&values, kind)) in factors.iter().zip(kinds).enumerate() {
        let (name, role) = match kind % 4 {
            0 if !has_sequence => ("sequence".to_owned(), Role::Sequence),
            1 if has_sequence => (format!("random{index}"), Role::Random),
            2 => (format!("constant{index}"), Role::Constant(constant % values)),
            _ => (format!("node{index}"), Role::Node),
        };
        has_sequence |= role == Role::Sequence;
        fields.push(FieldSpec { name, size: FieldSize::Count(values), role });
    }
    Layout::new(fields, tick_ms, epoch).ok()
}

fn all_ids(layout: &Layout, worker: u64) -> BTreeSet<u64> {
    let numbering = LayoutNumbering::new(layout.clone(), WorkerSet::single(worker)).unwrap();
    let mut ids: BTreeSet<u64> = (0..numbering.end().0).map(|at| numbering.id_at(Position(at))).collect();
    for &(values, weight) in numbering.random_parts() {
        ids = ids.iter().flat_map(|id| (0..values).map(move |draw| id + draw * weight)).collect();
    }
    ids
}

/// Generates the sizes of the fields of two layouts, and how many times longer the second layout's
/// tick is.
fn small_factors() -> impl Strategy<Value = (Vec<u64>, Vec<u64>, u64)> {
    let factor = prop::sample::select(vec![2_u64, 2, 2, 3, 4, 5]);
    (vec(factor, 1..=4), 1..=3_u64).prop_flat_map(|(factors, times)| {
        let longer = if times > 1 { [&factors[..], &[times]].concat() } else { factors.clone() };
        (Just(factors).prop_shuffle(), Just(longer).prop_shuffle(), Just(times))
    })
}

/// Joins two neighbouring fields into one, so that the two layouts divide an ID at different
/// places.
fn joined(factors: &[u64], at: usize) -> Vec<u64> {
    let mut factors = factors.to_vec();
    if at + 1 < factors.len() {
        factors[at] *= factors.remove(at + 1);
    }
    factors
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Both layouts' IDs grow at the same rate, and their epochs are arbitrary. `collision` must
    /// find every pair of workers that have an ID in common. If the ticks are equal, and one of any
    /// two weights divides the other, it must find no other pair.
    #[test]
    fn workers_with_a_common_id_collide(
        (left, right, times) in small_factors(),
        joins in (0..6_usize, 0..6_usize),
        kinds in (vec(any::<u8>(), 5), vec(any::<u8>(), 5)),
        constants in (0..30_u64, 0..30_u64),
        epochs in (-9..9_i64, -9..9_i64),
    ) {
        let left = small_layout(&joined(&left, joins.0), &kinds.0, constants.0, 1, epochs.0);
        let right = small_layout(&joined(&right, joins.1), &kinds.1, constants.1, times, epochs.1);
        let (Some(left), Some(right)) = (left, right) else { return Ok(()) };
        let mut cuts: Vec<u64> = [&left, &right].into_iter().flat_map(Layout::fields).map(Field::weight).collect();
        cuts.sort_unstable();
        let is_exact = times == 1 && cuts.windows(2).all(|pair| pair[1] % pair[0] == 0);
        let ids = |layout: &Layout| (0..layout.workers()).map(|worker| all_ids(layout, worker)).collect::<Vec<_>>();
        let left_ids = ids(&left);
        let right_ids = ids(&right);
        for (worker, mine) in left_ids.iter().enumerate() {
            for (other, theirs) in right_ids.iter().enumerate() {
                let single = |worker: usize| WorkerSet::single(worker as u64);
                let found = left.collision(&single(worker), &right, &single(other));
                let back = right.collision(&single(other), &left, &single(worker));
                prop_assert_eq!(found.is_some(), back.is_some());
                let is_common = !mine.is_disjoint(theirs);
                prop_assert!(!is_common || found.is_some(), "{} {} and {} {}", left, worker, right, other);
                prop_assert!(!is_exact || is_common == found.is_some(), "{} {} and {} {}", left, worker, right, other);
            }
        }
        // The sets of all workers collide if any two workers have an ID in common.
        let everyone = |layout: &Layout| WorkerSet::from_list(0..layout.workers()).unwrap();
        let all = left.collision(&everyone(&left), &right, &everyone(&right));
        let is_common = left_ids.iter().any(|mine| right_ids.iter().any(|theirs| !mine.is_disjoint(theirs)));
        prop_assert!(!is_common || all.is_some());
        if let Some((worker, other)) = all {
            let found = left.collision(&WorkerSet::single(worker), &right, &WorkerSet::single(other));
            prop_assert!(found.is_some());
        }
    }

    #[test]
    fn spaces_of_any_layout_read_back(layout in a_layout(), worker: u64) {
        let space = layout.space();
        prop_assert_eq!(space.to_string().parse(), Ok(space));
        let worker = WorkerSet::single(worker % layout.workers());
        prop_assert!(layout.collision(&worker, &layout, &worker).is_some());
    }
}
