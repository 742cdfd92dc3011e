//! Keeps a process from filling the log: so many messages a second, and then only how many there were.

use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(1);

/// A ration of messages.
pub struct Chatter {
    ration: u32,
    window: Instant,
    said: u32,
    unsaid: u64,
}

/// Whether a message may be said.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    Say,
    /// And before it, that so many were not.
    SayAfter(u64),
    BeSilent,
}

impl Chatter {
    /// So many messages a second.
    pub fn new(ration: u32) -> Self {
        Self { ration, window: Instant::now(), said: 0, unsaid: 0 }
    }

    /// Asks for one message.
    pub fn turn(&mut self) -> Turn {
        self.turn_at(Instant::now())
    }

    /// How many were not said and not told of, at the end.
    pub fn unsaid(&self) -> u64 {
        self.unsaid
    }

    fn turn_at(&mut self, now: Instant) -> Turn {
        if now.duration_since(self.window) >= WINDOW {
            (self.window, self.said) = (now, 0);
        }
        if self.said >= self.ration {
            self.unsaid += 1;
            return Turn::BeSilent;
        }
        self.said += 1;
        match std::mem::take(&mut self.unsaid) {
            0 => Turn::Say,
            unsaid => Turn::SayAfter(unsaid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_to_its_ration_and_then_counted() {
        let mut chatter = Chatter::new(2);
        let start = chatter.window;
        let turns: Vec<_> = (0..4).map(|_| chatter.turn_at(start)).collect();
        assert_eq!(turns, [Turn::Say, Turn::Say, Turn::BeSilent, Turn::BeSilent]);
        assert_eq!(chatter.turn_at(start + WINDOW), Turn::SayAfter(2));
        assert_eq!(chatter.turn_at(start + WINDOW), Turn::Say);
        assert_eq!(chatter.unsaid(), 0);
    }
}
