//! The bodies of fuzz targets. Each takes any bytes, and checks a post-condition of the code.
//!
//! Each body is in a file `fuzzing.rs` next to the code that it tests. `fuzz/fuzz_targets` has a
//! shim for each. `tests/fuzz` runs them and keeps their corpus in `fuzz/corpus`. The test below
//! replays the corpus without a fuzzer. Other crates have targets of their own.

#[path = "../fuzz/choices.rs"]
#[allow(dead_code, reason = "each crate uses a part")]
mod choices;

use std::collections::BTreeSet;

use crate::numbering::Numbering;
use snowbank_client::layout::{FieldSize, FieldSpec, Layout, PRESETS, Role, WorkerSet};

pub(crate) use self::choices::Choices;
pub use crate::config::fuzzing::config;
pub use crate::frontends::fuzzing::{
    http_heads, memcached_commands, noeqd_requests, request_frames, resp_requests,
};
pub use crate::server::fuzzing::id_frames;

/// The body of a target. It panics if a post-condition does not hold.
pub type Body = fn(&[u8]);

/// Every target: its name, which its shim and its corpus share, and its body.
pub const TARGETS: &[(&str, Body)] = &[
    ("config", config),
    ("http_heads", http_heads),
    ("id_frames", id_frames),
    ("memcached_commands", memcached_commands),
    ("noeqd_requests", noeqd_requests),
    ("request_frames", request_frames),
    ("resp_requests", resp_requests),
];

/// Builds any layout with any of its workers. Returns `None` if the choices do not make one.
pub(crate) fn numbering(choices: &mut Choices<'_>) -> Option<Numbering> {
    let layout = if choices.bool() {
        layout_of_choices(choices)?
    } else {
        let preset = &PRESETS[choices.below(PRESETS.len() as u64) as usize];
        preset.spec.parse().expect("presets are layouts")
    };
    let mut workers = BTreeSet::new();
    for _ in 0..=choices.below(8) {
        workers.insert(choices.below(layout.workers()));
    }
    let workers = WorkerSet::from_list(workers).expect("distinct worker IDs");
    Some(Numbering::new(layout, workers).expect("worker IDs of the layout"))
}

fn layout_of_choices(choices: &mut Choices<'_>) -> Option<Layout> {
    let time = if choices.bool() { FieldSize::Digits(13) } else { FieldSize::Bits(41) };
    let mut fields = vec![FieldSpec { name: "time".to_owned(), size: time, role: Role::Time }];
    for index in 0..choices.below(6) {
        let size = match choices.byte() % 3 {
            0 => FieldSize::Bits(1 + choices.below(16) as u32),
            1 => FieldSize::Digits(1 + choices.below(4) as u32),
            _ => FieldSize::Count(2 + choices.below(5_000)),
        };
        let (name, role) = match choices.byte() % 4 {
            0 => ("sequence".to_owned(), Role::Sequence),
            1 => (format!("random{index}"), Role::Random),
            2 => (format!("constant{index}"), Role::Constant(choices.below(size.values()?))),
            _ => (format!("node{index}"), Role::Node),
        };
        fields.push(FieldSpec { name, size, role });
    }
    let tick_ms = choices.pick(&[1, 10, 1_000]);
    Layout::new(fields, tick_ms, choices.pick(&[0, 1_700_000_000_000, -134_540_000_000])).ok()
}

#[cfg(test)]
#[path = "../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kept_input_passes() {
        replay::run_kept_inputs(TARGETS);
    }

    #[test]
    fn every_target_has_its_shim() {
        replay::assert_shims(TARGETS, "snowbank");
    }
}
