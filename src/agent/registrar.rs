//! What this space publishes: one registration at a time, changed one at a time. [`Serving`] has the processes.
//!
//! A new registration gets a new generation and a new process beside the old one. Only when every connected server has
//! taken it does the old process retire; if one refuses, the new process is stopped and the servers that had taken it
//! get the old registration back. Calls carry the generation, so that during a change each finds its process.
//!
//! The registration in force is kept on disk, taken up again after a restart, and published on every new link.

use super::{
    binding::Home,
    child_env::Surroundings,
    generations::Serving,
    method_server::{Health, MethodServer, StartError},
    registration_file::{Built, Declared, FileError, Line, Named, line_of},
    server_link::{Link, PublishFault},
    server_links::Links,
    setup_changes::Doings,
};
use crate::{
    model::agent_protocol::MethodServerHealth,
    platform::store::{Store, StoreError, Table, keys},
};
use futures_util::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Mutex as Turn, watch};

/// Under which key of ours the registration is kept.
const REGISTRATION: &[u8] = b"registration";
const REGISTRATIONS: Table<Declared> = Table::new(keys::AGENT);

/// Pause before what was registered before an agent's restart is tried once more.
const AGAIN: Duration = Duration::from_secs(15);

/// How long the old process still takes calls: some were on their way when the servers changed over.
const OVERLAP: Duration = Duration::from_secs(1);

/// Publishes.
pub struct Registrar {
    store: Store,
    home: Arc<Home>,
    links: Arc<Links>,
    surroundings: Surroundings,
    /// A new process that ends within this time has not started.
    trial: Duration,
    /// Whoever changes something holds it.
    current: Turn<Option<InForce>>,
    /// What is in force, for who only looks.
    shown: Mutex<Option<Shown>>,
    serving: Serving,
    generations: AtomicU64,
    /// How many changes there were in this run.
    changes: AtomicU64,
    /// The file to register once there is a link.
    startup: Mutex<Option<PathBuf>>,
}

/// A registration that servers have taken.
struct InForce {
    generation: u64,
    declared: Declared,
    server: Arc<MethodServer>,
}

/// A registration as it is shown.
#[derive(Clone)]
struct Shown {
    path: PathBuf,
    command: String,
    methods: Vec<Named>,
    health: watch::Receiver<Health>,
}

/// The same, for people.
#[derive(Debug, Serialize)]
pub struct Registered {
    pub path: PathBuf,
    pub command: String,
    /// `running` or `restarting`.
    pub health: &'static str,
    /// Why it is not running.
    pub reason: Option<String>,
    pub methods: Vec<Named>,
}

/// Whether a new process is watched before it counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trial {
    /// It must not end at once.
    Yes,
    /// It was good before.
    No,
}

/// Why nothing changed.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("the method server ended at once: {0}; the agent's log has what it wrote to stderr")]
    Ended(String),
    #[error("the agent is not connected to a server yet: `svc agent status` tells why")]
    NotConnected,
    #[error("{server} refused the registration: {}{reason}", Line(*line))]
    Refused { server: String, line: Option<usize>, reason: String },
    #[error("{server}: {fault}; what was registered before still is")]
    Lost { server: String, fault: PublishFault },
    #[error("the script that asks for this has ended")]
    TooLate,
    #[error("no method with the local name `{0}` is registered: `svc agent status` shows those that are")]
    NoSuchMethod(String),
}

