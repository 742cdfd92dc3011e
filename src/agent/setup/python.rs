//! Runs a set-up script with the machine's Python, in the directory of its file.

use super::{HadPrinted, MAX_OUTPUT, SetupError};
use crate::agent::{
    child_env::Surroundings,
    method_server::{
        StartError,
        child::{Launch, told},
    },
    setup_changes::{self, Doings},
};
use parking_lot::Mutex;
use std::{io, path::Path, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

const PYTHON: &str = "python3";

/// How long the output of a script that has ended may take to be read: only what it left running can hold the pipe.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The end of what was written.
#[derive(Clone, Default)]
struct Tail(Arc<Mutex<Vec<u8>>>);

/// Runs the file and returns what it printed. What it leaves running in its process group is killed.
///
/// # Errors
///
/// Fails if there is no Python, and if the script does not end well, with what it wrote to stderr, or in time.
pub async fn run(
    path: &Path,
    surroundings: &Surroundings,
    doings: &Doings,
    limit: Duration,
) -> Result<String, SetupError> {
    let failed = |why: String| SetupError::Failed { path: path.to_owned(), why };
    let Some(file) = path.to_str() else { return Err(failed("its path is not UTF-8".to_owned())) };
    let mut environment = surroundings.variables();
    // What it prints and what it complains of are read side by side.
    environment.push(("PYTHONUNBUFFERED".to_owned(), "1".to_owned()));
    environment.push((setup_changes::VARIABLE.to_owned(), doings.token.clone()));
    let launch = Launch {
        command: PYTHON,
        args: &[file.to_owned()],
        directory: path.parent().unwrap_or(Path::new("/")),
        environment: &environment,
    };
    let (mut process, pipes) = launch.with_pipes().await.map_err(|error| match error {
        StartError::Command { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            SetupError::NoPython(path.to_owned())
        }
        other => failed(other.to_string()),
    })?;
    drop(pipes.stdin);
    let (output, printed, complaints) = (Tail::default(), Tail::default(), Tail::default());
    let printing = AbortOnDropHandle::new(tokio::spawn(gather(pipes.stdout, vec![output.clone(), printed.clone()])));
    let complaining =
        AbortOnDropHandle::new(tokio::spawn(gather(pipes.stderr, vec![output.clone(), complaints.clone()])));
    // A process that is dropped is killed with all of its group.
    let Ok(status) = timeout(limit, process.exited()).await else {
        return Err(SetupError::TooLong { path: path.to_owned(), limit });
    };
    let _ = timeout(LAST_WORDS, async { tokio::join!(printing, complaining) }).await;
    process.sweep().await;
    match status.as_ref().is_ok_and(|status| status.success()) {
        true => Ok(output.text()),
        false => {
            let why = match complaints.text().trim_end() {
                "" => told(&status),
                complaints => format!("{}\n{complaints}", told(&status)),
            };
            Err(failed(format!("{why}{}", HadPrinted(&printed.text()))))
        }
    }
}

async fn gather(mut from: impl AsyncRead + Unpin, tails: Vec<Tail>) {
    let mut chunk = vec![0; 8 << 10];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        for tail in &tails {
            tail.add(&chunk[..count]);
        }
    }
}

impl Tail {
    fn add(&self, bytes: &[u8]) {
        let mut tail = self.0.lock();
        tail.extend_from_slice(bytes);
        let over = tail.len().saturating_sub(MAX_OUTPUT);
        tail.drain(..over);
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}
