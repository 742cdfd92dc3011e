//! Emits the reports that [`super::sink_failures`] keeps, to every sink that wants them but the one that they tell of.

use super::sink_failures::{SinkFailures, SinksToReport};
use crate::{
    model::id::SinkId,
    routing::emit::{EmitError, EmitRetry, Emitter},
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The wait before a report that could not be stored is emitted again.
const EMIT_AGAIN: Duration = Duration::from_secs(5);

/// Emits the reports of sinks, those of one sink in order, until `shutdown`.
pub async fn report_sinks(
    failures: &SinkFailures,
    mut sinks: SinksToReport,
    emitter: &Arc<Emitter>,
    shutdown: &CancellationToken,
) {
    let mut again: Vec<SinkId> = Vec::new();
    // Set when the first sink begins to wait: further ones must not put it off.
    let mut again_at = Instant::now();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            sink = sinks.recv() => match sink {
                Some(sink) if !again.contains(&sink) => {
                    if let Err(later) = emit_all(failures, emitter, sink).await {
                        log::warn!("the reports of sink {sink} wait to be emitted: {later}");
                        if again.is_empty() {
                            again_at = Instant::now() + EMIT_AGAIN;
                        }
                        again.push(sink);
                    }
                }
                Some(_) => {}
                None => return,
            },
            () = tokio::time::sleep_until(again_at), if !again.is_empty() => {
                for sink in std::mem::take(&mut again) {
                    if emit_all(failures, emitter, sink).await.is_err() {
                        again.push(sink);
                    }
                }
                again_at = Instant::now() + EMIT_AGAIN;
            }
        }
    }
}

/// Emits the reports of one sink. Fails if some have to be emitted later.
async fn emit_all(failures: &SinkFailures, emitter: &Emitter, sink: SinkId) -> Result<(), EmitError> {
    while let Some(report) = failures.next_report(sink) {
        if let Err(error) = emitter.emit_about(sink, report.new_event()).await {
            match error.retry() {
                EmitRetry::WhenRoom | EmitRetry::WhenReadable => return Err(error),
                // The next start emits it.
                EmitRetry::AfterRestart => return Ok(()),
                EmitRetry::Never => log::error!("{} of sink {sink} cannot be emitted: {error}", report.kind),
            }
        }
        failures.emitted(sink, &report);
    }
    Ok(())
}
