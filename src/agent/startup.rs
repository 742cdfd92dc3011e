//! The startup of an agent, with its first link: runs the space's startup script, and then registers the methods file.
//!
//! The saved registration is taken up only afterwards, and only if neither of them has registered anything. A failure is
//! logged, and never stops the agent.

use super::{
    registrar::RegisterError,
    server_link::ServerLink,
    setup::{self, SetupError},
    state::{AgentState, StartupScriptState},
};
use crate::{model::agent_protocol::StartupScript, platform::backoff::Backoff};
use std::{path::Path, sync::Arc, time::Duration};

/// Waits between attempts to register a methods file that a server refuses. They double.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// Runs the startup with the first link; with later links, the part of it that failed for lack of a link.
pub async fn start_up(agent: &Arc<AgentState>, script: Option<StartupScript>) {
    let mut state = agent.startup_script.lock().await;
    let first = std::mem::replace(&mut *state, StartupScriptState::Run) == StartupScriptState::NotRun;
    // Taken before the script runs: a registration of the script must not count as newer than the file.
    let file = agent.registrar.take_methods_file();
    let starting = async {
        if script.is_some() || file.is_some() {
            agent.packages.received().await;
        }
        if let Some(script) = script.filter(|_| first) {
            run_script(agent, &script).await;
        }
        if let Some(file) = file {
            register_file(agent, &file, &mut None).await;
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
async fn register_file(agent: &Arc<AgentState>, file: &Path, last_error: &mut Option<String>) {
    match setup::register_file(agent, file).await {
        Ok(registered) => {
            log_output(&file.display().to_string(), registered.output.as_deref().unwrap_or_default());
            log::info!("registered {} methods of {}", registered.methods.len(), file.display());
        }
        // The link failed, not the file: the next link gets another attempt.
        Err(SetupError::Register(RegisterError::NotConnected | RegisterError::LinkLost { .. })) => {
            agent.registrar.put_back_methods_file(file.to_owned());
        }
        Err(SetupError::Failed { .. } | SetupError::Refused(_)) if !agent.registrar.is_connected() => {
            agent.registrar.put_back_methods_file(file.to_owned());
        }
        // The reason may go by itself, such as the method of another space: `retry_methods_file` tries again.
        Err(error @ (SetupError::Register(RegisterError::Refused { .. }) | SetupError::Refused(_))) => {
            let reason = error.to_string();
            if last_error.as_ref() != Some(&reason) {
                log::error!("the methods file is not registered, and is tried again: {reason}");
            }
            *last_error = Some(reason);
            agent.registrar.put_back_methods_file(file.to_owned());
        }
        Err(error) => log::error!("the methods file is not registered: {error}"),
    }
}

/// Registers the methods file again, with growing waits, as long as servers refuse it and the link is up.
pub async fn retry_methods_file(agent: &Arc<AgentState>, link: &ServerLink) {
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
        let Some(file) = agent.registrar.take_methods_file() else { return };
        register_file(agent, &file, &mut last_error).await;
    }
}

fn log_output(name: &str, output: &str) {
    for line in output.lines() {
        log::info!("{name}: {line}");
    }
}
