//! The messages between the server and a worker.
//!
//! The conversation goes in turns. [`ToWorker::Start`], [`ToWorker::Reply`] to a request and [`ToWorker::End`] each
//! begin one turn of one run, and the worker takes the turns in the order in which they were sent. A turn ends with
//! [`FromWorker::Done`], or with [`FromWorker::YieldingRequest`] when the run waits for the server. During a turn the
//! worker may send [`FromWorker::BlockingRequest`]: then it does nothing else until it has the reply. So the server
//! knows at any moment which run a worker executes, and every message of a worker is about that run.

use super::{
    host_messages::{HostRequest, HostResult, read_result, write_result},
    input_messages::{read_event, read_request, write_event, write_request},
    program_text::{ProgramContent, ProgramText, TextKind},
    rendered_messages::{format_code, read_bodies, write_bodies},
    wire::{FrameReader, FrameWriter, Malformed},
};
use crate::scripting::lua::{
    BodyFormat, CompileError, EventFields, EventInput, FilterVerdict, LimitExceeded, RenderedBody, RunLimits,
    ScriptError, TransformInput, Verdict, bounded, bounded_log,
};
use bytes::Bytes;
use serde_json::value::RawValue;
use std::time::Duration;

/// A message of the server, as the worker reads it.
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and most of them begin a run")]
pub(super) enum ToWorker {
    /// The limits of every run. The first message.
    Limits(RunLimits),
    /// A program that later messages name by its id.
    Program {
        id: u64,
        content: ProgramContent,
    },
    /// A program that no later message names.
    Forget {
        id: u64,
    },
    Start {
        run: u64,
        program: u64,
        work: StartedWork,
    },
    Reply {
        run: u64,
        result: HostResult,
    },
    /// Ends a run that waits.
    End {
        run: u64,
        why: LimitExceeded,
    },
}

/// The work of a run, as the worker reads it.
pub(super) enum StartedWork {
    Render(EventFields),
    RenderBatch(Vec<EventFields>),
    /// Renders a body for each, as long as that is quick and none fails.
    RenderEach(Vec<EventFields>),
    Script(EventFields),
    Tool {
        arguments: String,
    },
    Transform(TransformInput),
    /// Runs these programs, which are filters.
    Filter {
        filters: Vec<u64>,
        fields: EventFields,
    },
    /// Compiles the program and does not run it.
    Compile,
}

/// The work of a run, as the server sends it.
#[derive(Clone)]
pub(super) enum RunWork {
    Render(EventInput),
    RenderBatch(Vec<EventInput>),
    RenderEach(Vec<EventInput>),
    Script(EventInput),
    Tool { arguments: Box<RawValue> },
    Transform(TransformInput),
    Filter(EventInput),
    Compile,
}

/// A message of a worker.
#[derive(Debug)]
pub(super) enum FromWorker {
    /// Ends the turn: other runs go on until the reply begins the next one.
    YieldingRequest {
        run: u64,
        request: HostRequest,
    },
    /// The worker does nothing else until it has the reply.
    BlockingRequest {
        run: u64,
        request: HostRequest,
    },
    Done {
        run: u64,
        finished: FinishedRun,
    },
}

/// A run that is over.
#[derive(Debug)]
pub(super) struct FinishedRun {
    pub cpu: Duration,
    /// The lines that it printed and logged.
    pub log: Vec<String>,
    pub outcome: Result<RunOutput, ScriptError>,
}

/// The result of a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RunOutput {
    Rendered {
        kind: BodyFormat,
        body: Bytes,
    },
    /// The bodies of the first events; `failed` if the next one failed.
    RenderedEach {
        bodies: Vec<RenderedBody>,
        failed: bool,
    },
    Verdict(Verdict),
    /// The JSON text that a tool or a transform returned.
    Json(String),
    Compiled,
    /// The answer of each filter, in order.
    Filtered(Vec<FilterVerdict>),
}

pub(super) fn write_limits(writer: &mut FrameWriter, limits: RunLimits) {
    writer.frame(|frame| {
        frame.u8(0);
        frame.u64(micros(limits.wall));
        frame.u64(micros(limits.cpu));
        frame.u64(limits.memory as u64);
    });
}

pub(super) fn write_program(writer: &mut FrameWriter, id: u64, content: &ProgramContent) {
    writer.frame(|frame| {
        frame.u8(1);
        frame.u64(id);
        frame.u8(content.kind.code());
        frame.text(&content.name);
        frame.text(&content.source);
    });
}

