//! The startup of an agent, with its first link: runs the space's startup script, and then registers the methods file.
//!
//! The saved registration is taken up only afterwards, and only if neither of them has registered anything. A failure is
//! logged, and never stops the agent.

use super::{
    registrar::RegisterError,
    setup::{self, SetupError},
    state::{AgentState, StartupScriptState},
};
use crate::model::agent_protocol::StartupScript;
use std::{path::Path, sync::Arc};

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
            register_file(agent, &file).await;
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

async fn register_file(agent: &Arc<AgentState>, file: &Path) {
    match setup::register_file(agent, file).await {
        Ok(registered) => {
            log_output(&file.display().to_string(), registered.output.as_deref().unwrap_or_default());
            log::info!("registered {} methods of {}", registered.methods.len(), file.display());
        }
        // The link failed, not the file: the next link gets another attempt.
        Err(SetupError::Register(RegisterError::NotConnected | RegisterError::LinkLost { .. })) => {
            agent.registrar.put_back_methods_file(file.to_owned());
        }
        Err(SetupError::Failed { .. }) if !agent.registrar.is_connected() => {
            agent.registrar.put_back_methods_file(file.to_owned());
        }
        Err(error) => log::error!("the methods file is not registered: {error}"),
    }
}

fn log_output(name: &str, output: &str) {
    for line in output.lines() {
        log::info!("{name}: {line}");
    }
}
