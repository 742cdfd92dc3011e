//! HTTP client of the agent in the same space, at SVC_AGENT_URL. The agent needs no token: it listens on loopback only.

use crate::{
    agent::NOT_CONNECTED,
    cli::{
        access::Access,
        client::{Client, ResponseText},
        failure::{Failure, TokenSource},
    },
};
use serde::de::DeserializeOwned;

/// The address of an agent with default settings.
const DEFAULT_URL: &str = "http://127.0.0.1:7301";

/// A client of the agent. Its failures are worded for an agent.
pub struct AgentHttp(Client);

/// Returns true if SVC_AGENT_URL names an agent.
pub fn is_agent_named(environment: &dyn Fn(&str) -> Option<String>) -> bool {
    environment("SVC_AGENT_URL").is_some_and(|url| !url.is_empty())
}

impl AgentHttp {
    /// The agent at SVC_AGENT_URL, or at the default address.
    ///
    /// # Errors
    ///
    /// Fails if SVC_AGENT_URL is no address.
    pub fn find(environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let url = environment("SVC_AGENT_URL").filter(|url| !url.is_empty());
        let url = url.as_deref().unwrap_or(DEFAULT_URL);
        let server = url.parse().map_err(|_| {
            Failure::Usage(format!("SVC_AGENT_URL: `{url}` is no address: write one such as {DEFAULT_URL}"))
        })?;
        Client::new(Access { server, token: None, source: TokenSource::None }).map(Self)
    }

    pub fn get(&self, path: &str) -> Result<ResponseText, Failure> {
        self.0.get(path).map_err(|failure| self.of_agent(failure))
    }

    /// Posts a body without a timeout: the agent bounds the time of a set-up script.
    pub fn post_without_timeout(&self, path: &str, body: String) -> Result<ResponseText, Failure> {
        self.0.post_without_timeout(path, body).map_err(|failure| self.of_agent(failure))
    }

    /// Posts a body that is JSON already, byte for byte.
    pub fn post_raw(&self, path: &str, body: String) -> Result<ResponseText, Failure> {
        self.0.post_raw(path, body).map_err(|failure| self.of_agent(failure))
    }

    pub fn delete(&self, path: &str) -> Result<ResponseText, Failure> {
        self.0.delete(path).map_err(|failure| self.of_agent(failure))
    }

    pub fn read<T: DeserializeOwned>(&self, answer: &ResponseText) -> Result<T, Failure> {
        self.0.read(answer).map_err(|failure| self.of_agent(failure))
    }

    /// The same failure, worded for an agent.
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
