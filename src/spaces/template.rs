//! Templates of new spaces. A space copies its template when it is created, so that changing or deleting a template affects
//! no space.

use crate::{
    model::{
        event::Actor,
        id::TemplateId,
        space_settings::{SpaceName, SpaceSettingsError},
        template_spec::TemplateSpec,
        timestamp::Timestamp,
    },
    platform::{
        audit::{Audit, Entry},
        store::{Batch, Store, StoreError, Table, keys},
    },
};
use parking_lot::{RwLock, RwLockReadGuard};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::Mutex;

const TEMPLATES: Table<Template> = Table::new(keys::TEMPLATES);

/// The most templates.
const MAX_TEMPLATES: usize = 1000;

/// One template. It is stored as this JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Template {
    pub id: TemplateId,
    pub spec: TemplateSpec,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// All templates. Cloning the handle is cheap.
#[derive(Clone)]
pub struct Templates(Arc<TemplatesShared>);

struct TemplatesShared {
    store: Store,
    /// In order of creation, since ids are.
    templates: RwLock<BTreeMap<TemplateId, Arc<Template>>>,
    /// Held over a whole change, so that names stay unique.
    turn: Mutex<()>,
}

/// The reason a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    #[error("there is no such template")]
    NotFound,
    #[error("there is already a template named `{0}`: choose another name, or change that one")]
    NameTaken(SpaceName),
    #[error("there are at most {MAX_TEMPLATES} templates: delete one first")]
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
        let all = TEMPLATES.all(&store)?.into_iter().map(|template| (template.id, Arc::new(template)));
        let templates = RwLock::new(all.collect());
        Ok(Self(Arc::new(TemplatesShared { store, templates, turn: Mutex::new(()) })))
    }

    /// Every template, oldest first.
    pub fn all(&self) -> Vec<Arc<Template>> {
        self.0.read().values().cloned().collect()
    }

    pub fn get(&self, id: TemplateId) -> Option<Arc<Template>> {
        self.0.read().get(&id).cloned()
    }

    /// The template of this name or id.
    pub fn find(&self, reference: &str) -> Option<Arc<Template>> {
        let templates = self.0.read();
        let named = templates.values().find(|template| template.spec.name.as_str() == reference);
        named.or_else(|| templates.get(&reference.parse().ok()?)).cloned()
    }

    /// # Errors
    ///
    /// Fails if a field breaks a rule, the name is taken, there are too many, or the store cannot be written.
    pub async fn create(&self, by: Actor, spec: TemplateSpec) -> Result<Arc<Template>, TemplateError> {
        spec.check()?;
        self.0.store.check_room()?;
        let now = Timestamp::now();
        let template = Template { id: TemplateId::new(), spec, created_at: now, updated_at: now };
        self.change(move |shared| {
            if shared.read().len() >= MAX_TEMPLATES {
                return Err(TemplateError::TooMany);
            }
            shared.check_name(&template)?;
            Ok((TemplateEdit::Put(Arc::new(template)), by, "template.create"))
        })
        .await
    }

    /// Puts what `change` makes of a template into its place.
    ///
    /// # Errors
    ///
    /// Fails if it is gone, `change` does, a field breaks a rule, the name is taken, or the store cannot be written.
    pub async fn update<E: From<TemplateError> + Send + 'static>(
        &self,
        by: Actor,
        id: TemplateId,
        change: impl FnOnce(&Template) -> Result<TemplateSpec, E> + Send + 'static,
    ) -> Result<Arc<Template>, E> {
        self.change(move |shared| {
            let before = shared.read().get(&id).cloned().ok_or(TemplateError::NotFound)?;
            let spec = change(&before)?;
            spec.check().map_err(TemplateError::from)?;
            let template = Template { id, spec, created_at: before.created_at, updated_at: Timestamp::now() };
            shared.check_name(&template)?;
            Ok((TemplateEdit::Put(Arc::new(template)), by, "template.update"))
        })
        .await
    }

    /// # Errors
    ///
    /// Fails if it is gone, or the store cannot be written.
    pub async fn delete(&self, by: Actor, id: TemplateId) -> Result<Arc<Template>, TemplateError> {
        self.change(move |shared| {
            let template = shared.read().get(&id).cloned().ok_or(TemplateError::NotFound)?;
            Ok((TemplateEdit::Remove(template), by, "template.delete"))
        })
        .await
    }

    /// Decides on a change with everything before it in sight, writes it with its audit entry, and shows it. It is
    /// carried through even if the caller goes away.
    async fn change<E: From<TemplateError> + Send + 'static>(
        &self,
        decide: impl FnOnce(&TemplatesShared) -> Result<(TemplateEdit, Actor, &'static str), E> + Send + 'static,
    ) -> Result<Arc<Template>, E> {
        let shared = self.0.clone();
        let change = tokio::spawn(async move {
            let _turn = shared.turn.lock().await;
            let (edit, by, action) = decide(&shared)?;
            let template = edit.template().clone();
            let entry = Entry::new(Some(by), action, format!("template:{}", template.id))
                .with(json!({"name": template.spec.name}));
            let written = shared.store.write({
                let edit = edit.clone();
                move |batch| {
                    edit.write(batch);
                    Audit::record(batch, &entry);
                }
            });
            written.await.map_err(TemplateError::from)?;
            let mut templates = shared.templates.write();
            match edit {
                TemplateEdit::Put(template) => drop(templates.insert(template.id, template)),
                TemplateEdit::Remove(template) => drop(templates.remove(&template.id)),
            }
            Ok(template)
        });
        change.await.expect("a change neither panics nor is aborted")
    }
}

#[derive(Clone)]
enum TemplateEdit {
    Put(Arc<Template>),
    Remove(Arc<Template>),
}

impl TemplateEdit {
    const fn template(&self) -> &Arc<Template> {
        match self {
            Self::Put(template) | Self::Remove(template) => template,
        }
    }

    fn write(&self, batch: &mut Batch<'_>) {
        match self {
            Self::Put(template) => TEMPLATES.put(batch, template.id.as_bytes(), template),
            Self::Remove(template) => TEMPLATES.delete(batch, template.id.as_bytes()),
        }
    }
}

impl TemplatesShared {
    fn check_name(&self, template: &Template) -> Result<(), TemplateError> {
        let name = &template.spec.name;
        let taken = self.read().values().any(|other| other.id != template.id && other.spec.name == *name);
        if taken { Err(TemplateError::NameTaken(name.clone())) } else { Ok(()) }
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<TemplateId, Arc<Template>>> {
        self.templates.read()
    }
}
