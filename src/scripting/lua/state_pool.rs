//! Lua states kept between runs. A state belongs to one program for all its life, and its process to one owner.
//!
//! A run takes a state out and puts it back; two runs of one program at the same time need two states. The pool keeps
//! a number of states for each program, and closes those whose program is gone and those unused for longest.

use super::{
    program::{CompiledProgram, Program},
    sandbox::Sandbox,
};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// The most idle states, over all programs.
const MAX_IDLE: usize = 64;

/// The idle states.
pub(in crate::scripting) struct StatePool {
    /// The state put back last is at the end.
    idle: Mutex<Vec<IdleState>>,
    /// The most idle states of one program.
    per_program: usize,
}

struct IdleState {
    program: Weak<CompiledProgram>,
    id: u64,
    sandbox: Sandbox,
}

impl StatePool {
    /// Makes a pool that keeps up to `per_program` states for each program.
    pub fn new(per_program: usize) -> Self {
        Self { idle: Mutex::default(), per_program }
    }

    /// Takes out a state that ran this program before.
    pub fn take(&self, program: &Program) -> Option<Sandbox> {
        let mut idle = self.idle.lock();
        let at = idle.iter().rposition(|state| state.id == program.0.id)?;
        Some(idle.remove(at).sandbox)
    }

    /// Keeps a state for the program's next run.
    pub fn put(&self, program: &Program, sandbox: Sandbox) {
        let id = program.0.id;
        let state = IdleState { program: Arc::downgrade(&program.0), id, sandbox };
        let mut idle = self.idle.lock();
        let mut dropped: Vec<_> = idle.extract_if(.., |other| other.program.strong_count() == 0).collect();
        let is_like = |other: &IdleState| other.id == id;
        if idle.iter().filter(|other| is_like(other)).count() >= self.per_program {
            dropped.extend(idle.iter().position(is_like).map(|oldest| idle.remove(oldest)));
        }
        idle.push(state);
        if idle.len() > MAX_IDLE {
            dropped.push(idle.remove(0));
        }
        // Closing a state takes a while and must not happen under the lock.
        drop(idle);
        drop(dropped);
    }

    /// Closes every state.
    pub fn clear(&self) {
        drop(std::mem::take(&mut *self.idle.lock()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripting::lua::test_support::TestRuntime;

    fn program() -> Program {
        Program::script("script", "return").unwrap()
    }

    #[tokio::test]
    async fn a_state_is_kept_for_its_program_alone() {
        let (runtime, pool) = (TestRuntime::new(), StatePool::new(1));
        let program = program();
        pool.put(&program, runtime.sandbox(&program));
        assert!(pool.take(&super::tests::program()).is_none());
        assert!(pool.take(&program.clone()).is_some());
        assert!(pool.take(&program).is_none(), "it was taken out");
    }

    #[tokio::test]
    async fn the_state_of_a_dropped_program_is_closed_when_another_state_is_put_back() {
        let (runtime, pool) = (TestRuntime::new(), StatePool::new(1));
        let (gone, next) = (program(), program());
        pool.put(&gone, runtime.sandbox(&gone));
        drop(gone);
        pool.put(&next, runtime.sandbox(&next));
        assert_eq!(pool.idle.lock().len(), 1);
    }

    #[tokio::test]
    async fn the_state_unused_for_longest_is_closed_when_the_pool_is_full() {
        let (runtime, pool) = (TestRuntime::new(), StatePool::new(1));
        let programs: Vec<_> = (0..=MAX_IDLE).map(|_| program()).collect();
        for program in &programs {
            pool.put(program, runtime.sandbox(program));
        }
        assert_eq!(pool.idle.lock().len(), MAX_IDLE);
        assert!(pool.take(&programs[0]).is_none());
        assert!(pool.take(&programs[1]).is_some());
    }
}
