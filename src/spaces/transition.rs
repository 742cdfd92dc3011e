//! One change to a space: decided with everything before it in sight, written with its audit entry and its event, heard by
//! those who follow spaces, and its event emitted, in this order and one change to a space at a time. So the events of a
//! space come in the order of its transitions.
//!
//! A space that is deployed, checked and without its agent fails one check per interval, which is a change too.

use super::{
    agent_presence::AgentPresence,
    error::SpaceError,
    records::{Spaces, SpacesState},
    row::SpaceRow,
    space::Space,
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
    routing::emit::EmitRetry,
};
use serde_json::json;
use std::{
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::task::AbortOnDropHandle;

/// Pause before events that found no room on the disk are emitted again.
const EMIT_AGAIN: Duration = Duration::from_secs(5);

/// Events of one space that wait for room. Beyond that, the oldest change of its health is left out, or the oldest event if none
/// of them is one: those after it tell the present state.
const MAX_OUTBOX: usize = 100;

/// The least time that agents have to come back after a start of the server: they try again every 15 s after a longer outage.
const RETURN_TIME: Duration = Duration::from_secs(30);

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
                let outbox = with_event(&row.outbox, transition.event);
                let space = Arc::new(transition.after);
                (SpaceRow { space, token: transition.token, outbox, deleted: false }, revision, transition.audit)
            };
            let space = row.space.clone();
            let changes = Changes::new().put(row, Precondition::Revision(revision)).with(written(audit));
            state.records.commit(changes).await.map_err(SpaceError::from)?;
            state.watch_silence(id);
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

impl SpacesState {
    /// Emits the events in the outbox of a space, oldest first, and removes those that were emitted. The space is locked.
    pub(super) async fn emit_pending(self: &Arc<Self>, id: SpaceId) {
        let pending = self.records.get_revision(id).filter(|(row, _)| !row.outbox.is_empty());
        let Some((row, revision)) = pending else { return };
        let mut emitted = 0;
        for pending in &row.outbox {
            if let Err(error) = self.emitter.emit(pending.new_event(id, row.space.owner)).await {
                let retry = error.retry();
                if retry != EmitRetry::Never {
                    log::warn!("{} of space {id} waits to be emitted: {error}", pending.kind);
                    // After a restart, the start emits it.
                    if retry != EmitRetry::AfterRestart {
                        self.emit_later(id);
                    }
                    break;
                }
                // The events after it must not wait for it.
                log::error!("{} of space {id} cannot be emitted: {error}", pending.kind);
            }
            emitted += 1;
        }
        if emitted == 0 {
            return;
        }
        let outbox = row.outbox[emitted..].to_vec();
        let read = Precondition::Revision(revision);
        let changes = if row.deleted && outbox.is_empty() {
            Changes::new().delete(id, read)
        } else {
            Changes::new().put(SpaceRow { outbox, ..SpaceRow::clone(&row) }, read)
        };
        // Nobody waits for the disk: an event that is emitted again is stored once.
        if let Err(error) = self.records.commit_soon(changes).await {
            log::warn!("the emitted events of space {id} are not removed from its outbox: {error}");
        }
    }

    fn emit_later(self: &Arc<Self>, id: SpaceId) {
        if !self.agents.write().emitting_later.insert(id) {
            return;
        }
        let weak = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(EMIT_AGAIN).await;
            let Some(state) = weak.upgrade() else { return };
            let _changing = state.changing.lock(&id).await;
            state.agents.write().emitting_later.remove(&id);
            state.emit_pending(id).await;
        });
    }

    /// Counts against a space if it is deployed, checked, and without its agent; and only then.
    pub(super) fn watch_silence(self: &Arc<Self>, id: SpaceId) {
        let mut agents = self.agents.write();
        let (paused, lost_after) = (agents.paused, agents.lost_after);
        let Some(row) = self.row(id) else { return };
        let Some(agent) = agents.spaces.get_mut(&id) else { return };
        let lost = !paused && agent.is_lost() && row.space.state == SpaceState::Deployed;
        match lost_after.filter(|_| lost && row.space.agent_lost_at.is_none()) {
            Some(after) if agent.loss.is_none() => {
                let after = if agent.was_linked { after } else { after.max(RETURN_TIME) };
                let reporting = report_loss(Arc::downgrade(self), id, after);
                agent.loss = Some(AbortOnDropHandle::new(tokio::spawn(reporting)));
            }
            Some(_) => {}
            None => agent.loss = None,
        }
        match row.space.settings.health_check.as_ref().filter(|_| lost) {
            Some(check) if agent.silence.is_none() => {
                let counting = count_silence(Arc::downgrade(self), id, check.interval);
                agent.silence = Some(AbortOnDropHandle::new(tokio::spawn(counting)));
            }
            Some(_) => {}
            None => agent.silence = None,
        }
    }
}

/// The events of a space that wait, with a further one.
fn with_event(outbox: &[PendingEvent], event: Option<PendingEvent>) -> Vec<PendingEvent> {
    let mut waiting = outbox.to_vec();
    let Some(event) = event else { return waiting };
    if waiting.len() >= MAX_OUTBOX {
        let oldest = waiting.iter().position(PendingEvent::is_about_health).unwrap_or(0);
        let left_out = waiting.remove(oldest);
        log::warn!("{} of a space is left out: {MAX_OUTBOX} events of it wait for room", left_out.kind);
    }
    waiting.push(event);
    waiting
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

/// Reports an agent that stays away.
async fn report_loss(state: Weak<SpacesState>, id: SpaceId, after: Duration) {
    let lost_at = Timestamp::now();
    tokio::time::sleep(after).await;
    let Some(state) = state.upgrade() else { return };
    // Another task: the change drops the handle of this one.
    tokio::spawn(async move {
        let spaces = Spaces(state);
        let reported = spaces.change(id, move |present| {
            let before = present.space.clone();
            // It may have come back while the report waited for its turn.
            let is_lost =
                present.agent.is_lost() && before.state == SpaceState::Deployed && before.agent_lost_at.is_none();
            if !is_lost {
                return Ok(SpaceTransition::to(Space::clone(&before), present));
            }
            let after = Space { agent_lost_at: Some(lost_at), ..Space::clone(&before) };
            let event = PendingEvent::agent_lost(&after, lost_at);
            Ok::<_, SpaceError>(SpaceTransition::to(after, present).emitting(event))
        });
        match reported.await {
            Ok(_) | Err(SpaceError::NotFound) => {}
            Err(error) => {
                log::warn!("the lost agent of space {id} is reported later: {error}");
                if let Some(agent) = spaces.0.agents.write().spaces.get_mut(&id) {
                    agent.loss = None;
                }
                spaces.0.watch_silence(id);
            }
        }
    });
}

/// Fails one check at the end of each interval, until the task is aborted.
async fn count_silence(state: Weak<SpacesState>, id: SpaceId, interval: Duration) {
    let mut turns = tokio::time::interval_at(Instant::now() + interval, interval);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let _ = turns.tick().await;
        let Some(state) = state.upgrade() else { return };
        let detail = Some("the agent is not connected".to_owned());
        let result = CheckResult { ok: false, detail, checked_at: Timestamp::now() };
        match Spaces(state).count_check(id, result, CheckReporter::Server).await {
            Ok(()) => {}
            Err(SpaceError::NotFound) => return,
            Err(error) => log::warn!("the lost agent of space {id} is not counted: {error}"),
        }
    }
}
