//! A script sink: Lua that runs for each event and returns the outcome itself. The source comes with the sink, or the
//! sink names a stored script; then each attempt runs the version stored at that moment.

use super::{
    context::SinkContext,
    lazy_program::{LazyProgram, ScriptSource},
};
use crate::{
    delivery::{CompletedAttempt, FailureKind, Postponed, RetryAfter},
    model::{id::ScriptId, owner::Owner, sink_spec::ScriptSinkSpec},
    scripting::{
        lua::{EventInput, Verdict},
        scripts::ScriptUnavailable,
        workers::ProgramText,
    },
};
use serde::{Deserialize, Serialize};

/// The Lua of a script sink.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkScript {
    Source(LazyProgram<ScriptSource>),
    #[serde(rename = "script_id")]
    Stored(ScriptId),
}

impl SinkScript {
    pub(super) async fn attempt(
        &self,
        context: &SinkContext,
        owner: Owner,
        input: EventInput,
    ) -> Result<CompletedAttempt, Postponed> {
        let program = match self.program(context, owner) {
            Ok(program) => program,
            Err(error) => return Ok(CompletedAttempt::failed(error.to_string()).of_kind(FailureKind::Lasting)),
        };
        let mut run = context.workers.run_script(&program, owner, input).await;
        let completed = match run.verdict {
            Verdict::Ack => CompletedAttempt::delivered(),
            Verdict::Failed(why) => CompletedAttempt::failed(why),
            Verdict::Retry { after, why } => {
                CompletedAttempt::failed(why).with_retry_after(Some(RetryAfter::Exactly(after)))
            }
            Verdict::Skip(why) => {
                // A skip is no error, but the reason matters to a person who misses the event.
                if !why.is_empty() {
                    run.log.push(format!("skipped: {why}"));
                }
                CompletedAttempt::skipped()
            }
            Verdict::Dead(why) => CompletedAttempt::dead(why),
            Verdict::NotRun(why) => return Err(Postponed(why)),
        };
        Ok(CompletedAttempt { log: run.log, ..completed })
    }

    pub(super) fn program(&self, context: &SinkContext, owner: Owner) -> Result<ProgramText, ScriptUnavailable> {
        match self {
            Self::Source(source) => Ok(source.program().clone()),
            Self::Stored(id) => context.scripts.program(owner, *id),
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
    use crate::{
        delivery::sinks::test_support::{SinkFixture, sink},
        routing::queue::AttemptOutcome,
    };
    use serde_json::json;
    use std::time::Duration;

    #[tokio::test]
    async fn the_value_that_a_script_returns_is_the_outcome() {
        let fixture = SinkFixture::new();
        let retry = RetryAfter::Exactly(Duration::from_secs(30));
        for (source, outcome, error, retry_after) in [
            ("print(event.data.version)", AttemptOutcome::Delivered, None, None),
            ("return svc.skip('not mine')", AttemptOutcome::Skipped, None, None),
            ("return svc.dead('hopeless')", AttemptOutcome::Dead, Some("hopeless"), None),
            ("return svc.retry(30, 'later')", AttemptOutcome::Failed, Some("later"), Some(retry)),
        ] {
            let attempted = fixture.attempt(&sink(json!({"type": "script", "script": {"source": source}}))).await;
            assert_eq!((attempted.outcome, attempted.retry_after), (outcome, retry_after), "{source}");
            assert_eq!(attempted.error.as_deref(), error, "{source}");
        }
    }

    #[tokio::test]
    async fn a_stored_script_that_is_gone_is_a_failure_that_lasts() {
        let stored = sink(json!({"type": "script", "script": {"script_id": ScriptId::new()}}));
        let attempted = SinkFixture::new().attempt(&stored).await;
        assert_eq!((attempted.outcome, attempted.failure_kind), (AttemptOutcome::Failed, FailureKind::Lasting));
    }

    #[tokio::test]
    async fn the_reason_of_a_skip_is_kept_with_the_printed_lines() {
        let fixture = SinkFixture::new();
        for (source, log) in
            [("print('hm') return svc.skip('not mine')", &["hm", "skipped: not mine"][..]), ("return svc.skip()", &[])]
        {
            let attempted = fixture.attempt(&sink(json!({"type": "script", "script": {"source": source}}))).await;
            assert_eq!((attempted.error, attempted.log), (None, log.iter().map(ToString::to_string).collect()));
        }
    }

    #[tokio::test]
    async fn an_error_fails_the_attempt_and_keeps_the_printed_lines() {
        let source = "print('before')\nerror('no')";
        let attempted =
            SinkFixture::new().attempt(&sink(json!({"type": "script", "script": {"source": source}}))).await;
        assert_eq!((attempted.outcome, attempted.retry_after), (AttemptOutcome::Failed, None), "{attempted:?}");
        let error = attempted.error.unwrap();
        assert!(error.contains(":2:") && error.contains("no"), "{error}");
        assert_eq!(attempted.log, ["before"]);
    }
}
