//! One attempt to deliver an event to a method: choose the formatter, shape the params, call the method.

use super::{MethodGateway, Presence, Subscription};
use crate::{
    delivery::{
        CompletedAttempt, Postponed,
        filters::EventFilters,
        sinks::{
            Sink, SinkTarget, Sinks, body,
            formatter::{FormatError, MethodParams},
        },
    },
    model::{
        event::{Event, EventType},
        id::UserId,
        jsonrpc,
        method::Method,
        owner::Owner,
        sink_spec::SinkKind,
    },
    platform::one_line::one_line,
    scripting::{lua::EventInput, workers::LuaWorkers},
};
use serde_json::value::RawValue;
use std::sync::Arc;

/// The bytes of a method's result, or of its error, that are kept with the attempt.
const KEPT_RESPONSE: usize = 1 << 10;

/// The services that every attempt at a method uses. Cloning it is cheap.
#[derive(Clone)]
pub struct MethodContext {
    /// The sinks, among them the formatters.
    pub sinks: Sinks,
    /// The filters, among them those of formatters.
    pub filters: EventFilters,
    pub workers: LuaWorkers,
    pub methods: Arc<dyn MethodGateway>,
}

/// Makes one attempt to call a method with an event. Ends within the time limits of scripts and of the method. The
/// caller measures the time.
pub async fn attempt(
    context: &MethodContext,
    subscription: &Subscription,
    input: EventInput,
) -> Result<CompletedAttempt, Postponed> {
    Ok(match shape(context, subscription, input).await {
        Ok(MethodParams { json, log }) => {
            CompletedAttempt { log, ..call(&*context.methods, subscription, json).await? }
        }
        Err(ended) => ended?,
    })
}

/// Returns the sinks that may shape events of this type for the method, in order. The first whose filter does not
/// refuse the event does; if there is none, the method gets the default params.
///
/// Each name that the method gives means the sink of the subscription's owner before a global one. A sink that is
/// inactive, is no json-rpc sink or has no pattern that matches is passed over.
pub fn formatters_for(
    sinks: &Sinks,
    subscription: &Subscription,
    kind: &EventType,
) -> impl Iterator<Item = Arc<Sink>> + Send {
    let named = move |name: &String| {
        let owners = [subscription.event_owner(), Owner::Global];
        owners.into_iter().filter_map(|owner| sinks.find(owner, name)).find(is_formatter)
    };
    subscription.event_sinks.iter().filter_map(named).filter(move |sink| sink.events.matches(kind.as_str()))
}

/// Returns the sink that shapes this event for the method; `None` for the default params.
async fn choose_formatter(
    context: &MethodContext,
    subscription: &Subscription,
    event: &Arc<Event>,
) -> Option<Arc<Sink>> {
    for sink in formatters_for(&context.sinks, subscription, &event.kind) {
        if sink.filter.is_none() || context.filters.admits(sink.id, event).await {
            return Some(sink);
        }
    }
    None
}

/// Warnings about names in `event_sinks` that shape no event now, each in one line. A global sink that cannot be used
/// looks like an absent one.
pub fn event_sink_warnings(sinks: &Sinks, owner: UserId, methods: &[Method]) -> Vec<String> {
    let mut warnings = Vec::new();
    for method in methods {
        let name = &method.name;
        for sink in &method.event_sinks {
            let fault = match sinks.find(Owner::User(owner), sink) {
                Some(own) if is_formatter(&own) => continue,
                _ if sinks.find(Owner::Global, sink).is_some_and(|global| is_formatter(&global)) => continue,
                Some(own) if own.kind() != SinkKind::JsonRpc => {
                    format!("that sink has the type {}, and only json-rpc sinks shape events", own.kind())
                }
                Some(_) => "that sink is inactive".to_owned(),
                None => "no json-rpc sink has this name".to_owned(),
            };
            warnings.push(format!("`event_sinks` of `{name}` names `{sink}`: {fault}"));
        }
        if !method.event_sinks.is_empty() && method.definition.events.is_none() {
            warnings.push(format!("`event_sinks` of `{name}` have no effect without `events`"));
        }
    }
    warnings
}

fn is_formatter(sink: &Arc<Sink>) -> bool {
    sink.active && matches!(sink.target, SinkTarget::JsonRpc(_))
}

