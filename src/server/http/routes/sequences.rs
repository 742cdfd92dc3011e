//! The states of the sequence numbers of a queue.

use super::queues::{QueueAccess, find_queue};
use crate::{
    model::{
        api::sequences::{DEFAULT_NUMBERS, MAX_NUMBERS, NumberView, SequenceQuery, SequenceView},
        sequence::SequenceRange,
    },
    server::http::{ApiError, ApiRequest, Json, Query, services::SinkServices},
};
use std::sync::Arc;

pub async fn show(
    services: Arc<SinkServices>,
    request: ApiRequest,
    Query(query): Query<SequenceQuery>,
) -> Result<Json<SequenceView>, ApiError> {
    let queue = find_queue(&services, &request, QueueAccess::Read)?;
    let last_sequence = services.engine.depth(queue).last_sequence;
    let range = checked_range(&query, last_sequence)?;
    let permit = services.user_limits.test_run(request.caller().user.id)?;
    let engine = services.engine.clone();
    // The permit is held to the end of the read, also if nobody waits for it any more.
    let read = move || {
        let numbers = engine.numbers(queue, range);
        drop(permit);
        numbers
    };
    let numbers = tokio::task::spawn_blocking(read).await.map_err(|error| ApiError::Internal(error.to_string()))??;
    Ok(Json(SequenceView { items: numbers.into_iter().map(NumberView::from).collect(), last_sequence }))
}

fn checked_range(query: &SequenceQuery, last: u64) -> Result<SequenceRange, ApiError> {
    let from = query.from.unwrap_or_else(|| (last + 1).saturating_sub(DEFAULT_NUMBERS).max(1));
    if from == 0 {
        return Err(ApiError::BadRequest("`from`: numbers begin with 1".to_owned()));
    }
    let to = query.to.unwrap_or_else(|| from.saturating_add(MAX_NUMBERS - 1));
    if to < from {
        return Err(ApiError::BadRequest(format!("`to` must not be less than `from`, which is {from}")));
    }
    if to - from >= MAX_NUMBERS {
        return Err(ApiError::BadRequest(format!(
            "`to`: at most {MAX_NUMBERS} numbers at once; ask for {from} to {} first",
            from + (MAX_NUMBERS - 1)
        )));
    }
    Ok(SequenceRange { from, to })
}
