//! Runs `svc::fuzz_entry::toml_definitions`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| svc::fuzz_entry::toml_definitions(data));
