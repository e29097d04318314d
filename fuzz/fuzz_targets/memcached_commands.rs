#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| snowbank::fuzzing::memcached_commands(data));
