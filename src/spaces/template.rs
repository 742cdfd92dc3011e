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
        audit::{Audit, AuditEntry, AuditRoom},
        collection::{Collection, CollectionError, CollectionRecord, Edit},
        store::{Batch, Store, StoreError, Table, keys},
    },
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{convert::Infallible, future::ready, sync::Arc};

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
    #[error("somebody else has changed the template meanwhile: look at it and try again")]
    Conflict,
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
        Ok(Self { records: Collection::open(store, MOST)? })
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
        let by_id = reference.parse().ok().and_then(|id| self.get(id));
        by_id.or_else(|| self.records.find((), reference))
    }

    /// # Errors
    ///
    /// Fails if a field breaks a rule, the name is taken, there are too many, or the store cannot be written.
    pub async fn create(&self, by: Actor, spec: TemplateSpec) -> Result<Arc<Template>, TemplateError> {
        spec.check()?;
        spec.check_new_name()?;
        self.records.store().check_room()?;
        let now = Timestamp::now();
        let template = Template { id: TemplateId::new(), spec, created_at: now, updated_at: now };
        let audit = audited(by, "template.create", &template);
        Ok(self.records.create(template, audit).await?)
    }

    /// Puts the template that `change` makes of the present one into its place. If another change came in between,
    /// `change` is asked again.
    ///
    /// # Errors
    ///
    /// Fails if it is gone, `change` does, a field breaks a rule, the name is taken, or the store cannot be written.
    pub async fn update<E: From<TemplateError>>(
        &self,
        by: Actor,
        id: TemplateId,
        change: impl Fn(&Template) -> Result<TemplateSpec, E>,
    ) -> Result<Arc<Template>, E> {
        let decide = move |before: Arc<Template>| -> Result<_, E> {
            let spec = change(&before)?;
            spec.check().map_err(TemplateError::from)?;
            if spec.name != before.spec.name {
                spec.check_new_name().map_err(TemplateError::from)?;
            }
            if spec == before.spec {
                return Ok(Edit::put(before));
            }
            let template = Template { id, spec, created_at: before.created_at, updated_at: Timestamp::now() };
            let audit = audited(by.clone(), "template.update", &template);
            Ok(Edit::put(template).with(audit))
        };
        let updated = self.records.edit(id, move |before| ready(decide(before))).await;
        updated.map_err(TemplateError::from)?
    }

    /// # Errors
    ///
    /// Fails if it is gone, or the store cannot be written.
    pub async fn delete(&self, by: Actor, id: TemplateId) -> Result<Arc<Template>, TemplateError> {
        let decide = move |template: &Template| Edit::delete().with(audited(by.clone(), "template.delete", template));
        self.records.edit(id, move |template| ready(Ok(decide(&template)))).await?
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
            CollectionError::NotFound(_) => Self::NotFound,
            CollectionError::Conflict(_) => Self::Conflict,
            CollectionError::Refused(never) => match never {},
            CollectionError::Store(error) => Self::Store(error),
        }
    }
}

/// Writes the audit entry of a change.
fn audited(by: Actor, action: &str, template: &Template) -> impl FnOnce(&mut Batch<'_>) + Send + 'static {
    let entry = AuditEntry::new(Some(by), action, format!("template:{}", template.id))
        .in_room(AuditRoom::Administrative)
        .with(json!({"name": template.spec.name}));
    move |batch| Audit::record(batch, &entry)
}
