//! The registry's index: registers and withdraws the methods of a space, and finds them by owner, name and MCP tool.

use super::{
    provider::{Provider, RegisteredServer},
    published::{MethodSchemas, PublishedMethod},
    refusals::{Refusals, RegistrationRefusal},
    viewer::Viewer,
};
use crate::{
    calls::agent_link::AgentLink,
    identity::Identity,
    model::{
        id::{GroupId, SpaceId, UserId},
        method::{Method, MethodInterface, MethodScope, MethodServerHealth, ServerMode},
    },
};
use parking_lot::RwLock;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::sync::watch;

/// All registrations. Cloning the handle is cheap.
#[derive(Clone, Default)]
pub struct Registry(Arc<RegistryShared>);

#[derive(Default)]
struct RegistryShared {
    state: RwLock<RegistryState>,
    refusals: Refusals,
    /// Notified whenever a method is published or withdrawn.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct RegistryState {
    owners: HashMap<UserId, OwnerMethods>,
    spaces: HashMap<SpaceId, ServedMethods>,
    /// Methods that others than their owner may see: a listing goes through these, and never through private ones.
    shared: BTreeSet<(UserId, Arc<str>)>,
}

/// The methods of one owner.
#[derive(Default)]
struct OwnerMethods {
    by_name: BTreeMap<Arc<str>, Arc<PublishedMethod>>,
    /// Method names by MCP tool name.
    tools: HashMap<String, Arc<str>>,
}

/// The methods that one space serves.
struct ServedMethods {
    owner: UserId,
    generation: u64,
    server: Arc<RegisteredServer>,
    methods: Vec<Arc<Method>>,
}

/// A space's request to serve these methods from now on.
pub struct ServeRequest {
    pub space: SpaceId,
    pub space_name: Arc<str>,
    pub owner: UserId,
    pub link: Arc<AgentLink>,
    pub generation: u64,
    /// The timeout of each call.
    pub timeout: Duration,
    pub mode: ServerMode,
    pub methods: Vec<Method>,
}

/// A refused request. The space still serves what it served before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MethodConflict {
    #[error(
        "`{method}` is published by space `{space}` with another {field}: spaces that publish the same name must agree \
         on it, or choose another name"
    )]
    Definition { method: Arc<str>, space: Arc<str>, field: &'static str },
    #[error("`{method}` would have the MCP name `{tool}`, which `{other}` of space `{space}` has already")]
    Tool { method: Arc<str>, tool: String, other: Arc<str>, space: Arc<str> },
}

impl Registry {
    /// Checks whether [`Registry::register`] would accept the request now.
    ///
    /// # Errors
    ///
    /// Fails as [`Registry::register`] does.
    pub fn check(&self, request: &ServeRequest) -> Result<(), MethodConflict> {
        self.0.state.read().check(request)
    }

    /// Makes the space serve exactly the requested methods.
    ///
    /// # Errors
    ///
    /// Fails if another space of the same owner, whose agent is linked, publishes one of the names with another definition;
    /// nothing changes then. A definition of an agent that is away gives way: a registration lives with its session.
    pub fn register(&self, request: ServeRequest) -> Result<(), MethodConflict> {
        let mut state = self.0.state.write();
        state.check(&request)?;
        let ServeRequest { space, space_name, owner, link, generation, timeout, mode, methods } = request;
        let methods: Vec<_> = methods.into_iter().map(Arc::new).collect();
        let health = RwLock::new(MethodServerHealth::Running);
        let server = Arc::new(RegisteredServer { space, space_name, link, generation, timeout, mode, health });
        let served = ServedMethods { owner, generation, server: server.clone(), methods: methods.clone() };
        let before = state.spaces.insert(space, served);
        // A method that stays keeps its position among the providers and its count of calls in flight.
        for old in before.into_iter().flat_map(|served| served.methods) {
            if !methods.iter().any(|method| method.name == old.name) {
                state.withdraw(owner, space, &old.name);
            }
        }
        for method in methods {
            state.publish(owner, &method, &server);
        }
        drop(state);
        self.0.refusals.clear(space);
        self.0.changed.send_replace(());
        Ok(())
    }

