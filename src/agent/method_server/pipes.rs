//! The three pipes of a method server, each with a task of its own: requests in, answers out, log out.
//!
//! The two readers go on until their pipe ends, so that the process never blocks on its output.

use super::{
    log_limit::{LogDecision, LogLimit},
    messages::{self, ServerLine, UnexpectedLine},
    request_queue::{RequestQueue, Taken},
};
use crate::platform::lines::{Line, LineReader, StreamState};
use std::{io, sync::Arc};
use tokio::{
    io::AsyncWriteExt as _,
    process::{ChildStderr, ChildStdin, ChildStdout},
};

/// The longest line that may be an answer.
const MAX_ANSWER: usize = 16 << 20;

/// Bytes of a line of the process's log that are kept.
const MAX_LOG_LINE: usize = 4 << 10;

/// Lines of the process's log that are copied in a second.
const LOG_LINES_PER_SECOND: u32 = 200;

/// Warnings about the process's output in a second.
const WARNINGS_PER_SECOND: u32 = 10;

/// A buffer that grew beyond this for a large request is not kept.
const KEPT_BUFFER: usize = 1 << 20;

/// Writes queued requests until the queue is closed, and then closes the pipe.
///
/// # Errors
///
/// Fails if the process no longer reads.
pub async fn write_requests(queue: Arc<RequestQueue>, mut stdin: ChildStdin) -> io::Result<()> {
    let mut batch = Vec::new();
    loop {
        match queue.take(&mut batch) {
            Taken::Requests => {
                stdin.write_all(&batch).await?;
                batch.clear();
                batch.shrink_to(KEPT_BUFFER);
            }
            Taken::Nothing => {
                queue.sendable().await;
                // Answers come in bursts, and so do the next calls of their callers: after a yield, one write takes them
                // all. With 64 callers that is half as much throughput again.
                tokio::task::yield_now().await;
            }
            Taken::Ended => return Ok(()),
        }
    }
}

/// Reads answers until the pipe ends.
pub async fn read_answers(queue: Arc<RequestQueue>, stdout: ChildStdout, space: Arc<str>) {
    let mut lines = LineReader::new(stdout, MAX_ANSWER);
    let mut answers = Vec::new();
    let (mut unexpected, mut unknown) = (LogLimit::new(WARNINGS_PER_SECOND), LogLimit::new(WARNINGS_PER_SECOND));
    loop {
        let read = lines.read(|line| {
            let line = match line {
                Line::Whole(line) => messages::parse_line(line),
                Line::TooLong { beginning, length } => messages::too_long(beginning, length, MAX_ANSWER),
            };
            match line {
                ServerLine::Answer(answered) => answers.push(answered),
                ServerLine::Unexpected(UnexpectedLine { what, answer }) => {
                    log_output(&mut unexpected, log::Level::Warn, &space, &what);
                    answers.extend(answer);
                }
                ServerLine::Blank => {}
            }
        });
        let ended = !matches!(read.await, Ok(StreamState::Open));
        if !answers.is_empty() {
            let strays = queue.settle(&mut answers);
            if strays > 0 {
                let what = format!("{strays} answers that nobody waits for: late, repeated, or never asked for");
                log_output(&mut unknown, log::Level::Debug, &space, &what);
            }
        }
        if ended {
            return;
        }
    }
}

/// Copies the process's log into the agent's until the pipe ends.
pub async fn read_log(stderr: ChildStderr, space: Arc<str>) {
    let mut lines = LineReader::new(stderr, MAX_LOG_LINE);
    let mut limit = LogLimit::new(LOG_LINES_PER_SECOND);
    let log_omitted = |omitted| log::info!(target: "svc::method", "{space}: … {omitted} lines more");
    loop {
        let read = lines.read(|line| {
            match limit.decide() {
                LogDecision::Log => {}
                LogDecision::LogAfterOmitted(omitted) => log_omitted(omitted),
                LogDecision::Omit => return,
            }
            let (text, cut) = match line {
                Line::Whole(line) => (line, String::new()),
                Line::TooLong { beginning, length } => (beginning, format!("… ({length} bytes)")),
            };
            let text = String::from_utf8_lossy(text);
            log::info!(target: "svc::method", "{space}: {}{cut}", text.trim_end_matches('\r'));
        });
        if !matches!(read.await, Ok(StreamState::Open)) {
            break;
        }
    }
    if limit.omitted() > 0 {
        log_omitted(limit.omitted());
    }
}

/// Logs a remark on the process's output, within the limit.
fn log_output(limit: &mut LogLimit, level: log::Level, space: &str, what: &str) {
    let more = match limit.decide() {
        LogDecision::Log => String::new(),
        LogDecision::LogAfterOmitted(omitted) => format!(" ({omitted} remarks like this were left out before)"),
        LogDecision::Omit => return,
    };
    log::log!(level, "the method server of space {space} wrote {what}{more}");
}
