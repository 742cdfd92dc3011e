//! The way of a request at a source: verify → limit → transform → emit, or a dead letter.
//!
//! A request is answered with success only after everything that came of it is on disk. A failure of the script keeps
//! the request; a failure that is nobody's fault, such as a full disk, refuses it, and the provider sends it again.

use super::{
    activity::SourceActivity,
    dead_letters::{DeadLetters, SourceLetter},
    inbound_request::InboundRequest,
    records::{RunningSource, Sources},
    source::Source,
    transform::{SourceEvent, SourceResponse, TransformError, Transformed, VerifiedRequest, transform},
    verify::{Unverified, credential_places, verify},
};
use crate::{
    identity::Identity,
    model::{
        configured_value::ConfiguredValue,
        event::Actor,
        id::{EventId, SourceId, SourceLetterId, SpaceId, UserId},
        owner::{Owner, OwnerSpec},
        timestamp::Timestamp,
        verifier::check_secret,
    },
    platform::{metrics::Metrics, secret_keys::UnsealError, store::StoreError, task, value_reader::read_value},
    routing::{
        emit::{EmitError, Emitter, NewEvent},
        queue::{AcceptError, OrderedEmits},
    },
    scripting::workers::{LuaWorkers, Quarantined},
};
use http::header::CONTENT_ENCODING;
use serde_json::{json, value::RawValue};
use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, Instant},
};

/// The most headers and query parameters of a request that a transform sees; further ones are left out.
const MAX_PAIRS: usize = 200;

/// The longest time that one redelivery takes before it leaves the rest for another.
const REDELIVERY_TIME: Duration = Duration::from_secs(30);

/// Takes requests. Cloning it is cheap.
#[derive(Clone)]
pub struct SourceIntake {
    pub sources: Sources,
    pub letters: DeadLetters,
    pub workers: LuaWorkers,
    pub emitter: Arc<Emitter>,
    pub identity: Identity,
    pub metrics: Arc<Metrics>,
}

/// The outcome of a request, which is on disk.
#[derive(Debug)]
pub enum IntakeAnswer {
    Accepted {
        events: Vec<EventId>,
        response: Option<SourceResponse>,
    },
    /// The transform failed.
    Kept {
        letter: SourceLetterId,
    },
}

/// The reason that a request was refused. Nothing of it is stored, or the first of its events, which are not stored
/// twice when a request with an id comes again.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    #[error("not verified: {0}")]
    Unverified(#[from] Unverified),
    #[error("the secret of this source cannot be used: the server's log tells why")]
    SecretLost(UnsealError),
    /// With the reason, which names places on the server and is for its log.
    #[error("the secret of this source cannot be used: the server's log tells why")]
    SecretUnread(String),
    #[error("the body is encoded as `{0}`: have it sent as it is, without a Content-Encoding")]
    Encoded(String),
    #[error("more requests than the source takes")]
    TooMany(Duration),
    #[error("the owner of this source may not raise events")]
    OwnerMayNotEmit,
    #[error(transparent)]
    Body(TransformError),
    #[error("the transform cannot run now: {0}")]
    Unavailable(TransformError),
    #[error(transparent)]
    Emit(EmitError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl IntakeError {
    /// The kind of refusal. A new kind is reported, however many of another there are.
    const fn kind(&self) -> &'static str {
        match self {
            Self::Unverified(_) => "unverified",
            Self::SecretLost(_) | Self::SecretUnread(_) => "secret",
            Self::Encoded(_) => "encoded",
            Self::TooMany(_) => "rate",
            Self::OwnerMayNotEmit => "owner",
            Self::Body(_) => "body",
            Self::Unavailable(_) => "unavailable",
            Self::Emit(_) => "emit",
            Self::Store(_) => "store",
        }
    }
}

/// The result of redelivering dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedeliveredLetters {
    pub redelivered: usize,
    /// Letters that failed again.
    pub failed: usize,
}

/// The result of a trial: what would be emitted and answered.
#[derive(Debug)]
pub struct TrialRun {
    pub result: Result<Transformed, TransformError>,
    pub log: Vec<String>,
}

impl SourceIntake {
    /// Takes a request at an active source.
    ///
    /// # Errors
    ///
    /// Fails if the request is refused; the provider may send it again.
    pub async fn take(&self, source: &Source, request: InboundRequest) -> Result<IntakeAnswer, IntakeError> {
        let running = self.sources.running(source.id);
        let taken = self.take_counted(source, &running, request).await;
        let counter = match &taken {
            Ok(IntakeAnswer::Accepted { .. }) => {
                running.activity.accept();
                &self.metrics.source_accepted
            }
            Ok(IntakeAnswer::Kept { .. }) => &self.metrics.source_failed,
            Err(error) => {
                if let IntakeError::SecretUnread(reason) = error
                    && running.activity.warn_of_secret()
                {
                    log::warn!("source `{}` ({}): `verify.secret`: {reason}", source.slug, source.id);
                }
                if running.activity.refuse(error.kind(), error) {
                    report_refusal(&self.emitter, source, &running, error);
                }
                &self.metrics.source_refused
            }
        };
        counter.increment();
        taken
    }