pub(super) fn write_forget(writer: &mut FrameWriter, id: u64) {
    writer.frame(|frame| {
        frame.u8(2);
        frame.u64(id);
    });
}

pub(super) fn write_start(writer: &mut FrameWriter, run: u64, programs: &[ProgramText], work: &RunWork) {
    writer.frame(|frame| {
        frame.u8(3);
        frame.u64(run);
        frame.u64(programs.first().map_or(0, ProgramText::id));
        match work {
            RunWork::Render(input) => {
                frame.u8(0);
                write_event(frame, input);
            }
            RunWork::RenderBatch(inputs) => {
                frame.u8(6);
                frame.list(inputs.iter(), write_event);
            }
            RunWork::RenderEach(inputs) => {
                frame.u8(7);
                frame.list(inputs.iter(), write_event);
            }
            RunWork::Script(input) => {
                frame.u8(1);
                write_event(frame, input);
            }
            RunWork::Tool { arguments } => {
                frame.u8(2);
                frame.text(arguments.get());
            }
            RunWork::Compile => frame.u8(3),
            RunWork::Transform(input) => {
                frame.u8(4);
                write_request(frame, input);
            }
            RunWork::Filter(input) => {
                frame.u8(5);
                frame.list(programs.iter(), |frame, program| frame.u64(program.id()));
                write_event(frame, input);
            }
        }
    });
}

pub(super) fn write_reply(writer: &mut FrameWriter, run: u64, result: &HostResult) {
    writer.frame(|frame| {
        frame.u8(4);
        frame.u64(run);
        write_result(frame, result);
    });
}

pub(super) fn write_end(writer: &mut FrameWriter, run: u64, why: LimitExceeded) {
    writer.frame(|frame| {
        frame.u8(5);
        frame.u64(run);
        write_limit(frame, why);
    });
}

impl ToWorker {
    pub fn read(mut frame: FrameReader) -> Result<Self, Malformed> {
        let message = match frame.u8()? {
            0 => {
                let (wall, cpu) = (Duration::from_micros(frame.u64()?), Duration::from_micros(frame.u64()?));
                Self::Limits(RunLimits { wall, cpu, memory: frame.u64()? as usize })
            }
            1 => {
                let (id, kind) = (frame.u64()?, TextKind::of_code(frame.u8()?).ok_or(Malformed)?);
                Self::Program { id, content: ProgramContent { kind, name: frame.text()?, source: frame.text()? } }
            }
            2 => Self::Forget { id: frame.u64()? },
            3 => {
                let (run, program) = (frame.u64()?, frame.u64()?);
                let work = match frame.u8()? {
                    0 => StartedWork::Render(read_event(&mut frame)?),
                    1 => StartedWork::Script(read_event(&mut frame)?),
                    2 => StartedWork::Tool { arguments: frame.text()? },
                    3 => StartedWork::Compile,
                    4 => StartedWork::Transform(read_request(&mut frame)?),
                    5 => {
                        StartedWork::Filter { filters: frame.list(FrameReader::u64)?, fields: read_event(&mut frame)? }
                    }
                    6 => StartedWork::RenderBatch(frame.list(read_event)?),
                    7 => StartedWork::RenderEach(frame.list(read_event)?),
                    _ => return Err(Malformed),
                };
                Self::Start { run, program, work }
            }
            4 => Self::Reply { run: frame.u64()?, result: read_result(&mut frame)? },
            5 => Self::End { run: frame.u64()?, why: read_limit(&mut frame)? },
            _ => return Err(Malformed),
        };
        frame.end()?;
        Ok(message)
    }
}

impl FromWorker {
    pub fn write(&self, writer: &mut FrameWriter) {
        writer.frame(|frame| match self {
            Self::YieldingRequest { run, request } => {
                frame.u8(0);
                frame.u64(*run);
                request.write(frame);
            }
            Self::BlockingRequest { run, request } => {
                frame.u8(1);
                frame.u64(*run);
                request.write(frame);
            }
            Self::Done { run, finished } => {
                frame.u8(2);
                frame.u64(*run);
                frame.u64(u64::try_from(finished.cpu.as_nanos()).unwrap_or(u64::MAX));
                frame.list(finished.log.iter(), |frame, line| frame.text(line));
                match &finished.outcome {
                    Ok(output) => output.write(frame),
                    Err(error) => write_error(frame, error),
                }
            }
        });
    }

