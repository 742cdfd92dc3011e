//! The registration of a space's methods: its schemas and filters are checked, its events subscribed to, its methods
//! published.

use super::hub::AgentHub;
use crate::{
    calls::{
        agent_link::AgentLink,
        registry::{RegistrationRefusal, ServeRequest},
    },
    delivery::subscriptions::event_sink_warnings,
    model::{
        id::UserId,
        method::{GroupIds, Method, MethodScope, Registration},
        owner::Owner,
        timestamp::Timestamp,
    },
    scripting::{
        lua::{ScriptError, refuse_large_integers},
        workers::ProgramText,
    },
    spaces::Space,
};
use std::{collections::HashSet, sync::Arc};

impl AgentHub {
    /// Publishes a registration as a whole or not at all, and returns its groups and warnings about it; `known` are the
    /// groups that the agent was told before. An error is the reason, in one line for people.
    pub(super) async fn register(
        &self,
        link: &Arc<AgentLink>,
        generation: u64,
        registration: Registration,
        known: GroupIds,
    ) -> Result<(GroupIds, Vec<String>), String> {
        let (deps, id) = (&self.0.deps, link.space());
        let space = deps.spaces.get(id).ok_or("the space is gone")?;
        let (groups, name) = (self.resolve_groups(&space, &registration, &known), space.name.to_string());
        let found = groups.clone();
        let (timeout, mode) = (registration.server.timeout, registration.server.mode);
        // Schemas are compiled to be checked, which takes long if they are large. The owner has one such check at a
        // time, and it ends with the link.
        let turn = self.0.checking.acquire(space.owner).await.ok_or("too many registrations of this owner wait")?;
        let checked_link = link.clone();
        let published = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            registration.publish_while(&name, |group| found.get(group).copied(), || checked_link.is_up())
        });
        let methods = published.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        self.check_filters(space.owner, &methods).await?;
        let request = ServeRequest {
            space: id,
            space_name: space.name.to_string().into(),
            owner: space.owner,
            link: link.clone(),
            generation,
            timeout,
            mode,
            methods: methods.clone(),
        };
        // Subscriptions come first, because a method that is visible must get its events. The lock keeps other
        // registrations of the owner out in between.
        let lock = self.0.lock_registration(link).await;
        if !link.is_up() {
            // This link must not replace what a newer one has registered meanwhile.
            return Err("the link is over".to_owned());
        }
        deps.registry.check(&request).map_err(|conflict| conflict.to_string())?;
        let subscribed = deps.subscriptions.replace(id, space.name.as_str(), space.owner, &methods).await;
        subscribed.map_err(|error| format!("cannot be stored: {error}"))?;
        deps.registry.register(request).map_err(|conflict| conflict.to_string())?;
        drop(lock);
        if !self.0.is_deployed(id) {
            self.withdraw(id);
            return Err("the space was stopped".to_owned());
        }
        log::info!("space `{}` publishes {} methods", space.name, methods.len());
        deps.deliverer.resume_space(id);
        let mut warnings = event_sink_warnings(&deps.sinks, space.owner, &methods);
        warnings.extend(filter_warnings(&methods));
        warnings.extend(group_warnings(&methods));
        Ok((groups, warnings))
    }

    /// Checks that the filters of methods compile, in a worker of their owner.
    async fn check_filters(&self, owner: UserId, methods: &[Method]) -> Result<(), String> {
        let mut checked = HashSet::new();
        for (index, method) in methods.iter().enumerate() {
            let Some(filter) = method.filter.as_ref().filter(|filter| checked.insert(filter.as_str())) else {
                continue;
            };
            let program = ProgramText::filter(filter.as_str());
            // Any other error is a lack of room and says nothing about the filter.
            if let Err(error @ ScriptError::Compile(_)) =
                self.0.deps.workers.compile(&program, Owner::User(owner)).await
            {
                return Err(format!("`methods[{index}].filter`: {error}"));
            }
        }
        Ok(())
    }

    /// The groups that a registration names. A name that the agent knows the group of means that one, whatever it is
    /// called by now; otherwise the group of that name. A known group that was deleted stays: no user is in it, so it
    /// shows its methods to nobody, and the others are not affected.
    fn resolve_groups(&self, space: &Space, registration: &Registration, known: &GroupIds) -> GroupIds {
        let identity = &self.0.deps.identity;
        let resolve = |reference: &str| {
            let before = known.get(reference).copied();
            let current = before.filter(|id| identity.group(*id).is_some());
            let current = current.or_else(|| identity.find_group(reference).map(|group| group.id));
            if let (None, Some(id)) = (current, before) {
                log::warn!(
                    "space `{}`: the group `{reference}` ({id}) of its registration was deleted and shows its methods to nobody",
                    space.name
                );
            }
            Some((reference.to_owned(), current.or(before)?))
        };
        registration.group_references().filter_map(resolve).collect()
    }

    /// Keeps the reason of a refused registration, for the owner to see.
    pub(super) fn note_refusal(&self, link: &Arc<AgentLink>, reason: &str) {
        let deps = &self.0.deps;
        let Some(space) = deps.spaces.get(link.space()).filter(|_| link.is_up()) else { return };
        log::warn!("space `{}`: its registration is refused: {reason}", space.name);
        let refusal = RegistrationRefusal {
            space: space.id,
            space_name: space.name.to_string().into(),
            owner: space.owner,
            reason: reason.to_owned(),
            since: Timestamp::now(),
        };
        deps.registry.note_refusal(link, refusal);
    }
}

/// Warnings about groups of methods that only their owner sees.
fn group_warnings(methods: &[Method]) -> impl Iterator<Item = String> {
    let limits_nobody =
        |method: &&Method| method.definition.scope == MethodScope::Private && !method.definition.groups.is_empty();
    let warning = |method: &Method| format!("`groups` of `{}` have no effect: its scope is private", method.name);
    methods.iter().filter(limits_nobody).map(warning)
}

/// Warnings about filters that equal no field.
fn filter_warnings(methods: &[Method]) -> impl Iterator<Item = String> {
    methods.iter().filter_map(|method| {
        let error = refuse_large_integers(method.filter.as_ref()?.as_str()).err()?;
        Some(format!("`filter` of `{}`: {}", method.name, error.message))
    })
}