impl Registrar {
    /// A registrar that takes up what is kept with the first link, unless `startup`, which [`super::startup`] registers
    /// then, replaces it.
    pub fn new(
        store: Store,
        home: Arc<Home>,
        links: Arc<Links>,
        serving: Serving,
        surroundings: Surroundings,
        trial: Duration,
        startup: Option<PathBuf>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            home,
            links,
            surroundings,
            trial,
            current: Turn::new(None),
            shown: Mutex::new(None),
            serving,
            generations: AtomicU64::new(1),
            changes: AtomicU64::new(0),
            startup: Mutex::new(startup),
        })
    }

    /// Registers what a file says, in place of everything registered before.
    ///
    /// # Errors
    ///
    /// Fails if the file is wrong, its process does not start, or a server does not take it. What was registered
    /// before goes on serving then.
    pub async fn register(&self, path: &Path, text: &str) -> Result<Vec<Named>, RegisterError> {
        let declare = |space: &str| Declared::read(path, text, space);
        self.replace(declare, Some(text), None).await
    }

    /// Registers what a script has built, in place of everything registered before.
    ///
    /// # Errors
    ///
    /// As [`Registrar::register`].
    pub async fn register_built(&self, built: &Built, by: Option<&Doings>) -> Result<Vec<Named>, RegisterError> {
        self.replace(|space: &str| Declared::built(built, space), None, by).await
    }

    /// What is registered, or will be once a link is there.
    pub async fn declared(&self) -> Option<Declared> {
        let current = self.current.lock().await;
        current.as_ref().map(|in_force| in_force.declared.clone()).or_else(|| self.kept())
    }

    /// Undoes what a script has changed, unless somebody has changed something after it. It changes nothing any more.
    ///
    /// # Errors
    ///
    /// Fails if what was registered before is not taken now. What the script registered stays then.
    pub async fn undo(&self, by: &Doings) -> Result<(), RegisterError> {
        let mut current = self.current.lock().await;
        by.close();
        if by.done().last != Some(self.changes.load(Ordering::Relaxed)) {
            return Ok(());
        }
        self.changed();
        match by.before.clone() {
            Some(before) => {
                let server = self.start(&before, Trial::No).await?;
                let published = self.publish(&mut current, &self.links.up(), before, server.clone(), None).await;
                published.inspect_err(|_| self.serving.discard(server))
            }
            None => {
                self.remove_all(&mut current).await;
                Ok(())
            }
        }
    }

    /// Whether there is a server that could be asked.
    pub fn is_connected(&self) -> bool {
        self.home.space().is_some() && !self.links.up().is_empty()
    }

    /// The file to register at the start, for who does it now.
    pub fn take_startup(&self) -> Option<PathBuf> {
        self.startup().take()
    }

    /// The file is to be registered with the next link.
    pub fn put_back_startup(&self, path: PathBuf) {
        self.startup().replace(path);
    }

    /// Removes all methods and stops their server. Without a link the servers hear of it with the next one.
    ///
    /// # Errors
    ///
    /// Fails if it is too late for the script that asks.
    pub async fn unregister(&self, by: Option<&Doings>) -> Result<Vec<Named>, RegisterError> {
        let mut current = self.current.lock().await;
        in_time(by)?;
        self.startup().take();
        let removed = self.remove_all(&mut current).await;
        let change = self.changed();
        by.inspect(|by| by.removed(&removed, change));
        Ok(removed)
    }

    /// Removes one method; the last one takes the server with it.
    ///
    /// # Errors
    ///
    /// Fails if there is none with this local name, or if a server does not take what is left.
    pub async fn unregister_one(&self, local_name: &str, by: Option<&Doings>) -> Result<Vec<Named>, RegisterError> {
        let mut current = self.current.lock().await;
        in_time(by)?;
        let removed = self.remove_one(&mut current, local_name).await?;
        let change = self.changed();
        by.inspect(|by| by.removed(&removed, change));
        Ok(removed)
    }

    async fn remove_one(&self, current: &mut Option<InForce>, local_name: &str) -> Result<Vec<Named>, RegisterError> {
        let none = || RegisterError::NoSuchMethod(local_name.to_owned());
        let in_force = match current {
            Some(in_force) => in_force,
            // After a restart there is nothing in force until the first link.
            None if self.kept().is_some() => return Err(RegisterError::NotConnected),
            None => return Err(none()),
        };
        let mut declared = in_force.declared.clone();
        declared.registration.methods.retain(|method| method.local_name != local_name);
        let removed = in_force.declared.registration.methods.len() - declared.registration.methods.len();
        if removed == 0 {
            return Err(none());
        }
        let before = self.names(&in_force.declared);
        if declared.registration.methods.is_empty() {
            return Ok(self.remove_all(current).await);
        }
        let server = in_force.server.clone();
        let links = self.links.up();
        self.publish(current, &links, declared, server, None).await?;
        Ok(before.into_iter().filter(|named| named.local_name == local_name).collect())
    }

    /// Publishes on a new link what there is to publish, for as long as it takes.
    pub async fn introduce(&self, link: &Arc<Link>) {
        while let Err(error) = self.publish_on(link).await {
            log::error!("what was registered before cannot be taken up again: {error}");
            link.note_refusal(Some(error.to_string()));
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = link.ended() => return,
            }
        }
    }

    /// # Errors
    ///
    /// Fails if what was registered before cannot be taken up again, now.
    async fn publish_on(&self, link: &Link) -> Result<(), RegisterError> {
        let mut current = self.current.lock().await;
        if let Some(in_force) = &*current {
            if *link.published().borrow() != Some(in_force.generation) {
                let published = link.register(in_force.generation, &in_force.declared.registration).await;
                self.log_fault(link, published);
            }
            return Ok(());
        }
        match self.kept() {
            Some(kept) => self.take_up(&mut current, kept).await,
            // The server may remember more than we do.
            None => {
                let published = link.unregister(self.next_generation()).await;
                self.log_fault(link, published);
                Ok(())
            }
        }
    }

    /// Forgets what is kept: the directory belongs to another space now.
    pub async fn forget(&self) {
        if let Err(error) = self.keep(None).await {
            log::error!("an old registration stays in the data directory: {error}");
        }
    }

    /// What is in force.
    pub fn registered(&self) -> Option<Registered> {
        let shown = self.shown.lock().clone()?;
        let (health, reason) = match MethodServerHealth::from(&*shown.health.borrow()) {
            MethodServerHealth::Running => ("running", None),
            MethodServerHealth::Restarting { reason } => ("restarting", Some(reason)),
        };
        Some(Registered { path: shown.path, command: shown.command, health, reason, methods: shown.methods })
    }

    /// `text` is what faults are looked up in.
    async fn replace(
        &self,
        declare: impl FnOnce(&str) -> Result<Declared, FileError>,
        text: Option<&str>,
        by: Option<&Doings>,
    ) -> Result<Vec<Named>, RegisterError> {
        let mut current = self.current.lock().await;
        in_time(by)?;
        let space = self.home.space().ok_or(RegisterError::NotConnected)?;
        let declared = declare(&space.name)?;
        if self.links.up().is_empty() {
            return Err(RegisterError::NotConnected);
        }
        let names = self.names(&declared);
        let server = self.start(&declared, Trial::Yes).await?;
        // Some may have come or gone during the trial.
        let links = self.links.up();
        let published = match links.is_empty() {
            true => Err(RegisterError::NotConnected),
            false => self.publish(&mut current, &links, declared, server.clone(), text).await,
        };
        match published {
            Ok(()) => {
                // Whatever was to be registered at the start, this is newer.
                self.startup().take();
                let change = self.changed();
                by.inspect(|by| by.registered(&names, change));
                Ok(names)
            }
            Err(error) => {
                self.serving.discard(server);
                Err(error)
            }
        }
    }

    async fn take_up(&self, current: &mut Option<InForce>, kept: Declared) -> Result<(), RegisterError> {
        let count = kept.registration.methods.len();
        let server = self.start(&kept, Trial::No).await?;
        let links = self.links.up();
        match self.publish(current, &links, kept, server.clone(), None).await {
            Ok(()) => {
                log::info!("took {count} methods up again");
                Ok(())
            }
            // The next link gets another try.
            Err(RegisterError::Lost { .. }) => {
                self.serving.discard(server);
                Ok(())
            }
            Err(error) => {
                self.serving.discard(server);
                Err(error)
            }
        }
    }

    async fn start(&self, declared: &Declared, trial: Trial) -> Result<Arc<MethodServer>, RegisterError> {
        let name = self.home.space().map_or_else(|| "?".to_owned(), |space| space.name);
        let definition = declared.registration.server.clone();
        let server = MethodServer::start(definition, declared.directory(), self.surroundings.clone(), name).await?;
        let server = Arc::new(server);
        if trial == Trial::Yes {
            let mut health = server.health();
            let down = health.wait_for(|health| !matches!(health, Health::Running));
            if let Ok(Ok(health)) = tokio::time::timeout(self.trial, down).await.map(|down| down.map(|now| now.clone()))
            {
                self.serving.discard(server);
                return Err(RegisterError::Ended(why(&health)));
            }
        }
        Ok(server)
    }

    /// Puts a registration into force on all these links, or on none.
    async fn publish(
        &self,
        current: &mut Option<InForce>,
        links: &[Arc<Link>],
        declared: Declared,
        server: Arc<MethodServer>,
        text: Option<&str>,
    ) -> Result<(), RegisterError> {
        let generation = self.next_generation();
        self.serving.begin(generation, server.clone());
        let asked = links.iter().map(|link| link.register(generation, &declared.registration));
        let answers = join_all(asked).await;
        if let Some(error) = verdict(links, &answers, text) {
            self.serving.end(generation);
            self.give_back(current.as_ref(), links, &answers).await;
            return Err(error);
        }
        if let Err(error) = self.keep(Some(declared.clone())).await {
            log::error!("the registration is in force, and would not be after a restart: {error}");
        }
        self.show(Some((&declared, &server)));
        let before = current.replace(InForce { generation, declared, server });
        let replaced = |before: &InForce| !current.as_ref().is_some_and(|now| Arc::ptr_eq(&now.server, &before.server));
        if let Some(before) = before.filter(replaced) {
            self.serving.retire(before.server, OVERLAP);
        }
        Ok(())
    }

    /// Gives the old registration back to the servers that have taken a new one. Those whose links are gone get it with
    /// the next.
    async fn give_back(&self, old: Option<&InForce>, links: &[Arc<Link>], answers: &[Result<(), PublishFault>]) {
        let taken = links.iter().zip(answers).filter(|(_, answer)| answer.is_ok());
        let giving = taken.map(async |(link, _)| {
            let given = match old {
                Some(old) => link.register(old.generation, &old.declared.registration).await,
                None => link.unregister(self.next_generation()).await,
            };
            self.log_fault(link, given);
        });
        join_all(giving).await;
    }

    async fn remove_all(&self, current: &mut Option<InForce>) -> Vec<Named> {
        let kept = self.kept();
        let generation = self.next_generation();
        let links = self.links.up();
        let told = join_all(links.iter().map(|link| link.unregister(generation))).await;
        for (link, answer) in links.iter().zip(told) {
            self.log_fault(link, answer);
        }
        if let Err(error) = self.keep(None).await {
            log::error!("the methods are unregistered, and would come back with a restart: {error}");
        }
        self.show(None);
        match current.take() {
            Some(before) => {
                let names = self.names(&before.declared);
                self.serving.retire(before.server, Duration::ZERO);
                names
            }
            None => kept.map(|kept| self.names(&kept)).unwrap_or_default(),
        }
    }

    /// What an earlier run has left.
    fn kept(&self) -> Option<Declared> {
        REGISTRATIONS.get(&self.store, REGISTRATION).unwrap_or_else(|error| {
            log::error!("what was registered before cannot be read: {error}");
            None
        })
    }

    async fn keep(&self, declared: Option<Declared>) -> Result<(), StoreError> {
        let write = move |batch: &mut crate::platform::store::Batch<'_>| match &declared {
            Some(declared) => REGISTRATIONS.put(batch, REGISTRATION, declared),
            None => REGISTRATIONS.delete(batch, REGISTRATION),
        };
        self.store.write(write).await
    }

    fn show(&self, in_force: Option<(&Declared, &MethodServer)>) {
        let shown = in_force.map(|(declared, server)| Shown {
            path: declared.path.clone(),
            command: declared.registration.server.command.clone(),
            methods: self.names(declared),
            health: server.health(),
        });
        *self.shown.lock() = shown;
    }

    /// The names of what was checked before, as far as the space still has the same name.
    fn names(&self, declared: &Declared) -> Vec<Named> {
        let space = self.home.space().map(|space| space.name).unwrap_or_default();
        declared.names(&space).unwrap_or_default()
    }

    fn log_fault(&self, link: &Link, answer: Result<(), PublishFault>) {
        match answer {
            // The next link begins with a publication.
            Ok(()) | Err(PublishFault::Down | PublishFault::Silent(_)) => {}
            Err(PublishFault::Refused(reason)) => {
                log::error!("{} does not take the registration in force: {reason}", link.server);
                link.note_refusal(Some(reason));
            }
        }
    }

    /// Something has changed: which change this is.
    fn changed(&self) -> u64 {
        self.changes.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn next_generation(&self) -> u64 {
        self.generations.fetch_add(1, Ordering::Relaxed)
    }

    fn startup(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.startup.lock()
    }
}

