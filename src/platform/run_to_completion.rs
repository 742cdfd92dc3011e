//! Changes that outlive their caller.

use super::{store::StoreError, task};

/// Runs a change to its end on a task of its own, even if the caller is dropped: a client that hangs up must not leave
/// the disk ahead of memory.
///
/// # Errors
///
/// Those of the change, and [`StoreError::Closing`] if the server stops before it has ended.
pub async fn run_to_completion<T, E>(change: impl Future<Output = Result<T, E>> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    match task::run(change).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(StoreError::Closing.into()),
        },
    }
}
