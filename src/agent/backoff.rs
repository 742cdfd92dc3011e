//! How long to wait before the next attempt at something that failed: twice as long each time, up to a limit.

use std::time::Duration;

/// The waits of one thing that is tried again and again.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    pub fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, next: first.min(most) }
    }

    /// The next wait.
    pub fn next(&mut self) -> Duration {
        let twice = self.next.saturating_mul(2).min(self.most);
        std::mem::replace(&mut self.next, twice)
    }

    /// Anything up to the next wait, so that many who wait do not come back all at once.
    pub fn next_drawn(&mut self) -> Duration {
        drawn(Duration::ZERO, self.next())
    }

    /// It went well for long enough: waits start anew.
    pub fn reset(&mut self) {
        self.next = self.first.min(self.most);
    }
}

/// A wait between these two, drawn at random. Without randomness the middle will do.
pub fn drawn(least: Duration, most: Duration) -> Duration {
    let chance = getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX));
    least + most.saturating_sub(least).mul_f64(chance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_until_they_start_anew() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
        let waits: Vec<_> = (0..11).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        backoff.reset();
        assert_eq!(backoff.next(), Duration::from_millis(100));
    }

    #[test]
    fn a_drawn_wait_is_between_its_bounds() {
        let (least, most) = (Duration::from_secs(15), Duration::from_secs(60));
        for _ in 0..100 {
            let mut backoff = Backoff::new(Duration::from_millis(200), most);
            for bound in [200, 400, 800] {
                assert!(backoff.next_drawn() <= Duration::from_millis(bound));
            }
            assert!((least..=most).contains(&drawn(least, most)));
        }
    }
}
