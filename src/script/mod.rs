//! Lua, for those who write it into sinks: templates that make a body of an event, and scripts that
//! deal with one.
//!
//! The way of a run, top to bottom: [`Runtime::run`] queues it ([`threads`]), its turn takes a state from
//! the [`pool`] or makes one ([`sandbox`]), fills in what the run is about ([`scope`]), calls the program
//! under its limits ([`limits`]), and reads what it decided ([`verdict`]) or gave ([`json`]).
//!
//! A run that misbehaves fails itself and nothing else.

mod json;
mod libraries;
mod limits;
mod pool;
mod program;
mod sandbox;
mod scope;
mod text;
mod threads;
mod verdict;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod support;

pub use json::JsonError;
pub use libraries::{
    Libraries,
    http::{HttpClient, HttpRequest, HttpResponse, MAX_BODY},
    svc::MethodCaller,
};
pub use limits::Limit;
pub use program::{CompileError, MAX_SOURCE, Program, Template};
pub use verdict::Verdict;

use crate::{config, event::Event, metrics::Metrics, owner::Owner};
use bytes::Bytes;
use limits::{Limits, Watch, Watchdog};
use pool::Pool;
use sandbox::Sandbox;
use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use threads::{Refused, Threads};
use tokio::sync::oneshot;

/// How soon a script that found no room is worth another try.
const BUSY_RETRY: Duration = Duration::from_secs(1);

/// What a program runs for.
#[derive(Clone, Debug)]
pub struct Input {
    pub event: Arc<Event>,
    /// The event's number in its sink, `event.sequence`.
    pub sequence: u64,
    /// The number of this attempt, from 1, `event.attempt`.
    pub attempt: u32,
}

/// A body a template made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    pub body: Bytes,
    pub kind: RenderedKind,
    /// What the template printed.
    pub log: Vec<String>,
}

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenderedKind {
    /// The template returned a table.
    Json,
    /// The template returned a string, or is text; it may still be JSON.
    Text,
}

/// How a script's run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub verdict: Verdict,
    /// What the script printed and logged, bounded.
    pub log: Vec<String>,
    /// The processor time it took.
    pub cpu: Duration,
}

/// Why a program gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The program's own error, with its line.
    #[error("{0}")]
    Raised(String),
    #[error("it {0}")]
    Limit(Limit),
    #[error("the result cannot be sent: {0}")]
    NotJson(JsonError),
    #[error("the result must be a table or a string, not {0}")]
    NoBody(&'static str),
    /// The event does not fit into Lua.
    #[error("the event's data cannot be read: {0}")]
    Data(JsonError),
    #[error("too many scripts are waiting to run")]
    Busy,
    #[error("the server shuts down")]
    Stopped,
    /// A defect of ours.
    #[error("the script host failed; the server's log has more")]
    Host,
}

/// Runs programs. Cloning it is cheap.
#[derive(Clone)]
pub struct Runtime(Arc<Shared>);

struct Shared {
    limits: Limits,
    libraries: Libraries,
    metrics: Arc<Metrics>,
    pool: Pool,
    threads: Threads,
    watchdog: Watchdog,
}

impl Runtime {
    /// A runtime that has started nothing yet: threads and states come with the first runs.
    pub fn new(config: &config::Script, libraries: Libraries, metrics: Arc<Metrics>) -> Self {
        let threads = match config.threads {
            0 => std::thread::available_parallelism().map_or(2, usize::from).max(2),
            threads => threads,
        };
        Self(Arc::new(Shared {
            limits: Limits::from(config),
            libraries,
            metrics,
            pool: Pool::default(),
            threads: Threads::new(threads),
            watchdog: Watchdog::default(),
        }))
    }

    /// Makes the body that a template gives for an event. Dropping the future ends the run.
    ///
    /// # Errors
    ///
    /// Fails if the template raises an error, goes over a limit or gives what is no body; or if there is no room.
    pub async fn render(&self, program: &Program, owner: Owner, input: Input) -> Result<Rendered, ScriptError> {
        let (shared, program, watch) = (self.0.clone(), program.clone(), Watch::new(self.0.limits));
        let clock = watch.clone();
        self.perform(owner, watch, async move {
            let sandbox = shared.sandbox(&program, owner)?;
            let rendered = within(&clock, async { sandbox.render(&input, &clock) }).await;
            shared.settle(&program, owner, sandbox, &clock, rendered.as_ref().err());
            rendered
        })
        .await?
    }

