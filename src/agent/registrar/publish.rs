//! Publishes a registration on several links: on all of them or on none.

use super::error::RegisterError;
use crate::{
    agent::{
        generations::Generations,
        method_server::MethodServer,
        registration_file::Declaration,
        server_link::{PublishFault, ServerLink},
    },
    model::{method::GroupIds, toml_input::line_of},
};
use futures_util::future::join_all;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Publishes registrations under generations of their own.
pub struct Publisher {
    generations: Generations,
    next_generation: AtomicU64,
}

/// A registration that servers have accepted.
pub struct ActiveRegistration {
    pub generation: u64,
    pub declaration: Declaration,
    pub server: Arc<MethodServer>,
}

impl Publisher {
    pub fn new(generations: Generations) -> Self {
        Self { generations, next_generation: AtomicU64::new(1) }
    }

    /// Publishes a registration, answered by `server`, on all these links; `before` is the registration in force. The
    /// groups that the servers found are noted in it.
    ///
    /// # Errors
    ///
    /// Fails if a server refuses it, or none accepts it. The servers that had accepted it get `before` back. `text` is
    /// the file in which a refused field is looked up.
    pub async fn publish(
        &self,
        before: Option<&ActiveRegistration>,
        links: &[Arc<ServerLink>],
        declaration: &mut Declaration,
        server: &Arc<MethodServer>,
        text: Option<&str>,
    ) -> Result<u64, RegisterError> {
        let generation = self.begin(server);
        let declared = &*declaration;
        let publishing = links.iter().map(|link| publish_on(link, generation, declared));
        let answers = join_all(publishing).await;
        match failure(links, &answers, text) {
            None => {
                for (link, answer) in links.iter().zip(answers) {
                    if let Ok(groups) = answer {
                        declaration.groups.insert(link.server.to_string(), groups);
                    }
                }
                Ok(generation)
            }
            Some(error) => {
                self.generations.end(generation);
                self.restore(before, links, &answers).await;
                Err(error)
            }
        }
    }

    /// Makes a method server answer for a new generation.
    pub fn begin(&self, server: &Arc<MethodServer>) -> u64 {
        let generation = self.next_generation();
        self.generations.begin(generation, server.clone());
        generation
    }

    /// Publishes the registration in force on one link that does not have it yet. Returns whether the server found
    /// other groups for it than before.
    ///
    /// # Errors
    ///
    /// Fails if the server refuses it. A link that is lost begins anew.
    pub async fn publish_on(&self, link: &ServerLink, active: &mut ActiveRegistration) -> Result<bool, RegisterError> {
        if *link.published().borrow() == Some(active.generation) {
            return Ok(false);
        }
        match publish_on(link, active.generation, &active.declaration).await {
            Ok(groups) => {
                let before = active.declaration.groups.insert(link.server.to_string(), groups.clone());
                Ok(before.as_ref() != Some(&groups))
            }
            Err(PublishFault::Refused(reason)) => {
                Err(RegisterError::Refused { server: link.server.to_string(), line: None, reason })
            }
            Err(PublishFault::Down | PublishFault::Timeout(_)) => Ok(false),
        }
    }

    /// Withdraws all methods on these links. A failure is only logged: a link that is lost begins anew.
    pub async fn withdraw(&self, links: &[Arc<ServerLink>]) {
        let generation = self.next_generation();
        let answers = join_all(links.iter().map(|link| link.unregister(generation))).await;
        for (link, answer) in links.iter().zip(answers) {
            log_refusal(link, answer);
        }
    }

    /// Withdraws all methods on one link, where the server may remember more than this agent does.
    pub async fn withdraw_on(&self, link: &ServerLink) {
        log_refusal(link, link.unregister(self.next_generation()).await);
    }

    /// Gives the old registration back to the servers that have accepted a new one. A server whose link is lost gets it
    /// with its next link.
    async fn restore(
        &self,
        before: Option<&ActiveRegistration>,
        links: &[Arc<ServerLink>],
        answers: &[Result<GroupIds, PublishFault>],
    ) {
        let accepted = links.iter().zip(answers).filter(|(_, answer)| answer.is_ok());
        let restoring = accepted.map(async |(link, _)| {
            let restored = match before {
                Some(before) => publish_on(link, before.generation, &before.declaration).await.map(drop),
                None => link.unregister(self.next_generation()).await,
            };
            log_refusal(link, restored);
        });
        join_all(restoring).await;
    }

    fn next_generation(&self) -> u64 {
        self.next_generation.fetch_add(1, Ordering::Relaxed)
    }
}

async fn publish_on(link: &ServerLink, generation: u64, declaration: &Declaration) -> Result<GroupIds, PublishFault> {
    link.register(generation, &declaration.registration, declaration.groups_at(&link.server)).await
}

/// The error of a publication, if it failed. A server whose link is lost gets the registration when it is back, as long
/// as another server has accepted it.
fn failure(
    links: &[Arc<ServerLink>],
    answers: &[Result<GroupIds, PublishFault>],
    text: Option<&str>,
) -> Option<RegisterError> {
    let mut lost = None;
    for (link, answer) in links.iter().zip(answers) {
        let server = link.server.to_string();
        match answer {
            Ok(_) => {}
            Err(PublishFault::Refused(reason)) => {
                let line = text.and_then(|text| line_of(text, refused_field(reason)?));
                return Some(RegisterError::Refused { server, line, reason: reason.clone() });
            }
            Err(fault) => lost = Some(RegisterError::LinkLost { server, fault: fault.clone() }),
        }
    }
    lost.filter(|_| !answers.iter().any(Result::is_ok))
}

fn log_refusal(link: &ServerLink, answer: Result<(), PublishFault>) {
    match answer {
        // The next link begins with a publication.
        Ok(()) | Err(PublishFault::Down | PublishFault::Timeout(_)) => {}
        Err(PublishFault::Refused(reason)) => {
            log::error!("{} refuses the registration in force: {reason}", link.server);
            link.set_refusal(Some(reason));
        }
    }
}

/// The field that a server's reason begins with, as in "`methods[0].groups[1]`: there is no such group".
fn refused_field(reason: &str) -> Option<&str> {
    reason.strip_prefix('`')?.split_once("`: ").map(|(field, _)| field)
}
