//! The health of a space: results of checks, and missed checks of a lost agent. Missed checks are counted on a paused
//! clock, which moves on whenever tokio has nothing to do, waiting for the store's thread included; hence [`still`].

use super::*;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

fn checked() -> Value {
    json!({"health_check": {"type": "tcp", "port": 80, "interval": "10s", "failures": 3}})
}

/// Waits for something on another thread, with the paused clock standing still.
async fn still<T>(something: impl Future<Output = T>) -> T {
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let busy = tokio::task::spawn_blocking(move || wait.recv().unwrap_err());
    let value = something.await;
    drop(done);
    busy.await.unwrap();
    value
}

async fn deployed(fixture: &TestSpaces, settings: Value) -> Arc<Space> {
    let space = fixture.space("web", settings).await;
    let space = fixture.spaces.linked(space.id, "n", AgentConnect::Started).await.unwrap();
    fixture.emitted();
    space
}

fn health(fixture: &TestSpaces, space: &Space) -> (SpaceHealth, u32) {
    let failures = fixture.spaces.status(space.id).consecutive_failures;
    (fixture.spaces.get(space.id).unwrap().health, failures)
}

#[tokio::test]
async fn so_many_failures_in_a_row_make_it_unhealthy_and_one_success_healthy() {
    let fixture = TestSpaces::new().await;
    let space = deployed(&fixture, checked()).await;
    let mut seen = Vec::new();
    for ok in [false, false, true, false, false, false, false, true, true] {
        fixture.spaces.checked(space.id, result(ok)).await.unwrap();
        seen.push(health(&fixture, &space));
    }
    use SpaceHealth::{Healthy, Unhealthy, Unknown};
    let expected = [
        (Unknown, 1),
        (Unknown, 2),
        (Healthy, 0),
        (Healthy, 1),
        (Healthy, 2),
        (Unhealthy, 3),
        (Unhealthy, 4),
        (Healthy, 0),
        (Healthy, 0),
    ];
    assert_eq!(seen, expected);
    assert_eq!(fixture.emitted_kinds(), ["space.healthy", "space.unhealthy", "space.healthy"], "transitions only");
    assert_eq!(fixture.spaces.status(space.id).last_check.unwrap().detail.unwrap(), "as told");
    fixture.close().await;
}

#[tokio::test]
async fn without_a_check_or_before_it_runs_nothing_is_known() {
    let fixture = TestSpaces::new().await;
    let space = fixture.space("web", checked()).await;
    for _ in 0..5 {
        fixture.spaces.checked(space.id, result(false)).await.unwrap();
    }
    assert_eq!(health(&fixture, &space), (SpaceHealth::Unknown, 0), "not deployed");
    let bare = fixture.space("bare", json!({})).await;
    fixture.spaces.linked(bare.id, "n", AgentConnect::Started).await.unwrap();
    fixture.emitted();
    for ok in [true, false, false, false, false] {
        fixture.spaces.checked(bare.id, result(ok)).await.unwrap();
    }
    assert_eq!(health(&fixture, &bare), (SpaceHealth::Unknown, 0), "no check");
    assert_eq!(fixture.emitted_kinds(), [""; 0]);
    fixture.close().await;
}

#[tokio::test]
async fn stopping_resets_health_without_an_event_for_it() {
    let fixture = TestSpaces::new().await;
    let space = deployed(&fixture, checked()).await;
    for ok in [true, false, false] {
        fixture.spaces.checked(space.id, result(ok)).await.unwrap();
    }
    fixture.spaces.stop(fixture.ada.actor(), space.id).await.unwrap();
    assert_eq!(health(&fixture, &space), (SpaceHealth::Unknown, 0));
    assert_eq!(fixture.emitted_kinds(), ["space.healthy", "space.stopped"]);
    fixture.spaces.linked(space.id, "n", AgentConnect::Started).await.unwrap();
    fixture.spaces.checked(space.id, result(false)).await.unwrap();
    assert_eq!(health(&fixture, &space), (SpaceHealth::Unknown, 1), "counted anew");
    fixture.close().await;
}

