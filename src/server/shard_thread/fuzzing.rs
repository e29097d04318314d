//! Any IDs on their way to a client: cut into frames, encoded, and put together again.

use super::backlog::Backlog;
use crate::frontends::{Ask, Form, FrameIds, FrameLimit, FrontEnd, Native};
use crate::fuzzing::{Choices, numbering};
use crate::numbering::Numbering;
use crate::source::Span;
use snowbank_client::layout::{Position, Run, append_run};
use snowbank_client::protocol::collect::{Collected, IdCollector, Progress};
use snowbank_client::protocol::{MAX_REPLY_SIZE, Next, Parsed, Wait, reply};

/// Any layout, any of its workers, any spans of positions, frames of any size, as runs or one by
/// one.
///
/// What arrives are the IDs of those positions, each once, increasing, in frames within their
/// limits.
pub fn id_frames(data: &[u8]) {
    let mut choices = Choices::new(data);
    let Some(numbering) = numbering(&mut choices) else {
        return;
    };
    let form = Form { tag: 7, explicit: choices.bool() };
    let cut = choices.byte();
    let spans = spans(&mut choices, &numbering);
    let runs = runs_of(&numbering, &spans);
    let count: u64 = spans.iter().map(|span| span.count).sum();
    if count == 0 {
        return;
    }
    let ask = Ask { source: 0, count, wait: None, partial: false };
    let out = encode(&numbering, form, &runs, cut);

    let positions = spans.iter().flat_map(|span| (span.from.0..span.end().0).map(Position));
    for (id, position) in received(&out, ask, form).into_iter().zip(positions) {
        assert_eq!(numbering.position_of(id), Some(position));
        if numbering.random_parts().is_empty() {
            assert_eq!(id, numbering.id_at(position));
        }
    }
}

/// Increasing spans that do not overlap, here and there next to each other, at the end of the
/// layout's life too.
fn spans(choices: &mut Choices<'_>, numbering: &Numbering) -> Vec<Span> {
    let end = numbering.end().0;
    let mut from = match choices.byte() % 4 {
        0 => 0,
        1 => end.saturating_sub(choices.below(5_000)),
        _ => choices.below(end),
    };
    let mut spans = Vec::new();
    for _ in 0..=choices.below(6) {
        from = (from + choices.pick(&[0, 0, 1, 7, numbering.ids_per_tick()])).min(end);
        let count = (1 + choices.below(3_000)).min(end - from);
        if count > 0 {
            spans.push(Span { from: Position(from), count });
        }
        from += count;
    }
    spans
}

/// The runs that a shard makes of them.
fn runs_of(numbering: &Numbering, spans: &[Span]) -> Vec<Run> {
    let mut runs = Vec::new();
    for span in spans {
        let mut from = span.from;
        while from < span.end() {
            let run = numbering.run_at(from, span.end().0 - from.0);
            from = Position(from.0 + u64::from(run.count));
            append_run(&mut runs, run);
        }
        assert_eq!(from, span.end());
    }
    runs
}

/// All frames of the reply; with `cut`, smaller ones than the connection would make.
fn encode(numbering: &Numbering, form: Form, runs: &[Run], cut: u8) -> Vec<u8> {
    let mut front = Native;
    let mut rng = fastrand::Rng::with_seed(cut.into());
    let needs_list = numbering.needs_list();
    let full = front.frame_limit(form, needs_list);
    let limit = match (cut, full.runs) {
        (0, _) => full,
        (_, usize::MAX) => FrameLimit { ids: cut.into(), ..full },
        (_, _) => FrameLimit { runs: cut.into(), ..full },
    };
    let mut out = Vec::new();
    let mut frame = Vec::new();
    let mut backlog = Backlog::new(0, form, numbering, runs);
    loop {
        let reply_count = backlog.reply_count();
        let more = backlog.next_frame(numbering, limit, &mut frame);
        assert!(limit.fits(&frame) && !frame.is_empty());
        let frame_ids =
            FrameIds { runs: &frame, random: numbering.random_parts(), needs_list, reply_count, more };
        let begun = out.len();
        front.encode_ids(&mut out, form, &frame_ids, &mut rng);
        assert!(out.len() - begun <= MAX_REPLY_SIZE);
        if !more {
            return out;
        }
    }
}

/// The IDs that the client takes from these frames.
fn received(mut frames: &[u8], ask: Ask, form: Form) -> Vec<u64> {
    let count = u32::try_from(ask.count).expect("a few spans");
    let asked = Next { count, source: 0, wait: Wait::DEFAULT, explicit: form.explicit, partial: ask.partial };
    let mut collector = IdCollector::new(asked);
    loop {
        let Parsed::Frame { content: Ok(frame), tag, consumed } = reply::parse(frames) else {
            panic!("{frames:?} is no reply frame");
        };
        assert_eq!(tag, form.tag);
        frames = &frames[consumed..];
        if collector.add(&frame).expect("as was asked") == Progress::Done {
            break;
        }
    }
    assert!(frames.is_empty());
    let ids: Vec<u64> = match collector.finish() {
        Collected::Runs(runs) => runs.iter().flat_map(Run::ids).collect(),
        Collected::List(ids) => ids,
    };
    assert!(ids.len() as u64 == ask.count && ids.is_sorted_by(|left, right| left < right));
    ids
}
