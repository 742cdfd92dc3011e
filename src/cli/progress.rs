//! A progress bar on stderr, for commands that move much data. It is drawn on a terminal only.

use super::shell::Shell;
use std::{
    io::{self, IsTerminal as _},
    time::{Duration, Instant},
};

/// Time between two drawings.
const INTERVAL: Duration = Duration::from_millis(100);

/// Characters of the bar.
const WIDTH: u64 = 24;

/// A bar for one piece of work. [`ProgressBar::clear`] removes it.
pub struct ProgressBar {
    /// Nothing is drawn elsewhere than on a terminal.
    is_shown: bool,
    label: &'static str,
    began: Instant,
    drawn: Instant,
}

impl ProgressBar {
    pub fn new(label: &'static str) -> Self {
        let now = Instant::now();
        Self { is_shown: io::stderr().is_terminal(), label, began: now, drawn: now }
    }

    /// Draws the bar, if it is time to. `total` is 0 if nobody knows it.
    pub fn update(&mut self, shell: &mut Shell<'_>, bytes: u64, total: u64, rows: u64) {
        if !self.is_shown || self.drawn.elapsed() < INTERVAL {
            return;
        }
        self.drawn = Instant::now();
        let line = line(self.label, bytes, total, rows, self.began.elapsed());
        // A broken stderr cannot be reported.
        let _ = write!(shell.err, "\r{line}\u{1b}[K").and_then(|()| shell.err.flush());
    }

    /// Removes the bar.
    pub fn clear(&mut self, shell: &mut Shell<'_>) {
        if self.is_shown {
            let _ = write!(shell.err, "\r\u{1b}[K").and_then(|()| shell.err.flush());
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

/// A number of bytes as people read it.
pub fn readable_bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

fn line(label: &str, bytes: u64, total: u64, rows: u64, elapsed: Duration) -> String {
    // The total is an estimate: the bar is full only when the work is done.
    let part = (bytes.saturating_mul(100)).checked_div(total).map(|percent| percent.min(99));
    let bar = part.map_or_else(String::new, |percent| {
        let full = percent * WIDTH / 100;
        let (full, rest) = ("#".repeat(full as usize), ".".repeat((WIDTH - full) as usize));
        format!("[{full}{rest}] {percent:2} %  ")
    });
    let rate = readable_bytes((bytes as f64 / elapsed.as_secs_f64().max(0.001)) as u64);
    format!("{label}  {bar}{rows} records  {}  {rate}/s", readable_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_part_records_bytes_and_rate_and_is_never_full_early() {
        let second = Duration::from_secs(1);
        assert_eq!(
            line("backup", 50_000_000, 100_000_000, 7, second),
            "backup  [############............] 50 %  7 records  50.0 MB  50.0 MB/s"
        );
        assert!(line("backup", 200, 100, 7, second).contains("] 99 %"));
        assert_eq!(line("backup", 200, 0, 7, second), "backup  7 records  200 B  200 B/s");
    }
}
