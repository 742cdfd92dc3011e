//! `require` of modules that are not built in: libraries, found by name and evaluated anew in every run.
//!
//! The compiled code is loaded into a state once and kept there; the values a module makes live in an environment of
//! its own, which is gone with the run. So nothing a run does to a module is there for the next.

use crate::{
    model::owner::Owner,
    scripting::lua::{
        host::ModuleSource,
        program::{Program, ProgramCode, load},
    },
};
use mlua::{Function, Lua, LuaString, Table};
use std::{collections::HashMap, sync::Arc};

/// The longest name of a module, in bytes.
const MAX_NAME: usize = 256;

/// The modules that a state has loaded, by name.
#[derive(Default)]
struct LoadedModules(HashMap<String, LoadedModule>);

#[derive(Clone)]
struct LoadedModule {
    /// The id of the program it was loaded from.
    program: u64,
    function: Function,
    /// Its memory in the state.
    bytes: usize,
}

/// The function that returns the chunk of a module, to be called once; `nil` if there is no such module; or `nil` and
/// the message of a failure.
pub(super) fn finder(
    lua: &Lua,
    owner: Owner,
    modules: Arc<dyn ModuleSource>,
    metatable: &Table,
    chunks: &Table,
) -> mlua::Result<Function> {
    lua.set_app_data(LoadedModules::default());
    let (metatable, chunks) = (metatable.clone(), chunks.clone());
    lua.create_function(move |lua, name: LuaString| {
        let Ok(name) = name.to_str() else { return Ok((None, None)) };
        if name.len() > MAX_NAME {
            return Ok((None, None));
        }
        let program = match modules.find(owner, &name) {
            Ok(Some(program)) => program,
            Ok(None) => return Ok((None, None)),
            Err(message) => return Ok((None, Some(message))),
        };
        let function = load_module(lua, &name, &program)?;
        chunks.raw_set(program.0.name.as_str(), true)?;
        let environment = lua.create_table()?;
        environment.set_metatable(Some(metatable.clone()))?;
        function.set_environment(environment)?;
        Ok((Some(function), None))
    })
}

/// The memory of the loaded modules of this state, in bytes. It is not garbage of a run.
pub(in crate::scripting::lua) fn loaded_modules_size(lua: &Lua) -> usize {
    lua.app_data_ref::<LoadedModules>().map_or(0, |loaded| loaded.0.values().map(|chunk| chunk.bytes).sum())
}

/// Loads the program's chunk into this state, unless it is loaded.
fn load_module(lua: &Lua, name: &str, program: &Program) -> mlua::Result<Function> {
    let kept = lua.app_data_ref::<LoadedModules>().and_then(|loaded| loaded.0.get(name).cloned());
    if let Some(chunk) = kept.filter(|chunk| chunk.program == program.0.id) {
        return Ok(chunk.function);
    }
    let ProgramCode::Chunk(bytecode) = &program.0.code else { unreachable!("a library is one chunk") };
    let before = lua.used_memory();
    let function = load(lua, &program.0.name, bytecode)?;
    let bytes = lua.used_memory().saturating_sub(before);
    if let Some(mut loaded) = lua.app_data_mut::<LoadedModules>() {
        loaded.0.insert(name.to_owned(), LoadedModule { program: program.0.id, function: function.clone(), bytes });
    }
    Ok(function)
}

#[cfg(test)]
mod tests {
    use crate::{
        model::owner::Owner,
        scripting::{
            lua::{CheckVerdict, Program, Verdict, test_support::*},
            workers::ProgramText,
        },
    };

