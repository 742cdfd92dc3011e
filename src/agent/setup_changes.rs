//! What one set-up script has changed of the registration, told apart from what others change meanwhile.
//!
//! A script in Lua hands its [`Doings`] to the registrar itself; one in Python, and what it starts, names them by the
//! token in its environment.

use super::registration_file::{Declared, Named};
use parking_lot::{Mutex, MutexGuard};
use std::{collections::HashMap, sync::Arc};
use uuid::Uuid;

/// The variable that has the token.
pub const VARIABLE: &str = "SVC_SETUP";

/// The header that brings it back.
pub const HEADER: &str = "svc-setup";

/// The scripts that run now.
#[derive(Default)]
pub struct Scripts(Mutex<HashMap<String, Arc<Doings>>>);

/// What a script has done so far.
pub struct Doings {
    pub token: String,
    /// What was registered when it began.
    pub before: Option<Declared>,
    done: Mutex<Done>,
}

#[derive(Clone, Debug, Default)]
pub struct Done {
    /// What it registered and has not removed again.
    pub methods: Vec<Named>,
    /// What it removed and has not registered again.
    pub removed: Vec<Named>,
    /// Which change of the agent's its last was.
    pub last: Option<u64>,
    /// It has ended, and what still comes from it is too late.
    pub over: bool,
}

impl Scripts {
    /// A script begins, with this registered.
    pub fn begin(&self, before: Option<Declared>) -> Arc<Doings> {
        let token = Uuid::new_v4().to_string();
        let doings = Arc::new(Doings { token: token.clone(), before, done: Mutex::default() });
        self.locked().insert(token, doings.clone());
        doings
    }

    /// Whose token this is.
    pub fn find(&self, token: &str) -> Option<Arc<Doings>> {
        self.locked().get(token).cloned()
    }

    pub fn end(&self, doings: &Doings) {
        self.locked().remove(&doings.token);
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<String, Arc<Doings>>> {
        self.0.lock()
    }
}

impl Doings {
    pub fn done(&self) -> Done {
        self.locked().clone()
    }

    /// It has registered these, in place of all others.
    pub fn registered(&self, methods: &[Named], change: u64) {
        let mut done = self.locked();
        done.removed.retain(|removed| !methods.contains(removed));
        (done.methods, done.last) = (methods.to_vec(), Some(change));
    }

    /// It has removed these.
    pub fn removed(&self, methods: &[Named], change: u64) {
        let mut done = self.locked();
        done.methods.retain(|method| !methods.contains(method));
        done.removed.extend_from_slice(methods);
        done.last = Some(change);
    }

    /// From now on it changes nothing.
    pub fn close(&self) {
        self.locked().over = true;
    }

    fn locked(&self) -> MutexGuard<'_, Done> {
        self.done.lock()
    }
}
