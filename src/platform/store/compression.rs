//! The compression of what the store writes.

use std::io;
use zstd::bulk::Compressor;

/// The lowest of zstd's ordinary levels, because emits wait for it.
const LEVEL: i32 = 1;

pub fn compressor() -> io::Result<Compressor<'static>> {
    Compressor::new(LEVEL)
}