    /// The result or the error of a tool, as text.
    async fn run_tool(host: &TestRuntime, source: &str) -> String {
        match host.run_tool(source, "{}").await.result {
            Ok(json) => json.get().to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn a_module_is_what_its_chunk_returns_and_is_evaluated_once_in_a_run() {
        let host = TestRuntime::new();
        host.modules.put("acme.text", "print('loading', ...) return { shout = function(s) return s:upper() end }");
        let tool = "local text = require('acme.text') assert(text == require('acme.text')) return text.shout('hi')";
        let evaluated = host.run_tool(tool, "{}").await;
        assert_eq!(evaluated.result.unwrap().get(), r#""HI""#);
        assert_eq!(evaluated.log, ["loading\tacme.text"]);
        let run = host.run_script("return svc.skip(require('acme.text').shout('sink'))").await;
        assert_eq!(run.verdict, Verdict::Skip("SINK".to_owned()));
        let rendered = host.render("return require('acme.text').shout('body')").await.unwrap();
        assert_eq!(rendered.body, "BODY");
        host.modules.put("silent", "x = 1");
        assert_eq!(run_tool(&host, "return { require('silent'), x == nil }").await, "[true,true]");
    }

    #[tokio::test]
    async fn nothing_a_run_does_to_a_module_is_there_for_the_next() {
        let host = TestRuntime::new();
        host.modules.put("inner", "count = (count or 0) + 1 return { list = {}, n = function() return count end }");
        host.modules.put(
            "outer",
            "local inner, calls = require('inner'), 0
             return { inner = inner, calls = function() calls += 1 seen = (seen or 0) + 1 return calls + seen end }",
        );
        let program = ProgramText::script(
            "script",
            "local outer = require('outer')
             local found = outer.calls() + #outer.inner.list + outer.inner.n() + (outer.evil or 0) + (evil or 0)
             outer.evil, evil = 1, 1
             table.insert(outer.inner.list, 1)
             require('inner').n = nil
             return svc.skip(tostring(found))",
        );
        for _ in 0..3 {
            let run = host.workers.run_script(&program, Owner::Global, input(event())).await;
            assert_eq!(run.verdict, Verdict::Skip("3".to_owned()));
        }
    }

    #[tokio::test]
    async fn a_changed_library_is_there_for_the_next_run() {
        let host = TestRuntime::new();
        let program = ProgramText::script("script", "return svc.skip(require('lib').name)");
        for version in ["one", "two"] {
            host.modules.put("lib", &format!("return {{ name = '{version}' }}"));
            let run = host.workers.run_script(&program, Owner::Global, input(event())).await;
            assert_eq!(run.verdict, Verdict::Skip(version.to_owned()));
        }
    }

    #[tokio::test]
    async fn an_error_names_the_library_and_its_line() {
        let host = TestRuntime::new();
        host.modules
            .put("acme.text", "return {\nfail = function() error('no') end,\nindex = function(t) return t.x.y end }");
        host.modules.put("acme.bad", "\n\nlocal x = nil + 1");
        host.modules.put("acme.sort", "return function() table.sort({1, 2}, function() error('mine') end) end");
        host.modules.put("acme.blame", "return function() error('yours', 2) end");
        for (source, error) in [
            ("require('acme.text').fail()", "acme.text:2: no"),
            ("require('acme.text').index({})", "acme.text:3: attempt to index nil with 'y'"),
            ("require('acme.bad')", "acme.bad:3: attempt to perform arithmetic (add) on nil and number"),
            ("require('acme.sort')()", "acme.sort:1: mine"),
            ("\nrequire('acme.blame')()", "tool:2: yours"),
            ("\nrequire('acme.none')", "tool:2: no module named `acme.none` in a tool"),
            ("require(5)", "tool:1: no module named `5` in a tool"),
            ("require(('x'):rep(1000))", &format!("tool:1: no module named `{}` in a tool", "x".repeat(1000))),
            (
                "require('broken')",
                "tool:1: cannot load `broken`: the library `broken` does not compile: line 1: Expected identifier when parsing expression, got <eof>",
            ),
        ] {
            assert_eq!(run_tool(&host, source).await, error, "{source}");
        }
    }

    #[tokio::test]
    async fn a_cycle_of_requires_is_an_error() {
        let host = TestRuntime::new();
        host.modules.put("start", "return require('a')");
        host.modules.put("a", "return require('b')");
        host.modules.put("b", "return require('a')");
        host.modules.put("self", "return require('self')");
        assert_eq!(run_tool(&host, "return require('start')").await, "b:1: a requires b requires a");
        assert_eq!(run_tool(&host, "return require('self')").await, "self:1: self requires self");
        // A caught error leaves nothing half loaded.
        let again = "local _, one = pcall(require, 'a') local _, two = pcall(require, 'a') return one == two and one";
        assert_eq!(run_tool(&host, again).await, r#""b:1: a requires b requires a""#);
    }

    #[tokio::test]
    async fn a_module_may_wait_and_its_error_may_be_caught() {
        let host = TestRuntime::new();
        host.modules.put("waits", "return http.request({ url = 'http://x.test', method = 'POST', body = 'b' }).body");
        host.modules.put("fails", "error({ mine = true })");
        assert_eq!(run_tool(&host, "return require('waits')").await, r#""b""#);
        let caught = "local ok, problem = pcall(require, 'fails') return { ok, problem.mine }";
        assert_eq!(run_tool(&host, caught).await, "[false,true]");
    }

    #[tokio::test]
    async fn a_module_is_under_the_limits_of_the_run() {
        let host = TestRuntime::strict();
        host.modules.put("loops", "while true do end");
        host.modules.put("grows", "local t = {} while true do t[#t + 1] = {} end");
        for caught in ["require('loops')", "pcall(require, 'loops')"] {
            assert_eq!(run_tool(&host, caught).await, "loops:1: it took more than 100ms of processor time");
        }
        assert_eq!(run_tool(&host, "require('grows')").await, "tool:1: it needed more than 8MiB of memory");
    }

    #[tokio::test]
    async fn a_state_with_large_libraries_is_kept_too() {
        let host = TestRuntime::new();
        let body = "x = 'some text' .. 1 ".repeat(3000);
        for n in 0..20 {
            host.modules.put(&format!("large{n}"), &body);
        }
        let program = Program::script("script", "for n = 0, 19 do require('large' .. n) end return true").unwrap();
        assert_eq!(host.check(&program).await, CheckVerdict::Healthy);
        assert!(host.runtime.0.states.was_kept(&program));
    }
}
