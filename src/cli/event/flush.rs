//! `svc event flush`: sends the events that `--spool` kept.

use super::{
    receiver::{EmitTarget, EventReceiver, OutgoingEvent, target_of},
    spool::{Acquire, EventSpool, Flushed, KeptEvent},
};
use crate::cli::{
    client::{AgentHttp, ResponseText, to_json},
    failure::Failure,
    shell::{OutputFormat, Shell},
};
use serde::Serialize;

client_command! {
    /// Send the events that `svc event --spool` kept while the server could not be reached.
    #[argh(
        example = "{command_name}\n{command_name} --server https://svc.example.com --json",
        note = "Events go to the server, or in a space to the agent, that they were raised for, in their order. The next \
                `svc event` sends them too."
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
            _ => send_kept(shell, &spool, &receiver, Acquire::Patiently, |_, _| {})?
                .ok_or_else(|| Failure::Bad("another command is sending the events: try again later".to_owned()))?,
        };
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
        match flushed.stopped {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

/// Sends the kept events of this receiver, and notes those that it refused; `None` if another command is sending.
/// `seen` gets each event that was sent with its answer.
pub fn send_kept(
    shell: &mut Shell<'_>,
    spool: &EventSpool,
    receiver: &EventReceiver,
    how: Acquire,
    mut seen: impl FnMut(&KeptEvent, ResponseText),
) -> Result<Option<Flushed>, Failure> {
    let Some(lock) = spool.lock_send(how)? else { return Ok(None) };
    let flushed = spool.flush(lock, &receiver.spool_key(), |event| {
        let outgoing = OutgoingEvent { kind: event.kind.clone(), payload: event.payload.clone(), id: Some(event.id) };
        seen(event, receiver.send(&outgoing)?);
        Ok(())
    })?;
    for refused in &flushed.refused {
        shell.note(&format!("refused, and set aside as {}: {}", refused.path.display(), refused.reason));
    }
    Ok(Some(flushed))
}
