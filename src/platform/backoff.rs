//! Exponential backoff: waits between attempts double up to a limit, optionally with random jitter.

use std::time::Duration;

/// The waits between the attempts at one operation.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    limit: Duration,
    next: Duration,
}

impl Backoff {
    pub fn new(first: Duration, limit: Duration) -> Self {
        Self { first, limit, next: first.min(limit) }
    }

    /// The next wait.
    pub fn next_wait(&mut self) -> Duration {
        let twice = self.next.saturating_mul(2).min(self.limit);
        std::mem::replace(&mut self.next, twice)
    }

    /// A random wait of at most the next one, so that many clients do not come back at once.
    pub fn next_jittered(&mut self) -> Duration {
        random_between(Duration::ZERO, self.next_wait())
    }

    /// Starts again with the first wait, after the operation succeeded.
    pub fn reset(&mut self) {
        self.next = self.first.min(self.limit);
    }
}

/// A random duration in this range; the middle of it if the system has no randomness.
pub fn random_between(least: Duration, most: Duration) -> Duration {
    let fraction = getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX));
    least + most.saturating_sub(least).mul_f64(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_until_they_are_reset() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
        let waits: Vec<_> = (0..11).map(|_| backoff.next_wait().as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        backoff.reset();
        assert_eq!(backoff.next_wait(), Duration::from_millis(100));
    }

    #[test]
    fn a_random_wait_is_between_its_bounds() {
        let (least, most) = (Duration::from_secs(15), Duration::from_secs(60));
        for _ in 0..100 {
            let mut backoff = Backoff::new(Duration::from_millis(200), most);
            for bound in [200, 400, 800] {
                assert!(backoff.next_jittered() <= Duration::from_millis(bound));
            }
            assert!((least..=most).contains(&random_between(least, most)));
        }
    }
}
