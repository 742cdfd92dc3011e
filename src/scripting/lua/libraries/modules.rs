//! `require` of what others wrote: libraries, found by name and evaluated anew in every run.
//!
//! The compiled code is loaded into a state once and kept there; what it makes when it runs, it makes in an
//! environment of its own, which is gone with the run. So nothing a run does to a module is there for the next.

use crate::{
    model::owner::Owner,
    scripting::lua::{
        program::{Code, Program},
        sandbox::load,
    },
};
use mlua::{Function, Lua, LuaString, Table};
use std::{collections::HashMap, sync::Arc};

/// The longest name that is looked for, in bytes.
const MAX_NAME: usize = 256;

/// Finds what programs `require`.
pub trait ModuleSource: Send + Sync {
    /// The library of this name that a program of this owner gets ([`Program::library`]), or `None` if there is none.
    /// It is asked once in a run for each name, on the thread of the run, and so should not take long. The message of
    /// a failure is shown to the script.
    fn find(&self, owner: Owner, name: &str) -> Result<Option<Program>, String>;
}

/// No library at all.
pub struct NoModules;

impl ModuleSource for NoModules {
    fn find(&self, _: Owner, _: &str) -> Result<Option<Program>, String> {
        Ok(None)
    }
}

/// The libraries that a state has loaded, by name.
#[derive(Default)]
struct Loaded(HashMap<String, Chunk>);

#[derive(Clone)]
struct Chunk {
    /// Which program it was loaded from.
    program: u64,
    function: Function,
    /// The memory it took.
    bytes: usize,
}

/// The function that gives the chunk of a module, to be called once: or nothing, or nothing and why.
pub(super) fn finder(
    lua: &Lua,
    owner: Owner,
    modules: Arc<dyn ModuleSource>,
    metatable: &Table,
    chunks: &Table,
) -> mlua::Result<Function> {
    lua.set_app_data(Loaded::default());
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
        let function = loaded(lua, &name, &program)?;
        chunks.raw_set(program.0.name.as_str(), true)?;
        let environment = lua.create_table()?;
        environment.set_metatable(Some(metatable.clone()))?;
        function.set_environment(environment)?;
        Ok((Some(function), None))
    })
}

/// The memory that the loaded libraries of this state take, which is no garbage.
pub(in crate::scripting::lua) fn size(lua: &Lua) -> usize {
    lua.app_data_ref::<Loaded>().map_or(0, |loaded| loaded.0.values().map(|chunk| chunk.bytes).sum())
}

/// The program's chunk in this state.
fn loaded(lua: &Lua, name: &str, program: &Program) -> mlua::Result<Function> {
    let kept = lua.app_data_ref::<Loaded>().and_then(|loaded| loaded.0.get(name).cloned());
    if let Some(chunk) = kept.filter(|chunk| chunk.program == program.0.id) {
        return Ok(chunk.function);
    }
    let Code::Chunk(bytecode) = &program.0.code else { unreachable!("a library is one chunk") };
    let before = lua.used_memory();
    let function = load(lua, &program.0.name, bytecode)?;
    let bytes = lua.used_memory().saturating_sub(before);
    if let Some(mut loaded) = lua.app_data_mut::<Loaded>() {
        loaded.0.insert(name.to_owned(), Chunk { program: program.0.id, function: function.clone(), bytes });
    }
    Ok(function)
}

#[cfg(test)]
mod tests {
    use crate::{
        model::owner::Owner,
        scripting::lua::{Program, Verdict, test_support::*},
    };