#[tokio::test]
async fn another_check_counts_anew_and_none_leaves_nothing_known() {
    let fixture = TestSpaces::new().await;
    let space = deployed(&fixture, checked()).await;
    for ok in [true, false, false] {
        fixture.spaces.checked(space.id, result(ok)).await.unwrap();
    }
    let update = async |check: Value| {
        let settings: SpaceSettings = serde_json::from_value(json!({"health_check": check})).unwrap();
        let change = move |_: &Space| Ok::<_, SpaceError>(settings);
        fixture.spaces.update(fixture.ada.actor(), space.id, change).await.unwrap();
    };
    update(json!({"type": "tcp", "port": 81})).await;
    assert_eq!(health(&fixture, &space), (SpaceHealth::Healthy, 0));
    update(json!(null)).await;
    assert_eq!(health(&fixture, &space), (SpaceHealth::Unknown, 0));
    assert_eq!(fixture.emitted_kinds(), ["space.healthy"]);
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_agent_fails_one_check_per_interval() {
    let fixture = still(TestSpaces::new()).await;
    let space = still(deployed(&fixture, checked())).await;
    still(fixture.spaces.checked(space.id, result(true))).await.unwrap();
    sleep(100 * SECOND).await;
    assert_eq!(
        health(&fixture, &space),
        (SpaceHealth::Healthy, 0),
        "nothing is counted against an agent that is there"
    );
    fixture.spaces.unlinked(space.id);
    let lost = Instant::now();
    sleep(Duration::from_millis(29_900)).await;
    assert_eq!(health(&fixture, &space), (SpaceHealth::Healthy, 2));
    assert_eq!(fixture.emitted_kinds(), ["space.healthy"]);
    eventually("space.unhealthy", || (health(&fixture, &space).0 == SpaceHealth::Unhealthy).then_some(())).await;
    assert!(lost.elapsed() >= 30 * SECOND);
    let (kind, data) = eventually("its event", || fixture.emitted().pop()).await;
    assert_eq!(
        (kind.as_str(), &data["previous"], &data["consecutive_failures"]),
        ("space.unhealthy", &json!("healthy"), &json!(3))
    );
    assert_eq!(fixture.spaces.status(space.id).last_check.unwrap().detail.unwrap(), "the agent is not connected");
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_comes_back_ends_the_count() {
    let fixture = still(TestSpaces::new()).await;
    let space = still(deployed(&fixture, checked())).await;
    fixture.spaces.unlinked(space.id);
    sleep(25 * SECOND).await;
    assert_eq!(health(&fixture, &space), (SpaceHealth::Unknown, 2));
    still(fixture.spaces.linked(space.id, "n", AgentConnect::Started)).await.unwrap();
    sleep(500 * SECOND).await;
    assert_eq!(health(&fixture, &space), (SpaceHealth::Unknown, 2));
    still(fixture.spaces.checked(space.id, result(true))).await.unwrap();
    assert_eq!(health(&fixture, &space), (SpaceHealth::Healthy, 0));
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_link_that_was_replaced_by_a_newer_one_leaves_no_gap() {
    let fixture = still(TestSpaces::new()).await;
    let space = still(deployed(&fixture, checked())).await;
    still(fixture.spaces.linked(space.id, "n", AgentConnect::Started)).await.unwrap();
    fixture.spaces.unlinked(space.id);
    assert!(fixture.spaces.status(space.id).linked);
    sleep(500 * SECOND).await;
    assert_eq!(health(&fixture, &space), (SpaceHealth::Unknown, 0));
    fixture.spaces.unlinked(space.id);
    assert!(!fixture.spaces.status(space.id).linked);
    sleep(15 * SECOND).await;
    assert_eq!(health(&fixture, &space), (SpaceHealth::Unknown, 1));
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_counted_against_a_stopped_or_deleted_space_or_one_without_a_check() {
    let fixture = still(TestSpaces::new()).await;
    let space = still(deployed(&fixture, checked())).await;
    let bare = still(fixture.space("bare", json!({}))).await;
    still(fixture.spaces.linked(bare.id, "n", AgentConnect::Started)).await.unwrap();
    fixture.emitted();
    fixture.spaces.unlinked(space.id);
    fixture.spaces.unlinked(bare.id);
    sleep(15 * SECOND).await;
    still(fixture.spaces.stop(fixture.ada.actor(), space.id)).await.unwrap();
    sleep(500 * SECOND).await;
    assert_eq!(
        (health(&fixture, &space), health(&fixture, &bare)),
        ((SpaceHealth::Unknown, 0), (SpaceHealth::Unknown, 0))
    );
    still(fixture.spaces.linked(space.id, "n", AgentConnect::Started)).await.unwrap();
    fixture.spaces.unlinked(space.id);
    still(fixture.spaces.delete(fixture.ada.actor(), space.id)).await.unwrap();
    sleep(500 * SECOND).await;
    assert_eq!(fixture.emitted_kinds(), ["space.stopped", "space.started", "space.deleted"]);
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_an_agent_has_its_intervals_to_come_back() {
    let fixture = still(TestSpaces::new()).await;
    let space = still(deployed(&fixture, checked())).await;
    let fixture = still(fixture.reopened(0)).await;
    sleep(500 * SECOND).await;
    assert_eq!(health(&fixture, &space), (SpaceHealth::Unknown, 0), "nothing is counted before the server is ready");
    still(fixture.spaces.resume()).await;
    sleep(Duration::from_millis(29_900)).await;
    assert_eq!(health(&fixture, &space), (SpaceHealth::Unknown, 2));
    eventually("space.unhealthy", || (health(&fixture, &space).0 == SpaceHealth::Unhealthy).then_some(())).await;
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_interval_holds_for_a_lost_agent_too() {
    let fixture = still(TestSpaces::new()).await;
    let space = still(deployed(&fixture, checked())).await;
    fixture.spaces.unlinked(space.id);
    let quick: SpaceSettings =
        serde_json::from_value(json!({"health_check": {"type": "tcp", "port": 80, "interval": "1s", "failures": 100}}))
            .unwrap();
    let change = move |_: &Space| Ok::<_, SpaceError>(quick);
    still(fixture.spaces.update(fixture.ada.actor(), space.id, change)).await.unwrap();
    sleep(Duration::from_millis(5_500)).await;
    assert_eq!(health(&fixture, &space).1, 5);
    fixture.close().await;
}