/// Returns the params of the call, or the result of the attempt if there are none.
async fn shape(
    context: &MethodContext,
    subscription: &Subscription,
    input: EventInput,
) -> Result<MethodParams, Result<CompletedAttempt, Postponed>> {
    let Some(sink) = choose_formatter(context, subscription, &input.event).await else {
        let json = serde_json::from_slice(&body::default(&input.event).bytes).expect("the default body is JSON");
        return Ok(MethodParams { json, log: Vec::new() });
    };
    let SinkTarget::JsonRpc(formatter) = &sink.target else { unreachable!("a formatter is a json-rpc sink") };
    // The sandbox is the sink owner's: a global template may store values that the method's owner must not see.
    let shaped = formatter.format(&context.workers, sink.owner, input).await;
    match (shaped, sink.owner) {
        (Ok(params), Owner::User(_)) => Ok(params),
        // The output and errors of global sinks are only for the people who manage them.
        (Ok(params), Owner::Global) => Ok(MethodParams { log: Vec::new(), ..params }),
        (Err(error), _) => Err(not_shaped(&sink, error)),
    }
}

fn not_shaped(sink: &Sink, error: FormatError) -> Result<CompletedAttempt, Postponed> {
    let completed = match error {
        FormatError::Body(error) => error.into_attempt()?,
        FormatError::NotStructured => CompletedAttempt::failed(error.to_string()),
    };
    let why = completed.error.unwrap_or_default();
    Ok(match sink.owner {
        Owner::User(_) => CompletedAttempt::failed(format!("the sink `{}` did not shape the event: {why}", sink.name)),
        Owner::Global => {
            log::warn!("the global sink `{}` did not shape an event for a method: {why}", sink.name);
            CompletedAttempt::failed(format!(
                "the global sink `{}` did not shape the event; the server's log has more",
                sink.name
            ))
        }
    })
}

async fn call(
    methods: &dyn MethodGateway,
    subscription: &Subscription,
    params: Box<RawValue>,
) -> Result<CompletedAttempt, Postponed> {
    match methods.call(subscription.space, &subscription.method, params).await {
        Ok(jsonrpc::RpcResponse::Result(value)) => {
            Ok(CompletedAttempt { response: Some(beginning(value.get())), ..CompletedAttempt::delivered() })
        }
        Ok(error @ jsonrpc::RpcResponse::Error(_)) => {
            Ok(CompletedAttempt::failed(one_line(&error.to_string(), KEPT_RESPONSE)))
        }
        // A broken connection is not the method's fault; the event is attempted again once the agent is back.
        Err(error) if methods.presence(subscription.space, &subscription.method) == Presence::Away => {
            Err(Postponed(error))
        }
        Err(error) => Ok(CompletedAttempt::failed(one_line(&error, KEPT_RESPONSE))),
    }
}

