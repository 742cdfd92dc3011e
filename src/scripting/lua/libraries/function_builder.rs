//! Builds library functions whose failures are errors on the script's line.

use super::library_error::LibraryError;
use crate::scripting::lua::location;
use mlua::{FromLuaMulti, Function, IntoLuaMulti, Lua, MultiValue, Value};

/// Builds the functions of the libraries of one state.
pub(super) struct FunctionBuilder<'a> {
    pub lua: &'a Lua,
    /// The prelude's wrapper: turns `(succeeded, result or message, whether it is boxed, name)` into a result or an
    /// error on the script's line.
    pub raising: Function,
}

impl FunctionBuilder<'_> {
    /// Builds a function. `name` is the prefix of its error messages.
    pub fn function<A: FromLuaMulti, R: IntoLuaMulti>(
        &self,
        name: &'static str,
        call: impl Fn(&Lua, A) -> Result<R, LibraryError> + Send + 'static,
    ) -> mlua::Result<Function> {
        let call = self.lua.create_function(move |lua, arguments: MultiValue| {
            let result = A::from_lua_multi(arguments, lua).map_err(LibraryError::from).and_then(|a| call(lua, a));
            returned(lua, name, None, result)
        })?;
        self.raising.call(call)
    }

    /// Builds a function that may wait; the thread is free meanwhile.
    pub fn async_function<A, R, F>(
        &self,
        name: &'static str,
        call: impl Fn(Lua, A) -> F + Clone + Send + Sync + 'static,
    ) -> mlua::Result<Function>
    where
        A: FromLuaMulti + Send,
        R: IntoLuaMulti + Send,
        F: Future<Output = Result<R, LibraryError>> + Send,
    {
        let call = self.lua.create_async_function(move |lua, arguments: MultiValue| {
            let call = call.clone();
            // Recorded now: once the run is ended while it waits, its stack is gone.
            location::record(&lua);
            async move {
                let result = match A::from_lua_multi(arguments, &lua) {
                    Ok(arguments) => call(lua.clone(), arguments).await,
                    Err(error) => Err(error.into()),
                };
                let location = location::take(&lua);
                returned(&lua, name, location, result)
            }
        })?;
        self.raising.call(call)
    }
}

/// The values that a function returns to the prelude's wrapper.
fn returned<R: IntoLuaMulti>(
    lua: &Lua,
    name: &str,
    location: Option<String>,
    result: Result<R, LibraryError>,
) -> mlua::Result<MultiValue> {
    match result {
        Ok(value) => {
            let mut values = value.into_lua_multi(lua)?;
            values.push_front(Value::Boolean(true));
            Ok(values)
        }
        Err(LibraryError::Message(message)) => (false, format!("{name}: {message}")).into_lua_multi(lua),
        Err(LibraryError::Table(boxed)) => {
            let raiser = location.map_or_else(|| name.to_owned(), |location| format!("{location}: {name}"));
            (false, boxed.0, true, raiser).into_lua_multi(lua)
        }
        Err(LibraryError::Fatal(error)) => Err(error),
    }
}
