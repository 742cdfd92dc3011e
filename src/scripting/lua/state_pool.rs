//! Lua states kept between runs. A state belongs to one program and one owner for all its life.
//!
//! A run takes a state out and puts it back; two runs of one program at the same time need two states. The pool keeps
//! a number of states for each program and owner, and closes those whose program is gone and those unused for longest.

use super::{
    program::{CompiledProgram, Program},
    sandbox::Sandbox,
};
use crate::model::owner::Owner;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// The most idle states, over all programs and owners.
const MAX_IDLE: usize = 64;

/// The idle states.
pub(super) struct StatePool {
    /// The state put back last is at the end.
    idle: Mutex<Vec<IdleState>>,
    /// The most idle states of one program and owner.
    per_program: usize,
}

struct IdleState {
    program: Weak<CompiledProgram>,
    id: u64,
    owner: Owner,
    sandbox: Sandbox,
}

impl StatePool {
    /// Makes a pool that keeps up to `per_program` states for each program and owner.
    pub fn new(per_program: usize) -> Self {
        Self { idle: Mutex::default(), per_program }
    }

    /// Takes out a state that ran this program for this owner before.
    pub fn take(&self, program: &Program, owner: Owner) -> Option<Sandbox> {
        let mut idle = self.idle.lock();
        let at = idle.iter().rposition(|state| state.id == program.0.id && state.owner == owner)?;
        Some(idle.remove(at).sandbox)
    }

    /// Keeps a state for the program's next run for this owner.
    pub fn put(&self, program: &Program, owner: Owner, sandbox: Sandbox) {
        let id = program.0.id;
        let state = IdleState { program: Arc::downgrade(&program.0), id, owner, sandbox };
        let mut idle = self.idle.lock();
        let mut dropped: Vec<_> = idle.extract_if(.., |other| other.program.strong_count() == 0).collect();
        let is_like = |other: &IdleState| other.id == id && other.owner == owner;
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
    use crate::{model::id::UserId, scripting::lua::test_support::TestRuntime};

    fn program() -> Program {
        Program::script("script", "return").unwrap()
    }

    #[tokio::test]
    async fn a_state_is_kept_for_its_program_and_owner_alone() {
        let (runtime, pool) = (TestRuntime::new(), StatePool::new(1));
        let (program, owner) = (program(), Owner::Global);
        pool.put(&program, owner, runtime.sandbox(&program, owner));
        assert!(pool.take(&program, Owner::User(UserId::new())).is_none());
        assert!(pool.take(&super::tests::program(), owner).is_none());
        assert!(pool.take(&program.clone(), owner).is_some());
        assert!(pool.take(&program, owner).is_none(), "it was taken out");
    }

    #[tokio::test]
    async fn the_state_of_a_dropped_program_is_closed_when_another_state_is_put_back() {
        let (runtime, pool) = (TestRuntime::new(), StatePool::new(1));
        let (gone, next, owner) = (program(), program(), Owner::Global);
        pool.put(&gone, owner, runtime.sandbox(&gone, owner));
        drop(gone);
        pool.put(&next, owner, runtime.sandbox(&next, owner));
        assert_eq!(pool.idle.lock().len(), 1);
    }

    #[tokio::test]
    async fn the_state_unused_for_longest_is_closed_when_the_pool_is_full() {
        let (runtime, pool) = (TestRuntime::new(), StatePool::new(1));
        let programs: Vec<_> = (0..=MAX_IDLE).map(|_| program()).collect();
        for program in &programs {
            pool.put(program, Owner::Global, runtime.sandbox(program, Owner::Global));
        }
        assert_eq!(pool.idle.lock().len(), MAX_IDLE);
        assert!(pool.take(&programs[0], Owner::Global).is_none());
        assert!(pool.take(&programs[1], Owner::Global).is_some());
    }
}
