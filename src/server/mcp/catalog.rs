//! The tools that a caller is offered, by tool name: the visible methods that are published as tools, and stored tools.
//!
//! A name means one tool to one caller. A tool's name has no dots, so that two names can become the same one. Then the
//! caller's own method wins, then its own stored tool, then a global one, then methods that others share, in the order in
//! which their owners' accounts were made.
//!
//! A tool whose name, with its owner's in front, is too long for common clients is not offered: one such tool would make
//! the whole list unreadable to them.

use crate::{
    calls::registry::{PublishedMethod, Registry, Viewer},
    identity::Identity,
    model::{
        id::UserId,
        method::{MAX_TOOL_NAME, Method},
        owner::Owner,
        script_spec::ScriptKind,
    },
    platform::collection::Change,
    scripting::scripts::{Script, Scripts},
};
use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};
use tokio::sync::watch;

/// Finds offers. Cloning the handle is cheap.
#[derive(Clone)]
pub struct Catalog {
    registry: Registry,
    identity: Identity,
    scripts: Scripts,
    /// Notified of every change to a stored tool.
    scripts_changed: Arc<watch::Sender<()>>,
}

/// One tool, as one caller sees it.
pub struct ToolOffer {
    /// The tool's name.
    pub name: String,
    /// The owner's name; `global` for a global tool.
    pub owner: String,
    pub source: ToolSource,
}

/// The method or script behind a tool.
pub enum ToolSource {
    Method {
        /// The name by which the caller calls it.
        name: String,
        published: Arc<PublishedMethod>,
    },
    Script(Arc<Script>),
}

/// Digest of a list of offers: two lists that look alike to their caller have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogDigest(u64);

/// Notifications that somebody's offers may have changed.
pub struct CatalogChanges {
    registry: watch::Receiver<()>,
    identity: watch::Receiver<()>,
    scripts: watch::Receiver<()>,
}

impl Catalog {
    pub fn new(registry: Registry, identity: Identity, scripts: Scripts) -> Self {
        let scripts_changed = Arc::new(watch::Sender::new(()));
        let changed = scripts_changed.clone();
        scripts.listen(move |change| {
            let (Change::Created(script) | Change::Updated { after: script, .. } | Change::Deleted(script)) = change;
            if script.kind == ScriptKind::Tool {
                changed.send_replace(());
            }
        });
        Self { registry, identity, scripts, scripts_changed }
    }

    /// The user as a viewer, with its present groups and permissions.
    pub fn viewer(&self, user: UserId) -> Viewer {
        Viewer::of_owner(Owner::User(user), &self.identity)
    }

    /// All offers to the viewer now, by name.
    pub fn offers(&self, viewer: &Viewer) -> Vec<ToolOffer> {
        let (own, shared): (Vec<_>, Vec<_>) = self.methods(viewer).partition(|offer| offer.is_of(viewer));
        let mut offers = BTreeMap::new();
        for offer in own.into_iter().chain(self.stored(viewer)).chain(shared) {
            offers.entry(offer.name.clone()).or_insert(offer);
        }
        offers.into_values().collect()
    }

    /// The tool that the viewer calls by this name; `None` if it is hidden or absent.
    pub fn find(&self, viewer: &Viewer, name: &str) -> Option<ToolOffer> {
        if name.len() > MAX_TOOL_NAME {
            return None;
        }
        // Most callers call their own methods, and those are found without listing anything.
        let own = viewer.user().and_then(|user| self.registry.tool(user, name));
        if let Some(published) = own {
            let owner = self.identity.user(published.owner)?;
            return Some(ToolOffer::of_method(viewer, owner.name.as_str(), published));
        }
        let stored = self.stored(viewer).find(|offer| offer.name == name);
        // Shared methods of others carry their owner's name.
        let shared = || self.methods(viewer).find(|offer| !offer.is_of(viewer) && offer.name == name);
        stored.or_else(|| name.starts_with("user_").then(shared)?)
    }

