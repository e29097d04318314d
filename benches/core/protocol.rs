//! The wire format; one frame in each iteration.

use super::*;
use snowbank_client::protocol::reply::{self, Reply};
use snowbank_client::protocol::{Next, Parsed, Wait, request};

const NEXT: Next = Next { count: 1_000, source: 0, wait: Wait::DEFAULT, explicit: false, partial: false };
const RUNS: [Run; 1] = [Run { first: 1_541_815_603_606_036_480, count: 1_000, stride: 1 }];

#[divan::bench]
fn encode_next(bencher: Bencher<'_, '_>) {
    let mut out = Vec::with_capacity(64);
    bencher.bench_local(|| {
        out.clear();
        request::encode_next(&mut out, 7, black_box(&NEXT));
        black_box(&out);
    });
}

#[divan::bench]
fn parse_next(bencher: Bencher<'_, '_>) {
    let mut frame = Vec::new();
    request::encode_next(&mut frame, 7, &NEXT);
    bencher.bench(|| request::parse(black_box(&frame)));
}

#[divan::bench]
fn encode_runs(bencher: Bencher<'_, '_>) {
    let mut out = Vec::with_capacity(64);
    bencher.bench_local(|| {
        out.clear();
        let encoded = reply::encode_runs_frame(&mut out, 7, black_box(&RUNS), false);
        black_box(&out);
        encoded
    });
}

/// Also reads the run in the frame.
#[divan::bench]
fn parse_runs(bencher: Bencher<'_, '_>) {
    let mut frame = Vec::new();
    reply::encode_runs_frame(&mut frame, 7, &RUNS, false).expect("one run fits a frame");
    bencher.bench(|| match reply::parse(black_box(&frame)) {
        Parsed::Frame { content: Ok(Reply::Runs { runs, .. }), .. } => runs.iter().next(),
        _ => None,
    });
}
