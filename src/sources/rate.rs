//! The rate limit of a source: a bucket that holds one second's requests and is refilled all the time.

use crate::platform::token_bucket::TokenBucket;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

#[derive(Default)]
pub struct RateLimit {
    bucket: Mutex<Option<TokenBucket>>,
}

impl RateLimit {
    /// Takes one request at `now`, of `rate` a second.
    ///
    /// # Errors
    ///
    /// Fails with the time after which the next request would be taken.
    pub fn take(&self, rate: u32, now: Instant) -> Result<(), Duration> {
        let mut bucket = self.bucket.lock();
        let bucket = bucket.get_or_insert_with(|| TokenBucket::with(rate, now));
        let left = bucket.refill(rate, now);
        if left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - left) / f64::from(rate)));
        }
        bucket.spend(1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_s_worth_is_taken_at_once_and_then_as_many_a_second() {
        let (limit, start) = (RateLimit::default(), Instant::now());
        for _ in 0..10 {
            limit.take(10, start).unwrap();
        }
        assert_eq!(limit.take(10, start), Err(Duration::from_millis(100)));
        limit.take(10, start + Duration::from_millis(101)).unwrap();
        assert!(limit.take(10, start + Duration::from_millis(101)).is_err());
        let later = start + Duration::from_secs(60);
        assert_eq!((0..100).filter(|_| limit.take(10, later).is_ok()).count(), 10);
    }
}