    /// Runs a script for an event. Dropping the future ends the run, also while it waits for something.
    ///
    /// Whatever goes wrong is the verdict: an error or a limit is [`Verdict::Failed`], and a lack of room
    /// [`Verdict::Retry`], since the script is not to blame for it.
    pub async fn run(&self, program: &Program, owner: Owner, input: Input) -> Run {
        let (shared, program, watch) = (self.0.clone(), program.clone(), Watch::new(self.0.limits));
        let clock = watch.clone();
        let run = self.perform(owner, watch, async move {
            let sandbox = shared.sandbox(&program, owner)?;
            let verdict = within(&clock, sandbox.run(&input, &clock)).await;
            let log = sandbox.end();
            shared.settle(&program, owner, sandbox, &clock, verdict.as_ref().err());
            let verdict = verdict.unwrap_or_else(|error| Verdict::Failed(error.to_string()));
            Ok(Run { verdict, log, cpu: clock.cpu() })
        });
        match run.await {
            Ok(Ok(run)) => run,
            Ok(Err(error)) | Err(error) => Run { verdict: verdict_of(&error), log: Vec::new(), cpu: Duration::ZERO },
        }
    }

    /// Ends every run and takes no more. Runs under way fail.
    pub fn shut_down(&self) {
        self.0.shut_down();
    }

    /// Has `work` done on the script threads and waits for what it gives.
    async fn perform<T: Send + 'static>(
        &self,
        owner: Owner,
        watch: Arc<Watch>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ScriptError> {
        let (answer, answered) = oneshot::channel();
        // What a script waits for may need the timers and sockets of the runtime its caller is on.
        let tokio = tokio::runtime::Handle::try_current().ok();
        let shared = Arc::downgrade(&self.0);
        let clock = watch.clone();
        let work = async move {
            let Some(watched) = shared.upgrade().map(|shared| shared.watchdog.watch(clock)) else { return };
            let done = work.await;
            drop(watched);
            let _ = answer.send(done);
        };
        let mut work = Box::pin(work);
        let work = std::future::poll_fn(move |context| {
            let _entered = tokio.as_ref().map(|tokio| tokio.enter());
            work.as_mut().poll(context)
        });
        let _cancel = Cancel(watch.clone());
        self.0.threads.spawn(owner, watch, Box::pin(work)).map_err(|refused| match refused {
            Refused::QueueFull => ScriptError::Busy,
            Refused::Stopped => ScriptError::Stopped,
        })?;
        answered.await.map_err(|_| if self.0.watchdog.is_stopped() { ScriptError::Stopped } else { ScriptError::Host })
    }
}

impl Shared {
    /// A state for this program and owner, used before or new.
    fn sandbox(&self, program: &Program, owner: Owner) -> Result<Sandbox, ScriptError> {
        if let Some(sandbox) = self.pool.take(program, owner) {
            return Ok(sandbox);
        }
        Sandbox::new(program, owner, &self.libraries, self.limits).map_err(|error| match error {
            mlua::Error::MemoryError(_) => ScriptError::Limit(Limit::Memory(self.limits.memory)),
            other => {
                log::error!("cannot make a Lua state: {other}");
                ScriptError::Host
            }
        })
    }

    /// Counts a run that is over, and keeps its state unless it hit a limit.
    fn settle(&self, program: &Program, owner: Owner, sandbox: Sandbox, watch: &Watch, error: Option<&ScriptError>) {
        self.metrics.lua_time.observe(watch.cpu());
        let hit_a_limit = matches!(error, Some(ScriptError::Limit(_)));
        if !hit_a_limit && sandbox.is_reusable() {
            self.pool.put(program, owner, sandbox);
        }
    }

    fn shut_down(&self) {
        self.watchdog.stop();
        self.threads.stop();
        self.pool.clear();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Ends the run whose caller has gone away. One that is over does not mind.
struct Cancel(Arc<Watch>);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.end(Limit::Cancelled);
    }
}

/// `run`, given up as soon as it is over a limit, also while it waits.
async fn within<T>(watch: &Watch, run: impl Future<Output = Result<T, ScriptError>>) -> Result<T, ScriptError> {
    let mut run = pin!(run);
    let given = std::future::poll_fn(|context: &mut Context<'_>| match watch.look() {
        Ok(()) => run.as_mut().poll(context),
        Err(limit) => Poll::Ready(Err(ScriptError::Limit(limit))),
    })
    .await;
    match watch.over() {
        Some(limit) => Err(ScriptError::Limit(limit)),
        None => given,
    }
}

