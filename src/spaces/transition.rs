//! One change to a space: decided with everything before it in sight, written with its audit entry and its event, heard
//! by those who follow spaces, and its event emitted, in this order and one change to a space at a time. So the events
//! of a space come in the order of its transitions.
//!
//! [`outbox`](super::outbox) emits the events. After each change, `lost_agent.rs` starts and ends the timers of an
//! agent that is away, whose ends are changes too.

use super::{
    agent_presence::AgentPresence, error::SpaceError, outbox, records::Spaces, row::SpaceRow, space::Space,
    system_events::PendingEvent,
};
use crate::{
    identity::SecretDigest,
    model::{
        event::{Actor, ActorKind},
        health_check::CheckResult,
        id::SpaceId,
        space_state::{SpaceHealth, SpaceState},
        timestamp::Timestamp,
    },
    platform::{
        audit::{Audit, AuditEntry, AuditRoom},
        collection::{Changes, Precondition},
        run_to_completion::run_to_completion,
        store::{Batch, StoreError},
    },
};
use serde_json::json;
use std::sync::Arc;

/// Characters kept of the detail of a check.
const DETAIL_KEPT: usize = 500;

/// A space as a change finds it.
pub(super) struct Present<'a> {
    pub space: Arc<Space>,
    pub token: Option<SecretDigest>,
    pub agent: &'a mut AgentPresence,
}

/// A change decided on.
pub(super) struct SpaceTransition {
    after: Space,
    token: Option<SecretDigest>,
    event: Option<PendingEvent>,
    audit: Option<AuditEntry>,
}

/// The reporter of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckReporter {
    Agent,
    /// The server, of an agent it has lost.
    Server,
}

impl Spaces {
    /// Makes a change to one space: decides it, writes it unless it changes nothing, and emits its event.
    pub(super) async fn change<E: From<SpaceError> + From<StoreError> + Send + 'static>(
        &self,
        id: SpaceId,
        decide: impl FnOnce(&mut Present<'_>) -> Result<SpaceTransition, E> + Send + 'static,
    ) -> Result<Arc<Space>, E> {
        let state = self.0.clone();
        run_to_completion(async move {
            let _changing = state.changing.lock(&id).await;
            let (row, revision, audit) = {
                let mut agents = state.agents.write();
                let (row, revision) = state.row_revision(id).ok_or(SpaceError::NotFound)?;
                let agent = agents.spaces.get_mut(&id).ok_or(SpaceError::NotFound)?;
                let transition = decide(&mut Present { space: row.space.clone(), token: row.token, agent })?;
                if transition.after == *row.space && transition.token == row.token {
                    return Ok(row.space.clone());
                }
                let outbox = outbox::with_event(&row.outbox, transition.event);
                let space = Arc::new(transition.after);
                (SpaceRow { space, token: transition.token, outbox, deleted: false }, revision, transition.audit)
            };
            let space = row.space.clone();
            let changes = Changes::new().put(row, Precondition::Revision(revision)).with(written(audit));
            state.records.commit(changes).await.map_err(SpaceError::from)?;
            state.watch_agent(id);
            let waits = state.agents.read().emitting_later.contains(&id);
            if !waits {
                state.emit_pending(id).await;
            }
            Ok(space)
        })
        .await
    }

    /// Counts a check. Only a change of health is written and emitted.
    pub(super) async fn count_check(
        &self,
        id: SpaceId,
        mut result: CheckResult,
        reporter: CheckReporter,
    ) -> Result<(), SpaceError> {
        if let Some(detail) = &mut result.detail
            && let Some((end, _)) = detail.char_indices().nth(DETAIL_KEPT)
        {
            detail.truncate(end);
        }
        let state = self.0.clone();
        self.change(id, move |present| {
            let unchanged = |present: &Present<'_>| Ok(SpaceTransition::to(Space::clone(&present.space), present));
            let space = present.space.clone();
            let Some(check) = space.settings.health_check.as_ref() else { return unchanged(present) };
            // An agent may have come back while the count waited for its turn.
            let doubtful = reporter == CheckReporter::Server && !present.agent.is_lost();
            if space.state != SpaceState::Deployed || doubtful {
                return unchanged(present);
            }
            let failures = if result.ok { 0 } else { present.agent.failures.saturating_add(1) };
            let (previous, verdict) = (space.health, check.verdict(space.health, failures));
            present.agent.failures = failures;
            present.agent.last_check = Some(result.clone());
            let Some(health) = verdict else { return unchanged(present) };
            let after = Space { health, ..Space::clone(&space) };
            let actor = match reporter {
                CheckReporter::Agent => state.agent_actor(after.owner),
                CheckReporter::Server => Actor::system(),
            };
            let event = PendingEvent::health_changed(&after, actor, previous, failures, &result);
            Ok::<_, SpaceError>(SpaceTransition::to(after, present).emitting(event))
        })
        .await
        .map(drop)
    }
}

impl SpaceTransition {
    /// To this space, without an event or an audit entry.
    pub fn to(after: Space, present: &Present<'_>) -> Self {
        Self { after, token: present.token, event: None, audit: None }
    }

    /// From deployed to stopped.
    pub fn to_stopped(present: &Present<'_>, by: Actor) -> Self {
        let now = Timestamp::now();
        let after = Space {
            state: SpaceState::Stopped,
            launched: false,
            health: SpaceHealth::Unknown,
            stopped_at: Some(now),
            agent_lost_at: None,
            updated_at: now,
            ..Space::clone(&present.space)
        };
        let event = PendingEvent::stopped(&after, by.clone());
        Self::to(after, present).emitting(event).audited(by, "space.stop")
    }

    pub fn with_token(self, token: SecretDigest) -> Self {
        Self { token: Some(token), ..self }
    }

    pub fn emitting(self, event: PendingEvent) -> Self {
        Self { event: Some(event), ..self }
    }

    pub fn audited(self, by: Actor, action: &str) -> Self {
        let audit = audit_entry(by, action, &self.after);
        Self { audit: Some(audit), ..self }
    }
}

pub(super) fn audit_entry(by: Actor, action: &str, space: &Space) -> AuditEntry {
    let is_owner = by.id.as_bytes() == space.owner.as_bytes();
    let room = match by.kind {
        ActorKind::User if !is_owner => AuditRoom::Administrative,
        _ => AuditRoom::Ordinary,
    };
    AuditEntry::new(Some(by), action, format!("space:{}", space.id))
        .in_room(room)
        .with(json!({"name": space.name, "owner": space.owner}))
}

/// Writes the audit entry of a change, if it has one.
pub(super) fn written(audit: Option<AuditEntry>) -> impl FnOnce(&mut Batch<'_>) + Send + 'static {
    move |batch| {
        if let Some(audit) = audit {
            Audit::record(batch, &audit);
        }
    }
}
