//! The agent of the space that a command runs in, at SVC_AGENT_URL. It asks for no token: being here is enough.

use crate::{
    agent::NOT_CONNECTED,
    cli::{
        access::{Access, TokenSource},
        client::{Answer, Client},
        failure::Failure,
    },
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Where an agent listens that was told nothing else.
const DEFAULT_URL: &str = "http://127.0.0.1:7301";

/// A way to the agent.
pub struct Near(Client);

/// Whether the environment says that there is an agent.
pub fn is_named(environment: &dyn Fn(&str) -> Option<String>) -> bool {
    environment("SVC_AGENT_URL").is_some_and(|url| !url.is_empty())
}

impl Near {
    /// The agent that the environment names, or the one at the usual place.
    ///
    /// # Errors
    ///
    /// Fails if it names something that is no address.
    pub fn find(environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let url = environment("SVC_AGENT_URL").filter(|url| !url.is_empty());
        let url = url.as_deref().unwrap_or(DEFAULT_URL);
        let server = url.parse().map_err(|_| {
            Failure::Usage(format!("SVC_AGENT_URL: `{url}` is no address: write one such as {DEFAULT_URL}"))
        })?;
        Client::new(Access { server, token: None, source: TokenSource::None }).map(Self)
    }

    pub fn get(&self, path: &str) -> Result<Answer, Failure> {
        self.0.get(path).map_err(|failure| self.of_agent(failure))
    }

    pub fn post(&self, path: &str, body: &Value) -> Result<Answer, Failure> {
        self.0.post(path, body).map_err(|failure| self.of_agent(failure))
    }

    /// Posts what may take as long as the agent lets it: a set-up script is bounded by its settings.
    pub fn post_patiently(&self, path: &str, body: &Value) -> Result<Answer, Failure> {
        self.0.post_patiently(path, body).map_err(|failure| self.of_agent(failure))
    }

    /// Posts a body that is JSON already, byte for byte.
    pub fn post_raw(&self, path: &str, body: String) -> Result<Answer, Failure> {
        self.0.post_raw(path, body).map_err(|failure| self.of_agent(failure))
    }

    pub fn delete(&self, path: &str) -> Result<Answer, Failure> {
        self.0.delete(path).map_err(|failure| self.of_agent(failure))
    }

    pub fn read<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, Failure> {
        self.0.read(answer).map_err(|failure| self.of_agent(failure))
    }

    /// The same failure, in words about an agent.
    fn of_agent(&self, failure: Failure) -> Failure {
        let agent = self.0.server().to_string();
        match failure {
            Failure::Unreachable { why, .. } => Failure::NoAgent { agent, why },
            Failure::Foreign { why, .. } => {
                Failure::Bad(format!("cannot make sense of the answer from {agent} ({why}): check SVC_AGENT_URL"))
            }
            Failure::Refused { message, .. } => Failure::AgentRefused(message),
            Failure::Rejected { code, message, .. } if code == NOT_CONNECTED => Failure::AgentNotConnected(message),
            Failure::Rejected { message, .. } => Failure::Bad(message),
            other => other,
        }
    }
}
