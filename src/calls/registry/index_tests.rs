//! Tests of registration, conflicts between spaces, and the choice of a provider.

use super::*;
use crate::{
    calls::agent_link::{AgentCall, AgentOutboxReceiver},
    model::{
        id::GroupId,
        method::{Registration, ServerMode},
        timestamp::Timestamp,
    },
};
use serde_json::{Value, json};
use std::time::Duration;

fn user(n: u8) -> UserId {
    UserId::from_slice(&[n; 16]).unwrap()
}

/// A space that registers methods; its link is up while this lives.
struct ServingSpace {
    id: SpaceId,
    name: &'static str,
    link: Arc<AgentLink>,
    _messages: AgentOutboxReceiver,
}

impl ServingSpace {
    fn new(name: &'static str) -> Self {
        let id = SpaceId::new();
        let (link, _messages) = AgentLink::new(id);
        Self { id, name, link, _messages }
    }

    fn request(&self, owner: UserId, methods: Value) -> ServeRequest {
        let registration = json!({"server": {"command": "x"}, "methods": methods});
        let registration: Registration = serde_json::from_value(registration).unwrap();
        ServeRequest {
            space: self.id,
            space_name: self.name.into(),
            owner,
            link: self.link.clone(),
            generation: 1,
            timeout: registration.server.timeout,
            mode: registration.server.mode,
            methods: registration.publish(self.name, |_| GroupId::from_slice(&[7; 16])).unwrap(),
        }
    }
}

fn method(name: &str) -> Value {
    json!({"name": name, "local_name": name, "description": "d"})
}

fn with(name: &str, fields: Value) -> Value {
    let mut method = method(name);
    method.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    method
}

fn names(registry: &Registry, owner: UserId) -> Vec<String> {
    registry
        .0
        .state
        .read()
        .owners
        .get(&owner)
        .map_or_else(Vec::new, |methods| methods.by_name.keys().map(ToString::to_string).collect())
}

#[tokio::test]
async fn a_call_to_a_serial_server_has_time_for_the_turns_of_those_before_it() {
    let (registry, space) = (Registry::default(), ServingSpace::new("a"));
    let mut request = space.request(user(1), json!([method("x")]));
    (request.mode, request.timeout) = (ServerMode::Serial, Duration::from_secs(3));
    registry.register(request).unwrap();
    let provider = registry.0.state.read().owners[&user(1)].by_name["x"].providers[0].clone();
    assert_eq!(provider.reply_limit(), Duration::from_secs(2 * (6 + 10)));
    let link = space.link.clone();
    let _waiting = tokio::spawn(async move {
        let call = AgentCall { generation: 1, local_name: "x", params: None };
        link.call(call, Duration::from_secs(60)).await
    });
    tokio::task::yield_now().await;
    assert_eq!(provider.reply_limit(), Duration::from_secs(3 * (6 + 10)));
}

#[test]
fn a_registration_replaces_all_that_the_space_registered_before() {
    let (registry, space) = (Registry::default(), ServingSpace::new("a"));
    registry.register(space.request(user(1), json!([method("x"), method("y")]))).unwrap();
    registry.register(space.request(user(1), json!([method("y"), method("z")]))).unwrap();
    assert_eq!(names(&registry, user(1)), ["y", "z"]);
    assert_eq!(registry.unregister(space.id), 2);
    assert_eq!(registry.unregister(space.id), 0);
    let state = registry.0.state.read();
    assert!(state.owners.is_empty() && state.spaces.is_empty() && state.shared.is_empty());
}

#[test]
fn spaces_may_share_a_name_only_if_every_visible_field_is_the_same() {
    let registry = Registry::default();
    let (one, two) = (ServingSpace::new("one"), ServingSpace::new("two"));
    registry.register(one.request(user(1), json!([method("x")]))).unwrap();
    for (fields, field) in [
        (json!({"description": "other"}), "description"),
        (json!({"keywords": ["k"]}), "keywords"),
        (json!({"scope": "shared"}), "scope"),
        (json!({"groups": ["ops"]}), "groups"),
        (json!({"mcp_tool": true}), "mcp_tool"),
        (json!({"params_schema": {}}), "params_schema"),
        (json!({"result_schema": {}}), "result_schema"),
        (json!({"events": ["*"]}), "events"),
    ] {
        let refused = registry.register(two.request(user(1), json!([with("x", fields), method("y")])));
        assert_eq!(refused, Err(MethodConflict::Definition { method: "x".into(), space: "one".into(), field }));
    }
    assert_eq!(names(&registry, user(1)), ["x"], "a refused registration changes nothing");
    // Fields that callers do not see may differ, and another owner may use the name with another definition.
    registry.register(two.request(user(1), json!([with("x", json!({"local_name": "other"}))]))).unwrap();
    registry
        .register(ServingSpace::new("three").request(user(2), json!([with("x", json!({"description": "e"}))])))
        .unwrap();
    assert_eq!(registry.find(user(1), "x").unwrap().providers.len(), 2);
}

