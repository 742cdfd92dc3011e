//! One attempt to give an event to a method: choose who shapes it, shape it, call.

use super::{Door, Presence, Subscription};
use crate::{
    delivery::sinks::{
        Attempted, Book, Outcome, Sink, Target, body,
        formatter::{FormatError, Params},
    },
    model::{event::EventType, jsonrpc, owner::Owner},
    scripting::lua::{EventInput, Runtime},
};
use serde_json::value::RawValue;
use std::{sync::Arc, time::Instant};

/// How much of a method's answer is kept with the attempt, and of its error as the reason.
const KEPT: usize = 1 << 10;

/// What every attempt needs of the daemon. Cloning it is cheap.
#[derive(Clone)]
pub struct Context {
    /// Where the formatters are.
    pub book: Book,
    pub runtime: Runtime,
    pub door: Arc<dyn Door>,
}

/// Makes one attempt to call a method with an event. It never fails otherwise than in its outcome, and ends within the
/// limits for scripts and the method's own timeout.
pub async fn attempt(context: &Context, subscription: &Subscription, input: EventInput) -> Attempted {
    let started = Instant::now();
    let attempted = match shape(context, subscription, input).await {
        Ok(Params { json, log }) => Attempted { log, ..call(&*context.door, subscription, json).await },
        Err(unshaped) => unshaped,
    };
    Attempted { duration: started.elapsed(), ..attempted }
}

/// The sink that shapes events of this type for the method, if it is not to be the default (SPEC 6.4 rule 3).
///
/// Of the names that the method gives, in its order, each means its owner's own sink before a global one; what is no
/// json-rpc sink, or is switched off, is passed over. The first whose own patterns match is it.
pub fn formatter(book: &Book, subscription: &Subscription, kind: &EventType) -> Option<Arc<Sink>> {
    let usable = |sink: &Arc<Sink>| sink.active && matches!(sink.target, Target::JsonRpc(_));
    let meant = |name: &String| {
        let owners = [subscription.hears(), Owner::Global];
        owners.into_iter().filter_map(|owner| book.find(owner, name)).find(usable)
    };
    subscription.event_sinks.iter().filter_map(meant).find(|sink| sink.events.matches(kind.as_str()))
}

/// The params to call with, or the attempt that it came to instead.
async fn shape(context: &Context, subscription: &Subscription, input: EventInput) -> Result<Params, Attempted> {
    let Some(sink) = formatter(&context.book, subscription, &input.event.kind) else {
        let json = serde_json::from_slice(&body::default(&input.event).bytes).expect("the default body is JSON");
        return Ok(Params { json, log: Vec::new() });
    };
    let Target::JsonRpc(formatter) = &sink.target else { unreachable!("a formatter is a json-rpc sink") };
    // In the sandbox of whoever wrote it: a global template may keep what the method's owner must not see.
    let shaped = formatter.format(&context.runtime, sink.owner, input).await;
    match (shaped, sink.owner) {
        (Ok(params), Owner::User(_)) => Ok(params),
        // What everybody's sinks print and why they fail is for those who manage them.
        (Ok(params), Owner::Global) => Ok(Params { log: Vec::new(), ..params }),
        (Err(error), owner) => Err(unshaped(&sink, &error, owner)),
    }
}

fn unshaped(sink: &Sink, error: &FormatError, owner: Owner) -> Attempted {
    let failed = match error {
        FormatError::Body(error) => Attempted::unrendered(error),
        FormatError::NotStructured => Attempted::failed(error.to_string()),
    };
    let Outcome::Failed { why, .. } = failed.outcome else { return failed };
    match owner {
        Owner::User(_) => Attempted::failed(format!("the sink `{}` did not shape the event: {why}", sink.name)),
        Owner::Global => {
            log::warn!("the global sink `{}` did not shape an event for a method: {why}", sink.name);
            Attempted::failed(format!(
                "the global sink `{}` did not shape the event; the server's log has more",
                sink.name
            ))
        }
    }
}

