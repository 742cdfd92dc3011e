//! Runs `svc::fuzz_entry::json_rpc`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| svc::fuzz_entry::json_rpc(data));
