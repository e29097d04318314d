#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| snowbank::fuzzing::state_import(data));
