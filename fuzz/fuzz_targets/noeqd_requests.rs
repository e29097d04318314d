#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| snowbank::fuzzing::noeqd_requests(data));