    /// What a tool returns or fails with, as text.
    async fn told(world: &World, source: &str) -> String {
        match world.evaluate(source, "{}").await.result {
            Ok(json) => json.get().to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn a_module_is_what_its_chunk_returns_and_is_evaluated_once_in_a_run() {
        let world = World::new();
        world.modules.put("acme.text", "print('loading', ...) return { shout = function(s) return s:upper() end }");
        let tool = "local text = require('acme.text') assert(text == require('acme.text')) return text.shout('hi')";
        let evaluated = world.evaluate(tool, "{}").await;
        assert_eq!(evaluated.result.unwrap().get(), r#""HI""#);
        assert_eq!(evaluated.log, ["loading\tacme.text"]);
        let run = world.run("return svc.skip(require('acme.text').shout('sink'))").await;
        assert_eq!(run.verdict, Verdict::Skip("SINK".to_owned()));
        let rendered = world.render("return require('acme.text').shout('body')").await.unwrap();
        assert_eq!(rendered.body, "BODY");
        world.modules.put("silent", "x = 1");
        assert_eq!(told(&world, "return { require('silent'), x == nil }").await, "[true,true]");
    }

    #[tokio::test]
    async fn nothing_a_run_does_to_a_module_is_there_for_the_next() {
        let world = World::new();
        world.modules.put("inner", "count = (count or 0) + 1 return { list = {}, n = function() return count end }");
        world.modules.put(
            "outer",
            "local inner, calls = require('inner'), 0
             return { inner = inner, calls = function() calls += 1 seen = (seen or 0) + 1 return calls + seen end }",
        );
        let program = Program::script(
            "script",
            "local outer = require('outer')
             local found = outer.calls() + #outer.inner.list + outer.inner.n() + (outer.evil or 0) + (evil or 0)
             outer.evil, evil = 1, 1
             table.insert(outer.inner.list, 1)
             require('inner').n = nil
             return svc.skip(tostring(found))",
        )
        .unwrap();
        for _ in 0..3 {
            let run = world.runtime.run_script(&program, Owner::Global, input(event())).await;
            assert_eq!(run.verdict, Verdict::Skip("3".to_owned()));
        }
    }

    #[tokio::test]
    async fn a_changed_library_is_there_for_the_next_run() {
        let world = World::new();
        let program = Program::script("script", "return svc.skip(require('lib').name)").unwrap();
        for version in ["one", "two"] {
            world.modules.put("lib", &format!("return {{ name = '{version}' }}"));
            let run = world.runtime.run_script(&program, Owner::Global, input(event())).await;
            assert_eq!(run.verdict, Verdict::Skip(version.to_owned()));
        }
    }

    #[tokio::test]
    async fn an_error_names_the_library_and_its_line() {
        let world = World::new();
        world
            .modules
            .put("acme.text", "return {\nfail = function() error('no') end,\nindex = function(t) return t.x.y end }");
        world.modules.put("acme.bad", "\n\nlocal x = nil + 1");
        world.modules.put("acme.sort", "return function() table.sort({1, 2}, function() error('mine') end) end");
        world.modules.put("acme.blame", "return function() error('yours', 2) end");
        for (source, error) in [
            ("require('acme.text').fail()", "acme.text:2: no"),
            ("require('acme.text').index({})", "acme.text:3: attempt to index nil with 'y'"),
            ("require('acme.bad')", "acme.bad:3: attempt to perform arithmetic (add) on nil and number"),
            ("require('acme.sort')()", "acme.sort:1: mine"),
            ("\nrequire('acme.blame')()", "tool:2: yours"),
            ("\nrequire('acme.none')", "tool:2: no module named `acme.none` in a tool"),
            ("require(5)", "tool:1: no module named `5` in a tool"),
            ("require(('x'):rep(1000))", &format!("tool:1: no module named `{}` in a tool", "x".repeat(1000))),
            ("require('broken')", "tool:1: cannot load `broken`: its file cannot be read"),
        ] {
            assert_eq!(told(&world, source).await, error, "{source}");
        }
    }

    #[tokio::test]
    async fn a_loop_of_requires_is_told() {
        let world = World::new();
        world.modules.put("start", "return require('a')");
        world.modules.put("a", "return require('b')");
        world.modules.put("b", "return require('a')");
        world.modules.put("self", "return require('self')");
        assert_eq!(told(&world, "return require('start')").await, "b:1: a requires b requires a");
        assert_eq!(told(&world, "return require('self')").await, "self:1: self requires self");
        // One that was caught leaves nothing half loaded.
        let again = "local _, one = pcall(require, 'a') local _, two = pcall(require, 'a') return one == two and one";
        assert_eq!(told(&world, again).await, r#""b:1: a requires b requires a""#);
    }

    #[tokio::test]
    async fn a_module_may_wait_and_may_be_caught() {
        let world = World::new();
        world.modules.put("waits", "return http.request({ url = 'http://x.test', method = 'POST', body = 'b' }).body");
        world.modules.put("fails", "error({ mine = true })");
        assert_eq!(told(&world, "return require('waits')").await, r#""b""#);
        let caught = "local ok, problem = pcall(require, 'fails') return { ok, problem.mine }";
        assert_eq!(told(&world, caught).await, "[false,true]");
    }

    #[tokio::test]
    async fn a_module_is_under_the_limits_of_the_run() {
        let world = World::strict();
        world.modules.put("loops", "while true do end");
        world.modules.put("grows", "local t = {} while true do t[#t + 1] = {} end");
        for caught in ["require('loops')", "pcall(require, 'loops')"] {
            assert_eq!(told(&world, caught).await, "loops:1: it took more than 100ms of processor time");
        }
        assert_eq!(told(&world, "require('grows')").await, "tool:1: it needed more than 8MiB of memory");
    }

    #[tokio::test]
    async fn a_state_with_large_libraries_is_kept_too() {
        let world = World::new();
        let body = "x = 'some text' .. 1 ".repeat(3000);
        for n in 0..20 {
            world.modules.put(&format!("large{n}"), &body);
        }
        let program = Program::script("script", "for n = 0, 19 do require('large' .. n) end").unwrap();
        let run = world.runtime.run_script(&program, Owner::Global, input(event())).await;
        assert_eq!(run.verdict, Verdict::Ack);
        assert!(world.runtime.0.pool.take(&program, Owner::Global).is_some());
    }
}
