#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| snowbank_wire::fuzzing::reply_frames(data));
