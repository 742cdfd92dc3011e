//! `svc sink replay` and its kin: events of the history that a sink gets again.

use super::queues::find_queue;
use crate::{
    cli::{
        arguments::{Moment, brief, parse_patterns},
        client::{Client, QueryString},
        failure::Failure,
        resource::ResourceKind,
        shell::{OutputFormat, Shell},
        table::{Cell, Fit, TextTable, Tone},
    },
    model::{
        api::{
            lenient::Lenient,
            replays::{ReplayBody, ReplayView},
        },
        id::ReplayId,
        pattern::Patterns,
        replay::{ReplayState, ReplayedState},
        sequence::SequenceRange,
    },
    platform::backoff::Backoff,
};
use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

/// The pauses between two looks at a job.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The looks at a job between two looks at its sink.
const LOOKS_AT_SINK: u32 = 10;

/// The field of a sink that tells if it delivers.
#[derive(serde::Deserialize)]
struct ActiveField {
    active: bool,
}

client_command! {
    /// Send events of the history to a sink again: those that it lost, unless you say otherwise. Waits until the last
    /// one is queued.
    #[argh(
        example = "{command_name} slack\n\
                   {command_name} slack --sequences 17-19,25\n\
                   {command_name} slack --since 2h --type 'custom.deploy.*' --state delivered --rate 50 --detach",
        note = "Events come behind those that wait already, under new sequence numbers and with the header X-Service-Replay. The \
                server goes on if this command is ended: `svc sink replays` shows how far it is, `svc sink cancel-replay` ends it."
    )]
    ReplayEvents = "replay" {
        /// the sink's name or id; a method's is SPACE/METHOD, or its subscription's id
        #[argh(positional)]
        sink: String,

        /// only events accepted since then: a time, or a span such as 15m
        #[argh(option, arg_name = "when")]
        since: Option<Moment>,

        /// only events accepted before then: a time, or a span such as 15m
        #[argh(option, arg_name = "when")]
        until: Option<Moment>,

        /// only events whose type matches, such as 'custom.deploy.*'
        #[argh(option, long = "type", arg_name = "pattern", from_str_fn(parse_patterns))]
        kind: Option<Patterns>,

        /// only events in this state: dropped, dead or delivered; repeat for more (otherwise dropped and dead)
        #[argh(option)]
        state: Vec<ReplayedState>,

        /// only events with these sequence numbers, such as 17-19,25
        #[argh(option, arg_name = "ranges", from_str_fn(parse_ranges))]
        sequences: Option<Vec<SequenceRange>>,

        /// the most events a second (otherwise as the queue has room)
        #[argh(option, arg_name = "n")]
        rate: Option<u32>,

        /// return at once
        #[argh(switch)]
        detach: bool,
    }
}

client_command! {
    /// List the replays to a sink, newest first.
    #[argh(example = "{command_name} slack\n{command_name} slack --json")]
    ListReplays = "replays" {
        /// the sink's name or id; a method's is SPACE/METHOD, or its subscription's id
        #[argh(positional)]
        sink: String,
    }
}

client_command! {
    /// Pause the replay to a sink. Events that it has queued are delivered.
    #[argh(example = "{command_name} slack")]
    PauseReplay = "pause-replay" {
        /// the sink's name or id; a method's is SPACE/METHOD, or its subscription's id
        #[argh(positional)]
        sink: String,
    }
}

client_command! {
    /// Continue the replay to a sink that was paused.
    #[argh(example = "{command_name} slack")]
    ResumeReplay = "resume-replay" {
        /// the sink's name or id; a method's is SPACE/METHOD, or its subscription's id
        #[argh(positional)]
        sink: String,
    }
}

client_command! {
    /// End the replay to a sink. Events that it has queued are delivered.
    #[argh(example = "{command_name} slack")]
    CancelReplay = "cancel-replay" {
        /// the sink's name or id; a method's is SPACE/METHOD, or its subscription's id
        #[argh(positional)]
        sink: String,
    }
}

impl ReplayEvents {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = queue_path(&client, &self.sink)?;
        let body = ReplayBody {
            since: self.since.map(Moment::past),
            until: self.until.map(Moment::past),
            kind: self.kind.clone(),
            states: (!self.state.is_empty()).then(|| self.state.clone()),
            sequences: self.sequences.clone(),
            rate: self.rate,
        };
        let answer = client.post(&format!("{path}/replay"), &body)?;
        let job: ReplayView = client.read(&answer)?;
        if self.detach {
            return match self.format() {
                OutputFormat::Json => shell.out.json(answer.as_str()),
                OutputFormat::Text => {
                    shell.out.line(&format!("{}  `svc sink replays {}` shows how far it is", job.id, self.sink))
                }
            };
        }
        let ended = wait(shell, &client, &self.sink, &path, job.id)?;
        match self.format() {
            OutputFormat::Json => shell.out.json(&crate::cli::client::to_json(&ended))?,
            OutputFormat::Text => shell.out.line(&summary(&ended))?,
        }
        match ended.state.known() {
            Some(ReplayState::Cancelled) => Err(Failure::Bad("the replay was cancelled".to_owned())),
            _ => Ok(()),
        }
    }
}

