//! Runs `svc::fuzz_entry::event_patterns`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| svc::fuzz_entry::event_patterns(data));