/// Why a registration is not in force, if it is not. A server whose link is gone, also for its silence, hears of it when
/// it is back, as long as another has taken it; with no other there is nobody who did.
fn verdict(links: &[Arc<Link>], answers: &[Result<(), PublishFault>], text: Option<&str>) -> Option<RegisterError> {
    let mut lost = None;
    for (link, answer) in links.iter().zip(answers) {
        let server = link.server.to_string();
        match answer {
            Ok(()) => {}
            Err(PublishFault::Refused(reason)) => {
                let line = text.and_then(|text| line_of(text, blamed_field(reason)?));
                return Some(RegisterError::Refused { server, line, reason: reason.clone() });
            }
            Err(fault) => lost = Some(RegisterError::Lost { server, fault: fault.clone() }),
        }
    }
    lost.filter(|_| !answers.iter().any(Result::is_ok))
}

fn in_time(by: Option<&Doings>) -> Result<(), RegisterError> {
    match by {
        Some(by) if by.done().over => Err(RegisterError::TooLate),
        _ => Ok(()),
    }
}

/// The field that a server's reason begins with, as in "`methods[0].groups[1]`: there is no such group".
fn blamed_field(reason: &str) -> Option<&str> {
    reason.strip_prefix('`')?.split_once("`: ").map(|(field, _)| field)
}

fn why(health: &Health) -> String {
    match MethodServerHealth::from(health) {
        MethodServerHealth::Running => "it runs".to_owned(),
        MethodServerHealth::Restarting { reason } => reason,
    }
}
