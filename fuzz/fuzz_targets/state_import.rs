#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| snowbank_state::fuzzing::state_import(data));
