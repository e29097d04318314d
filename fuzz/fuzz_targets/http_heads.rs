#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| snowbank::fuzzing::http_heads(data));
