//! The startup of an agent, with its first link: runs the space's startup script, and then registers the methods file.
//!
//! The saved registration is taken up only afterwards, and only if neither of them has registered anything. A failure
//! is logged, and never stops the agent. A registration that a server refuses is tried again.

use super::{
    registrar::{PendingRegistration, RegisterError},
    registration_file::BuiltRegistration,
    server_link::ServerLink,
    setup::{self, SetupError},
    setup_changes::RegisterCause,
    state::{AgentState, StartupScriptState},
};
use crate::{model::agent_protocol::StartupScript, platform::backoff::Backoff};
use std::{path::Path, sync::Arc, time::Duration};

/// Waits between attempts at a registration that a server refuses. They double.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// Runs the startup with the first link; with later links, the part of it that failed for lack of a link.
pub async fn start_up(agent: &Arc<AgentState>, script: Option<StartupScript>) {
    let mut state = agent.startup_script.lock().await;
    let first = std::mem::replace(&mut *state, StartupScriptState::Run) == StartupScriptState::NotRun;
    // Taken before the script runs: a registration of the script must not count as newer than the file.
    let pending = agent.registrar.take_pending();
    let starting = async {
        if script.is_some() || pending.is_some() {
            agent.packages.received().await;
        }
        if let Some(script) = script.filter(|_| first) {
            run_script(agent, &script).await;
        }
        if let Some(pending) = pending {
            register(agent, pending, &mut None).await;
        }
    };
    tokio::select! {
        () = starting => {}
        // Dropping the script or the process ends it.
        _ = agent.shutdown.begun() => {}
    }
}

async fn run_script(agent: &Arc<AgentState>, script: &StartupScript) {
    log::info!("running the startup script `{}`", script.name);
    match setup::run_startup_script(agent, script).await {
        Ok(output) => {
            log_output(&script.name, &output);
            log::info!("the startup script `{}` has ended", script.name);
        }
        Err(error) => log::error!("the startup script: {error}"),
    }
}

/// `last_error` is the refusal that was logged last; the same one is not logged again.
async fn register(agent: &Arc<AgentState>, pending: PendingRegistration, last_error: &mut Option<String>) {
    match pending {
        PendingRegistration::File(file) => register_file(agent, &file, last_error).await,
        PendingRegistration::Built(built) => register_built(agent, &built, last_error).await,
    }
}

/// The registrar keeps it for another attempt if a server refuses it.
async fn register_built(agent: &Arc<AgentState>, built: &BuiltRegistration, last_error: &mut Option<String>) {
    match agent.registrar.register_built(built, None, RegisterCause::Startup).await {
        Ok(methods) => log::info!("registered {} methods of the startup script", methods.len()),
        Err(error) => {
            if let RegisterError::Refused { server, reason, .. } = &error {
                agent.registrar.note_refusal(Some(server), reason);
            }
            log_once(&format!("the methods of the startup script are not registered: {error}"), last_error);
        }
    }
}

fn log_once(error: &str, last_error: &mut Option<String>) {
    if last_error.as_deref() != Some(error) {
        log::error!("{error}");
    }
    *last_error = Some(error.to_owned());
}

async fn register_file(agent: &Arc<AgentState>, file: &Path, last_error: &mut Option<String>) {
    match setup::register_file(agent, file).await {
        Ok(registered) => {
            log_output(&file.display().to_string(), registered.output.as_deref().unwrap_or_default());
            log::info!("registered {} methods of {}", registered.methods.len(), file.display());
        }
        // The link failed, not the file: the next link gets another attempt.
        Err(SetupError::Register(RegisterError::NotConnected | RegisterError::LinkLost { .. })) => {
            agent.registrar.put_back(PendingRegistration::File(file.to_owned()));
        }
        Err(SetupError::Failed { .. } | SetupError::Refused(_)) if !agent.registrar.is_connected() => {
            agent.registrar.put_back(PendingRegistration::File(file.to_owned()));
        }
        // The reason may go by itself, such as the method of another space: `retry_pending` tries again.
        Err(error @ (SetupError::Register(RegisterError::Refused { .. }) | SetupError::Refused(_))) => {
            match &error {
                SetupError::Register(RegisterError::Refused { server, reason, .. }) => {
                    agent.registrar.note_refusal(Some(server), reason);
                }
                error => agent.registrar.note_refusal(None, &error.to_string()),
            }
            log_once(&format!("the methods file is not registered, and is tried again: {error}"), last_error);
            agent.registrar.put_back(PendingRegistration::File(file.to_owned()));
        }
        Err(error) => log::error!("the methods file is not registered: {error}"),
    }
}

/// Makes the pending registration again, with growing waits, as long as servers refuse it and the link is up.
pub async fn retry_pending(agent: &Arc<AgentState>, link: &ServerLink) {
    let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
    let mut last_error = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(backoff.next_wait()) => {}
            () = link.closed() => return,
            _ = agent.shutdown.begun() => return,
        }
        // Locked as during the start, so that several links do not register at once.
        let _startup = agent.startup_script.lock().await;
        let Some(pending) = agent.registrar.take_pending() else { return };
        register(agent, pending, &mut last_error).await;
    }
}

fn log_output(name: &str, output: &str) {
    for line in output.lines() {
        log::info!("{name}: {line}");
    }
}
