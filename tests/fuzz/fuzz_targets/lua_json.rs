//! Runs `svc::fuzz_entry::lua_json`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| svc::fuzz_entry::lua_json(data));
