#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| snowbank_id::fuzzing::format_text(data));
