//! The bodies of fuzz targets. Each takes any bytes, and panics if a post-condition of the code
//! does not hold.
//!
//! Each body is in a file `fuzzing.rs` next to the code that it tests. `fuzz/fuzz_targets` has a
//! shim for each. `tests/fuzz` runs the targets and keeps their corpus in `fuzz/corpus`. The test
//! below replays the corpus without a fuzzer. Other crates have targets of their own.

pub use crate::config::fuzzing::config;
pub use crate::frontends::fuzzing::{
    http_heads, memcached_commands, noeqd_requests, request_frames, resp_requests,
};

#[cfg(test)]
#[path = "../fuzz/replay.rs"]
mod replay;

#[test]
fn every_kept_input_passes() {
    replay::run_kept_inputs(
        "snowbank",
        &[
            ("config", config),
            ("http_heads", http_heads),
            ("memcached_commands", memcached_commands),
            ("noeqd_requests", noeqd_requests),
            ("request_frames", request_frames),
            ("resp_requests", resp_requests),
        ],
    );
}
