//! `crypto`: `sha256(text)` and `hmac_sha256(key, text)` in hex, `hex_encode`, `hex_decode`, `base64_encode`,
//! `base64_decode`, `random(bytes)`, `uuid()`, `equal(a, b)` in constant time.

use super::{
    arguments::{MAX_TEXT, bounded_bytes},
    function_builder::FunctionBuilder,
    library_error::LibraryError,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use hmac::{Hmac, KeyInit, Mac};
use mlua::{LuaString, Table};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The most random bytes of one call.
const MAX_RANDOM: usize = 1024;

pub(super) fn library(builder: &FunctionBuilder<'_>) -> mlua::Result<Table> {
    let library = builder.lua.create_table()?;
    library.raw_set(
        "sha256",
        builder.function("crypto.sha256", |_, data: LuaString| {
            Ok(HEXLOWER.encode(&Sha256::digest(bounded_bytes(&data.as_bytes(), "text", MAX_TEXT)?)))
        })?,
    )?;
    library.raw_set(
        "hmac_sha256",
        builder.function("crypto.hmac_sha256", |_, (key, data): (LuaString, LuaString)| {
            let key = key.as_bytes();
            let mut mac = Hmac::<Sha256>::new_from_slice(bounded_bytes(&key, "key", MAX_TEXT)?)
                .expect("HMAC takes a key of any length");
            mac.update(bounded_bytes(&data.as_bytes(), "text", MAX_TEXT)?);
            Ok(HEXLOWER.encode(&mac.finalize().into_bytes()))
        })?,
    )?;
    library.raw_set(
        "hex_encode",
        builder.function("crypto.hex_encode", |_, data: LuaString| {
            Ok(HEXLOWER.encode(bounded_bytes(&data.as_bytes(), "text", MAX_TEXT)?))
        })?,
    )?;
    library.raw_set(
        "hex_decode",
        builder.function("crypto.hex_decode", |lua, data: LuaString| {
            let bytes = HEXLOWER_PERMISSIVE.decode(bounded_bytes(&data.as_bytes(), "text", MAX_TEXT)?);
            Ok(lua.create_string(bytes.map_err(|_| LibraryError::Message("the text is not hex".to_owned()))?)?)
        })?,
    )?;
    library.raw_set(
        "base64_encode",
        builder.function("crypto.base64_encode", |_, data: LuaString| {
            Ok(STANDARD.encode(bounded_bytes(&data.as_bytes(), "text", MAX_TEXT)?))
        })?,
    )?;
    library.raw_set(
        "base64_decode",
        builder.function("crypto.base64_decode", |lua, data: LuaString| {
            let bytes = STANDARD.decode(bounded_bytes(&data.as_bytes(), "text", MAX_TEXT)?);
            Ok(lua.create_string(bytes.map_err(|error| format!("the text is not base64: {error}"))?)?)
        })?,
    )?;
    library.raw_set(
        "random",
        builder.function("crypto.random", |lua, count: usize| {
            if count > MAX_RANDOM {
                return Err(LibraryError::Message(format!("at most {MAX_RANDOM} bytes at once")));
            }
            let mut bytes = vec![0; count];
            getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
            Ok(lua.create_string(bytes)?)
        })?,
    )?;
    library.raw_set("uuid", builder.function("crypto.uuid", |_, ()| Ok(uuid::Uuid::new_v4().to_string()))?)?;
    library.raw_set(
        "equal",
        builder.function("crypto.equal", |_, (one, other): (LuaString, LuaString)| {
            Ok(bool::from(one.as_bytes().ct_eq(&*other.as_bytes())))
        })?,
    )?;
    Ok(library)
}
