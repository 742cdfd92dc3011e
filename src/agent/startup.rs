//! What an agent does once, with its first link: it runs the space's startup script, and then registers its methods file.
//!
//! What was registered before a restart is taken up only afterwards, and only if neither has registered anything. A
//! failure is logged, and never stops the agent from serving.

use super::{
    Agent,
    registrar::RegisterError,
    setup::{self, SetupError},
};
use crate::model::agent_protocol::StartupScript;
use std::{path::Path, sync::Arc};
use tokio::sync::Mutex;

/// Whether it was done. Links that come meanwhile wait for it.
#[derive(Default)]
pub struct Opening(Mutex<Script>);

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Script {
    #[default]
    NotYet,
    Run,
}

/// Does what is to be done with the first link; with later ones, what could not be done then.
pub async fn open(agent: &Arc<Agent>, script: Option<StartupScript>) {
    let mut stage = agent.opening.0.lock().await;
    let first = std::mem::replace(&mut *stage, Script::Run) == Script::NotYet;
    // What the script registers must not count as newer than the file, which comes after it.
    let file = agent.registrar.take_startup();
    let opening = async {
        if script.is_some() || file.is_some() {
            agent.packages.told().await;
        }
        if let Some(script) = script.filter(|_| first) {
            start_up(agent, &script).await;
        }
        if let Some(file) = file {
            register(agent, &file).await;
        }
    };
    tokio::select! {
        () = opening => {}
        // What runs is dropped, and so ended.
        _ = agent.end.begun() => {}
    }
}

async fn start_up(agent: &Arc<Agent>, script: &StartupScript) {
    log::info!("running the startup script `{}`", script.name);
    match setup::start_up(agent, script).await {
        Ok(output) => {
            tell(&script.name, &output);
            log::info!("the startup script `{}` has ended", script.name);
        }
        Err(error) => log::error!("the startup script: {error}"),
    }
}

async fn register(agent: &Arc<Agent>, file: &Path) {
    match setup::register_file(agent, file).await {
        Ok(done) => {
            tell(&file.display().to_string(), &done.output);
            log::info!("registered {} methods of {}", done.methods.len(), file.display());
        }
        // That was not the file's fault: the next link gets another try.
        Err(SetupError::Register(RegisterError::NotConnected | RegisterError::Lost { .. })) => {
            agent.registrar.put_back_startup(file.to_owned());
        }
        Err(SetupError::Failed { .. }) if !agent.registrar.is_connected() => {
            agent.registrar.put_back_startup(file.to_owned());
        }
        Err(error) => log::error!("the methods file is not registered: {error}"),
    }
}

/// What a script printed, in the log.
fn tell(name: &str, output: &str) {
    for line in output.lines() {
        log::info!("{name}: {line}");
    }
}
