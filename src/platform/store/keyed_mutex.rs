//! Turns by id: whoever changes the same thing goes one after the other, whoever changes different ones need not.

use tokio::sync::{Mutex, MutexGuard};

/// How many can be on their way at once.
const LANES: usize = 64;

/// The turns. Two ids may share a lane, and then only wait for each other.
pub struct Lanes([Mutex<()>; LANES]);

impl Lanes {
    pub const fn new() -> Self {
        Self([const { Mutex::const_new(()) }; LANES])
    }

    /// The turn of whatever has this id, to be held over a whole change, so that changes reach disk and memory in the
    /// same order and none brings back what another deleted.
    pub async fn turn(&self, id: &[u8; 16]) -> MutexGuard<'_, ()> {
        // The last byte of a version 7 id is random.
        self.0[usize::from(id[15]) % LANES].lock().await
    }
}

impl Default for Lanes {
    fn default() -> Self {
        Self::new()
    }
}
