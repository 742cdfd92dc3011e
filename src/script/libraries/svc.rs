//! `svc`: what a script decides (`retry`, `skip`, `dead`, each to be returned) and `call(method, params)`.

use super::{Boxed, Maker, raw, seconds};
use crate::{
    owner::Owner,
    script::{Verdict, message::bounded},
};
use futures_util::future::BoxFuture;
use mlua::{Table, Value};
use serde_json::value::RawValue;
use std::sync::Arc;

/// Calls methods on a script's behalf.
pub trait MethodCaller: Send + Sync {
    /// Calls a method as this owner would. The message of a failure is shown to the script.
    fn call(
        &self,
        owner: Owner,
        method: &str,
        params: Box<RawValue>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, String>>;
}

pub(super) fn module(maker: &Maker<'_>, owner: Owner, caller: &Arc<dyn MethodCaller>) -> mlua::Result<Table> {
    let module = maker.lua.create_table()?;
    module.raw_set(
        "retry",
        maker.function("svc.retry", |_, (after, why): (f64, Option<String>)| {
            Ok(Verdict::Retry { after: seconds(after, "the wait")?, why: reason(why) })
        })?,
    )?;
    module.raw_set("skip", maker.function("svc.skip", |_, why: Option<String>| Ok(Verdict::Skip(reason(why))))?)?;
    module.raw_set("dead", maker.function("svc.dead", |_, why: Option<String>| Ok(Verdict::Dead(reason(why))))?)?;
    let caller = caller.clone();
    let call = maker.waiting("svc.call", move |lua, (method, params): (String, Value)| {
        let caller = caller.clone();
        async move {
            let result = caller.call(owner, &method, raw(&lua, &params)?).await?;
            Boxed::new(&lua, Some(result.get()))
        }
    })?;
    module.raw_set("call", call)?;
    Ok(module)
}

/// Why a script decided as it did.
fn reason(why: Option<String>) -> String {
    why.map(|why| bounded(&why).to_owned()).unwrap_or_default()
}
