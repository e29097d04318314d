//! A property over random steps: direct claims are in order, all claims are below the ceiling, and
//! no two overlap.

use super::*;

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Sleep { us: u64 },
    Jump { us: i64 },
    Claim { count: u64 },
    Wait { count: u64, wait_ms: u64, partial: bool },
    Advance,
    Ceiling { ahead_ms: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1_u64..5_000).prop_map(|us| Step::Sleep { us }),
        1 => (-20 * SECOND_US..20 * SECOND_US).prop_map(|us| Step::Jump { us }),
        6 => (1_u64..20_000).prop_map(|count| Step::Claim { count }),
        3 => (1_u64..200_000, 0_u64..100, any::<bool>())
            .prop_map(|(count, wait_ms, partial)| Step::Wait { count, wait_ms, partial }),
        4 => Just(Step::Advance),
        1 => (0_u64..50).prop_map(|ahead_ms| Step::Ceiling { ahead_ms }),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    /// Under any clock, each direct claim lies above all earlier ones, below the ceiling, and
    /// within `max_ahead` of the wall clock. When all waits have ended, no ID counts as admitted.
    #[test]
    fn claims_keep_the_promises(
        steps in steps(),
        scarce: bool,
        spread: bool,
        wait_on_step_back: bool,
        seed: u64,
    ) {
        let rules = Rules {
            on_step_back: if wait_on_step_back { OnStepBack::Wait } else { OnStepBack::Ride },
            sequence_start: if spread { SequenceStart::Spread } else { SequenceStart::Zero },
            ..RULES
        };
        let numbering = numbering(if scarce { SCARCE } else { TWITTER });
        let ceiling = numbering.first_of(numbering.tick_at(after_ms(20).wall));
        let source = Source::new(String::from("test"), numbering, rules, Grant::new(ceiling), Position(0), BEFORE);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut now = START;
        let mut next_free = Position(0);
        let mut promised = Vec::new();
        let mut claimed = Vec::new();
        let mut check = |span: Span, now: Now| {
            let numbering = source.numbering();
            prop_assert!(span.count > 0);
            prop_assert!(span.from >= next_free, "claimed {span:?} below {next_free:?}");
            prop_assert!(span.end() <= source.grant().ceiling());
            let last = numbering.start_of(numbering.tick_of(Position(span.end().0 - 1)));
            prop_assert!(last.0 <= now.wall.0 + clock::micros(rules.max_ahead));
            next_free = span.end();
            claimed.push(span);
            Ok(())
        };
        for step in steps {
            match step {
                Step::Sleep { us } => now = now.after(Duration::from_micros(us)),
                Step::Jump { us } => now.wall.0 += us,
                Step::Claim { count } => {
                    let window = source.window(now);
                    if let Some(from) = source.claim(&window, count, &mut rng) {
                        prop_assert!(from >= window.floor);
                        check(Span { from, count }, now)?;
                    }
                }
                Step::Wait { count, wait_ms, partial } => {
                    let request = WaitRequest { partial, ..request(count, now, wait_ms) };
                    if let Ok(id) = source.admit(&source.window(now), request) {
                        promised.push((id, count, partial));
                    }
                }
                Step::Advance => {
                    source.advance(now, &mut rng);
                }
                Step::Ceiling { ahead_ms } => {
                    let reach = now.after(Duration::from_millis(ahead_ms)).wall;
                    source.grant().raise(source.numbering().first_of(source.numbering().tick_at(reach)));
                }
            }
        }
        // All waits end, whatever the clock does.
        now = now.after(Duration::from_secs(1));
        prop_assert_eq!(source.advance(now, &mut rng).next_in, None);
        prop_assert_eq!(source.wait_queue().admitted_ids(), 0);
        let mut finished = source.collect(0);
        prop_assert_eq!(finished.len(), promised.len());
        for each in &mut finished {
            let ids: u64 = each.spans.iter().map(|span| span.count).sum();
            let &(_, count, partial) = promised.iter().find(|one| one.0 == each.id).expect("was admitted");
            match each.refusal {
                None if partial => prop_assert!(ids >= 1 && ids <= count),
                None => prop_assert_eq!(ids, count),
                Some(_) => prop_assert!(ids < count),
            }
            prop_assert!(each.spans.windows(2).all(|pair| pair[0].end() <= pair[1].from));
        }
        claimed.extend(finished.iter().flat_map(|each| &each.spans));
        claimed.sort_by_key(|span| span.from);
        prop_assert!(claimed.windows(2).all(|pair| pair[0].end() <= pair[1].from));
        prop_assert!(claimed.iter().all(|span| span.end() <= source.grant().ceiling()));
    }
}