    async fn take_counted(
        &self,
        source: &Source,
        running: &RunningSource,
        request: InboundRequest,
    ) -> Result<IntakeAnswer, IntakeError> {
        let verified = self.check(source, running, &request).await?;
        match transform(source, &verified, &self.workers, &self.emitter).await {
            Ok(Transformed { events, response, .. }) => {
                let events = self.emit(source, events).await?;
                Ok(IntakeAnswer::Accepted { events, response })
            }
            Err((error, _)) if error.is_temporary() => Err(IntakeError::Unavailable(error)),
            Err((error @ TransformError::Body(_), _)) => Err(IntakeError::Body(error)),
            // Without a transform there is no script to mend: the sender gets the reason.
            Err((TransformError::Payload { error, .. }, _)) if source.transform.is_none() => {
                Err(IntakeError::Emit(error))
            }
            Err((error, log)) => {
                if running.activity.fail() {
                    log::warn!("source `{}` ({}): a request is kept as a dead letter: {error}", source.slug, source.id);
                }
                let letter = self.letters.keep(source, &verified, error.to_string(), log).await?;
                // The letters of a source go with it, also one that comes late.
                if self.sources.get(source.id).is_none() {
                    self.letters.delete_all(source.id);
                }
                Ok(IntakeAnswer::Kept { letter })
            }
        }
    }

    /// Runs the transform on a request that needs no verification. Nothing is emitted or kept.
    pub async fn try_out(&self, source: &Source, request: InboundRequest) -> TrialRun {
        let request = without_credentials(source, &request, None);
        match transform(source, &request, &self.workers, &self.emitter).await {
            Ok(mut transformed) => TrialRun { log: std::mem::take(&mut transformed.log), result: Ok(transformed) },
            Err((error, log)) => TrialRun { result: Err(error), log },
        }
    }

    /// Sends dead letters through the transform again, oldest first: all, or those with these ids. It ends early when
    /// [`REDELIVERY_TIME`] is over.
    ///
    /// # Errors
    ///
    /// Fails if events or letters cannot be stored, or the transform cannot run now. Letters before that one are done.
    pub async fn redeliver(
        &self,
        source: &Source,
        only: Option<&[SourceLetterId]>,
    ) -> Result<RedeliveredLetters, IntakeError> {
        let running = self.sources.running(source.id);
        let _alone = running.redelivery.lock().await;
        let began = Instant::now();
        let mut done = RedeliveredLetters::default();
        let ids = self.letters.ids(source.id);
        for id in ids.into_iter().filter(|id| only.is_none_or(|only| only.contains(id))) {
            if began.elapsed() > REDELIVERY_TIME {
                break;
            }
            let Some(letter) = self.letters.get(source.id, id)? else { continue };
            match self.redeliver_one(source, letter).await? {
                true => done.redelivered += 1,
                false => done.failed += 1,
            }
        }
        Ok(done)
    }

    async fn redeliver_one(&self, source: &Source, letter: SourceLetter) -> Result<bool, IntakeError> {
        match transform(source, &letter.request(), &self.workers, &self.emitter).await {
            Ok(Transformed { events, .. }) => {
                self.emit(source, events).await?;
                self.letters.delete(source.id, letter.id).await?;
                Ok(true)
            }
            Err((error, _)) if error.is_temporary() => Err(IntakeError::Unavailable(error)),
            Err((error, log)) => {
                self.letters.fail_again(source.id, letter.failed_again(error.to_string(), log)).await?;
                Ok(false)
            }
        }
    }

    /// The quarantine of the source's Lua, if it is in one.
    pub fn quarantine(&self, source: &Source) -> Option<Quarantined> {
        let transform = source.transform.as_ref().filter(|_| self.workers.any_quarantined())?;
        self.workers.quarantined(transform.program(), source.owner)
    }

    pub fn running(&self, source: SourceId) -> Arc<RunningSource> {
        self.sources.running(source)
    }

    /// Everything that is checked before the body is looked at.
    async fn check(
        &self,
        source: &Source,
        running: &RunningSource,
        request: &InboundRequest,
    ) -> Result<VerifiedRequest, IntakeError> {
        let now = Timestamp::now();
        let valid = source.secrets.valid(now).map_err(|reason| IntakeError::SecretLost(reason.clone()))?;
        let mut secrets = Vec::new();
        for secret in valid {
            secrets.push(readable_secret(source, secret).await.map_err(IntakeError::SecretUnread)?);
        }
        let secrets: Vec<&str> = secrets.iter().map(|secret| &**secret).collect();
        let verified = verify(&source.verifier, &secrets, request, now)?;
        // After the verification, so that others cannot use up what the provider may send.
        running.rate.take(source.rate, Instant::now()).map_err(IntakeError::TooMany)?;
        let encoding = request.headers.get(CONTENT_ENCODING).map(|value| value.to_str().unwrap_or("unknown"));
        if let Some(encoding) = encoding.filter(|encoding| !encoding.eq_ignore_ascii_case("identity")) {
            return Err(IntakeError::Encoded(encoding.to_owned()));
        }
        self.raiser(source.owner)?;
        Ok(without_credentials(source, request, verified.delivery_id))
    }

