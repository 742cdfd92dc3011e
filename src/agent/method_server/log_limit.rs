//! Limits the log lines of a process: a number per second, and then only the count of those left out.

use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(1);

/// A limit of log lines per second.
pub struct LogLimit {
    per_second: u32,
    window: Instant,
    logged: u32,
    omitted: u64,
}

/// Decision about one log line.
#[derive(Debug, PartialEq, Eq)]
pub enum LogDecision {
    Log,
    /// Log it, after a note that this many lines were left out.
    LogAfterOmitted(u64),
    Omit,
}

impl LogLimit {
    pub fn new(per_second: u32) -> Self {
        Self { per_second, window: Instant::now(), logged: 0, omitted: 0 }
    }

    /// Decides about the next line.
    pub fn decide(&mut self) -> LogDecision {
        self.decide_at(Instant::now())
    }

    /// The number of lines that were left out and not reported yet.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    fn decide_at(&mut self, now: Instant) -> LogDecision {
        if now.duration_since(self.window) >= WINDOW {
            (self.window, self.logged) = (now, 0);
        }
        if self.logged >= self.per_second {
            self.omitted += 1;
            return LogDecision::Omit;
        }
        self.logged += 1;
        match std::mem::take(&mut self.omitted) {
            0 => LogDecision::Log,
            omitted => LogDecision::LogAfterOmitted(omitted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_to_the_limit_and_the_rest_is_counted() {
        let mut limit = LogLimit::new(2);
        let start = limit.window;
        let decisions: Vec<_> = (0..4).map(|_| limit.decide_at(start)).collect();
        assert_eq!(decisions, [LogDecision::Log, LogDecision::Log, LogDecision::Omit, LogDecision::Omit]);
        assert_eq!(limit.decide_at(start + WINDOW), LogDecision::LogAfterOmitted(2));
        assert_eq!(limit.decide_at(start + WINDOW), LogDecision::Log);
        assert_eq!(limit.omitted(), 0);
    }
}
