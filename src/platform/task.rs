//! Tasks with boxed futures: tokio's code for a task is compiled once for each type of result, not for each future.

use futures_util::FutureExt;
use tokio::{
    sync::oneshot,
    task::{JoinError, JoinHandle},
};

/// Does the same as [`tokio::spawn`].
#[track_caller]
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future.boxed())
}

/// Runs a future to its end on a task of its own, even if the caller is dropped.
///
/// # Errors
///
/// Fails if the future panics, or the runtime ends before it.
pub async fn run<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Result<T, JoinError> {
    // The result passes through a channel, so that the task has none.
    let (result, received) = oneshot::channel();
    let task = spawn(async move { drop(result.send(future.await)) });
    match received.await {
        Ok(result) => Ok(result),
        Err(_) => Err(task.await.expect_err("a task that ends by itself has sent its result")),
    }
}

#[cfg(test)]
mod tests {
    use super::run;
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn a_run_returns_the_result_or_the_panic_of_its_future() {
        assert_eq!(run(async { 7 }).await.unwrap(), 7);
        let error = run(async { panic!("no such luck") }).await.map(|(): ()| ()).unwrap_err();
        assert_eq!(error.into_panic().downcast_ref(), Some(&"no such luck"));
    }

    #[tokio::test]
    async fn a_run_ends_although_its_caller_is_dropped() {
        let ((begin, begun), (end, ended)) = (oneshot::channel::<()>(), oneshot::channel());
        assert!(run(async { end.send(begun.await) }).now_or_never().is_none());
        begin.send(()).unwrap();
        assert_eq!(ended.await, Ok(Ok(())));
    }
}