/// The verdict on a run that never began.
fn verdict_of(error: &ScriptError) -> Verdict {
    match error {
        ScriptError::Busy | ScriptError::Stopped => Verdict::Retry { after: BUSY_RETRY, why: error.to_string() },
        other => Verdict::Failed(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::{support::*, *};
    use crate::id::UserId;

    #[tokio::test]
    async fn a_template_makes_json_of_a_table_and_leaves_a_string_alone() {
        let world = World::new();
        let source = r#"return { text = ("%s deployed %s"):format(actor.username, event.data.version), channel = custom.CHANNEL }"#;
        let rendered = world.render(source).await.unwrap();
        assert_eq!(rendered.kind, RenderedKind::Json);
        assert_eq!(rendered.body, r#"{"channel":"ops","text":"ada deployed 1.2"}"#);
        let rendered = world.render("return event.type .. '!'").await.unwrap();
        assert_eq!((rendered.kind, &*rendered.body), (RenderedKind::Text, &b"custom.deploy.done!"[..]));
    }

    #[tokio::test]
    async fn everything_promised_is_in_scope() {
        let world = World::new();
        let rendered = world.render("return { event = event, space = space, actor = actor, custom = custom }").await;
        let seen: serde_json::Value = serde_json::from_slice(&rendered.unwrap().body).unwrap();
        let event = event();
        assert_eq!(
            seen,
            serde_json::json!({
                "event": {
                    "id": seen["event"]["id"],
                    "type": "custom.deploy.done",
                    "ts": "2023-11-14T22:13:20.000000Z",
                    "sequence": 7,
                    "attempt": 1,
                    "data": serde_json::from_str::<serde_json::Value>(event.data.get()).unwrap(),
                },
                "space": { "id": event.space_id.to_string(), "name": "web", "urls": ["http://web"] },
                "actor": { "id": "00000000-0000-0000-0000-000000000000", "username": "ada", "kind": "user" },
                "custom": { "CHANNEL": "ops" },
            })
        );
    }

    #[tokio::test]
    async fn data_passes_through_lua_unchanged() {
        let world = World::new();
        assert_eq!(world.render("return event.data").await.unwrap().body, event().data.get());
    }

    #[tokio::test]
    async fn an_event_from_no_space_has_an_empty_one() {
        let world = World::new();
        let event = Event { space: None, ..event() };
        let program = lua("return { space = space.name, urls = space.urls, custom = custom }");
        let rendered = world.runtime.render(&program, Owner::Global, input(event)).await.unwrap();
        assert_eq!(rendered.body, r#"{"custom":{},"space":"","urls":[]}"#);
    }

    #[tokio::test]
    async fn a_text_template_fills_strings_in_as_they_are_and_the_rest_as_json() {
        let world = World::new();
        let render = async |source: &str| {
            let program = Program::template(&Template::Text(source.to_owned())).unwrap();
            world.runtime.render(&program, Owner::Global, input(event())).await
        };
        let source = "{\"v\": \"${{ event.data.version }}\",\n\"n\": ${{ event.data.big }}, \"e\": ${{ {} }}, \"x\": ${{ nil }}}";
        let rendered = render(source).await.unwrap();
        assert_eq!(rendered.kind, RenderedKind::Text);
        assert_eq!(rendered.body, "{\"v\": \"1.2\",\n\"n\": 9007199254740993, \"e\": {}, \"x\": null}");
        let error = render("one\ntwo ${{ 1 }}\n${{ missing.x }}").await.unwrap_err();
        assert_eq!(error.to_string(), "template:3: attempt to index nil with 'x'");
        let error = render("one\n${{ print }}").await.unwrap_err();
        assert_eq!(error.to_string(), "template:2: $ is a function, which is not JSON");
    }

    #[tokio::test]
    async fn a_result_that_is_no_body_is_an_error_that_says_what_it_is() {
        let world = World::new();
        for (source, error) in [
            ("return", "the result must be a table or a string, not nil"),
            ("return 5", "the result must be a table or a string, not integer"),
            ("return print", "the result must be a table or a string, not function"),
            ("return { a = { print } }", "the result cannot be sent: $.a[1] is a function, which is not JSON"),
            ("local t = {} t.t = t return t", "the result cannot be sent: $.t contains itself, which is not JSON"),
            ("\nerror('no')", "template:2: no"),
            (
                "return string.rep('x', 2^20 + 1)",
                "the result cannot be sent: there are more than 1048576 bytes of JSON",
            ),
        ] {
            assert_eq!(world.render(source).await.unwrap_err().to_string(), error, "{source}");
        }
    }

    #[tokio::test]
    async fn a_script_decides_by_what_it_returns_or_raises() {
        let world = World::new();
        for (source, verdict) in [
            ("", Verdict::Ack),
            ("return 5", Verdict::Ack),
            ("svc.skip('not returned')", Verdict::Ack),
            ("local a = 1\nerror('boom')", Verdict::Failed("script:2: boom".into())),
            ("error('boom', 0)", Verdict::Failed("boom".into())),
            ("local x = nil\n\nx.y = 1", Verdict::Failed("script:3: attempt to index nil with 'y'".into())),
            (
                "return svc.retry(1.5, 'later')",
                Verdict::Retry { after: Duration::from_millis(1500), why: "later".into() },
            ),
            ("return svc.skip('mine not')", Verdict::Skip("mine not".into())),
            ("return svc.dead()", Verdict::Dead(String::new())),
            (
                "return svc.retry(-1)",
                Verdict::Failed("script:1: svc.retry: the wait must be a number of seconds from 0 up".into()),
            ),
        ] {
            assert_eq!(world.run(source).await.verdict, verdict, "{source}");
        }
    }

    #[tokio::test]
    async fn what_a_script_prints_and_logs_is_kept_also_when_it_fails() {
        let world = World::new();
        let run = world.run("print('a', 1, nil)\nlog.warn('hot', true)\nerror('x')").await;
        assert_eq!(run.log, ["a\t1\tnil", "warn: hot\ttrue"]);
        assert_eq!(run.verdict, Verdict::Failed("script:3: x".into()));
        assert_eq!(world.render("log.info('hi') return ''").await.unwrap().log, ["info: hi"]);
        let run = world.run("for i = 1, 1000 do print(i) end").await;
        assert_eq!((run.log.len(), run.log[200].as_str()), (201, "… truncated"));
    }

    #[tokio::test]
    async fn runs_of_one_program_share_a_state_and_nothing_else() {
        let world = World::new();
        let program = lua("count = (count or 0) + 1 return { count }");
        for _ in 0..3 {
            let rendered = world.runtime.render(&program, Owner::Global, input(event())).await.unwrap();
            assert_eq!(rendered.body, "[1]");
        }
        assert!(world.runtime.0.pool.take(&program, Owner::Global).is_some());
        assert!(world.runtime.0.pool.take(&program, Owner::User(UserId::new())).is_none());
    }

    #[tokio::test]
    async fn every_run_is_measured() {
        let world = World::new();
        world.run("").await;
        world.render("return ''").await.unwrap();
        let text = world.metrics.render([]);
        assert!(text.contains("svc_lua_cpu_seconds_count 2\n"), "{text}");
        assert!(world.run("for i = 1, 1e5 do end").await.cpu > Duration::ZERO);
    }

    #[tokio::test]
    async fn a_dropped_future_ends_its_run_although_it_waits() {
        let world = World::new();
        let program = Program::script("http.request{ url = 'http://never.test' }").unwrap();
        let run = world.runtime.run(&program, Owner::Global, input(event()));
        tokio::select! {
            _ = run => panic!("nothing answers"),
            () = world.http.asked() => {}
        }
        // The request is dropped with the run, long before its time is over.
        world.http.abandoned().await;
    }

    #[tokio::test]
    async fn a_runtime_that_shuts_down_ends_what_waits_and_takes_no_more() {
        let world = World::new();
        let program = Program::script("http.request{ url = 'http://never.test' }").unwrap();
        let runtime = world.runtime.clone();
        let run = tokio::spawn(async move { runtime.run(&program, Owner::Global, input(event())).await });
        world.http.asked().await;
        world.runtime.shut_down();
        assert_eq!(run.await.unwrap().verdict, Verdict::Failed("it was stopped: the server shuts down".into()));
        let later = world.run("").await.verdict;
        assert!(matches!(later, Verdict::Retry { .. }), "{later:?}");
    }
}
