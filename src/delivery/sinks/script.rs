//! A script sink: Lua that runs here for each event and says itself what came of it. It comes with the sink, or is
//! kept on the scripts under an id; then each attempt runs what is there at that moment.

use super::{
    Attempted, Context, Outcome,
    compiled::{Compiled, ScriptSource},
};
use crate::{
    model::{id::ScriptId, owner::Owner, sink_spec::ScriptSinkSpec},
    scripting::lua::{EventInput, Program, Verdict},
};
use serde::{Deserialize, Serialize};

/// The Lua of a script sink.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Script {
    Source(Compiled<ScriptSource>),
    #[serde(rename = "script_id")]
    Stored(ScriptId),
}

impl Script {
    pub(super) async fn attempt(&self, context: &Context, owner: Owner, input: EventInput) -> Attempted {
        let program = match self.program(context, owner) {
            Ok(program) => program,
            Err(why) => return Attempted::failed(why),
        };
        let mut run = context.runtime.run_script(&program, owner, input).await;
        let outcome = match run.verdict {
            Verdict::Ack => Outcome::Delivered,
            Verdict::Failed(why) => Outcome::Failed { why, retry_after: None },
            Verdict::Retry { after, why } => Outcome::Failed { why, retry_after: Some(after) },
            Verdict::Skip(why) => {
                // To skip is no error, and yet whoever misses the event wants to know.
                if !why.is_empty() {
                    run.log.push(format!("skipped: {why}"));
                }
                Outcome::Skipped(why)
            }
            Verdict::Dead(why) => Outcome::Dead(why),
            Verdict::NotRun(why) => Outcome::Postponed(why),
        };
        Attempted { log: run.log, ..Attempted::new(outcome) }
    }

    fn program(&self, context: &Context, owner: Owner) -> Result<Program, String> {
        match self {
            Self::Source(source) => {
                source.program().cloned().map_err(|error| format!("the script does not compile: {error}"))
            }
            Self::Stored(id) => context.scripts.program(owner, *id).map_err(|error| error.to_string()),
        }
    }

    pub(super) fn spec(&self) -> ScriptSinkSpec {
        match self {
            Self::Source(source) => ScriptSinkSpec { source: Some(source.source().0.clone()), script_id: None },
            Self::Stored(id) => ScriptSinkSpec { source: None, script_id: Some(*id) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::sinks::test_support::{Workbench, sink};
    use serde_json::json;
    use std::time::Duration;

    #[tokio::test]
    async fn what_a_script_returns_is_the_outcome() {
        let bench = Workbench::new();
        let retry = Outcome::Failed { why: "later".to_owned(), retry_after: Some(Duration::from_secs(30)) };
        for (source, outcome) in [
            ("print(event.data.version)", Outcome::Delivered),
            ("return svc.skip('not mine')", Outcome::Skipped("not mine".to_owned())),
            ("return svc.dead('hopeless')", Outcome::Dead("hopeless".to_owned())),
            ("return svc.retry(30, 'later')", retry),
        ] {
            let attempted = bench.attempt(&sink(json!({"type": "script", "script": {"source": source}}))).await;
            assert_eq!(attempted.outcome, outcome, "{source}");
        }
    }

    #[tokio::test]
    async fn why_an_event_was_skipped_is_kept_with_what_was_printed() {
        let bench = Workbench::new();
        for (source, log) in
            [("print('hm') return svc.skip('not mine')", &["hm", "skipped: not mine"][..]), ("return svc.skip()", &[])]
        {
            let attempted = bench.attempt(&sink(json!({"type": "script", "script": {"source": source}}))).await;
            assert_eq!((attempted.error, attempted.log), (None, log.iter().map(ToString::to_string).collect()));
        }
    }

    #[tokio::test]
    async fn an_error_fails_the_attempt_and_keeps_what_was_printed() {
        let source = "print('before')\nerror('no')";
        let attempted = Workbench::new().attempt(&sink(json!({"type": "script", "script": {"source": source}}))).await;
        assert!(matches!(attempted.outcome, Outcome::Failed { retry_after: None, .. }), "{attempted:?}");
        let error = attempted.error.unwrap();
        assert!(error.contains(":2:") && error.contains("no"), "{error}");
        assert_eq!(attempted.log, ["before"]);
    }
}
