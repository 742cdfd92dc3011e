//! Runs `svc::fuzz_entry::webhook_signatures`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| svc::fuzz_entry::webhook_signatures(data));
