//! Runs `svc::fuzz_entry::json_bodies`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| svc::fuzz_entry::json_bodies(data));