    pub fn read(mut frame: FrameReader) -> Result<Self, Malformed> {
        let message = match frame.u8()? {
            0 => Self::YieldingRequest { run: frame.u64()?, request: HostRequest::read(&mut frame)? },
            1 => Self::BlockingRequest { run: frame.u64()?, request: HostRequest::read(&mut frame)? },
            2 => {
                let run = frame.u64()?;
                let cpu = Duration::from_nanos(frame.u64()?);
                let log = bounded_log(&frame.list(FrameReader::text)?);
                Self::Done { run, finished: FinishedRun { cpu, log, outcome: read_outcome(&mut frame)? } }
            }
            _ => return Err(Malformed),
        };
        frame.end()?;
        Ok(message)
    }

    /// The run that the message is about.
    pub fn run(&self) -> u64 {
        match self {
            Self::YieldingRequest { run, .. } | Self::BlockingRequest { run, .. } | Self::Done { run, .. } => *run,
        }
    }
}

impl RunOutput {
    fn write(&self, frame: &mut FrameWriter) {
        match self {
            Self::Rendered { kind, body } => {
                frame.u8(format_code(*kind));
                frame.data(body);
            }
            Self::RenderedEach { bodies, failed } => {
                frame.u8(16);
                frame.u8(u8::from(*failed));
                write_bodies(frame, bodies);
            }
            Self::Verdict(verdict) => {
                let (code, span, text) = match verdict {
                    Verdict::Ack => (2, Duration::ZERO, ""),
                    Verdict::Failed(why) => (3, Duration::ZERO, why.as_str()),
                    Verdict::Retry { after, why } => (4, *after, why.as_str()),
                    Verdict::Skip(why) => (5, Duration::ZERO, why.as_str()),
                    Verdict::Dead(why) => (6, Duration::ZERO, why.as_str()),
                    Verdict::NotRun(_) => unreachable!("a worker has room for the runs it is given"),
                };
                frame.u8(code);
                frame.u64(micros(span));
                frame.text(text);
            }
            Self::Json(json) => {
                frame.u8(7);
                frame.text(json);
            }
            Self::Compiled => frame.u8(8),
            Self::Filtered(verdicts) => {
                frame.u8(15);
                frame.list(verdicts.iter(), |frame, verdict| match verdict {
                    FilterVerdict::Match => frame.u8(0),
                    FilterVerdict::Refuse => frame.u8(1),
                    FilterVerdict::Failed(why) => {
                        frame.u8(2);
                        frame.text(why);
                    }
                });
            }
        }
    }
}

fn read_outcome(frame: &mut FrameReader) -> Result<Result<RunOutput, ScriptError>, Malformed> {
    let code = frame.u8()?;
    Ok(Ok(match code {
        0 => RunOutput::Rendered { kind: BodyFormat::Json, body: frame.data()? },
        1 => RunOutput::Rendered { kind: BodyFormat::Text, body: frame.data()? },
        2..=6 => {
            let (after, why) = (Duration::from_micros(frame.u64()?), message(frame)?);
            RunOutput::Verdict(match code {
                2 => Verdict::Ack,
                3 => Verdict::Failed(why),
                4 => Verdict::Retry { after, why },
                5 => Verdict::Skip(why),
                _ => Verdict::Dead(why),
            })
        }
        7 => RunOutput::Json(frame.text()?),
        8 => RunOutput::Compiled,
        15 => RunOutput::Filtered(frame.list(|frame| {
            Ok(match frame.u8()? {
                0 => FilterVerdict::Match,
                1 => FilterVerdict::Refuse,
                2 => FilterVerdict::Failed(message(frame)?),
                _ => return Err(Malformed),
            })
        })?),
        16 => {
            let failed = match frame.u8()? {
                0 => false,
                1 => true,
                _ => return Err(Malformed),
            };
            let bodies = read_bodies(frame)?;
            RunOutput::RenderedEach { bodies, failed }
        }
        code => return read_error(frame, code).map(Err),
    }))
}

fn write_error(frame: &mut FrameWriter, error: &ScriptError) {
    match error {
        ScriptError::RaisedWith { code, message, data } => {
            frame.u8(10);
            frame.option(*code, FrameWriter::i64);
            frame.text(message);
            frame.option(data.as_deref(), |frame, data| frame.text(data.get()));
        }
        ScriptError::Limit(limit) => {
            frame.u8(11);
            write_limit(frame, *limit);
        }
        ScriptError::LimitAt { limit, location } => {
            frame.u8(12);
            write_limit(frame, *limit);
            frame.text(location);
        }
        ScriptError::Compile(CompileError { line, message }) => {
            frame.u8(13);
            frame.u32(*line);
            frame.text(message);
        }
        ScriptError::Host => frame.u8(14),
        other => {
            frame.u8(9);
            frame.text(&other.to_string());
        }
    }
}