async fn call(door: &dyn Door, subscription: &Subscription, params: Box<RawValue>) -> Attempted {
    let answer = door.call(subscription.space, &subscription.method, params).await;
    match answer {
        Ok(jsonrpc::Outcome::Result(value)) => {
            Attempted { response: Some(beginning(value.get())), ..Attempted::new(Outcome::Delivered) }
        }
        Ok(error @ jsonrpc::Outcome::Error(_)) => Attempted::failed(one_line(&error.to_string())),
        // The method is not to blame for a link that broke, and gets the event again once there is another.
        Err(why) if door.presence(subscription.space, &subscription.method) == Presence::Away => {
            Attempted::new(Outcome::Postponed(why))
        }
        Err(why) => Attempted::failed(one_line(&why)),
    }
}

fn one_line(text: &str) -> String {
    beginning(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn beginning(text: &str) -> String {
    text[..text.floor_char_boundary(KEPT)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        delivery::{
            sinks::{
                Sink,
                test_support::{Workbench, input},
            },
            subscriptions::test_support::{FakeDoor, Scratch, error, subscription},
        },
        model::id::UserId,
    };
    use serde_json::{Value, json};

    struct Bench {
        context: Context,
        door: Arc<FakeDoor>,
        subscription: Subscription,
        _scratch: Scratch,
        _workbench: Workbench,
    }

    impl Bench {
        /// A method that names these formatters and is called for everything.
        fn new(event_sinks: &[&str]) -> Self {
            let (scratch, workbench, door) = (Scratch::new(), Workbench::new(), FakeDoor::open());
            let book = Book::open(scratch.store(), usize::MAX).unwrap();
            let context = Context { book, runtime: workbench.context.runtime.clone(), door: door.clone() };
            let subscription = subscription(UserId::new(), "*", event_sinks);
            Self { context, door, subscription, _scratch: scratch, _workbench: workbench }
        }

        /// A json-rpc sink that shapes events to `{"by": name}`, unless told otherwise.
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
            self.context.book.create(sink, |_| ()).await.unwrap();
        }

        fn mine(&self) -> Owner {
            self.subscription.hears()
        }

        async fn attempt(&self) -> Attempted {
            attempt(&self.context, &self.subscription, input()).await
        }

        /// Delivers an event and returns what the method was called with.
        async fn params(&self) -> Value {
            assert_eq!(self.attempt().await.outcome, Outcome::Delivered);
            serde_json::from_str(&self.door.calls().pop().unwrap().params).unwrap()
        }
    }

    #[tokio::test]
    async fn without_a_formatter_the_params_are_the_four_fields_with_the_data_as_it_came() {
        let bench = Bench::new(&[]);
        let input = input();
        let attempted = attempt(&bench.context, &bench.subscription, input.clone()).await;
        assert_eq!((attempted.outcome, attempted.error), (Outcome::Delivered, None));
        assert_eq!(attempted.response.as_deref(), Some("\"ok\""));
        let call = bench.door.calls().remove(0);
        assert_eq!((call.space, call.method.as_str()), (bench.subscription.space, "on_event"));
        let expected = format!(
            "{{\"event_id\":\"{}\",\"event_type\":\"custom.deploy.done\",\
             \"event_ts\":\"2023-11-14T22:13:20.000000Z\",\"data\":{}}}",
            input.event.id,
            input.event.data.get()
        );
        assert_eq!(call.params, expected);
    }

    #[tokio::test]
    async fn the_first_that_matches_in_declared_order_shapes_the_event_whichever_is_older() {
        let bench = Bench::new(&["third", "first", "second"]);
        bench.sink(bench.mine(), "first", "custom.*", json!({})).await;
        bench.sink(bench.mine(), "second", "*", json!({})).await;
        bench.sink(bench.mine(), "third", "custom.other.*", json!({})).await;
        bench.sink(bench.mine(), "unnamed", "*", json!({})).await;
        assert_eq!(bench.params().await, json!({"by": "first"}));
    }

    #[tokio::test]
    async fn if_no_formatters_own_patterns_match_the_default_is_used() {
        let bench = Bench::new(&["a", "absent"]);
        bench.sink(bench.mine(), "a", "space.*", json!({})).await;
        assert_eq!(bench.params().await["event_type"], "custom.deploy.done");
    }

    #[tokio::test]
    async fn a_name_means_the_owners_own_sink_before_a_global_one() {
        let bench = Bench::new(&["f"]);
        bench.sink(Owner::Global, "f", "*", json!({"template": "return {by = 'everybody'}"})).await;
        assert_eq!(bench.params().await, json!({"by": "everybody"}));
        bench.sink(bench.mine(), "f", "*", json!({"template": "return {by = 'owner'}"})).await;
        assert_eq!(bench.params().await, json!({"by": "owner"}));
    }

    #[tokio::test]
    async fn another_users_sink_shapes_nothing() {
        let bench = Bench::new(&["f"]);
        bench.sink(Owner::User(UserId::new()), "f", "*", json!({})).await;
        assert_eq!(bench.params().await["event_type"], "custom.deploy.done");
    }

    #[tokio::test]
    async fn what_is_switched_off_or_no_json_rpc_sink_is_passed_over() {
        let bench = Bench::new(&["off", "script", "on"]);
        bench.sink(bench.mine(), "off", "*", json!({"active": false})).await;
        let script = json!({"type": "script", "template": null, "script": {"source": "return"}});
        bench.sink(bench.mine(), "script", "*", script).await;
        bench.sink(Owner::Global, "on", "*", json!({})).await;
        assert_eq!(bench.params().await, json!({"by": "on"}));
    }

    #[tokio::test]
    async fn a_formatter_that_fails_fails_the_attempt_and_nothing_is_called() {
        let bench = Bench::new(&["f"]);
        bench.sink(bench.mine(), "f", "*", json!({"template": "error('no luck')"})).await;
        let attempted = bench.attempt().await;
        assert!(matches!(attempted.outcome, Outcome::Failed { retry_after: None, .. }), "{attempted:?}");
        let why = attempted.error.unwrap();
        assert!(why.contains("`f`") && why.contains("no luck"), "{why}");
        assert!(bench.door.calls().is_empty());
    }

    #[tokio::test]
    async fn what_an_own_formatter_prints_is_kept_and_a_global_ones_is_not_told() {
        let bench = Bench::new(&["f"]);
        bench.sink(Owner::Global, "f", "*", json!({"template": "print('secret') return {}"})).await;
        assert_eq!(bench.attempt().await.log, [""; 0]);
        bench.sink(bench.mine(), "f", "*", json!({"template": "print('mine') return {}"})).await;
        assert_eq!(bench.attempt().await.log, ["mine"]);
        let bench = Bench::new(&["f"]);
        bench.sink(Owner::Global, "f", "*", json!({"template": "error('secret')"})).await;
        let why = bench.attempt().await.error.unwrap();
        assert!(why.contains("`f`") && !why.contains("secret"), "{why}");
    }

    #[tokio::test]
    async fn a_json_rpc_error_fails_the_attempt_in_one_line_with_its_code() {
        let bench = Bench::new(&[]);
        bench.door.answer(|_| error(-32050, "out of\n  paper"));
        let attempted = bench.attempt().await;
        assert_eq!(attempted.error.as_deref(), Some("out of paper (-32050)"));
        assert!(matches!(attempted.outcome, Outcome::Failed { retry_after: None, .. }));
    }

    #[tokio::test]
    async fn no_answer_fails_the_attempt_unless_it_is_the_link_that_broke() {
        let bench = Bench::new(&[]);
        bench.door.answer(|_| Err("it did not reply within 30 s".to_owned()));
        let attempted = bench.attempt().await;
        assert_eq!(attempted.error.as_deref(), Some("it did not reply within 30 s"));
        assert!(matches!(attempted.outcome, Outcome::Failed { .. }));
        let door = Arc::downgrade(&bench.door);
        bench.door.answer(move |_| {
            door.upgrade().unwrap().set(false);
            Err("its space went away".to_owned())
        });
        assert!(matches!(bench.attempt().await.outcome, Outcome::Postponed(_)));
    }

    #[tokio::test]
    async fn a_long_answer_is_kept_in_part() {
        let bench = Bench::new(&[]);
        bench.door.answer(|_| error(1, &"ä".repeat(5000)));
        let why = bench.attempt().await.error.unwrap();
        assert!(why.len() <= KEPT && why.starts_with("ää"), "{why}");
    }
}
