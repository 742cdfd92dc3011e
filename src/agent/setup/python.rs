//! Runs a set-up script with the system's Python, in the directory of its file.

use super::error::{PrintedBefore, SetupError};
use crate::{
    agent::{
        child_env::ChildEnv,
        child_process::{ChildCommand, ChildSpawnError},
        setup_changes::{self, SetupChanges},
    },
    platform::{process_group::describe_exit, task},
};
use parking_lot::Mutex;
use std::{io, path::Path, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

const PYTHON: &str = "python3";

/// Bytes of a script's output that are kept. The end of it shows what failed.
const MAX_OUTPUT: usize = 64 << 10;

/// Time for the rest of the output of a script that has ended: only a process that it left running can hold the pipe.
const LAST_OUTPUT: Duration = Duration::from_millis(200);

/// The end of a stream.
#[derive(Clone, Default)]
struct OutputTail(Arc<Mutex<Vec<u8>>>);

/// Runs the file, and returns its output. Processes that it leaves running in its group are killed.
///
/// # Errors
///
/// Fails if there is no Python, if the script fails, with its stderr, or if it does not end in time.
pub async fn run(
    path: &Path,
    child_env: &ChildEnv,
    changes: &SetupChanges,
    limit: Duration,
) -> Result<String, SetupError> {
    let failed = |reason: String| SetupError::failed(path, reason);
    let Some(file) = path.to_str() else { return Err(failed("its path is not UTF-8".to_owned())) };
    let mut environment = child_env.variables();
    // Stdout and stderr are interleaved as they are written.
    environment.push(("PYTHONUNBUFFERED".to_owned(), "1".to_owned()));
    environment.push((setup_changes::VARIABLE.to_owned(), changes.token.clone()));
    let command = ChildCommand {
        command: PYTHON,
        args: &[file.to_owned()],
        directory: path.parent().unwrap_or(Path::new("/")),
        environment: &environment,
    };
    let (mut process, pipes) = command.spawn_with_pipes().await.map_err(|error| match error {
        ChildSpawnError::Command { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            SetupError::NoPython(path.to_owned())
        }
        other => failed(other.to_string()),
    })?;
    drop(pipes.stdin);
    let (output, stdout, stderr) = (OutputTail::default(), OutputTail::default(), OutputTail::default());
    let reading_stdout = AbortOnDropHandle::new(task::spawn(collect(pipes.stdout, [output.clone(), stdout.clone()])));
    let reading_stderr = AbortOnDropHandle::new(task::spawn(collect(pipes.stderr, [output.clone(), stderr.clone()])));
    // Dropping the process kills its group.
    let Ok(status) = timeout(limit, process.exited()).await else {
        return Err(SetupError::Timeout { path: path.to_owned(), limit });
    };
    let _ = timeout(LAST_OUTPUT, async { tokio::join!(reading_stdout, reading_stderr) }).await;
    process.sweep().await;
    match status.as_ref().is_ok_and(|status| status.success()) {
        true => Ok(output.text()),
        false => {
            let reason = match stderr.text().trim_end() {
                "" => describe_exit(&status),
                text => format!("{}\n{text}", describe_exit(&status)),
            };
            Err(failed(format!("{reason}{}", PrintedBefore(&stdout.text()))))
        }
    }
}

/// Copies a stream to both tails until it ends.
async fn collect(mut from: impl AsyncRead + Unpin, tails: [OutputTail; 2]) {
    let mut chunk = vec![0; 8 << 10];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        for tail in &tails {
            tail.add(&chunk[..count]);
        }
    }
}

impl OutputTail {
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