fn read_error(frame: &mut FrameReader, code: u8) -> Result<ScriptError, Malformed> {
    Ok(match code {
        9 => ScriptError::Raised(message(frame)?),
        10 => ScriptError::RaisedWith {
            code: frame.option(FrameReader::i64)?,
            message: message(frame)?,
            data: frame.option(FrameReader::text)?.map(RawValue::from_string).transpose().map_err(|_| Malformed)?,
        },
        11 => ScriptError::Limit(read_limit(frame)?),
        12 => ScriptError::LimitAt { limit: read_limit(frame)?, location: message(frame)? },
        13 => ScriptError::Compile(CompileError { line: frame.u32()?, message: message(frame)? }),
        14 => ScriptError::Host,
        _ => return Err(Malformed),
    })
}

/// A text for people. The worker has cut it already, unless somebody has taken the worker over.
fn message(frame: &mut FrameReader) -> Result<String, Malformed> {
    frame.text().map(|text| bounded(&text).to_owned())
}

fn write_limit(frame: &mut FrameWriter, limit: LimitExceeded) {
    let (code, value) = match limit {
        LimitExceeded::Wall(span) => (0, micros(span)),
        LimitExceeded::Cpu(span) => (1, micros(span)),
        LimitExceeded::Memory(bytes) => (2, bytes as u64),
        LimitExceeded::Cancelled => (3, 0),
        LimitExceeded::Stopped => (4, 0),
    };
    frame.u8(code);
    frame.u64(value);
}