    /// Notes that a registration over this link was refused, unless an earlier one over it is in force.
    pub fn note_refusal(&self, link: &Arc<AgentLink>, refusal: RegistrationRefusal) {
        let in_force = |served: &ServedMethods| Arc::ptr_eq(&served.server.link, link);
        if !self.0.state.read().spaces.get(&refusal.space).is_some_and(in_force) {
            self.0.refusals.note(refusal);
        }
    }

    /// Forgets the refused registration of a space whose agent is gone.
    pub fn clear_refusal(&self, space: SpaceId) {
        self.0.refusals.clear(space);
    }

    /// The refused registration of a space.
    pub fn refusal(&self, space: SpaceId) -> Option<RegistrationRefusal> {
        self.0.refusals.of_space(space)
    }

    /// The refused registrations of an owner's spaces.
    pub fn refusals_of(&self, owner: UserId) -> Vec<RegistrationRefusal> {
        self.0.refusals.of_owner(owner)
    }

    /// The shared methods that name this group.
    pub fn limited_to(&self, group: GroupId) -> Vec<Arc<PublishedMethod>> {
        let state = self.0.state.read();
        let shared = state.shared.iter().filter_map(|(owner, name)| state.owners.get(owner)?.by_name.get(name));
        shared.filter(|published| published.method.definition.groups.contains(&group)).cloned().collect()
    }

    /// Removes all methods that the space serves, and returns their number.
    pub fn unregister(&self, space: SpaceId) -> usize {
        self.0.refusals.clear(space);
        let mut state = self.0.state.write();
        let Some(served) = state.spaces.remove(&space) else { return 0 };
        for method in &served.methods {
            state.withdraw(served.owner, space, &method.name);
        }
        drop(state);
        self.0.changed.send_replace(());
        served.methods.len()
    }

    /// Sets the health of the space's method server; a report about an earlier registration is ignored.
    pub fn set_health(&self, space: SpaceId, generation: u64, health: MethodServerHealth) {
        let state = self.0.state.read();
        if let Some(served) = state.spaces.get(&space).filter(|served| served.generation == generation) {
            *served.server.health.write() = health;
        }
    }

    /// The method with this owner and canonical name, without a check of visibility.
    pub fn find(&self, owner: UserId, name: &str) -> Option<Arc<PublishedMethod>> {
        self.0.state.read().owners.get(&owner)?.by_name.get(name).cloned()
    }

    /// The method that this owner publishes as the MCP tool of that name.
    pub fn tool(&self, owner: UserId, tool: &str) -> Option<Arc<PublishedMethod>> {
        let state = self.0.state.read();
        let methods = state.owners.get(&owner)?;
        methods.by_name.get(methods.tools.get(tool)?).cloned()
    }

    /// The method that the viewer calls by this name; `None` for a hidden one as for an absent one.
    pub fn resolve(&self, viewer: &Viewer, name: &str, identity: &Identity) -> Option<Arc<PublishedMethod>> {
        let (owner, name) = viewer.owner_and_name(name, identity)?;
        self.find(owner, name).filter(|method| viewer.sees(method))
    }

    /// Notified at every change of the published methods.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// The provider of a method in this space.
    pub fn provider(&self, space: SpaceId, name: &str) -> Option<Arc<Provider>> {
        let state = self.0.state.read();
        let owner = state.spaces.get(&space)?.owner;
        let published = state.owners.get(&owner)?.by_name.get(name)?;
        published.providers.iter().find(|provider| provider.space() == space).cloned()
    }

