//! A token bucket: bounds a rate, and saves up the tokens of one second at most.

use std::time::Instant;

/// The tokens of one user of a rate. Parts of a token accumulate.
#[derive(Debug)]
pub struct TokenBucket {
    tokens: f64,
    filled_at: Instant,
}

impl TokenBucket {
    /// A bucket that holds this many tokens at `now`.
    pub fn with(tokens: u32, now: Instant) -> Self {
        Self { tokens: f64::from(tokens), filled_at: now }
    }

    /// Adds the tokens earned until `now` at `rate` a second, and returns those that there are.
    pub fn refill(&mut self, rate: u32, now: Instant) -> f64 {
        let rate = f64::from(rate);
        let passed = now.saturating_duration_since(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + passed * rate).min(rate);
        self.filled_at = now;
        self.tokens
    }

    /// Takes tokens, also more than there are: the next ones come later then.
    pub fn spend(&mut self, tokens: usize) {
        self.tokens -= tokens as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn tokens_are_earned_at_the_rate_and_those_of_a_second_are_kept() {
        let start = Instant::now();
        let mut bucket = TokenBucket::with(1, start);
        assert_eq!(bucket.refill(10, start), 1.0);
        bucket.spend(2);
        assert_eq!(bucket.refill(10, start + Duration::from_millis(500)), 4.0);
        assert_eq!(bucket.refill(10, start + Duration::from_secs(60)), 10.0);
        assert_eq!(bucket.refill(10, start), 10.0, "a time that is past earns nothing");
        assert_eq!(bucket.refill(5, start), 5.0, "a lower rate keeps less");
    }
}
