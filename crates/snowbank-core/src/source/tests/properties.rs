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

/// A source, and what became of the steps so far.
struct History {
    source: Source,
    rng: fastrand::Rng,
    now: Now,
    /// The position after the last direct claim.
    next_free: Position,
    /// The requests that were admitted: each with its count, and whether it accepts fewer IDs.
    promised: Vec<(WaitId, u64, bool)>,
    claimed: Vec<Span>,
}

impl History {
    fn new(source: Source, seed: u64) -> History {
        History {
            source,
            rng: fastrand::Rng::with_seed(seed),
            now: START,
            next_free: Position(0),
            promised: Vec::new(),
            claimed: Vec::new(),
        }
    }

    fn play(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let now = self.now;
        match *step {
            Step::Sleep { us } => self.now = now.after(Duration::from_micros(us)),
            Step::Jump { us } => self.now.wall.0 += us,
            Step::Claim { count } => {
                let window = self.source.window(now);
                if let Some(from) = self.source.claim(&window, count, &mut self.rng) {
                    prop_assert!(from >= window.floor);
                    self.check_claim(Span { from, count })?;
                }
            }
            Step::Wait { count, wait_ms, partial } => {
                let request = WaitRequest { partial, ..request(count, now, wait_ms) };
                if let Ok(id) = self.source.admit(&self.source.window(now), request) {
                    self.promised.push((id, count, partial));
                }
            }
            Step::Advance => {
                self.source.advance(now, &mut self.rng);
            }
            Step::Ceiling { ahead_ms } => {
                let numbering = self.source.numbering();
                let reach = now.after(Duration::from_millis(ahead_ms)).wall;
                self.source.grant().raise(numbering.first_of(numbering.tick_at(reach)));
            }
        }
        Ok(())
    }

    fn check_claim(&mut self, span: Span) -> Result<(), TestCaseError> {
        let numbering = self.source.numbering();
        prop_assert!(span.count > 0);
        prop_assert!(span.from >= self.next_free, "claimed {span:?} below {:?}", self.next_free);
        prop_assert!(span.end() <= self.source.grant().ceiling());
        let last = numbering.start_of(numbering.tick_of(Position(span.end().0 - 1)));
        prop_assert!(last.0 <= self.now.wall.0 + clock::micros(RULES.max_ahead));
        self.next_free = span.end();
        self.claimed.push(span);
        Ok(())
    }

    /// Ends all waits, whatever the clock does, and checks their IDs.
    fn end_waits(&mut self) -> Result<(), TestCaseError> {
        let now = self.now.after(Duration::from_secs(1));
        prop_assert_eq!(self.source.advance(now, &mut self.rng).next_in, None);
        prop_assert_eq!(self.source.wait_queue().admitted_ids(), 0);
        let finished = self.source.collect(0);
        prop_assert_eq!(finished.len(), self.promised.len());
        for each in finished {
            let ids: u64 = each.spans.iter().map(|span| span.count).sum();
            let &(_, count, partial) =
                self.promised.iter().find(|one| one.0 == each.id).expect("was admitted");
            match each.refusal {
                None if partial => prop_assert!(ids >= 1 && ids <= count),
                None => prop_assert_eq!(ids, count),
                Some(_) => prop_assert!(ids < count),
            }
            prop_assert!(each.spans.windows(2).all(|pair| pair[0].end() <= pair[1].from));
            self.claimed.extend(each.spans);
        }
        Ok(())
    }
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
        let mut history = History::new(source, seed);
        for step in &steps {
            history.play(step)?;
        }
        history.end_waits()?;
        let History { source, mut claimed, .. } = history;
        claimed.sort_by_key(|span| span.from);
        prop_assert!(claimed.windows(2).all(|pair| pair[0].end() <= pair[1].from));
        prop_assert!(claimed.iter().all(|span| span.end() <= source.grant().ceiling()));
    }
}
