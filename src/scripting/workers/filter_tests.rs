//! Filters in real worker processes: their answers, their budget, and the wait of an emit.

use super::ProgramText;
use crate::{
    model::{event::Event, id::UserId, owner::Owner, units::Span},
    platform::config::ScriptConfig,
    scripting::lua::{
        FilterVerdict,
        test_support::{TestRuntime, event, input, lua},
    },
};
use serde_json::value::RawValue;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

fn user() -> Owner {
    Owner::User(UserId::new())
}

/// Runs filters, and waits for as long as a busy machine may need.
async fn run(host: &TestRuntime, owner: Owner, event: &Arc<Event>, filters: &[&str]) -> Vec<FilterVerdict> {
    run_within(Duration::from_secs(60), host, owner, event, filters).await
}

async fn run_within(
    patience: Duration,
    host: &TestRuntime,
    owner: Owner,
    event: &Arc<Event>,
    filters: &[&str],
) -> Vec<FilterVerdict> {
    let programs: Vec<_> = filters.iter().map(|filter| ProgramText::filter(filter)).collect();
    host.workers.run_filters_within(patience, owner, &programs, event).await
}

fn failure(verdict: &FilterVerdict) -> &str {
    let FilterVerdict::Failed(why) = verdict else { panic!("{verdict:?}") };
    why
}

/// A filter that burns seconds of processor time where no interrupt comes.
fn uninterruptible() -> String {
    format!("(function() local a, x = ('1'):rep(2e7){} return x end)()", " x = a + a".repeat(380))
}

