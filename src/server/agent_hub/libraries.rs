//! What the programs of a space can load, told to its agent: all of it with the welcome, and again whenever it is
//! something else. Changes that come together are told together.

use super::{Seat, Sessions};
use crate::{
    model::{
        agent_protocol::{StartupScript, ToAgent},
        owner::Owner,
        script_spec::ScriptKind,
    },
    platform::store::Change,
    scripting::scripts::Script,
    spaces::Space,
};
use sha2::{Digest as _, Sha256};
use std::{convert::Infallible, sync::Arc, time::Duration};

/// How long changes are waited for that may follow the first.
const SETTLE: Duration = Duration::from_millis(200);

/// Tells one set of libraries from another, without keeping it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint([u8; 32]);

impl Sessions {
    /// The script that the agent of a space runs first. A space does without one that cannot be run.
    pub(super) fn startup_script(&self, space: &Space) -> Option<StartupScript> {
        let id = space.settings.startup_script_id?;
        match self.0.parts.scripts.script(Owner::User(space.owner), id) {
            Ok(script) => Some(StartupScript { name: script.name.clone(), source: script.content.clone() }),
            Err(why) => {
                log::warn!("space `{}` is set up without its startup script: {why}", space.name);
                None
            }
        }
    }

    /// Puts all libraries of a space in line for its agent, unless they are those that it `has`.
    pub(super) async fn send_libraries(&self, seat: &Seat, has: Option<Fingerprint>) -> Fingerprint {
        let libraries = self.0.parts.scripts.libraries_for(Owner::User(seat.owner));
        let fingerprint = Fingerprint::of(&libraries);
        if has != Some(fingerprint) {
            let libraries = libraries.iter().filter_map(|script| script.library()).collect();
            // Of a link that is down there is nothing more to tell.
            let _ = seat.link.send(ToAgent::Libraries(libraries)).await;
        }
        fingerprint
    }

    /// Sends them again whenever they have become others.
    pub(super) async fn follow_libraries(&self, seat: &Seat, mut sent: Fingerprint) -> Infallible {
        loop {
            seat.stale.notified().await;
            tokio::time::sleep(SETTLE).await;
            sent = self.send_libraries(seat, Some(sent)).await;
        }
    }

    /// Notes whose libraries are others now.
    pub(super) fn note_scripts(&self, change: &Change<Script>) {
        let (before, after) = change.sides();
        let libraries = before.into_iter().chain(after).filter(|script| script.kind == ScriptKind::Library);
        for owner in libraries.map(|library| library.owner) {
            for seat in self.0.links().values().filter(|seat| owner.receives_events_of(seat.owner)) {
                seat.stale.notify_one();
            }
        }
    }
}

impl Fingerprint {
    fn of(libraries: &[Arc<Script>]) -> Self {
        let mut digest = Sha256::new();
        for library in libraries {
            // Neither name has a line's end in it.
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
    fn every_part_of_a_library_tells_it_from_another() {
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
                assert_eq!(Fingerprint::of(set) == Fingerprint::of(another), at == other);
            }
        }
        // When it was written does not.
        assert!(Fingerprint::of(&sets[1]) == Fingerprint::of(&[library("a", "lua", "x()")]));
    }
}
