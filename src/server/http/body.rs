//! Reads bodies.

use super::{
    body_memory::{BodyMemory, BodySender},
    error::ApiError,
};
use bytes::{Buf, Bytes, BytesMut};
use futures_util::{FutureExt, Stream, StreamExt};
use http_body_util::LengthLimitError;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use std::{error::Error, pin::Pin, time::Duration};

/// Time for a body to arrive.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Bounds on what is read of a refused request's body.
const REFUSED_BODY_BYTES: usize = 4 << 20;
const REFUSED_BODY_TIME: Duration = Duration::from_secs(1);

/// A request's body as it arrives, already limited in size.
pub type BodyStream = Pin<Box<dyn Stream<Item = Result<Bytes, warp::Error>> + Send + Sync>>;

/// Boxes the body that warp hands out, so that its type has a name.
pub fn boxed(body: impl Stream<Item = Result<impl Buf, warp::Error>> + Send + Sync + 'static) -> BodyStream {
    Box::pin(body.map(|chunk| chunk.map(|mut chunk| chunk.copy_to_bytes(chunk.remaining()))))
}

/// Returns whether the content type is JSON.
pub fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let kind = value.split_once(';').map_or(value, |(kind, _)| kind).trim();
    kind.eq_ignore_ascii_case("application/json")
}

/// Reads the whole body. Memory is reserved for it as soon as the rest has to be waited for.
///
/// # Errors
///
/// Fails if the body stalls, breaks off, or exceeds its limit, and if no memory is left for it. The stream enforces the
/// limit; `limit` is only named in the error.
pub async fn read(
    body: &mut BodyStream,
    limit: usize,
    memory: &BodyMemory,
    sender: BodySender,
) -> Result<Bytes, ApiError> {
    let read = tokio::time::timeout(READ_TIMEOUT, collect(body, limit, memory, sender)).await;
    if let Ok(Err(ApiError::Overload { .. })) = read {
        discard(body).await;
    }
    read.unwrap_or(Err(ApiError::Timeout))
}

/// Reads on after a refusal, within limits, so that the caller reads the error instead of a reset connection.
pub async fn discard<E>(mut body: impl Stream<Item = Result<Bytes, E>> + Unpin) {
    let mut bytes = 0;
    let reading = async {
        while let Some(Ok(chunk)) = body.next().await {
            bytes += chunk.len();
            if bytes > REFUSED_BODY_BYTES {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(REFUSED_BODY_TIME, reading).await;
}

async fn collect(
    body: &mut BodyStream,
    limit: usize,
    memory: &BodyMemory,
    sender: BodySender,
) -> Result<Bytes, ApiError> {
    let failed = |error: warp::Error| match is_limit(&error) {
        true => ApiError::TooLarge { limit },
        false => ApiError::BadRequest(format!("the body broke off: {error}")),
    };
    let (mut whole, mut reservation) = (ArrivedBytes::None, None);
    loop {
        let next = match body.next().now_or_never() {
            Some(next) => next,
            None => {
                if reservation.is_none() {
                    reservation = Some(memory.reserve(sender, limit, whole.len())?);
                }
                body.next().await
            }
        };
        let Some(chunk) = next.transpose().map_err(failed)? else { return Ok(whole.into_bytes()) };
        if let Some(reservation) = &mut reservation {
            reservation.grow(chunk.len())?;
        }
        whole = whole.followed_by(chunk);
    }
}

/// The part of a body that has arrived. Most bodies arrive in one chunk, which needs no copy.
enum ArrivedBytes {
    None,
    OneChunk(Bytes),
    Chunks(BytesMut),
}

impl ArrivedBytes {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::OneChunk(chunk) => chunk.len(),
            Self::Chunks(chunks) => chunks.len(),
        }
    }

    fn followed_by(self, chunk: Bytes) -> Self {
        let mut chunks = match self {
            Self::None => return Self::OneChunk(chunk),
            Self::OneChunk(first) => BytesMut::from(first),
            Self::Chunks(chunks) => chunks,
        };
        chunks.extend_from_slice(&chunk);
        Self::Chunks(chunks)
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::None => Bytes::new(),
            Self::OneChunk(chunk) => chunk,
            Self::Chunks(chunks) => chunks.freeze(),
        }
    }
}

fn is_limit(error: &warp::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use std::net::Ipv4Addr;

    const SENDER: BodySender = BodySender::Stranger(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST));

    #[test]
    fn a_content_type_is_json_with_parameters_and_in_capitals_too() {
        let kind = |text: &str| HeaderMap::from_iter([(CONTENT_TYPE, text.parse().unwrap())]);
        assert!(is_json(&kind("application/json")));
        assert!(is_json(&kind("Application/JSON; charset=utf-8")));
        assert!(!is_json(&kind("text/plain")));
        assert!(!is_json(&kind("application/jsonp")));
        assert!(!is_json(&HeaderMap::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_times_out() {
        let mut body: BodyStream = Box::pin(stream::pending());
        assert!(matches!(read(&mut body, 10, &BodyMemory::new(10), SENDER).await, Err(ApiError::Timeout)));
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_put_together() {
        let pieces = ["ab", "cd", "e"].map(|piece| Ok(Bytes::from(piece)));
        let mut body: BodyStream = Box::pin(stream::iter(pieces));
        assert_eq!(read(&mut body, 10, &BodyMemory::new(10), SENDER).await.unwrap(), "abcde");
    }
}
