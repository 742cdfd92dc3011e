//! Reads a value from the server's environment, a file or a systemd credential, each time it is needed.

use crate::model::configured_value::{ValuePlace, ValueReference, ValueReferenceError};
use std::{
    fs::OpenOptions,
    io::Read as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// The longest value, in bytes.
const MAX_VALUE: u64 = 64 << 10;

/// The directory of systemd credentials.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// The reason that a value could not be read. No message shows a value.
#[derive(Debug, thiserror::Error)]
pub enum ValueReadError {
    #[error("{place} cannot be read: {reason}")]
    Unreadable { place: String, reason: String },
    #[error(transparent)]
    Reference(#[from] ValueReferenceError),
}

/// Reads the value that a reference names, behind its prefix.
///
/// # Errors
///
/// Fails with the place and the reason.
pub async fn read_value(reference: &ValueReference) -> Result<String, ValueReadError> {
    let place = reference.place()?;
    let value = match place {
        ValuePlace::Environment(name) => std::env::var(name).map_err(|error| error.to_string()),
        ValuePlace::File(path) => read_file(path.to_owned()).await,
        ValuePlace::Credential(name) => match std::env::var_os(CREDENTIALS) {
            Some(directory) => read_file(Path::new(&directory).join(name)).await,
            None => Err(format!("{CREDENTIALS} is not set")),
        },
    };
    let value = value.map_err(|reason| ValueReadError::Unreadable { place: place.to_string(), reason })?;
    Ok(format!("{}{value}", reference.prefix))
}

async fn read_file(path: PathBuf) -> Result<String, String> {
    let read = tokio::task::spawn_blocking(move || {
        // A named pipe without a writer would block for ever.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path);
        let file = file.map_err(|error| error.to_string())?;
        if !file.metadata().map_err(|error| error.to_string())?.is_file() {
            return Err("it is no regular file".to_owned());
        }
        let mut text = String::new();
        file.take(MAX_VALUE + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
        if text.len() as u64 > MAX_VALUE {
            return Err(format!("it has more than {MAX_VALUE} bytes"));
        }
        text.truncate(text.trim_end_matches(['\n', '\r']).len());
        Ok(text)
    });
    read.await.unwrap_or_else(|error| Err(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &Path) -> ValueReference {
        let file = Some(path.to_str().unwrap().to_owned());
        ValueReference { file, prefix: "Bearer ".to_owned(), ..ValueReference::default() }
    }

    #[tokio::test]
    async fn a_file_is_read_anew_each_time_without_its_last_line_break() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(read_value(&file(&path)).await.unwrap(), "Bearer one");
        std::fs::write(&path, "two").unwrap();
        assert_eq!(read_value(&file(&path)).await.unwrap(), "Bearer two");
    }

    #[tokio::test]
    async fn an_error_names_the_place_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let absent = directory.path().join("absent");
        let error = read_value(&file(&absent)).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("the file {} on the server cannot be read: ", absent.display())), "{error}");
        let error = read_value(&file(directory.path())).await.unwrap_err().to_string();
        assert!(error.ends_with("it is no regular file"), "{error}");
        let large = directory.path().join("large");
        std::fs::write(&large, "x".repeat(MAX_VALUE as usize + 1)).unwrap();
        let error = read_value(&file(&large)).await.unwrap_err().to_string();
        assert!(error.ends_with("more than 65536 bytes") && !error.contains("xx"), "{error}");
        let variable = ValueReference { env: Some("SVC_TEST_ABSENT".to_owned()), ..ValueReference::default() };
        let error = read_value(&variable).await.unwrap_err().to_string();
        assert!(error.contains("the environment variable SVC_TEST_ABSENT of the server"), "{error}");
    }
}
