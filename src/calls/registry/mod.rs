//! Who serves which method, and for whom: every registration that a linked agent holds with this server (SPEC D3).
//!
//! [`viewer`] says who sees a method and under which name, [`provider`] which of several spaces gets a call. A
//! registration is taken as a whole or not at all. It stays while its agent is away, unavailable but listed; the space's
//! next registration replaces it, and stopping the space removes it.

mod provider;
mod viewer;

pub use provider::{Provider, ProviderHealth, Turn};
pub use viewer::Viewer;

use crate::{
    calls::agent_link::Link,
    model::{
        agent_protocol::MethodServerHealth,
        id::{SpaceId, UserId},
        method::{Method, MethodInterface, MethodScope},
    },
};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use provider::Server;
use serde_json::{Value, value::RawValue};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::sync::watch;

/// All registrations. Cloning the handle is cheap.
#[derive(Clone, Default)]
pub struct Registry(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: RwLock<State>,
    /// Told whenever something is published or withdrawn.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    owners: HashMap<UserId, Shelf>,
    spaces: HashMap<SpaceId, Held>,
    /// What somebody besides its owner may see: a listing goes through these, and never through private ones.
    shared: BTreeSet<(UserId, Arc<str>)>,
}

/// One owner's methods.
#[derive(Default)]
struct Shelf {
    methods: BTreeMap<Arc<str>, Arc<Published>>,
    /// By MCP name.
    tools: HashMap<String, Arc<str>>,
}

/// What a space holds.
struct Held {
    owner: UserId,
    generation: u64,
    server: Arc<Server>,
    methods: Vec<Arc<Method>>,
}

/// A method as its callers see it, with everybody who serves it. A change makes a new one, so that a call in flight
/// keeps what it found.
pub struct Published {
    pub owner: UserId,
    /// Of the space that registered it last; the others agree in all that is visible.
    pub method: Arc<Method>,
    /// In the order they registered.
    pub providers: Vec<Arc<Provider>>,
    pub schemas: Schemas,
}

/// A method's schemas as listings show them, written out once.
#[derive(Clone)]
pub struct Schemas {
    pub params: Option<Arc<RawValue>>,
    pub result: Option<Arc<RawValue>>,
}

/// What a space wants to serve from now on.
pub struct Claim {
    pub space: SpaceId,
    pub space_name: Arc<str>,
    pub owner: UserId,
    pub link: Arc<Link>,
    pub generation: u64,
    /// For each call.
    pub timeout: Duration,
    pub methods: Vec<Method>,
}

/// Why a claim was refused. What the space served before, it still serves.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    #[error(
        "`{method}` is published by space `{space}` with another {field}: spaces that publish the same name must agree \
         on it, or choose another name"
    )]
    Definition { method: Arc<str>, space: Arc<str>, field: &'static str },
    #[error("`{method}` would have the MCP name `{tool}`, which `{other}` of space `{space}` has already")]
    Tool { method: Arc<str>, tool: String, other: Arc<str>, space: Arc<str> },
}

impl Registry {
    /// Whether [`Registry::register`] would take the claim now.
    ///
    /// # Errors
    ///
    /// As that.
    pub fn check(&self, claim: &Claim) -> Result<(), Conflict> {
        self.read().check(claim)
    }

    /// Makes the space serve exactly the claimed methods.
    ///
    /// # Errors
    ///
    /// Fails if another space of the same owner publishes one of the names otherwise; nothing changes then.
    pub fn register(&self, claim: Claim) -> Result<(), Conflict> {
        let mut state = self.write();
        state.check(&claim)?;
        let Claim { space, space_name, owner, link, generation, timeout, methods } = claim;
        let methods: Vec<_> = methods.into_iter().map(Arc::new).collect();
        let server = Arc::new(Server::new(space, space_name, link, generation, timeout));
        let held = Held { owner, generation, server: server.clone(), methods: methods.clone() };
        let before = state.spaces.insert(space, held);
        // A method that stays keeps its place among the providers and its calls in flight.
        for old in before.into_iter().flat_map(|held| held.methods) {
            if !methods.iter().any(|method| method.name == old.name) {
                state.withdraw(owner, space, &old.name);
            }
        }
        for method in methods {
            state.publish(owner, &method, &server);
        }
        drop(state);
        self.0.changed.send_replace(());
        Ok(())
    }

    /// Removes all that the space serves; says how many methods that were.
    pub fn unregister(&self, space: SpaceId) -> usize {
        let mut state = self.write();
        let Some(held) = state.spaces.remove(&space) else { return 0 };
        for method in &held.methods {
            state.withdraw(held.owner, space, &method.name);
        }
        drop(state);
        self.0.changed.send_replace(());
        held.methods.len()
    }

    /// Notes how the space's method server is; word of an earlier registration's is ignored.
    pub fn note_health(&self, space: SpaceId, generation: u64, health: MethodServerHealth) {
        if let Some(held) = self.read().spaces.get(&space).filter(|held| held.generation == generation) {
            held.server.note(health);
        }
    }

    /// The method of this owner and canonical name, whoever may see it.
    pub fn find(&self, owner: UserId, name: &str) -> Option<Arc<Published>> {
        self.read().owners.get(&owner)?.methods.get(name).cloned()
    }

