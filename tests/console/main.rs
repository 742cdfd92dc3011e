//! The web console in a real Chromium, against the real daemon with real receivers and agents. The scenarios are in
//! `tests/console`.
//!
//! `CONSOLE_SCREENSHOTS=docs/console cargo test --test console` makes the pictures of the manual. A binary of its own,
//! with one browser at a time: a browser keeps two cores busy, and so do other tests.

mod chromium;
#[path = "../it/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the tests of `it`, which use more of it")]
mod support;

use chromium::{check_bundles, scenario};
use support::Daemon;

fn daemon() -> Daemon {
    Daemon::with(&[("DELIVERY_BACKOFF", "100ms,100ms")])
}

#[test]
fn a_user_logs_in_changes_the_first_password_and_finds_the_way_by_keys() {
    scenario("session", &daemon());
}

#[test]
fn a_session_that_ends_is_announced_and_asks_for_the_password() {
    scenario("expiry", &Daemon::with(&[("AUTH_SESSION", "15s")]));
}

#[test]
fn every_figure_of_the_overview_leads_to_its_list() {
    scenario("overview", &Daemon::with(&[("DELIVERY_BACKOFF", "100ms,100ms"), ("DELIVERY_QUEUE", "20")]));
}

#[test]
fn an_event_is_raised_found_and_followed_to_each_attempt() {
    scenario("events", &daemon());
}

#[test]
fn a_sink_is_made_tried_paused_mended_and_deleted() {
    scenario("sinks", &daemon());
}

#[test]
fn a_source_takes_signed_requests_and_its_dead_letters_become_events() {
    scenario("sources", &daemon());
}

#[test]
fn a_space_is_made_its_agent_started_and_its_method_called() {
    scenario("spaces", &daemon());
}

#[test]
fn a_script_is_written_run_and_kept_while_it_is_used() {
    scenario("scripts", &daemon());
}

#[test]
fn what_a_user_may_not_do_is_not_offered_and_refused() {
    scenario("access", &daemon());
}

#[test]
fn a_server_that_hangs_or_refuses_is_told_and_recovers() {
    scenario("hanging", &daemon());
}

#[test]
fn an_editor_takes_a_recorded_sample_completes_its_fields_and_asks_before_it_is_left() {
    scenario("editing", &daemon());
}

#[test]
fn no_text_of_others_runs_in_the_page() {
    scenario("hostile", &daemon());
}

#[test]
fn every_view_is_accessible_in_light_dark_and_on_a_phone() {
    scenario("accessibility", &daemon());
}

#[test]
fn lists_of_thousands_and_a_fast_tail_stay_smooth() {
    scenario("smoothness", &Daemon::with(&[("LIMITS_SINKS", "20000")]));
}

#[test]
fn the_committed_bundles_are_what_their_sources_make() {
    check_bundles();
}
