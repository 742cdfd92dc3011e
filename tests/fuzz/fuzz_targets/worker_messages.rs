//! Runs `svc::fuzz_entry::worker_messages`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| svc::fuzz_entry::worker_messages(data));