    /// Offers that are methods: the viewer's own, then others' by their owners' ids, which grow with time.
    fn methods(&self, viewer: &Viewer) -> impl Iterator<Item = ToolOffer> {
        let mut names = HashMap::new();
        let visible = self.registry.visible(viewer).into_iter().filter(|method| method.method.definition.mcp_tool);
        visible.filter_map(move |published| {
            let owner = names.entry(published.owner).or_insert_with(|| self.identity.user(published.owner));
            // An owner that was just deleted has no name to call by.
            let offer = ToolOffer::of_method(viewer, owner.as_ref()?.name.as_str(), published);
            (offer.name.len() <= MAX_TOOL_NAME).then_some(offer)
        })
    }

    /// Offers that are stored tools.
    fn stored(&self, viewer: &Viewer) -> impl Iterator<Item = ToolOffer> {
        let scripts = viewer.user().into_iter().flat_map(|user| self.scripts.tools_for(user));
        scripts.filter_map(|script| {
            let owner = match script.owner {
                Owner::Global => "global".to_owned(),
                Owner::User(user) => self.identity.user(user)?.name.to_string(),
            };
            Some(ToolOffer { name: script.mcp_name(), owner, source: ToolSource::Script(script) })
        })
    }

    /// Digest of the present offers to a user.
    pub fn digest(&self, user: UserId) -> CatalogDigest {
        let mut hasher = DefaultHasher::new();
        for offer in self.offers(&self.viewer(user)) {
            offer.hash(&mut hasher);
        }
        CatalogDigest(hasher.finish())
    }

    pub fn changes(&self) -> CatalogChanges {
        let (registry, identity) = (self.registry.changes(), self.identity.changes());
        CatalogChanges { registry, identity, scripts: self.scripts_changed.subscribe() }
    }
}

impl ToolOffer {
    fn of_method(viewer: &Viewer, owner: &str, published: Arc<PublishedMethod>) -> Self {
        let name = viewer.name_of(&published, owner);
        Self {
            name: Method::tool_named(&name),
            owner: owner.to_owned(),
            source: ToolSource::Method { name, published },
        }
    }

    fn is_of(&self, viewer: &Viewer) -> bool {
        matches!(&self.source, ToolSource::Method { published, .. } if viewer.user() == Some(published.owner))
    }

    /// Hashes everything that the caller is shown of the tool.
    fn hash(&self, hasher: &mut DefaultHasher) {
        (&self.name, &self.owner).hash(hasher);
        match &self.source {
            ToolSource::Method { name, published } => {
                let PublishedMethod { method, schemas, .. } = &**published;
                (name, &method.definition.description, &method.definition.keywords).hash(hasher);
                schemas.params.as_ref().map(|schema| schema.get()).hash(hasher);
                schemas.result.as_ref().map(|schema| schema.get()).hash(hasher);
            }
            ToolSource::Script(script) => {
                let schema = script.params_schema.as_ref().map(ToString::to_string);
                (&script.name, &script.description, schema).hash(hasher);
            }
        }
    }
}

impl CatalogDigest {
    /// The digest as clients get it, as the id of an event.
    pub fn to_text(self) -> String {
        format!("{:016x}", self.0)
    }

    pub fn from_text(text: &str) -> Option<Self> {
        u64::from_str_radix(text, 16).ok().map(Self)
    }
}

impl CatalogChanges {
    /// Makes the next wait resolve at once.
    pub fn mark_changed(&mut self) {
        self.registry.mark_changed();
    }

    /// Forgets the changes so far.
    pub fn mark_unchanged(&mut self) {
        self.registry.mark_unchanged();
        self.identity.mark_unchanged();
        self.scripts.mark_unchanged();
    }

    /// Resolves with the next change, or at once if there was one since the last wait.
    pub async fn next(&mut self) {
        // No sender is dropped while the catalog exists.
        tokio::select! {
            _ = self.registry.changed() => {}
            _ = self.identity.changed() => {}
            _ = self.scripts.changed() => {}
        }
    }
}
