//! The changes that one set-up script makes to the registration, kept apart from changes that others make meanwhile.
//!
//! A Lua script hands its [`SetupChanges`] to the registrar directly. A Python script and its children identify
//! themselves by the token in their environment, which comes back in a header of the agent's API.

use super::registration_file::Declaration;
use crate::model::method::MethodNames;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use uuid::Uuid;

/// The environment variable that has the token.
pub const VARIABLE: &str = "SVC_SETUP";

/// The header that brings the token back.
pub const HEADER: &str = "svc-setup";

/// The set-up scripts that run now, by token.
#[derive(Default)]
pub struct SetupRuns(Mutex<HashMap<String, Arc<SetupChanges>>>);

/// The cause of a registration, which decides about the groups that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterCause {
    /// A command or a program: names mean the groups that have them now.
    Command,
    /// The start of the agent: names mean the groups that they meant in the registration before.
    Startup,
}

/// The changes of one run of a set-up script.
pub struct SetupChanges {
    pub token: String,
    /// The registration when the script began.
    pub before: Option<Declaration>,
    pub cause: RegisterCause,
    changes: Mutex<ChangeSummary>,
}

/// The effect of a script so far.
#[derive(Clone, Debug, Default)]
pub struct ChangeSummary {
    /// Methods that the script registered and has not removed again.
    pub registered: Vec<MethodNames>,
    /// Methods that the script removed and has not registered again.
    pub removed: Vec<MethodNames>,
    /// The registrar's number of the script's last change.
    pub last_change: Option<u64>,
    /// True if the script has ended; changes that still arrive from it are refused.
    pub ended: bool,
    /// True if a server refused a registration of the script.
    pub refused: bool,
}

impl SetupRuns {
    /// Begins a run, with `before` registered.
    pub fn begin(&self, before: Option<Declaration>, cause: RegisterCause) -> Arc<SetupChanges> {
        let token = Uuid::new_v4().to_string();
        let changes = Arc::new(SetupChanges { token: token.clone(), before, cause, changes: Mutex::default() });
        self.0.lock().insert(token, changes.clone());
        changes
    }

    /// The run with this token.
    pub fn find(&self, token: &str) -> Option<Arc<SetupChanges>> {
        self.0.lock().get(token).cloned()
    }

    pub fn end(&self, changes: &SetupChanges) {
        self.0.lock().remove(&changes.token);
    }
}

impl SetupChanges {
    pub fn summary(&self) -> ChangeSummary {
        self.changes.lock().clone()
    }

    /// Records that the script registered these methods, in place of all others.
    pub fn note_registered(&self, methods: &[MethodNames], change: u64) {
        let mut changes = self.changes.lock();
        changes.removed.retain(|removed| !methods.contains(removed));
        (changes.registered, changes.last_change) = (methods.to_vec(), Some(change));
    }

    /// Records that the script removed these methods.
    pub fn note_removed(&self, methods: &[MethodNames], change: u64) {
        let mut changes = self.changes.lock();
        changes.registered.retain(|method| !methods.contains(method));
        changes.removed.extend_from_slice(methods);
        changes.last_change = Some(change);
    }

    /// Records that a server refused a registration.
    pub fn note_refused(&self) {
        self.changes.lock().refused = true;
    }

    /// Refuses further changes.
    pub fn close(&self) {
        self.changes.lock().ended = true;
    }
}
