//! What a caller is offered: the methods it sees that are published as tools, and the stored tools it finds, by their tool
//! names.
//!
//! A name means one thing to one caller. The dots of a name are lost in the tool's, so that two can come to the same one:
//! the caller's own method goes first, then its own stored tool, then everybody's, then the methods that others share, those
//! of the user who was there earlier before those of a later one.
//!
//! A name that is too long for common clients, as it can be with the owner's before it, is no tool's: one such tool would
//! spoil the whole list to them.

use crate::{
    calls::registry::{Published, Registry, Viewer},
    identity::Identity,
    model::{
        id::UserId,
        method::{MAX_TOOL_NAME, Method},
        owner::Owner,
        script_spec::ScriptKind,
    },
    platform::store::Change,
    scripting::scripts::{Script, Scripts},
};
use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};
use tokio::sync::watch;

/// Where offers are found. Cloning it is cheap.
#[derive(Clone)]
pub struct Catalog {
    registry: Registry,
    identity: Identity,
    scripts: Scripts,
    /// Told whenever a stored tool may be another.
    shelved: Arc<watch::Sender<()>>,
}

/// One tool, as one caller sees it.
pub struct Offer {
    /// The tool's name.
    pub name: String,
    /// The owner's name; `global` for what is everybody's.
    pub owner: String,
    pub source: Source,
}

/// What is behind it.
pub enum Source {
    Method {
        /// As the caller calls it.
        name: String,
        published: Arc<Published>,
    },
    Script(Arc<Script>),
}

/// What an offer list comes to: two that look alike to their caller have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u64);

/// Tells when offers may have changed, for whomever.
pub struct Changes {
    registry: watch::Receiver<()>,
    identity: watch::Receiver<()>,
    scripts: watch::Receiver<()>,
}

impl Catalog {
    pub fn new(registry: Registry, identity: Identity, scripts: Scripts) -> Self {
        let shelved = Arc::new(watch::Sender::new(()));
        let told = shelved.clone();
        scripts.listen(move |change| {
            let (Change::Created(script) | Change::Updated { after: script, .. } | Change::Deleted(script)) = change;
            if script.kind == ScriptKind::Tool {
                told.send_replace(());
            }
        });
        Self { registry, identity, scripts, shelved }
    }

    /// Whoever this user is now, with the groups and permissions it has now.
    pub fn viewer(&self, user: UserId) -> Viewer {
        Viewer::of_owner(Owner::User(user), &self.identity)
    }

    /// All that the viewer is offered at this moment, by name.
    pub fn offers(&self, viewer: &Viewer) -> Vec<Offer> {
        let (own, shared): (Vec<_>, Vec<_>) = self.methods(viewer).partition(|offer| offer.is_of(viewer));
        let mut offers = BTreeMap::new();
        for offer in own.into_iter().chain(self.stored(viewer)).chain(shared) {
            offers.entry(offer.name.clone()).or_insert(offer);
        }
        offers.into_values().collect()
    }

    /// The tool that the viewer calls by this name; `None` for one that is hidden as for one that is not there.
    pub fn find(&self, viewer: &Viewer, name: &str) -> Option<Offer> {
        if name.len() > MAX_TOOL_NAME {
            return None;
        }
        // This is all that most callers ask for, and needs no look at what there is besides.
        let own = viewer.user().and_then(|user| self.registry.tool(user, name));
        if let Some(published) = own {
            let owner = self.identity.user(published.owner)?;
            return Some(Offer::of_method(viewer, owner.name.as_str(), published));
        }
        let stored = self.stored(viewer).find(|offer| offer.name == name);
        // What others share is all named after them.
        let shared = || self.methods(viewer).find(|offer| !offer.is_of(viewer) && offer.name == name);
        stored.or_else(|| name.starts_with("user_").then(shared)?)
    }

    /// The methods among them: the viewer's own, then others' by their owners' ids, which grow with time.
    fn methods(&self, viewer: &Viewer) -> impl Iterator<Item = Offer> {
        let mut names = HashMap::new();
        let visible = self.registry.visible(viewer).into_iter().filter(|method| method.method.definition.mcp_tool);
        visible.filter_map(move |published| {
            let owner = names.entry(published.owner).or_insert_with(|| self.identity.user(published.owner));
            // An owner who was deleted this moment has no name to call by.
            let offer = Offer::of_method(viewer, owner.as_ref()?.name.as_str(), published);
            (offer.name.len() <= MAX_TOOL_NAME).then_some(offer)
        })
    }

    /// The stored tools among them.
    fn stored(&self, viewer: &Viewer) -> impl Iterator<Item = Offer> {
        let scripts = viewer.user().into_iter().flat_map(|user| self.scripts.tools_for(user));
        scripts.filter_map(|script| {
            let owner = match script.owner {
                Owner::Global => "global".to_owned(),
                Owner::User(user) => self.identity.user(user)?.name.to_string(),
            };
            Some(Offer { name: script.mcp_name(), owner, source: Source::Script(script) })
        })
    }

    /// What the offers to this user come to now.
    pub fn digest(&self, user: UserId) -> Digest {
        let mut hasher = DefaultHasher::new();
        for offer in self.offers(&self.viewer(user)) {
            offer.hash(&mut hasher);
        }
        Digest(hasher.finish())
    }

    pub fn changes(&self) -> Changes {
        let (registry, identity) = (self.registry.changes(), self.identity.changes());
        Changes { registry, identity, scripts: self.shelved.subscribe() }
    }
}

impl Offer {
    fn of_method(viewer: &Viewer, owner: &str, published: Arc<Published>) -> Self {
        let name = viewer.name_of(&published, owner);
        Self { name: Method::tool_named(&name), owner: owner.to_owned(), source: Source::Method { name, published } }
    }

    fn is_of(&self, viewer: &Viewer) -> bool {
        matches!(&self.source, Source::Method { published, .. } if viewer.user() == Some(published.owner))
    }

    /// All that its caller is shown of it.
    fn hash(&self, hasher: &mut DefaultHasher) {
        (&self.name, &self.owner).hash(hasher);
        match &self.source {
            Source::Method { name, published } => {
                let Published { method, schemas, .. } = &**published;
                (name, &method.definition.description, &method.definition.keywords).hash(hasher);
                schemas.params.as_ref().map(|schema| schema.get()).hash(hasher);
                schemas.result.as_ref().map(|schema| schema.get()).hash(hasher);
            }
            Source::Script(script) => {
                let schema = script.params_schema.as_ref().map(ToString::to_string);
                (&script.name, &script.description, schema).hash(hasher);
            }
        }
    }
}

impl Digest {
    /// As it is told to clients, who know it as the id of an event.
    pub fn to_text(self) -> String {
        format!("{:016x}", self.0)
    }

    pub fn from_text(text: &str) -> Option<Self> {
        u64::from_str_radix(text, 16).ok().map(Self)
    }
}

impl Changes {
    /// Has the next one be at hand already.
    pub fn mark(&mut self) {
        self.registry.mark_changed();
    }

    /// Waits no more for those that were.
    pub fn forget(&mut self) {
        self.registry.mark_unchanged();
        self.identity.mark_unchanged();
        self.scripts.mark_unchanged();
    }

    /// Resolves with the next change, or with one that was not waited for.
    pub async fn next(&mut self) {
        // Neither ends while there is a catalog.
        tokio::select! {
            _ = self.registry.changed() => {}
            _ = self.identity.changed() => {}
            _ = self.scripts.changed() => {}
        }
    }
}