#[tokio::test]
async fn each_filter_of_an_event_has_its_own_answer() {
    let (host, event) = (TestRuntime::new(), Arc::new(event()));
    let filters = [
        ("event.data.version == '1.2' and event.type == 'custom.deploy.done'", FilterVerdict::Match),
        ("event.data.version == '1.3'", FilterVerdict::Refuse),
        ("event.data.absent", FilterVerdict::Refuse),
        ("event.data.none", FilterVerdict::Refuse),
        ("0", FilterVerdict::Match),
        ("space.name == 'web' and space.urls[1] == 'http://web'", FilterVerdict::Match),
        ("actor.username == 'ada' and actor.kind == 'user'", FilterVerdict::Match),
        ("#event.data.items == 2 and re ~= nil and json.encode({}) ~= ''", FilterVerdict::Match),
        ("custom ~= nil", FilterVerdict::Refuse),
    ];
    for (text, expected) in &filters {
        assert_eq!(&run(&host, Owner::Global, &event, &[text]).await[0], expected, "{text} alone");
    }
    let texts = filters.each_ref().map(|(text, _)| *text);
    let verdicts = run(&host, Owner::Global, &event, &texts).await;
    for ((text, expected), verdict) in filters.iter().zip(&verdicts) {
        assert_eq!(verdict, expected, "{text}");
    }
    let many: Vec<String> = (0..100).map(|n| format!("{n} % 2 == 0")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let verdicts = run(&host, Owner::Global, &event, &many).await;
    let expected = |n| if n % 2 == 0 { FilterVerdict::Match } else { FilterVerdict::Refuse };
    assert_eq!(verdicts, (0..100).map(expected).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_filter_sees_the_whole_data_however_it_reaches_the_event() {
    let (host, event) = (TestRuntime::new(), Arc::new(event()));
    for text in [
        "(...).data.version == '1.2'",
        "select(1, ...).data.ok",
        "(function(e) return e.data.ok end)(event)",
        "event['data'].ok",
        "event.data['version'] == '1.2'",
        "(function() for name in event.data do if name == 'version' then return true end end end)()",
    ] {
        assert_eq!(run(&host, Owner::Global, &event, &[text]).await, [FilterVerdict::Match], "{text}");
    }
}

#[tokio::test]
async fn what_filters_do_not_name_of_an_events_data_is_not_read() {
    let data = format!(r#"{{"many":[{}0],"ok":true}}"#, "0,".repeat(100_000));
    let event = Arc::new(Event { data: RawValue::from_string(data).unwrap(), ..event() });
    let host = TestRuntime::new();
    let named = ["#tostring(event.data.ok) == 4", "#tostring(event.data.none) == 4"];
    assert_eq!(run(&host, user(), &event, &named).await, [FilterVerdict::Match, FilterVerdict::Refuse]);
    let verdicts = run(&host, user(), &event, &["event.data['ok']", "event.data.ok", "#event.data.many > 0"]).await;
    assert_eq!(failure(&verdicts[0]), failure(&verdicts[2]));
    assert!(failure(&verdicts[0]).contains("more than 100000 values"), "{verdicts:?}");
    assert_eq!(verdicts[1], FilterVerdict::Match, "whatever the others name");
}

#[tokio::test]
async fn a_filter_on_a_field_that_is_not_there_fails_with_its_reason() {
    let (host, event) = (TestRuntime::new(), Arc::new(event()));
    let verdicts = run(&host, user(), &event, &["event.data.build.branch == 'main'", "true"]).await;
    assert_eq!(failure(&verdicts[0]), "filter:1: attempt to index nil with 'branch'");
    assert_eq!(verdicts[1], FilterVerdict::Match);
}

#[tokio::test]
async fn nothing_of_a_filter_is_there_for_the_next() {
    let (host, event) = (TestRuntime::new(), Arc::new(event()));
    for change in [
        "event.data.version = '9'",
        "event.data = {}",
        "event.data.items[1].x = 9",
        "rawset(event.data, 'version', '9')",
        "space.urls[1] = '9'",
        "actor.username = 'eve'",
        "leaked = true",
        "string.leaked = true",
        "table.insert(event.data.items, 9)",
    ] {
        let change = format!("(function() {change} return true end)()");
        let verdicts = run(&host, Owner::Global, &event, &[&change, "event.data.version == '1.2'", "leaked"]).await;
        assert!(failure(&verdicts[0]).contains("readonly"), "{change}: {verdicts:?}");
        assert_eq!(verdicts[1..], [FilterVerdict::Match, FilterVerdict::Refuse], "{change}");
    }
    let reached = ["require 'acme.text'", "http.get('http://a.test')", "kv.get('a')", "svc.call('a', {})"];
    for verdict in run(&host, Owner::Global, &event, &reached).await {
        assert!(failure(&verdict).starts_with("filter:1: "), "{verdict:?}");
    }
    assert!(host.http.requests.lock().is_empty());
}

#[tokio::test]
async fn a_filter_over_its_budget_fails_and_the_others_of_its_message_do_not() {
    let (host, event) = (TestRuntime::new(), Arc::new(event()));
    let endless = "(function() while true do end end)()";
    let caught = "(function() while true do pcall(function() while true do end end) end end)()";
    let large = "buffer.len(buffer.create(64e6)) > 0";
    let verdicts = run(&host, user(), &event, &["true", endless, caught, large, "event.data.ok"]).await;
    assert_eq!(failure(&verdicts[1]), "it took more than 5ms of processor time");
    assert_eq!(failure(&verdicts[2]), "it took more than 5ms of processor time");
    assert_eq!(failure(&verdicts[3]), "it needed more than 32MiB of memory");
    assert_eq!((&verdicts[0], &verdicts[4]), (&FilterVerdict::Match, &FilterVerdict::Match));
    assert!(!host.workers.any_quarantined());
}

#[tokio::test]
async fn a_filter_that_hangs_costs_its_owner_one_wait_and_others_none_and_is_quarantined() {
    let (host, event) = (TestRuntime::new(), Arc::new(event()));
    let (ada, bob, hanging) = (user(), user(), uninterruptible());
    assert_eq!(run(&host, bob, &event, &["true"]).await, [FilterVerdict::Match]);
    let verdicts = run_within(Duration::from_millis(250), &host, ada, &event, &["event.data.ok", &hanging]).await;
    assert_eq!(failure(&verdicts[1]), "there was no answer within 250 ms");
    // This is not waited for, or it would be an answer or the lack of one.
    let verdicts = run(&host, ada, &event, &["event.data.ok"]).await;
    assert_eq!(failure(&verdicts[0]), "its process is busy with an earlier event");
    assert_eq!(run(&host, bob, &event, &["false"]).await, [FilterVerdict::Refuse]);

    let deadline = Instant::now() + Duration::from_secs(60);
    while !failure(&run(&host, ada, &event, &[&hanging]).await[0]).starts_with("it is quarantined") {
        assert!(Instant::now() < deadline, "it is not quarantined");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let verdicts = run(&host, ada, &event, &["event.data.ok", &hanging, "event.data.none"]).await;
    assert_eq!((&verdicts[0], &verdicts[2]), (&FilterVerdict::Match, &FilterVerdict::Refuse));
    assert!(failure(&verdicts[1]).starts_with("it is quarantined"));
}

#[tokio::test]
async fn a_slow_template_of_the_same_owner_does_not_hold_up_its_filters() {
    let ten_minutes = Span(Duration::from_secs(600));
    let limits = ScriptConfig { wall: ten_minutes, cpu: ten_minutes, ..ScriptConfig::default() };
    let (host, event, owner) = (TestRuntime::with(limits), Arc::new(event()), user());
    host.modules.put("begun", "return true");
    let slow = lua("require 'begun'\nwhile true do end");
    let (workers, input) = (host.workers.clone(), input((*event).clone()));
    let rendering = tokio::spawn(async move { workers.render(&slow, owner, input).await });
    host.modules.required().await;
    assert_eq!(run(&host, owner, &event, &["event.data.ok"]).await, [FilterVerdict::Match]);
    assert!(!rendering.is_finished(), "the template runs all the while");
    rendering.abort();
}
