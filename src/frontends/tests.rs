use super::*;
use crate::numbering::Numbering;
use snowbank_client::layout::{Layout, Position, WorkerSet};

#[test]
fn random_fields_never_carry_into_the_sequence() {
    let layout = Layout::resolve("clearing").expect("a preset");
    let numbering = Numbering::new(layout, WorkerSet::single(81)).expect("worker 81 exists");
    let runs = [numbering.run_at(Position(4_710), 10)];
    let random = numbering.random_parts();
    let frame_ids = FrameIds { runs: &runs, random, needs_list: true, reply_count: None, more: false };
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..2_000 {
        for (id, bare) in frame_ids.ids(&mut rng).zip(runs[0].ids()) {
            assert_eq!(numbering.position_of(id), numbering.position_of(bare), "{id} of {bare}");
        }
    }
}