#[test]
fn a_space_alone_with_a_name_may_change_its_definition() {
    let (registry, space) = (Registry::default(), ServingSpace::new("a"));
    registry.register(space.request(user(1), json!([with("x.y", json!({"mcp_tool": true}))]))).unwrap();
    registry.register(space.request(user(1), json!([with("x.y", json!({"scope": "shared"}))]))).unwrap();
    assert_eq!(registry.find(user(1), "x.y").unwrap().method.definition.scope, MethodScope::Shared);
    registry.register(space.request(user(1), json!([with("x_y", json!({"mcp_tool": true}))]))).unwrap();
    assert_eq!(names(&registry, user(1)), ["x_y"]);
    assert!(registry.0.state.read().shared.is_empty());
}

#[test]
fn two_methods_of_one_owner_cannot_have_one_mcp_name() {
    let registry = Registry::default();
    let (one, two) = (ServingSpace::new("one"), ServingSpace::new("two"));
    let tool = |name| json!([with(name, json!({"mcp_tool": true}))]);
    registry.register(one.request(user(1), tool("a.b"))).unwrap();
    let refused = registry.register(two.request(user(1), tool("a_b"))).unwrap_err();
    assert_eq!(refused.to_string(), "`a_b` would have the MCP name `a_b`, which `a.b` of space `one` has already");
    // A method that is no tool has no MCP name, and does not remove that of another.
    registry.register(two.request(user(1), json!([method("a_b")]))).unwrap();
    registry.register(two.request(user(1), json!([method("a_b"), method("c")]))).unwrap();
    assert!(registry.register(ServingSpace::new("three").request(user(1), tool("a-b"))).is_ok());
    assert!(registry.register(ServingSpace::new("four").request(user(1), tool("a_b"))).is_err());
    registry.register(two.request(user(2), tool("a_b"))).unwrap();
}

#[test]
fn a_call_goes_to_the_provider_with_the_fewest_in_flight_and_then_to_the_first_registered() {
    let registry = Registry::default();
    let spaces = [ServingSpace::new("one"), ServingSpace::new("two"), ServingSpace::new("three")];
    for space in &spaces {
        registry.register(space.request(user(1), json!([method("x")]))).unwrap();
    }
    let published = registry.find(user(1), "x").unwrap();
    let places: Vec<_> = (0..4).map(|_| published.take_place().unwrap()).collect();
    let went: Vec<_> = places.iter().map(|place| place.space_name().to_string()).collect();
    assert_eq!(went, ["one", "two", "three", "one"]);
    let mut places = places.into_iter();
    drop((places.next(), places.next()));
    // Left in flight: one at `three`, one at `one`.
    assert_eq!(&**published.take_place().unwrap().space_name(), "two");
    drop(places);
    assert!(published.providers.iter().all(|provider| provider.in_flight() == 0));
}

#[test]
fn a_space_that_registers_again_keeps_its_position_and_its_count() {
    let registry = Registry::default();
    let spaces = [ServingSpace::new("one"), ServingSpace::new("two")];
    for space in &spaces {
        registry.register(space.request(user(1), json!([method("x")]))).unwrap();
    }
    let place = registry.find(user(1), "x").unwrap().take_place().unwrap();
    registry.register(spaces[0].request(user(1), json!([method("x")]))).unwrap();
    let published = registry.find(user(1), "x").unwrap();
    assert_eq!(&**published.take_place().unwrap().space_name(), "two", "`one` still has a call in flight");
    drop(place);
    assert_eq!(&**published.take_place().unwrap().space_name(), "one");
}

