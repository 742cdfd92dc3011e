//! The three pipes to the process, each with a task of its own: requests in, answers out, its log out.
//!
//! The two that read go on until their pipe ends, so that the process never blocks on what it writes.

use super::{
    answer::{self, Said},
    lines::{Line, Lines, Stream},
    log_limit::{Chatter, Turn},
    request_queue::{Taken, Traffic},
};
use std::{io, sync::Arc};
use tokio::{
    io::AsyncWriteExt as _,
    process::{ChildStderr, ChildStdin, ChildStdout},
};

/// The longest line that may be an answer.
const MAX_ANSWER: usize = 16 << 20;

/// How much of a line of the process's log is kept.
const MAX_LOG_LINE: usize = 4 << 10;

/// Lines of its log, and remarks of ours on what it writes, that we take over in a second.
const LOG_RATION: u32 = 200;
const REMARK_RATION: u32 = 10;

/// A buffer that grew beyond this for a large request is not kept.
const KEPT: usize = 1 << 20;

/// Writes what is in line until there is no process to write to, and then closes the pipe.
///
/// # Errors
///
/// Fails if the process no longer reads.
pub async fn write_requests(traffic: Arc<Traffic>, mut stdin: ChildStdin) -> io::Result<()> {
    let mut batch = Vec::new();
    loop {
        match traffic.take(&mut batch) {
            Taken::Something => {
                stdin.write_all(&batch).await?;
                batch.clear();
                batch.shrink_to(KEPT);
            }
            Taken::Nothing => {
                traffic.sendable().await;
                // Answers come in bursts, and so do the calls of those who waited for them: once all have had their
                // turn, one write takes the lot. With 64 callers that is half as much again.
                tokio::task::yield_now().await;
            }
            Taken::End => return Ok(()),
        }
    }
}

/// Reads answers until the pipe ends.
pub async fn read_answers(traffic: Arc<Traffic>, stdout: ChildStdout, space: Arc<str>) {
    let mut lines = Lines::new(stdout, MAX_ANSWER);
    let mut answers = Vec::new();
    let (mut odd, mut unknown) = (Chatter::new(REMARK_RATION), Chatter::new(REMARK_RATION));
    loop {
        let read = lines.read(|line| match line {
            Line::Whole(line) => match answer::read(line) {
                Said::Answered(answered) => answers.push(answered),
                Said::Odd(what) => remark(&mut odd, log::Level::Warn, &space, &what),
                Said::Nothing => {}
            },
            Line::TooLong { beginning, length } => {
                let what = format!("a line of {length} bytes, over {MAX_ANSWER}: {}", answer::quoted(beginning));
                remark(&mut odd, log::Level::Warn, &space, &what);
            }
        });
        let ended = !matches!(read.await, Ok(Stream::GoesOn));
        if !answers.is_empty() {
            let strays = traffic.settle(&mut answers);
            if strays > 0 {
                let what = format!("{strays} answers that nobody waits for: late, repeated, or never asked for");
                remark(&mut unknown, log::Level::Debug, &space, &what);
            }
        }
        if ended {
            return;
        }
    }
}

/// Puts the process's own log into ours until the pipe ends.
pub async fn read_log(stderr: ChildStderr, space: Arc<str>) {
    let mut lines = Lines::new(stderr, MAX_LOG_LINE);
    let mut chatter = Chatter::new(LOG_RATION);
    let tell_unsaid = |unsaid| log::info!(target: "svc::method", "{space}: … {unsaid} lines more");
    loop {
        let read = lines.read(|line| {
            match chatter.turn() {
                Turn::Say => {}
                Turn::SayAfter(unsaid) => tell_unsaid(unsaid),
                Turn::BeSilent => return,
            }
            let (text, cut) = match line {
                Line::Whole(line) => (line, String::new()),
                Line::TooLong { beginning, length } => (beginning, format!("… ({length} bytes)")),
            };
            let text = String::from_utf8_lossy(text);
            log::info!(target: "svc::method", "{space}: {}{cut}", text.trim_end_matches('\r'));
        });
        if !matches!(read.await, Ok(Stream::GoesOn)) {
            break;
        }
    }
    if chatter.unsaid() > 0 {
        tell_unsaid(chatter.unsaid());
    }
}

fn remark(chatter: &mut Chatter, level: log::Level, space: &str, what: &str) {
    let more = match chatter.turn() {
        Turn::Say => String::new(),
        Turn::SayAfter(unsaid) => format!(" ({unsaid} remarks like this were left out before)"),
        Turn::BeSilent => return,
    };
    log::log!(level, "the method server of space {space} wrote {what}{more}");
}
