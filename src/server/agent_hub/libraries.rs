//! The libraries of a space, sent to its agent: after the welcome, and again after they changed. Changes in quick
//! succession are sent together.

use super::hub::{AgentHub, AgentSession};
use crate::{
    model::{
        agent_protocol::{StartupScript, ToAgent},
        owner::Owner,
    },
    scripting::scripts::Script,
    spaces::Space,
};
use sha2::{Digest as _, Sha256};
use std::{convert::Infallible, sync::Arc, time::Duration};

/// Time for which further changes are awaited after the first.
const DEBOUNCE: Duration = Duration::from_millis(200);

/// A hash of a set of libraries, to detect a change without keeping them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct LibrariesHash([u8; 32]);

impl AgentHub {
    /// The startup script of a space. One that cannot be run is logged, and left out.
    pub(super) fn startup_script(&self, space: &Space) -> Option<StartupScript> {
        let id = space.settings.startup_script_id?;
        match self.0.deps.scripts.script(Owner::User(space.owner), id) {
            Ok(script) => Some(StartupScript { name: script.name.clone(), source: script.content.clone() }),
            Err(error) => {
                log::warn!("space `{}` is set up without its startup script: {error}", space.name);
                None
            }
        }
    }

    /// Sends all libraries of a space to its agent, unless it has them already.
    pub(super) async fn send_libraries(&self, session: &AgentSession, has: Option<LibrariesHash>) -> LibrariesHash {
        let libraries = self.0.deps.scripts.libraries_for(Owner::User(session.owner));
        let hash = LibrariesHash::of(&libraries);
        if has != Some(hash) {
            let libraries = libraries.iter().filter_map(|script| script.library()).collect();
            // A link that is down ends its session elsewhere.
            let _ = session.link.send(ToAgent::Libraries(libraries)).await;
        }
        hash
    }

    /// Sends the libraries again whenever they have changed.
    pub(super) async fn follow_libraries(&self, session: &AgentSession, mut sent: LibrariesHash) -> Infallible {
        loop {
            session.libraries_changed.notified().await;
            tokio::time::sleep(DEBOUNCE).await;
            sent = self.send_libraries(session, Some(sent)).await;
        }
    }
}

impl LibrariesHash {
    fn of(libraries: &[Arc<Script>]) -> Self {
        let mut digest = Sha256::new();
        for library in libraries {
            // Neither name contains a line end.
            digest.update(format!("{}\n{}\n", library.name, library.language.as_str()));
            digest.update(library.digest());
        }
        Self(digest.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::UserId;
    use serde_json::json;

    #[test]
    fn a_change_of_any_part_of_a_library_changes_the_hash() {
        let library = |name: &str, language: &str, content: &str| {
            let spec = json!({"name": name, "kind": "library", "language": language, "content": content});
            Arc::new(Script::define(serde_json::from_value(spec).unwrap(), UserId::new(), None).unwrap())
        };
        let sets = [
            vec![],
            vec![library("a", "lua", "x()")],
            vec![library("a", "python", "x()")],
            vec![library("b", "lua", "x()")],
            vec![library("a", "lua", "y()")],
            vec![library("a", "lua", "x()"), library("b", "lua", "x()")],
        ];
        for (at, set) in sets.iter().enumerate() {
            for (other, another) in sets.iter().enumerate() {
                assert_eq!(LibrariesHash::of(set) == LibrariesHash::of(another), at == other);
            }
        }
        // The time of writing does not.
        assert!(LibrariesHash::of(&sets[1]) == LibrariesHash::of(&[library("a", "lua", "x()")]));
    }
}