#[test]
fn a_provider_that_is_not_running_stays_listed_and_gets_no_call() {
    let registry = Registry::default();
    let (one, two) = (ServingSpace::new("one"), ServingSpace::new("two"));
    for space in [&one, &two] {
        registry.register(space.request(user(1), json!([method("x")]))).unwrap();
    }
    let restarting = MethodServerHealth::Restarting { reason: "exit 1".to_owned() };
    registry.set_health(one.id, 7, restarting.clone());
    let published = registry.find(user(1), "x").unwrap();
    assert_eq!(published.providers[0].health(), MethodServerHealth::Running, "that was another generation");
    registry.set_health(one.id, 1, restarting.clone());
    assert_eq!(published.providers[0].health(), restarting);
    assert_eq!(&**published.take_place().unwrap().space_name(), "two");
    two.link.down();
    assert_eq!(published.providers[1].health(), MethodServerHealth::Unlinked);
    assert!(published.take_place().is_none());
    assert_eq!(registry.find(user(1), "x").unwrap().providers.len(), 2);
    registry.set_health(one.id, 1, MethodServerHealth::Running);
    assert_eq!(&**published.take_place().unwrap().space_name(), "one");
}

#[tokio::test]
async fn a_dropped_call_frees_its_place() {
    let registry = Registry::default();
    let space = ServingSpace::new("one");
    registry.register(space.request(user(1), json!([method("x")]))).unwrap();
    let published = registry.find(user(1), "x").unwrap();
    let calling = published.clone();
    let call = tokio::spawn(async move {
        let place = calling.take_place().unwrap();
        let call = AgentCall { generation: 1, local_name: "x", params: None };
        place.link().call(call, Duration::from_secs(60)).await.is_ok()
    });
    while published.providers[0].in_flight() == 0 {
        tokio::task::yield_now().await;
    }
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(published.providers[0].in_flight(), 0);
}

#[test]
fn a_definition_of_an_agent_that_is_away_gives_way_and_is_refused_when_it_returns() {
    let registry = Registry::default();
    let (away, here, agreeing) = (ServingSpace::new("away"), ServingSpace::new("here"), ServingSpace::new("agreeing"));
    let tool = |name: &str| with(name, json!({"mcp_tool": true}));
    let old = json!([with("x", json!({"keywords": ["old"]})), tool("a.b"), method("y")]);
    registry.register(away.request(user(1), old.clone())).unwrap();
    registry.register(agreeing.request(user(1), json!([method("y")]))).unwrap();
    let new = || here.request(user(1), json!([method("x"), tool("a_b"), method("y")]));
    assert!(matches!(registry.register(new()), Err(MethodConflict::Definition { field: "keywords", .. })));
    away.link.down();
    registry.register(new()).unwrap();
    let spaces = |name: &str| -> Vec<_> {
        registry
            .find(user(1), name)
            .unwrap()
            .providers
            .iter()
            .map(|provider| provider.space_name().to_string())
            .collect()
    };
    assert_eq!(
        (spaces("x"), spaces("y")),
        (vec!["here".into()], vec!["away".into(), "agreeing".into(), "here".into()])
    );
    assert_eq!(&*registry.tool(user(1), "a_b").unwrap().method.name, "a_b");
    // The agent is back, with another link.
    let (link, _messages) = AgentLink::new(away.id);
    let returned = ServeRequest { link, ..away.request(user(1), old) };
    let conflict = registry.register(returned).unwrap_err();
    assert!(matches!(conflict, MethodConflict::Definition { space, .. } if &*space == "here"));
    assert_eq!(registry.unregister(away.id), 3);
    assert_eq!((spaces("x"), spaces("y")), (vec!["here".into()], vec!["agreeing".into(), "here".into()]));
}

#[test]
fn a_refusal_is_noted_unless_something_is_in_force_over_the_link_and_keeps_its_time() {
    let (registry, space) = (Registry::default(), ServingSpace::new("a"));
    let refusal = |reason: &str, since: i64| RegistrationRefusal {
        space: space.id,
        space_name: space.name.into(),
        owner: user(1),
        reason: reason.to_owned(),
        since: Timestamp::from_micros(since),
    };
    registry.note_refusal(&space.link, refusal("no", 1));
    registry.note_refusal(&space.link, refusal("no", 2));
    assert_eq!(registry.refusal(space.id), Some(refusal("no", 1)));
    registry.note_refusal(&space.link, refusal("never", 3));
    assert_eq!(registry.refusals_of(user(1)), [refusal("never", 3)]);
    assert_eq!(registry.refusals_of(user(2)), []);
    registry.register(space.request(user(1), json!([method("x")]))).unwrap();
    assert_eq!(registry.refusal(space.id), None);
    registry.note_refusal(&space.link, refusal("no", 4));
    assert_eq!(registry.refusal(space.id), None, "the registration before is in force");
    let (link, _messages) = AgentLink::new(space.id);
    registry.note_refusal(&link, refusal("no", 5));
    assert_eq!(registry.refusal(space.id), Some(refusal("no", 5)));
    registry.unregister(space.id);
    assert_eq!(registry.refusal(space.id), None);
}