    /// The method that this owner publishes as the MCP tool of that name.
    pub fn tool(&self, owner: UserId, tool: &str) -> Option<Arc<Published>> {
        let state = self.read();
        let shelf = state.owners.get(&owner)?;
        shelf.methods.get(shelf.tools.get(tool)?).cloned()
    }

    /// Tells of every change in what is published, whoever sees it.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// The space's own part in serving a method.
    pub fn provider(&self, space: SpaceId, name: &str) -> Option<Arc<Provider>> {
        let state = self.read();
        let owner = state.spaces.get(&space)?.owner;
        let published = state.owners.get(&owner)?.methods.get(name)?;
        published.providers.iter().find(|provider| provider.space() == space).cloned()
    }

    /// What the viewer sees: their own methods by name, then those that others share with them.
    pub fn visible(&self, viewer: &Viewer) -> Vec<Arc<Published>> {
        let state = self.read();
        let own = viewer.user().and_then(|user| state.owners.get(&user));
        let own = own.into_iter().flat_map(|shelf| shelf.methods.values());
        let shared = state.shared.iter().filter_map(|(owner, name)| state.owners.get(owner)?.methods.get(name));
        let shared = shared.filter(|method| viewer.user() != Some(method.owner) && viewer.sees(method));
        own.chain(shared).cloned().collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.0.state.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.0.state.write()
    }
}

impl State {
    fn check(&self, claim: &Claim) -> Result<(), Conflict> {
        let Some(shelf) = self.owners.get(&claim.owner) else { return Ok(()) };
        let others = |name: &str| {
            let published = shelf.methods.get(name)?;
            let other = published.providers.iter().find(|provider| provider.space() != claim.space)?;
            Some((published, other.space_name().clone()))
        };
        for method in &claim.methods {
            if let Some((published, space)) = others(&method.name)
                && let Some(field) = difference(&published.method.definition, &method.definition)
            {
                return Err(Conflict::Definition { method: method.name.clone(), space, field });
            }
            let tool = method.tool_name();
            if method.definition.mcp_tool
                && let Some(other) = shelf.tools.get(&tool).filter(|other| **other != method.name)
                && let Some((_, space)) = others(other)
            {
                return Err(Conflict::Tool { method: method.name.clone(), tool, other: other.clone(), space });
            }
        }
        Ok(())
    }

    fn publish(&mut self, owner: UserId, method: &Arc<Method>, server: &Arc<Server>) {
        let shelf = self.owners.entry(owner).or_default();
        let before = shelf.methods.get(&method.name);
        let mut providers = before.map_or_else(Vec::new, |published| published.providers.clone());
        let place = providers.iter().position(|provider| provider.space() == server.space());
        match place {
            Some(place) => providers[place] = Arc::new(Provider::new(method, server, Some(&providers[place]))),
            None => providers.push(Arc::new(Provider::new(method, server, None))),
        }
        shelf.forget_tool(method);
        if method.definition.mcp_tool {
            shelf.tools.insert(method.tool_name(), method.name.clone());
        }
        let schemas = Schemas::of(&method.definition);
        let published = Arc::new(Published { owner, method: method.clone(), providers, schemas });
        shelf.methods.insert(method.name.clone(), published);
        match method.definition.scope {
            MethodScope::Shared => drop(self.shared.insert((owner, method.name.clone()))),
            MethodScope::Private => drop(self.shared.remove(&(owner, method.name.clone()))),
        }
    }

    fn withdraw(&mut self, owner: UserId, space: SpaceId, name: &Arc<str>) {
        let Some(shelf) = self.owners.get_mut(&owner) else { return };
        let Some(published) = shelf.methods.get_mut(name) else { return };
        let rest: Vec<_> = published.providers.iter().filter(|provider| provider.space() != space).cloned().collect();
        if !rest.is_empty() {
            let (method, schemas) = (published.method.clone(), published.schemas.clone());
            *published = Arc::new(Published { owner, method, providers: rest, schemas });
            return;
        }
        let method = published.method.clone();
        shelf.forget_tool(&method);
        shelf.methods.remove(name);
        if shelf.methods.is_empty() {
            self.owners.remove(&owner);
        }
        self.shared.remove(&(owner, name.clone()));
    }
}

impl Schemas {
    fn of(definition: &MethodInterface) -> Self {
        let written = |schema: &Option<Value>| {
            let json = schema.as_ref().map(ToString::to_string);
            json.map(|json| RawValue::from_string(json).expect("a value is JSON").into())
        };
        Self { params: written(&definition.params_schema), result: written(&definition.result_schema) }
    }
}

impl Shelf {
    fn forget_tool(&mut self, method: &Method) {
        let tool = method.tool_name();
        if self.tools.get(&tool) == Some(&method.name) {
            self.tools.remove(&tool);
        }
    }
}

/// The first visible field in which two definitions differ.
fn difference(one: &MethodInterface, two: &MethodInterface) -> Option<&'static str> {
    [
        ("description", one.description == two.description),
        ("keywords", one.keywords == two.keywords),
        ("scope", one.scope == two.scope),
        ("groups", one.groups == two.groups),
        ("mcp_tool", one.mcp_tool == two.mcp_tool),
        ("params_schema", one.params_schema == two.params_schema),
        ("result_schema", one.result_schema == two.result_schema),
        ("events", one.events == two.events),
    ]
    .into_iter()
    .find_map(|(field, same)| (!same).then_some(field))
}

#[cfg(test)]
mod tests;
