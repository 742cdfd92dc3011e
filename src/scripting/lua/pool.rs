//! Lua states between runs. A state belongs to one program and one owner for all its life.
//!
//! A run takes a state out and puts it back; two runs of one program at once need two states, of which the
//! last put back are kept, as many as there may be. A state whose program is gone, or that nobody used for longest, is
//! dropped.

use super::{
    program::{Compiled, Program},
    sandbox::Sandbox,
};
use crate::model::owner::Owner;
use parking_lot::{Mutex, MutexGuard};
use std::sync::{Arc, Weak};

/// States kept between runs, over all programs and owners.
const KEPT: usize = 64;

/// The states nobody uses at the moment, the one put back last at the end.
pub(super) struct Pool {
    kept: Mutex<Vec<Kept>>,
    /// Those of one program and owner.
    each: usize,
}

struct Kept {
    program: Weak<Compiled>,
    id: u64,
    owner: Owner,
    sandbox: Sandbox,
}

impl Pool {
    /// A pool that keeps so many states for each program and owner.
    pub fn new(each: usize) -> Self {
        Self { kept: Mutex::default(), each }
    }

    /// Takes out a state that ran this program for this owner before.
    pub fn take(&self, program: &Program, owner: Owner) -> Option<Sandbox> {
        let mut kept = self.lock();
        let at = kept.iter().rposition(|state| state.id == program.0.id && state.owner == owner)?;
        Some(kept.remove(at).sandbox)
    }

    /// Keeps a state for the program's next run for this owner.
    pub fn put(&self, program: &Program, owner: Owner, sandbox: Sandbox) {
        let id = program.0.id;
        let state = Kept { program: Arc::downgrade(&program.0), id, owner, sandbox };
        let mut kept = self.lock();
        let mut dropped: Vec<_> = kept.extract_if(.., |other| other.program.strong_count() == 0).collect();
        let is_like = |other: &Kept| other.id == id && other.owner == owner;
        if kept.iter().filter(|other| is_like(other)).count() >= self.each {
            dropped.extend(kept.iter().position(is_like).map(|oldest| kept.remove(oldest)));
        }
        kept.push(state);
        if kept.len() > KEPT {
            dropped.push(kept.remove(0));
        }
        // Closing a state takes a while; others need not wait for it.
        drop(kept);
        drop(dropped);
    }

    /// Drops every state.
    pub fn clear(&self) {
        drop(std::mem::take(&mut *self.lock()));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::id::UserId, scripting::lua::test_support::World};

    fn program() -> Program {
        Program::script("script", "return").unwrap()
    }

    #[tokio::test]
    async fn a_state_is_kept_for_its_program_and_owner_alone() {
        let (world, pool) = (World::new(), Pool::new(1));
        let (program, owner) = (program(), Owner::Global);
        pool.put(&program, owner, world.sandbox(&program, owner));
        assert!(pool.take(&program, Owner::User(UserId::new())).is_none());
        assert!(pool.take(&super::tests::program(), owner).is_none());
        assert!(pool.take(&program.clone(), owner).is_some());
        assert!(pool.take(&program, owner).is_none(), "it was taken out");
    }

    #[tokio::test]
    async fn the_state_of_a_dropped_program_goes_with_the_next_that_is_put_back() {
        let (world, pool) = (World::new(), Pool::new(1));
        let (gone, next, owner) = (program(), program(), Owner::Global);
        pool.put(&gone, owner, world.sandbox(&gone, owner));
        drop(gone);
        pool.put(&next, owner, world.sandbox(&next, owner));
        assert_eq!(pool.lock().len(), 1);
    }

    #[tokio::test]
    async fn the_state_unused_for_longest_makes_room() {
        let (world, pool) = (World::new(), Pool::new(1));
        let programs: Vec<_> = (0..=KEPT).map(|_| program()).collect();
        for program in &programs {
            pool.put(program, Owner::Global, world.sandbox(program, Owner::Global));
        }
        assert_eq!(pool.lock().len(), KEPT);
        assert!(pool.take(&programs[0], Owner::Global).is_none());
        assert!(pool.take(&programs[1], Owner::Global).is_some());
    }
}
