//! The wait queue, behind `BEHIND` requests that wait for one to three IDs each.

use super::*;
use snowbank::source::wait_queue::{Signals, WaitRequest};

struct Unheard;

impl Signals for Unheard {
    fn finished(&self, _: usize) {}
    fn ceiling_reached(&self) {}
}

const BEHIND: &[u64] = &[1, 100, 10_000];

/// Requests that are due one after another, within ten seconds.
fn request(number: u64) -> WaitRequest {
    let due = NOW.boot.after(Duration::from_secs(5) + Duration::from_micros(400 * number));
    WaitRequest { count: 1 + number % 3, due, partial: false, shard: 0 }
}

/// A source of 10 IDs a millisecond, with nothing left in this one.
fn source_with(waiting: u64) -> Arc<Source> {
    let source = source(numbering("time:42,sequence:=10,worker:5;epoch=1700000000000", [0]), NOW);
    let mut rng = fastrand::Rng::with_seed(1);
    while source.claim(&source.window(NOW), 1, &mut rng).is_some() {}
    for number in 0..waiting {
        source.admit(&source.window(NOW), request(number)).expect("the ticks to come hold it");
    }
    source.advance(NOW, &mut rng, &Unheard);
    source
}

/// An admission in their midst, and its cancellation.
#[divan::bench(args = BEHIND)]
fn admit(bencher: Bencher<'_, '_>, behind: u64) {
    let source = source_with(behind);
    let window = source.window(NOW);
    bencher.bench_local(|| {
        let id = source.admit(&window, request(behind / 2)).expect("the ticks to come hold it");
        source.cancel(id)
    });
}

/// A look by a shard in a tick that another shard has shared out.
#[divan::bench(args = BEHIND)]
fn look(bencher: Bencher<'_, '_>, behind: u64) {
    let source = source_with(behind);
    let mut rng = fastrand::Rng::with_seed(1);
    bencher.bench_local(|| source.advance(NOW, &mut rng, &Unheard));
}

/// The next tick's share-out, of ten IDs.
#[divan::bench(args = BEHIND, sample_size = 1, sample_count = 50)]
fn share_out(bencher: Bencher<'_, '_>, behind: u64) {
    let next = NOW.after(Duration::from_millis(1));
    let with = || (source_with(behind), fastrand::Rng::with_seed(1));
    bencher.with_inputs(with).bench_local_refs(|(source, rng)| source.advance(next, rng, &Unheard));
}