    /// The user and actor of the events of a source. A global source acts as the service, and its events belong to
    /// nobody.
    fn raiser(&self, owner: Owner) -> Result<(UserId, Actor), IntakeError> {
        let Owner::User(id) = owner else { return Ok((UserId::NIL, Actor::system())) };
        let user = self.identity.user(id).filter(|user| user.active).ok_or(IntakeError::OwnerMayNotEmit)?;
        match self.identity.may_emit(id) {
            true => Ok((id, user.actor())),
            false => Err(IntakeError::OwnerMayNotEmit),
        }
    }

    /// Emits the events in order, and returns once all are on disk.
    async fn emit(&self, source: &Source, events: Vec<SourceEvent>) -> Result<Vec<EventId>, IntakeError> {
        let (user_id, actor) = self.raiser(source.owner)?;
        let (order, mut pending) = (OrderedEmits::default(), Vec::with_capacity(events.len()));
        for SourceEvent { kind, payload, id } in events {
            let event = NewEvent {
                id,
                raised_at: None,
                kind,
                space_id: SpaceId::NIL,
                space: None,
                user_id,
                actor: actor.clone(),
                payload,
            };
            pending.push((id, self.emitter.hand_over_ordered(&order, event).await));
        }
        let mut stored = Vec::with_capacity(pending.len());
        let mut failure = None;
        for (id, handed_over) in pending {
            let receipt = match handed_over {
                Ok(receipt) => receipt.await,
                Err(error) => Err(error),
            };
            match (receipt, id) {
                (Ok(receipt), _) => stored.push(receipt.event.id),
                // It was stored while the source had another owner.
                (Err(EmitError::Accept(AcceptError::IdTaken(_))), Some(id)) => stored.push(id),
                (Err(error), _) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(stored), |error| Err(IntakeError::Emit(error)))
    }
}

/// The secret itself, or the text at its place.
async fn readable_secret<'a>(source: &Source, secret: &'a ConfiguredValue) -> Result<Cow<'a, str>, String> {
    match secret {
        // Older versions let such a source keep one.
        ConfiguredValue::Reference(_) if source.owner != Owner::Global => {
            Err("only a global source reads its secret on the server: give the secret itself".to_owned())
        }
        ConfiguredValue::Text(text) => Ok(Cow::Borrowed(text)),
        ConfiguredValue::Reference(reference) => {
            let text = read_value(reference).await.map_err(|error| error.to_string())?;
            check_secret(&source.verifier, &text).map_err(|rule| format!("the value read {rule}"))?;
            Ok(Cow::Owned(text))
        }
    }
}

/// Emits `source.refusing` to the owner of a source. Nobody waits for it.
fn report_refusal(emitter: &Arc<Emitter>, source: &Source, running: &Arc<RunningSource>, error: &IntakeError) {
    let payload = json!({
        "source_id": source.id,
        "source_slug": source.slug,
        "owner": OwnerSpec::from(source.owner),
        "reason": error.to_string(),
    });
    let event = NewEvent {
        id: None,
        raised_at: None,
        kind: "source.refusing".parse().expect("the types of reports are legal"),
        space_id: SpaceId::NIL,
        space: None,
        user_id: match source.owner {
            Owner::User(user) => user,
            Owner::Global => UserId::NIL,
        },
        actor: Actor::system(),
        payload: RawValue::from_string(payload.to_string()).expect("a value prints as JSON"),
    };
    let (emitter, running, slug) = (emitter.clone(), running.clone(), source.slug.clone());
    let kind = error.kind();
    task::spawn(async move {
        if let Err(error) = emitter.emit(event).await {
            log::warn!("source.refusing of source `{slug}` is not emitted: {error}");
            running.activity.report_failed(kind);
        }
    });
}

/// The request as a transform sees it: names in lower case, values of one name joined, and no credential.
fn without_credentials(source: &Source, request: &InboundRequest, delivery_id: Option<String>) -> VerifiedRequest {
    let (secret_header, secret_parameter) = credential_places(&source.verifier);
    let mut headers: Vec<(String, String)> = Vec::new();
    for (name, value) in &request.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        let is_left_out = Some(name.as_str()) == secret_header || headers.len() >= MAX_PAIRS;
        match headers.iter_mut().find(|(known, _)| known == name.as_str()) {
            Some((_, values)) => *values = format!("{values}, {value}"),
            None if is_left_out => {}
            None => headers.push((name.as_str().to_owned(), value.into_owned())),
        }
    }
    let query = request.query_pairs().filter(|(name, _)| Some(name.as_str()) != secret_parameter);
    let query = query.take(MAX_PAIRS).collect();
    VerifiedRequest { headers, query, body: request.body.clone(), delivery_id }
}

impl RunningSource {
    pub fn activity(&self) -> &SourceActivity {
        &self.activity
    }
}