    /// The methods that the viewer sees: their own by name, then those that others share with them.
    pub fn visible(&self, viewer: &Viewer) -> Vec<Arc<PublishedMethod>> {
        let state = self.0.state.read();
        let own = viewer.user().and_then(|user| state.owners.get(&user));
        let own = own.into_iter().flat_map(|methods| methods.by_name.values());
        let shared = state.shared.iter().filter_map(|(owner, name)| state.owners.get(owner)?.by_name.get(name));
        let shared = shared.filter(|method| viewer.user() != Some(method.owner) && viewer.sees(method));
        own.chain(shared).cloned().collect()
    }
}

impl RegistryState {
    fn check(&self, request: &ServeRequest) -> Result<(), MethodConflict> {
        let Some(methods) = self.owners.get(&request.owner) else { return Ok(()) };
        let linked_others = |name: &str| {
            let providers = methods.by_name.get(name).into_iter().flat_map(|published| &published.providers);
            providers.filter(|provider| provider.space() != request.space && provider.link().is_up())
        };
        for method in &request.methods {
            for other in linked_others(&method.name) {
                if let Some(field) = difference(&other.method.definition, &method.definition) {
                    let space = other.space_name().clone();
                    return Err(MethodConflict::Definition { method: method.name.clone(), space, field });
                }
            }
            let tool = method.tool_name();
            if method.definition.mcp_tool
                && let Some(other) = methods.tools.get(&tool).filter(|other| **other != method.name)
                && let Some(provider) = linked_others(other).next()
            {
                let space = provider.space_name().clone();
                return Err(MethodConflict::Tool { method: method.name.clone(), tool, other: other.clone(), space });
            }
        }
        Ok(())
    }

    fn publish(&mut self, owner: UserId, method: &Arc<Method>, server: &Arc<RegisteredServer>) {
        let methods = self.owners.entry(owner).or_default();
        let before = methods.by_name.get(&method.name);
        let mut providers = before.map_or_else(Vec::new, |published| published.providers.clone());
        // Those that differ are of agents that are away, as the check has made sure.
        providers.retain(|provider| {
            provider.space() == server.space || difference(&provider.method.definition, &method.definition).is_none()
        });
        let position = providers.iter().position(|provider| provider.space() == server.space);
        match position {
            Some(at) => providers[at] = Arc::new(Provider::new(method, server, Some(&providers[at]))),
            None => providers.push(Arc::new(Provider::new(method, server, None))),
        }
        methods.remove_tool(method);
        if method.definition.mcp_tool {
            methods.tools.insert(method.tool_name(), method.name.clone());
        }
        let schemas = MethodSchemas::of(&method.definition);
        let published = Arc::new(PublishedMethod { owner, method: method.clone(), providers, schemas });
        methods.by_name.insert(method.name.clone(), published);
        match method.definition.scope {
            MethodScope::Shared => drop(self.shared.insert((owner, method.name.clone()))),
            MethodScope::Private => drop(self.shared.remove(&(owner, method.name.clone()))),
        }
    }

    fn withdraw(&mut self, owner: UserId, space: SpaceId, name: &Arc<str>) {
        let Some(methods) = self.owners.get_mut(&owner) else { return };
        let Some(published) = methods.by_name.get_mut(name) else { return };
        let rest: Vec<_> = published.providers.iter().filter(|provider| provider.space() != space).cloned().collect();
        if !rest.is_empty() {
            let (method, schemas) = (published.method.clone(), published.schemas.clone());
            *published = Arc::new(PublishedMethod { owner, method, providers: rest, schemas });
            return;
        }
        let method = published.method.clone();
        methods.remove_tool(&method);
        methods.by_name.remove(name);
        if methods.by_name.is_empty() {
            self.owners.remove(&owner);
        }
        self.shared.remove(&(owner, name.clone()));
    }
}

impl OwnerMethods {
    fn remove_tool(&mut self, method: &Method) {
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
#[path = "index_tests.rs"]
mod tests;