fn read_limit(frame: &mut FrameReader) -> Result<LimitExceeded, Malformed> {
    let (code, value) = (frame.u8()?, frame.u64()?);
    Ok(match code {
        0 => LimitExceeded::Wall(Duration::from_micros(value)),
        1 => LimitExceeded::Cpu(Duration::from_micros(value)),
        2 => LimitExceeded::Memory(usize::try_from(value).map_err(|_| Malformed)?),
        3 => LimitExceeded::Cancelled,
        4 => LimitExceeded::Stopped,
        _ => return Err(Malformed),
    })
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripting::lua::test_support::{event, input};

    fn from_worker(message: &FromWorker) -> FromWorker {
        let mut writer = FrameWriter::default();
        message.write(&mut writer);
        FromWorker::read(FrameReader(Bytes::from(writer.bytes).slice(4..))).unwrap()
    }

    fn to_worker(write: impl FnOnce(&mut FrameWriter)) -> ToWorker {
        let mut writer = FrameWriter::default();
        write(&mut writer);
        ToWorker::read(FrameReader(Bytes::from(writer.bytes).slice(4..))).unwrap()
    }

    #[test]
    fn an_event_reaches_the_worker_as_it_is() {
        let event = event();
        let input = input(event.clone());
        let program = ProgramText::script("script", "return");
        let read = to_worker(|writer| write_start(writer, 1, std::slice::from_ref(&program), &RunWork::Script(input)));
        let ToWorker::Start { run: 1, program: started, work: StartedWork::Script(fields) } = read else {
            panic!("it is another message")
        };
        assert_eq!(started, program.id());
        assert_eq!((fields.id, fields.kind), (event.id.to_string(), event.kind.to_string()));
        assert_eq!((fields.sequence, fields.attempt, fields.data.as_str()), (7, 1, event.data.get()));
        assert_eq!((fields.space_name.as_str(), fields.space_urls), ("web", vec!["http://web".to_owned()]));
        assert_eq!(fields.custom, [("CHANNEL".to_owned(), "ops".to_owned())]);
        assert_eq!((fields.actor_username.as_str(), fields.actor_kind.as_str()), ("ada", "user"));
    }

    #[test]
    fn every_outcome_reads_back_as_it_was_written() {
        let why = || "why".to_owned();
        for output in [
            RunOutput::Rendered { kind: BodyFormat::Json, body: "{}".into() },
            RunOutput::Rendered { kind: BodyFormat::Text, body: "\u{1}".into() },
            RunOutput::RenderedEach {
                bodies: vec![
                    RenderedBody { kind: BodyFormat::Json, body: "{}".into(), log: vec![] },
                    RenderedBody { kind: BodyFormat::Text, body: "".into(), log: vec![why()] },
                ],
                failed: true,
            },
            RunOutput::Verdict(Verdict::Ack),
            RunOutput::Verdict(Verdict::Failed(why())),
            RunOutput::Verdict(Verdict::Retry { after: Duration::from_millis(1500), why: why() }),
            RunOutput::Verdict(Verdict::Skip(why())),
            RunOutput::Verdict(Verdict::Dead(why())),
            RunOutput::Json("[1]".to_owned()),
            RunOutput::Compiled,
            RunOutput::Filtered(vec![FilterVerdict::Match, FilterVerdict::Refuse, FilterVerdict::Failed(why())]),
        ] {
            let finished = FinishedRun { cpu: Duration::from_nanos(5), log: vec![why()], outcome: Ok(output) };
            let FromWorker::Done { run: 9, finished: read } = from_worker(&FromWorker::Done { run: 9, finished })
            else {
                panic!("it is another message")
            };
            assert_eq!((read.cpu, read.log), (Duration::from_nanos(5), vec![why()]));
            let again = FinishedRun { cpu: read.cpu, log: vec![], outcome: read.outcome };
            let FromWorker::Done { finished: twice, .. } =
                from_worker(&FromWorker::Done { run: 9, finished: FinishedRun { log: vec![], ..again } })
            else {
                panic!("it is another message")
            };
            assert!(twice.outcome.is_ok());
        }
        let data = RawValue::from_string("[1]".to_owned()).unwrap();
        for error in [
            ScriptError::Raised(why()),
            ScriptError::RaisedWith { code: Some(-7), message: why(), data: Some(data) },
            ScriptError::Limit(LimitExceeded::Cpu(Duration::from_secs(1))),
            ScriptError::LimitAt { limit: LimitExceeded::Memory(32 << 20), location: "script:3".to_owned() },
            ScriptError::Compile(CompileError { line: 3, message: why() }),
            ScriptError::Host,
        ] {
            let told = format!("{error:?}");
            let finished = FinishedRun { cpu: Duration::ZERO, log: Vec::new(), outcome: Err(error) };
            let FromWorker::Done { finished: read, .. } = from_worker(&FromWorker::Done { run: 1, finished }) else {
                panic!("it is another message")
            };
            assert_eq!(format!("{:?}", read.outcome.unwrap_err()), told);
        }
    }

    #[test]
    fn texts_that_a_worker_did_not_cut_are_cut_when_they_are_read() {
        let long = || "é".repeat(1 << 20);
        let read = |outcome, log| {
            let finished = FinishedRun { cpu: Duration::ZERO, log, outcome };
            match from_worker(&FromWorker::Done { run: 1, finished }) {
                FromWorker::Done { finished, .. } => finished,
                _ => panic!("it is another message"),
            }
        };
        for verdict in [Verdict::Failed(long()), Verdict::Skip(long()), Verdict::Dead(long())] {
            let read = read(Ok(RunOutput::Verdict(verdict)), Vec::new());
            let Ok(RunOutput::Verdict(Verdict::Failed(why) | Verdict::Skip(why) | Verdict::Dead(why))) = read.outcome
            else {
                panic!("it is another outcome")
            };
            assert_eq!(why.len(), 4 << 10);
        }
        for error in [
            ScriptError::Raised(long()),
            ScriptError::RaisedWith { code: None, message: long(), data: None },
            ScriptError::Compile(CompileError { line: 1, message: long() }),
            ScriptError::LimitAt { limit: LimitExceeded::Cancelled, location: long() },
        ] {
            assert!(read(Err(error), Vec::new()).outcome.unwrap_err().to_string().len() < (4 << 10) + 100);
        }
        let lines = read(Ok(RunOutput::Compiled), vec!["x".to_owned(); 1000]).log;
        assert_eq!((lines.len(), lines[200].as_str()), (201, "… truncated"));
        let bytes: usize = read(Ok(RunOutput::Compiled), vec![long()]).log.iter().map(String::len).sum();
        assert!(bytes <= (16 << 10) + "… truncated".len(), "{bytes}");
    }

    #[test]
    fn a_message_that_is_cut_or_too_long_is_refused() {
        let mut writer = FrameWriter::default();
        FromWorker::YieldingRequest { run: 1, request: HostRequest::KvGet { key: "key".to_owned() } }
            .write(&mut writer);
        let whole = Bytes::from(writer.bytes).slice(4..);
        for length in 0..whole.len() {
            assert_eq!(FromWorker::read(FrameReader(whole.slice(..length))).err(), Some(Malformed), "{length}");
        }
        let longer = Bytes::from([&whole[..], b"x"].concat());
        assert_eq!(FromWorker::read(FrameReader(longer)).err(), Some(Malformed));
    }
}