/// Waits until a job has ended. A line on stderr shows its progress if that is a terminal.
fn wait(shell: &mut Shell<'_>, client: &Client, sink: &str, path: &str, id: ReplayId) -> Result<ReplayView, Failure> {
    let is_shown = io::stderr().is_terminal();
    let (mut looks, mut is_told) = (0_u32, false);
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let ended = loop {
        let job = jobs(client, path)?.into_iter().find(|job| job.id == id);
        let job = job.ok_or_else(|| Failure::NoSuch("the replay is gone: was the sink deleted?".to_owned()))?;
        if job.state.known().is_none_or(|state| state.is_finished()) {
            break job;
        }
        // A sink may become inactive while the job runs.
        if !is_told && looks.is_multiple_of(LOOKS_AT_SINK) && is_inactive(client, path) {
            shell.note(&format!(
                "sink `{sink}` is inactive, and the replay waits until it is active: `svc sink replays {sink}` shows how far it is, \
                 also if this command is ended"
            ));
            is_told = true;
        }
        looks = looks.wrapping_add(1);
        if is_shown {
            // A broken stderr cannot be reported.
            let _ = write!(shell.err, "\r{}\u{1b}[K", progress(&job)).and_then(|()| shell.err.flush());
        }
        std::thread::sleep(backoff.next_wait());
    };
    if is_shown {
        let _ = write!(shell.err, "\r\u{1b}[K").and_then(|()| shell.err.flush());
    }
    Ok(ended)
}

/// Tells if the path is that of an inactive sink. A subscription is none.
fn is_inactive(client: &Client, path: &str) -> bool {
    let sink = client.get(path).ok().and_then(|answer| client.read::<ActiveField>(&answer).ok());
    sink.is_some_and(|sink| !sink.active)
}

fn progress(job: &ReplayView) -> String {
    let state = match &job.state {
        Lenient::Known(ReplayState::Running) => "replay",
        _ => "replay (paused)",
    };
    match job.matched {
        Some(matched) => format!("{state}  {} of {matched} queued", job.queued),
        None => format!("{state}  counting"),
    }
}

fn summary(job: &ReplayView) -> String {
    let gone = match job.gone {
        Some(gone @ 1..) => format!("; {gone} were gone from the history, or delivered otherwise"),
        _ => String::new(),
    };
    format!("queued {} again{gone}", job.queued)
}

impl ListReplays {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = queue_path(&client, &self.sink)?;
        let listing = client.list(&format!("{path}/replays"), &QueryString::default(), usize::MAX)?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(&listing.to_json());
        }
        let mut table = TextTable::new(&[
            ("ID", Fit::Rigid),
            ("STARTED", Fit::Rigid),
            ("STATE", Fit::Rigid),
            ("QUEUED", Fit::Rigid),
            ("MATCHED", Fit::Rigid),
            ("GONE", Fit::Rigid),
            ("SELECTS", Fit::Elastic),
        ]);
        for job in listing.read::<ReplayView>(&client)? {
            let tone = match job.state.known() {
                Some(ReplayState::Done) => Tone::Good,
                Some(ReplayState::Running) => Tone::Doubtful,
                _ => Tone::Quiet,
            };
            let number = |number: Option<u64>| Cell::from(number.map(|number| number.to_string()).unwrap_or_default());
            table.row([
                job.id.to_string().into(),
                brief(job.created_at).into(),
                Cell::toned(job.state.to_string(), tone),
                number(Some(job.queued)),
                number(job.matched),
                number(job.gone),
                selection(&job).into(),
            ]);
        }
        shell.out.table(&table)
    }
}

/// The selection of a job in words.
fn selection(job: &ReplayView) -> String {
    let states = job.states.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let sequences = job.sequences.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let sequences = (!sequences.is_empty()).then(|| format!("numbers {sequences}"));
    let since = job.since.map(|since| format!("since {}", brief(since)));
    [Some(states), job.kind.clone(), sequences, since].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

macro_rules! change_commands {
    ($($name:ident: $change:expr, $told:literal;)*) => {$(
        impl $name {
            pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
                let client = self.client(shell)?;
                let path = queue_path(&client, &self.sink)?;
                let change: fn(&Client, &str) -> Result<crate::cli::client::ResponseText, Failure> = $change;
                let answer = change(&client, &path)?;
                if self.format() == OutputFormat::Json {
                    return shell.out.json(answer.as_str());
                }
                let job: ReplayView = client.read(&answer)?;
                shell.out.line(&format!(concat!($told, "; {} were queued"), job.queued))
            }
        }
    )*};
}

change_commands! {
    PauseReplay: |client, path| client.post(&format!("{path}/replay/pause"), &serde_json::json!({})), "paused";
    ResumeReplay: |client, path| client.post(&format!("{path}/replay/resume"), &serde_json::json!({})), "resumed";
    CancelReplay: |client, path| client.delete(&format!("{path}/replay")), "cancelled";
}

fn queue_path(client: &Client, sink: &str) -> Result<String, Failure> {
    Ok(ResourceKind::SINK.path_of_id(find_queue(client, sink)?))
}

fn jobs(client: &Client, path: &str) -> Result<Vec<ReplayView>, Failure> {
    client.list(&format!("{path}/replays"), &QueryString::default(), usize::MAX)?.read(client)
}

fn parse_ranges(text: &str) -> Result<Vec<SequenceRange>, String> {
    let ranges = text.split(',').map(|range| range.trim().parse());
    ranges.collect::<Result<_, _>>().map_err(|error: crate::model::sequence::SequenceRangeError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_separated_by_commas_and_a_bad_one_is_named() {
        let ranges = parse_ranges("17-19, 25").unwrap();
        assert_eq!(ranges, [SequenceRange { from: 17, to: 19 }, SequenceRange { from: 25, to: 25 }]);
        for (text, named) in [("17-19,", "``"), ("x", "`x`"), ("3-1", "`3-1`")] {
            assert!(parse_ranges(text).unwrap_err().contains(named), "{text}");
        }
    }
}