fn beginning(text: &str) -> String {
    text[..text.floor_char_boundary(KEPT_RESPONSE)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        delivery::{
            sinks::{
                Sink,
                test_support::{SinkFixture, input},
            },
            subscriptions::test_support::{FakeGateway, StoreDirectory, error, method, subscription},
        },
        routing::queue::AttemptOutcome,
    };
    use serde_json::{Value, json};

    struct MethodFixture {
        context: MethodContext,
        gateway: Arc<FakeGateway>,
        subscription: Subscription,
        _directory: StoreDirectory,
        _sink_fixture: SinkFixture,
    }

    impl MethodFixture {
        /// A method that names these formatters and is called for all events.
        fn new(event_sinks: &[&str]) -> Self {
            let (directory, sink_fixture, gateway) = (StoreDirectory::new(), SinkFixture::new(), FakeGateway::ready());
            let sinks =
                Sinks::open(directory.store(), usize::MAX, crate::platform::secret_keys::SecretKeys::for_tests())
                    .unwrap();
            let workers = sink_fixture.context.workers.clone();
            let filters = EventFilters::new(workers.clone(), Arc::default());
            let context = MethodContext { sinks, filters, workers, methods: gateway.clone() };
            let subscription = subscription(UserId::new(), "*", event_sinks);
            Self { context, gateway, subscription, _directory: directory, _sink_fixture: sink_fixture }
        }

        /// Creates a json-rpc sink that shapes events to `{"by": name}`, unless `rest` overrides that.
        async fn sink(&self, owner: Owner, name: &str, events: &str, rest: Value) {
            let template = format!("return {{by = '{name}'}}");
            let mut spec = json!({"name": name, "events": events, "type": "json-rpc", "template": template});
            spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            let (user, word) = match owner {
                Owner::User(user) => (user, "me"),
                Owner::Global => (UserId::new(), "global"),
            };
            spec["owner"] = json!(word);
            let sink = Sink::define(serde_json::from_value(spec).unwrap(), user, None).unwrap();
            self.context.sinks.create(sink, |_| ()).await.unwrap();
        }

        fn mine(&self) -> Owner {
            self.subscription.event_owner()
        }

        async fn attempt(&self) -> CompletedAttempt {
            attempt(&self.context, &self.subscription, input()).await.unwrap()
        }

        /// Delivers an event and returns the params of the call.
        async fn params(&self) -> Value {
            assert_eq!(self.attempt().await.outcome, AttemptOutcome::Delivered);
            serde_json::from_str(&self.gateway.calls().pop().unwrap().params).unwrap()
        }
    }

    #[tokio::test]
    async fn a_formatter_whose_filter_refuses_the_event_is_passed_over_and_one_that_fails_is_not() {
        let fixture = MethodFixture::new(&["refusing", "failing", "last"]);
        fixture.sink(fixture.mine(), "refusing", "*", json!({"filter": "event.data.version == '2.0'"})).await;
        fixture.sink(fixture.mine(), "last", "*", json!({"filter": "event.data.version == '1.0'"})).await;
        let follow = || {
            for sink in fixture.context.sinks.all() {
                fixture.context.filters.set(sink.id, sink.owner, sink.filter.as_ref());
            }
        };
        follow();
        assert_eq!(fixture.params().await, json!({"by": "last"}));
        fixture.sink(fixture.mine(), "failing", "*", json!({"filter": "event.data.a.b"})).await;
        follow();
        assert_eq!(fixture.params().await, json!({"by": "failing"}));
        let failing = fixture.context.sinks.find(fixture.mine(), "failing").unwrap();
        assert_eq!(fixture.context.filters.errors(failing.id).unwrap().count, 1);
    }

    #[tokio::test]
    async fn without_a_formatter_the_params_are_the_four_fields_with_the_data_as_it_came() {
        let fixture = MethodFixture::new(&[]);
        let input = input();
        let attempted = attempt(&fixture.context, &fixture.subscription, input.clone()).await.unwrap();
        assert_eq!((attempted.outcome, attempted.error), (AttemptOutcome::Delivered, None));
        assert_eq!(attempted.response.as_deref(), Some("\"ok\""));
        let call = fixture.gateway.calls().remove(0);
        assert_eq!((call.space, call.method.as_str()), (fixture.subscription.space, "on_event"));
        let expected = format!(
            "{{\"event_id\":\"{}\",\"event_type\":\"custom.deploy.done\",\
             \"event_ts\":\"2023-11-14T22:13:20.000000Z\",\"data\":{}}}",
            input.event.id,
            input.event.data.get()
        );
        assert_eq!(call.params, expected);
    }

    #[tokio::test]
    async fn the_first_matching_formatter_in_declared_order_shapes_the_event_regardless_of_age() {
        let fixture = MethodFixture::new(&["third", "first", "second"]);
        fixture.sink(fixture.mine(), "first", "custom.*", json!({})).await;
        fixture.sink(fixture.mine(), "second", "*", json!({})).await;
        fixture.sink(fixture.mine(), "third", "custom.other.*", json!({})).await;
        fixture.sink(fixture.mine(), "unnamed", "*", json!({})).await;
        assert_eq!(fixture.params().await, json!({"by": "first"}));
    }

    #[tokio::test]
    async fn the_default_params_are_used_if_no_formatters_patterns_match() {
        let fixture = MethodFixture::new(&["a", "absent"]);
        fixture.sink(fixture.mine(), "a", "space.*", json!({})).await;
        assert_eq!(fixture.params().await["event_type"], "custom.deploy.done");
    }

    #[tokio::test]
    async fn a_name_means_the_owners_own_sink_before_a_global_one() {
        let fixture = MethodFixture::new(&["f"]);
        fixture.sink(Owner::Global, "f", "*", json!({"template": "return {by = 'everybody'}"})).await;
        assert_eq!(fixture.params().await, json!({"by": "everybody"}));
        fixture.sink(fixture.mine(), "f", "*", json!({"template": "return {by = 'owner'}"})).await;
        assert_eq!(fixture.params().await, json!({"by": "owner"}));
    }

    #[tokio::test]
    async fn a_name_that_shapes_nothing_is_told_with_the_reason() {
        let fixture = MethodFixture::new(&[]);
        let Owner::User(owner) = fixture.mine() else { panic!("it is a user's") };
        fixture.sink(fixture.mine(), "mine", "*", json!({})).await;
        fixture.sink(fixture.mine(), "off", "*", json!({"active": false})).await;
        fixture.sink(Owner::Global, "off", "*", json!({})).await;
        fixture.sink(fixture.mine(), "idle", "*", json!({"active": false})).await;
        fixture.sink(Owner::Global, "hidden", "*", json!({"active": false})).await;
        fixture.sink(Owner::User(UserId::new()), "theirs", "*", json!({})).await;
        let methods =
            [method("a", Some("*"), &["mine", "off", "idle", "hidden", "theirs"]), method("b", None, &["mine"])];
        let expected = [
            "`event_sinks` of `a` names `idle`: that sink is inactive",
            "`event_sinks` of `a` names `hidden`: no json-rpc sink has this name",
            "`event_sinks` of `a` names `theirs`: no json-rpc sink has this name",
            "`event_sinks` of `b` have no effect without `events`",
        ];
        assert_eq!(event_sink_warnings(&fixture.context.sinks, owner, &methods), expected);
    }

    #[tokio::test]
    async fn another_users_sink_shapes_nothing() {
        let fixture = MethodFixture::new(&["f"]);
        fixture.sink(Owner::User(UserId::new()), "f", "*", json!({})).await;
        assert_eq!(fixture.params().await["event_type"], "custom.deploy.done");
    }

    #[tokio::test]
    async fn a_sink_that_is_inactive_or_no_json_rpc_sink_is_passed_over() {
        let fixture = MethodFixture::new(&["off", "script", "on"]);
        fixture.sink(fixture.mine(), "off", "*", json!({"active": false})).await;
        let script = json!({"type": "script", "template": null, "script": {"source": "return"}});
        fixture.sink(fixture.mine(), "script", "*", script).await;
        fixture.sink(Owner::Global, "on", "*", json!({})).await;
        assert_eq!(fixture.params().await, json!({"by": "on"}));
    }

    #[tokio::test]
    async fn a_formatter_that_fails_fails_the_attempt_and_nothing_is_called() {
        let fixture = MethodFixture::new(&["f"]);
        fixture.sink(fixture.mine(), "f", "*", json!({"template": "error('no luck')"})).await;
        let attempted = fixture.attempt().await;
        assert_eq!((attempted.outcome, attempted.retry_after), (AttemptOutcome::Failed, None), "{attempted:?}");
        let why = attempted.error.unwrap();
        assert!(why.contains("`f`") && why.contains("no luck"), "{why}");
        assert!(fixture.gateway.calls().is_empty());
    }

    #[tokio::test]
    async fn the_output_of_an_own_formatter_is_kept_and_that_of_a_global_one_is_not() {
        let fixture = MethodFixture::new(&["f"]);
        fixture.sink(Owner::Global, "f", "*", json!({"template": "print('secret') return {}"})).await;
        assert_eq!(fixture.attempt().await.log, [""; 0]);
        fixture.sink(fixture.mine(), "f", "*", json!({"template": "print('mine') return {}"})).await;
        assert_eq!(fixture.attempt().await.log, ["mine"]);
        let fixture = MethodFixture::new(&["f"]);
        fixture.sink(Owner::Global, "f", "*", json!({"template": "error('secret')"})).await;
        let why = fixture.attempt().await.error.unwrap();
        assert!(why.contains("`f`") && !why.contains("secret"), "{why}");
    }

    #[tokio::test]
    async fn a_json_rpc_error_fails_the_attempt_in_one_line_with_its_code() {
        let fixture = MethodFixture::new(&[]);
        fixture.gateway.respond(|_| error(-32050, "out of\n  paper"));
        let attempted = fixture.attempt().await;
        assert_eq!(attempted.error.as_deref(), Some("out of paper (-32050)"));
        assert_eq!((attempted.outcome, attempted.retry_after), (AttemptOutcome::Failed, None));
    }

    #[tokio::test]
    async fn a_missing_response_fails_the_attempt_unless_the_connection_broke() {
        let fixture = MethodFixture::new(&[]);
        fixture.gateway.respond(|_| Err("it did not reply within 30 s".to_owned()));
        let attempted = fixture.attempt().await;
        assert_eq!(attempted.error.as_deref(), Some("it did not reply within 30 s"));
        assert_eq!(attempted.outcome, AttemptOutcome::Failed);
        let gateway = Arc::downgrade(&fixture.gateway);
        fixture.gateway.respond(move |_| {
            gateway.upgrade().unwrap().set(Presence::Away);
            Err("its space went away".to_owned())
        });
        let postponed = attempt(&fixture.context, &fixture.subscription, input()).await;
        assert_eq!(postponed.unwrap_err(), Postponed("its space went away".to_owned()));
    }

    #[tokio::test]
    async fn a_long_error_is_cut() {
        let fixture = MethodFixture::new(&[]);
        fixture.gateway.respond(|_| error(1, &"ä".repeat(5000)));
        let why = fixture.attempt().await.error.unwrap();
        assert!(why.len() <= KEPT_RESPONSE && why.starts_with("ää"), "{why}");
    }
}
