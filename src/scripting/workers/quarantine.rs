//! Programs that ended their worker process, and the quarantine of those that did so several times in a row.
//!
//! It is kept in memory: a server that starts again gives every program another chance. A program is known by its
//! owner, its user and its text, so that a saved change makes it another one.

use super::{places::WorkerKey, program_text::ProgramText};
use crate::{model::timestamp::Timestamp, scripting::lua::ScriptError};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};
use tokio::time::Instant;

/// The number of times in a row that a program may end its worker.
const MOST_FAULTS: u32 = 3;

/// The length of a quarantine, and the time after which a single end is forgotten.
const QUARANTINE: Duration = Duration::from_secs(60 * 60);

/// The most programs that are remembered.
const MAX_PROGRAMS: usize = 10_000;

/// The programs that ended their workers.
#[derive(Default)]
pub(super) struct Quarantine {
    programs: Mutex<HashMap<(WorkerKey, [u8; 32]), ProgramFaults>>,
    /// The number of programs, so that a server without any looks no further.
    count: AtomicUsize,
}

struct ProgramFaults {
    count: u32,
    last: Instant,
    /// The end of the quarantine, as users see it.
    until: Timestamp,
    why: String,
}

/// A program in quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    pub until: Timestamp,
    /// The number of times in a row that the program ended its process.
    pub count: u32,
    /// The last reason.
    pub why: String,
}

impl Quarantine {
    /// Counts that a program ended its worker.
    pub fn record_fault(&self, key: WorkerKey, program: &ProgramText, why: String) {
        let mut programs = self.programs.lock();
        let id = (key, program.digest());
        if programs.len() >= MAX_PROGRAMS && !programs.contains_key(&id) {
            programs.retain(|_, faults| faults.last.elapsed() < QUARANTINE);
            let oldest = programs.iter().min_by_key(|(_, faults)| faults.last).map(|(id, _)| *id);
            if let Some(oldest) = oldest.filter(|_| programs.len() >= MAX_PROGRAMS) {
                programs.remove(&oldest);
            }
        }
        let before = programs.get(&id).filter(|faults| faults.last.elapsed() < QUARANTINE);
        let count = before.map_or(0, |faults| faults.count) + 1;
        let until = Timestamp::from_micros(Timestamp::now().micros() + QUARANTINE.as_micros() as i64);
        programs.insert(id, ProgramFaults { count, last: Instant::now(), until, why });
        self.count.store(programs.len(), Relaxed);
    }

    /// Forgets what a program did, because it has just run to its end.
    pub fn succeeded(&self, key: WorkerKey, program: &ProgramText) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let mut programs = self.programs.lock();
        programs.remove(&(key, program.digest()));
        self.count.store(programs.len(), Relaxed);
    }

    /// The quarantine of a program, if it is in one.
    pub fn find(&self, key: WorkerKey, program: &ProgramText) -> Option<Quarantined> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        let programs = self.programs.lock();
        let faults = programs.get(&(key, program.digest()))?;
        let holds = faults.count >= MOST_FAULTS && faults.last.elapsed() < QUARANTINE;
        holds.then(|| Quarantined { until: faults.until, count: faults.count, why: faults.why.clone() })
    }

    /// The number of programs in quarantine.
    pub fn len(&self) -> usize {
        if self.count.load(Relaxed) == 0 {
            return 0;
        }
        let programs = self.programs.lock();
        programs.values().filter(|one| one.count >= MOST_FAULTS && one.last.elapsed() < QUARANTINE).count()
    }
}

impl From<Quarantined> for ScriptError {
    fn from(quarantined: Quarantined) -> Self {
        let Quarantined { until, count, why } = quarantined;
        Self::Quarantined { until, count, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{id::UserId, owner::Owner};

    #[test]
    fn a_program_is_quarantined_when_it_ended_its_worker_three_times_in_a_row() {
        let (quarantine, key) = (Quarantine::default(), WorkerKey::of_owner(Owner::Global));
        let program = ProgramText::script("script", "bad()");
        for count in 0..3 {
            assert!(quarantine.find(key, &program).is_none(), "{count}");
            quarantine.record_fault(key, &program, format!("reason {count}"));
        }
        let found = quarantine.find(key, &program).unwrap();
        assert_eq!((found.count, found.why.as_str()), (3, "reason 2"));
        assert_eq!(quarantine.len(), 1);
        // The same text is the same program, another text or another user another one.
        assert!(quarantine.find(key, &ProgramText::script("script", "bad()")).is_some());
        assert!(quarantine.find(key, &ProgramText::script("script", "bad() ")).is_none());
        let user = WorkerKey { acts_for: Owner::User(UserId::new()), ..key };
        assert!(quarantine.find(user, &program).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_quarantine_ends_after_an_hour_and_so_does_the_memory_of_single_ends() {
        let (quarantine, key) = (Quarantine::default(), WorkerKey::of_owner(Owner::Global));
        let program = ProgramText::script("script", "bad()");
        let fault = || quarantine.record_fault(key, &program, String::new());
        (0..3).for_each(|_| fault());
        tokio::time::advance(QUARANTINE - Duration::from_millis(1)).await;
        assert!(quarantine.find(key, &program).is_some() && quarantine.len() == 1);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(quarantine.find(key, &program).is_none() && quarantine.len() == 0);
        // It begins with the first again.
        (0..2).for_each(|_| fault());
        assert!(quarantine.find(key, &program).is_none());
        tokio::time::advance(QUARANTINE).await;
        (0..2).for_each(|_| fault());
        assert!(quarantine.find(key, &program).is_none());
        fault();
        assert_eq!(quarantine.find(key, &program).map(|found| found.count), Some(3));
    }

    #[test]
    fn a_run_that_ends_well_starts_the_count_again() {
        let (quarantine, key) = (Quarantine::default(), WorkerKey::of_owner(Owner::Global));
        let program = ProgramText::script("script", "sometimes()");
        for _ in 0..3 {
            quarantine.record_fault(key, &program, String::new());
            quarantine.record_fault(key, &program, String::new());
            quarantine.succeeded(key, &program);
        }
        assert!(quarantine.find(key, &program).is_none());
        assert_eq!(quarantine.len(), 0);
    }
}
