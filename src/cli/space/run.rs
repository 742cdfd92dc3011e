//! `svc space start`, `stop` and `token`.

use crate::cli::{
    api,
    failure::Failure,
    named::Kind,
    shell::{Form, Shell},
};
use serde_json::json;

client_command! {
    /// Have the server run the agent of a space of the driver process. Others are started by `svc agent start` in them.
    #[argh(example = "{command_name} jobs")]
    Start = "start" {
        /// the space's name or id
        #[argh(positional)]
        space: String,
    }
}

client_command! {
    /// Stop a space: its agent is told to end, and what waits for its methods is dropped.
    #[argh(example = "{command_name} web")]
    Stop = "stop" {
        /// the space's name or id
        #[argh(positional)]
        space: String,
    }
}

client_command! {
    /// Make a new agent token for a space and print it, this once. The old one opens nothing from then on.
    #[argh(example = "{command_name} web\nSVC_AGENT_TOKEN=$({command_name} web) svc agent start")]
    Token = "token" {
        /// the space's name or id
        #[argh(positional)]
        space: String,
    }
}

impl Start {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = Kind::Space.path_of(&client, &self.space)?;
        let answer = client.post(&format!("{path}/start"), &json!({}))?;
        Kind::Space.tell(shell, "started", &client, &answer, self.form())
    }
}

impl Stop {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = Kind::Space.path_of(&client, &self.space)?;
        let answer = client.post(&format!("{path}/stop"), &json!({}))?;
        Kind::Space.tell(shell, "stopped", &client, &answer, self.form())
    }
}

impl Token {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = Kind::Space.path_of(&client, &self.space)?;
        let answer = client.post(&format!("{path}/token"), &json!({}))?;
        if self.form() == Form::Json {
            return shell.out.json(answer.as_str());
        }
        let space: api::Space = client.read(&answer)?;
        shell.out.line(space.agent_token.as_deref().unwrap_or_default())?;
        shell.note(&format!("the new agent token of `{}`; keep it now, it is not shown again", space.name));
        Ok(())
    }
}
