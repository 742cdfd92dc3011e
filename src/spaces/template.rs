//! Templates that new spaces are made of. A space copies its template when it is made, so that changing or deleting a
//! template touches no space.

use crate::{
    model::{
        event::Actor,
        id::TemplateId,
        space_settings::{SpaceName, SpaceSettingsError},
        template_spec::TemplateSpec,
        timestamp::Timestamp,
    },
    platform::{
        audit::{Audit, AuditEntry},
        collection::{Collection, CollectionError, CollectionRecord, Precondition},
        keyed_mutex::KeyedMutex,
        run_to_completion::run_to_completion,
        store::{Batch, Store, StoreError, Table, keys},
    },
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{convert::Infallible, sync::Arc};

/// Templates there can be.
const MOST: usize = 1000;

/// One template. It is stored as this JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Template {
    pub id: TemplateId,
    pub spec: TemplateSpec,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Every template there is, unique by name. Cloning the handle is cheap.
#[derive(Clone)]
pub struct Templates {
    records: Collection<Template>,
    /// Held by the template's id while a change to it is decided and made.
    changing: Arc<KeyedMutex>,
}

/// Reason for which a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    #[error("there is no such template")]
    NotFound,
    #[error("there is already a template named `{0}`: choose another name, or change that one")]
    NameTaken(SpaceName),
    #[error("there are at most {MOST} templates: delete one first")]
    TooMany,
    #[error(transparent)]
    Invalid(#[from] SpaceSettingsError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Templates {
    /// Reads all templates.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn open(store: Store) -> Result<Self, StoreError> {
        Ok(Self { records: Collection::open(store, MOST)?, changing: Arc::default() })
    }

    /// Every template, oldest first.
    pub fn all(&self) -> Vec<Arc<Template>> {
        self.records.all()
    }

    pub fn get(&self, id: TemplateId) -> Option<Arc<Template>> {
        self.records.get(id)
    }

    /// The template of this name or id.
    pub fn find(&self, reference: &str) -> Option<Arc<Template>> {
        self.records.find((), reference).or_else(|| self.get(reference.parse().ok()?))
    }

    /// # Errors
    ///
    /// Fails if a field breaks a rule, the name is taken, there are too many, or the store cannot be written.
    pub async fn create(&self, by: Actor, spec: TemplateSpec) -> Result<Arc<Template>, TemplateError> {
        spec.check()?;
        self.records.store().check_room()?;
        let now = Timestamp::now();
        let template = Template { id: TemplateId::new(), spec, created_at: now, updated_at: now };
        let audit = audited(by, "template.create", &template);
        Ok(self.records.create(template, audit).await?)
    }

    /// Puts the template that `change` makes of the present one into its place.
    ///
    /// # Errors
    ///
    /// Fails if it is gone, `change` does, a field breaks a rule, the name is taken, or the store cannot be written.
    pub async fn update<E: From<TemplateError> + From<StoreError> + Send + 'static>(
        &self,
        by: Actor,
        id: TemplateId,
        change: impl FnOnce(&Template) -> Result<TemplateSpec, E> + Send + 'static,
    ) -> Result<Arc<Template>, E> {
        let this = self.clone();
        run_to_completion(async move {
            let _changing = this.changing.lock(&id).await;
            let before = this.get(id).ok_or(TemplateError::NotFound)?;
            let spec = change(&before)?;
            spec.check().map_err(TemplateError::from)?;
            let template = Template { id, spec, created_at: before.created_at, updated_at: Timestamp::now() };
            let audit = audited(by, "template.update", &template);
            let updated = this.records.update(template, Precondition::Present, audit).await;
            Ok(updated.map_err(TemplateError::from)?)
        })
        .await
    }

    /// # Errors
    ///
    /// Fails if it is gone, or the store cannot be written.
    pub async fn delete(&self, by: Actor, id: TemplateId) -> Result<Arc<Template>, TemplateError> {
        let this = self.clone();
        run_to_completion(async move {
            let _changing = this.changing.lock(&id).await;
            let template = this.get(id).ok_or(TemplateError::NotFound)?;
            Ok(this.records.delete(id, audited(by, "template.delete", &template)).await?)
        })
        .await
    }
}

impl CollectionRecord for Template {
    type Id = TemplateId;
    /// Templates are everybody's.
    type Namespace = ();
    type Refusal = Infallible;

    const TABLE: Table<Self> = Table::new(keys::TEMPLATES);

    fn id(&self) -> TemplateId {
        self.id
    }

    fn key(&self) -> Vec<u8> {
        self.id.as_bytes().to_vec()
    }

    fn namespace(&self) {}

    fn name(&self) -> Option<&str> {
        Some(self.spec.name.as_str())
    }
}

impl From<CollectionError<Template>> for TemplateError {
    fn from(error: CollectionError<Template>) -> Self {
        match error {
            CollectionError::NameTaken(other) => Self::NameTaken(other.spec.name.clone()),
            CollectionError::QuotaReached(_) => Self::TooMany,
            CollectionError::NotFound(_) | CollectionError::Conflict(_) => Self::NotFound,
            CollectionError::Refused(never) => match never {},
            CollectionError::Store(error) => Self::Store(error),
        }
    }
}

/// Writes the audit entry of a change.
fn audited(by: Actor, action: &str, template: &Template) -> impl FnOnce(&mut Batch<'_>) + Send + 'static {
    let entry = AuditEntry::new(Some(by), action, format!("template:{}", template.id))
        .with(json!({"name": template.spec.name}));
    move |batch| Audit::record(batch, &entry)
}
