//! `svc event flush`: sends the events that `--spool` kept.

use super::{
    receiver::{EmitTarget, EventReceiver, OutgoingEvent, target_of},
    spool::{Acquire, EventSpool, FlushEnd, Flushed, KeptEvent, RefusedEvent},
};
use crate::cli::{
    client::{ANSWER_TIMEOUT, AgentHttp, ResponseText, to_json},
    failure::Failure,
    shell::{OutputFormat, Shell},
    table::printable,
};
use serde::Serialize;
use std::time::Duration;

client_command! {
    /// Send the events that `svc event --spool` kept while the server could not be reached.
    #[argh(
        example = "{command_name}\n{command_name} --server https://svc.example.com --json",
        note = "Events go to the server, or in a space to the agent, that they were raised for, in their order. The next \
                `svc event` sends them too. Fails if an event is refused for good; its file is set aside."
    )]
    FlushEvents = "flush" {}
}

/// The output of `--json`.
#[derive(Serialize)]
struct FlushView {
    sent: usize,
    /// Events that the server refused for good, in files of their own.
    refused: usize,
    /// Events that still wait for this receiver.
    kept: usize,
    /// Events for other receivers, or for this one as another user.
    elsewhere: usize,
}

impl FlushEvents {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let is_named = self.server.is_some() || self.token.is_some();
        let receiver = match target_of(is_named, shell.environment) {
            EmitTarget::Agent => EventReceiver::Agent(AgentHttp::find(shell.environment)?),
            EmitTarget::Server | EmitTarget::AgentOrServer => EventReceiver::Server(self.client(shell)?),
        };
        let spool = EventSpool::find(shell.environment)?;
        let key = receiver.spool_key();
        let flushed = match spool.count(&key)? {
            0 => Flushed::default(),
            _ => send_kept(&spool, &receiver, Acquire::Patiently, ANSWER_TIMEOUT, FlushEnd::default(), |_, _| {})?
                .ok_or_else(|| Failure::Bad("another command is sending the events: try again later".to_owned()))?,
        };
        note_refused(shell, &flushed.refused);
        let view = FlushView {
            sent: flushed.sent,
            refused: flushed.refused.len(),
            kept: spool.count(&key)?,
            elsewhere: spool.count_elsewhere(&key)?,
        };
        match self.format() {
            OutputFormat::Json => shell.out.json(&to_json(&view))?,
            OutputFormat::Text => {
                shell.out.line(&format!("sent {}, refused {}, kept {}", view.sent, view.refused, view.kept))?;
                if view.elsewhere > 0 {
                    shell.note(&format!(
                        "{} more wait for another server or user: name them with --server and --token; the files are in {}",
                        view.elsewhere,
                        spool.directory().display()
                    ));
                }
            }
        }
        match (flushed.stopped, view.refused) {
            (Some(stopped), _) => Err(receiver.failure(stopped.failure)),
            (None, 0) => Ok(()),
            (None, refused) => Err(Failure::Bad(format!(
                "{refused} refused for good: correct what their files in {} have, and raise them again",
                spool.directory().display()
            ))),
        }
    }
}

/// Sends the kept events of this receiver; `None` if another command is sending. Each answer may take as long as
/// `timeout` says. `seen` gets each event that was sent with its answer.
///
/// # Errors
///
/// Fails if the spool cannot be read or written.
pub fn send_kept(
    spool: &EventSpool,
    receiver: &EventReceiver,
    how: Acquire,
    timeout: Duration,
    end: FlushEnd,
    mut seen: impl FnMut(&KeptEvent, ResponseText),
) -> Result<Option<Flushed>, Failure> {
    let key = receiver.spool_key();
    let Some(lock) = spool.lock_send(&key, how)? else { return Ok(None) };
    let flushed = spool.flush(lock, &key, end, |event| {
        let outgoing = OutgoingEvent { kind: event.kind.clone(), payload: event.payload.clone(), id: Some(event.id) };
        seen(event, receiver.send(&outgoing, timeout).map_err(|failure| receiver.failure_of_kept(failure))?);
        Ok(())
    })?;
    Ok(Some(flushed))
}

/// Tells of events that the server refused for good.
pub fn note_refused(shell: &mut Shell<'_>, refused: &[RefusedEvent]) {
    for refused in refused {
        shell.note(&format!("refused, and set aside as {}: {}", refused.path.display(), printable(&refused.reason)));
    }
}
