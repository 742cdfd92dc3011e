//! Runs `svc::fuzz_entry::agent_protocol`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| svc::fuzz_entry::agent_protocol(data));
