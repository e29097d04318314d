#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| snowbank_id::fuzzing::layout_text(data));
