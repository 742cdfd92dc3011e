//! The registrar: registers, unregisters and undoes, one change at a time, and publishes on new links.

use super::{
    error::RegisterError,
    pending::PendingRegistration,
    publish::{ActiveRegistration, Publisher},
    saved::SavedRegistration,
};
use crate::{
    agent::{
        binding::Binding,
        child_env::ChildEnv,
        generations::Generations,
        method_server::MethodServer,
        registration_file::{BuiltRegistration, Declaration, RegistrationFileError},
        server_link::ServerLink,
        server_links::ServerLinks,
        setup_changes::{RegisterCause, SetupChanges},
    },
    model::{
        api::agent::RegistrationView,
        method::{MethodNames, MethodServerHealth},
    },
    platform::{backoff::Backoff, store::Store},
};
use parking_lot::Mutex;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Mutex as AsyncMutex, watch};

/// Waits between attempts to take up the saved registration, and to publish one that a server refuses: the method of
/// another space that it conflicts with may go. They double.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(15);

/// Time for which a replaced method server still takes calls that were under way when the servers changed over.
const OVERLAP: Duration = Duration::from_secs(1);

/// Changes the registration of the space.
pub struct Registrar {
    binding: Arc<Binding>,
    links: Arc<ServerLinks>,
    child_env: ChildEnv,
    generations: Generations,
    publisher: Publisher,
    saved: SavedRegistration,
    /// A new method server that ends within this time has not started.
    start_check: Duration,
    /// The registration in force. Locked for the whole of each change.
    active: AsyncMutex<Option<ActiveRegistration>>,
    /// The registration in force, for readers that must not wait for a change.
    shown: Mutex<Option<ShownRegistration>>,
    /// Number of changes in this run.
    changes: AtomicU64,
    /// The registration to make once there is a link, and servers accept it.
    pending: Mutex<Option<PendingRegistration>>,
}

/// Everything that a registrar works with.
pub struct RegistrarDeps {
    pub store: Store,
    pub binding: Arc<Binding>,
    pub links: Arc<ServerLinks>,
    pub generations: Generations,
    pub child_env: ChildEnv,
    /// A new method server that ends within this time has not started.
    pub start_check: Duration,
    /// The methods file, which [`crate::agent::startup`] registers with the first link.
    pub methods_file: Option<PathBuf>,
}

#[derive(Clone)]
struct ShownRegistration {
    path: PathBuf,
    command: String,
    methods: Vec<MethodNames>,
    health: watch::Receiver<MethodServerHealth>,
}

/// The check of a new method server before it counts as started.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StartCheck {
    Watch,
    /// The server ran before, so it is not checked again.
    Skip,
}

impl Registrar {
    pub fn new(deps: RegistrarDeps) -> Self {
        let RegistrarDeps { store, binding, links, generations, child_env, start_check, methods_file } = deps;
        Self {
            binding,
            links,
            child_env,
            publisher: Publisher::new(generations.clone()),
            generations,
            saved: SavedRegistration::new(store),
            start_check,
            active: AsyncMutex::new(None),
            shown: Mutex::new(None),
            changes: AtomicU64::new(0),
            pending: Mutex::new(methods_file.map(PendingRegistration::File)),
        }
    }

    /// Registers a TOML file, in place of everything registered before.
    ///
    /// # Errors
    ///
    /// Fails if the file is invalid, its process does not start, or a server does not accept it. The registration
    /// before stays in force then.
    pub async fn register_toml(
        &self,
        path: &Path,
        text: &str,
        cause: RegisterCause,
    ) -> Result<Vec<MethodNames>, RegisterError> {
        self.replace(|space: &str| Declaration::from_toml(path, text, space), Some(text), None, cause).await
    }

    /// Registers what a script has built, in place of everything registered before.
    ///
    /// # Errors
    ///
    /// Fails as [`Registrar::register_toml`] does.
    pub async fn register_built(
        &self,
        built: &BuiltRegistration,
        by: Option<&SetupChanges>,
        cause: RegisterCause,
    ) -> Result<Vec<MethodNames>, RegisterError> {
        let registered = self.replace(|space: &str| Declaration::from_script(built, space), None, by, cause).await;
        match (&registered, by) {
            (Err(RegisterError::Refused { .. }), Some(by)) => by.note_refused(),
            // The startup script runs once, so its registration is kept for another attempt.
            (
                Err(RegisterError::Refused { .. } | RegisterError::NotConnected | RegisterError::LinkLost { .. }),
                None,
            ) if cause == RegisterCause::Startup => {
                self.put_back(PendingRegistration::Built(built.clone()));
            }
            _ => {}
        }
        registered
    }

    /// Removes all methods and stops their server. Servers that are not linked learn of it with their next link.
    ///
    /// # Errors
    ///
    /// Fails if the script that asks has ended.
    pub async fn unregister_all(&self, by: Option<&SetupChanges>) -> Result<Vec<MethodNames>, RegisterError> {
        let mut active = self.active.lock().await;
        check_script_runs(by)?;
        self.pending.lock().take();
        let removed = self.remove_all(&mut active).await;
        let change = self.count_change();
        by.inspect(|by| by.note_removed(&removed, change));
        Ok(removed)
    }

    /// Removes one method; with the last one its server is stopped too.
    ///
    /// # Errors
    ///
    /// Fails if no method has this local name, or if a server does not accept the rest.
    pub async fn unregister_one(
        &self,
        local_name: &str,
        by: Option<&SetupChanges>,
    ) -> Result<Vec<MethodNames>, RegisterError> {
        self.links.wait_up().await;
        let mut active = self.active.lock().await;
        check_script_runs(by)?;
        let removed = self.remove_one(&mut active, local_name).await?;
        let change = self.count_change();
        by.inspect(|by| by.note_removed(&removed, change));
        Ok(removed)
    }

    /// Undoes the changes of a script, unless somebody else has changed something after it. The script changes nothing
    /// any more.
    ///
    /// # Errors
    ///
    /// Fails if the registration before is not accepted now. The script's registration stays in force then.
    pub async fn undo(&self, by: &SetupChanges) -> Result<(), RegisterError> {
        let mut active = self.active.lock().await;
        by.close();
        if by.summary().last_change != Some(self.changes.load(Ordering::Relaxed)) {
            return Ok(());
        }
        self.count_change();
        match by.before.clone() {
            Some(before) => {
                let server = self.start_server(&before, StartCheck::Skip).await?;
                let published = self.publish(&mut active, &self.links.up(), before, server.clone(), None).await;
                published.inspect_err(|_| self.generations.discard(server))
            }
            None => {
                self.remove_all(&mut active).await;
                Ok(())
            }
        }
    }

    /// Publishes the registration on a new link, with retries until the link ends.
    pub async fn publish_on_new_link(&self, link: &Arc<ServerLink>) {
        let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
        while let Err(error) = self.try_publish_on(link).await {
            let reason = match error {
                RegisterError::Refused { reason, .. } => reason,
                other => other.to_string(),
            };
            if link.refusal().as_ref() != Some(&reason) {
                log::error!("{}: the registration is not published, and is tried again: {reason}", link.server);
            }
            link.set_refusal(Some(reason));
            tokio::select! {
                () = tokio::time::sleep(backoff.next_wait()) => {}
                () = link.closed() => return,
            }
        }
    }

    /// Deletes the saved registration, because the directory belongs to another space now.
    pub async fn forget_saved(&self) {
        if let Err(error) = self.saved.delete().await {
            log::error!("an old registration stays in the data directory: {error}");
        }
    }

    /// The registration in force, or the saved one before the first link.
    pub async fn declaration(&self) -> Option<Declaration> {
        let active = self.active.lock().await;
        active.as_ref().map(|active| active.declaration.clone()).or_else(|| self.saved.load())
    }

    /// The registration in force.
    pub fn status(&self) -> Option<RegistrationView> {
        let ShownRegistration { path, command, methods, health } = self.shown.lock().clone()?;
        let health = health.borrow().reported();
        let reason = health.reason().map(str::to_owned);
        Some(RegistrationView { path, command, health: health.state().into(), reason, methods })
    }

    pub fn is_connected(&self) -> bool {
        self.binding.space().is_some() && !self.links.up().is_empty()
    }

    /// Takes the pending registration, to make it now.
    pub fn take_pending(&self) -> Option<PendingRegistration> {
        self.pending.lock().take()
    }

    /// Shows the refusal of a registration that is tried again, at the link of the server that refused it, or at all if
    /// the server is not known.
    pub fn note_refusal(&self, server: Option<&str>, reason: &str) {
        for link in self.links.up() {
            if server.is_none_or(|server| link.server.to_string() == server) {
                link.set_refusal(Some(reason.to_owned()));
            }
        }
    }

    /// Puts a registration back, to be made later.
    pub fn put_back(&self, pending: PendingRegistration) {
        self.pending.lock().replace(pending);
    }

    /// `text` is the file in which a refused field is looked up.
    async fn replace(
        &self,
        declare: impl FnOnce(&str) -> Result<Declaration, RegistrationFileError>,
        text: Option<&str>,
        by: Option<&SetupChanges>,
        cause: RegisterCause,
    ) -> Result<Vec<MethodNames>, RegisterError> {
        self.links.wait_up().await;
        let mut active = self.active.lock().await;
        check_script_runs(by)?;
        let space = self.binding.space().ok_or(RegisterError::NotConnected)?;
        let mut declaration = declare(&space.name)?;
        if cause == RegisterCause::Startup {
            let before = active.as_ref().map(|active| active.declaration.clone()).or_else(|| self.saved.load());
            declaration.groups = before.map(|before| before.groups).unwrap_or_default();
        }
        if self.links.up().is_empty() {
            return Err(RegisterError::NotConnected);
        }
        let names = self.names(&declaration);
        let server = self.start_server(&declaration, StartCheck::Watch).await?;
        // Links may have come or gone while the server was watched.
        let links = self.links.up();
        let published = match links.is_empty() {
            true => Err(RegisterError::NotConnected),
            false => self.publish(&mut active, &links, declaration, server.clone(), text).await,
        };
        match published {
            Ok(()) => {
                // This registration is newer than the pending one.
                self.pending.lock().take();
                let change = self.count_change();
                by.inspect(|by| by.note_registered(&names, change));
                Ok(names)
            }
            Err(error) => {
                self.generations.discard(server);
                Err(error)
            }
        }
    }

    async fn remove_one(
        &self,
        active: &mut Option<ActiveRegistration>,
        local_name: &str,
    ) -> Result<Vec<MethodNames>, RegisterError> {
        let unknown = || RegisterError::NoSuchMethod(local_name.to_owned());
        let current = match active {
            Some(current) => current,
            // After a restart nothing is in force until the first link.
            None if self.saved.load().is_some() => return Err(RegisterError::NotConnected),
            None => return Err(unknown()),
        };
        let mut declaration = current.declaration.clone();
        declaration.registration.methods.retain(|method| method.local_name != local_name);
        let removed = current.declaration.registration.methods.len() - declaration.registration.methods.len();
        if removed == 0 {
            return Err(unknown());
        }
        let before = self.names(&current.declaration);
        if declaration.registration.methods.is_empty() {
            return Ok(self.remove_all(active).await);
        }
        let server = current.server.clone();
        self.publish(active, &self.links.up(), declaration, server, None).await?;
        Ok(before.into_iter().filter(|names| names.local_name == local_name).collect())
    }

    async fn remove_all(&self, active: &mut Option<ActiveRegistration>) -> Vec<MethodNames> {
        let saved = self.saved.load();
        self.publisher.withdraw(&self.links.up()).await;
        if let Err(error) = self.saved.delete().await {
            log::error!("the methods are unregistered, and would come back with a restart: {error}");
        }
        self.show(None);
        match active.take() {
            Some(before) => {
                let names = self.names(&before.declaration);
                self.generations.retire(before.server, Duration::ZERO);
                names
            }
            None => saved.map(|saved| self.names(&saved)).unwrap_or_default(),
        }
    }

    /// # Errors
    ///
    /// Fails if the saved registration cannot be taken up now.
    async fn try_publish_on(&self, link: &ServerLink) -> Result<(), RegisterError> {
        let mut active = self.active.lock().await;
        if active.is_none() {
            match self.saved.load() {
                Some(saved) => *active = Some(self.take_up(saved).await?),
                None => {
                    self.publisher.withdraw_on(link).await;
                    return Ok(());
                }
            }
        }
        let Some(active) = &mut *active else { return Ok(()) };
        if self.publisher.publish_on(link, active).await? {
            self.save(&active.declaration).await;
        }
        Ok(())
    }

    /// Puts the saved registration into force, which servers have accepted before. A server that refuses it now changes
    /// nothing for the others.
    async fn take_up(&self, saved: Declaration) -> Result<ActiveRegistration, RegisterError> {
        let server = self.start_server(&saved, StartCheck::Skip).await?;
        log::info!("taking {} methods up again", saved.registration.methods.len());
        self.show(Some((&saved, &server)));
        Ok(ActiveRegistration { generation: self.publisher.begin(&server), declaration: saved, server })
    }

    async fn save(&self, declaration: &Declaration) {
        if let Err(error) = self.saved.save(declaration.clone()).await {
            log::error!("the registration is in force, and would not be after a restart: {error}");
        }
    }

    async fn start_server(
        &self,
        declaration: &Declaration,
        check: StartCheck,
    ) -> Result<Arc<MethodServer>, RegisterError> {
        let space = self.binding.space().map_or_else(|| "?".to_owned(), |space| space.name);
        let definition = declaration.registration.server.clone();
        let server = MethodServer::start(definition, declaration.directory(), self.child_env.clone(), space).await?;
        let server = Arc::new(server);
        if check == StartCheck::Watch {
            let mut health = server.health();
            let down = health.wait_for(|health| *health != MethodServerHealth::Running);
            if let Ok(Ok(health)) =
                tokio::time::timeout(self.start_check, down).await.map(|down| down.map(|now| now.reported()))
            {
                self.generations.discard(server);
                return Err(RegisterError::EndedAtOnce(health.reason().unwrap_or_default().to_owned()));
            }
        }
        Ok(server)
    }

    /// Puts a registration into force on all these links, or on none.
    async fn publish(
        &self,
        active: &mut Option<ActiveRegistration>,
        links: &[Arc<ServerLink>],
        mut declaration: Declaration,
        server: Arc<MethodServer>,
        text: Option<&str>,
    ) -> Result<(), RegisterError> {
        let published = self.publisher.publish(active.as_ref(), links, &mut declaration, &server, text);
        let generation = published.await?;
        self.save(&declaration).await;
        self.show(Some((&declaration, &server)));
        let before = active.replace(ActiveRegistration { generation, declaration, server: server.clone() });
        if let Some(before) = before.filter(|before| !Arc::ptr_eq(&before.server, &server)) {
            self.generations.retire(before.server, OVERLAP);
        }
        Ok(())
    }

    fn show(&self, active: Option<(&Declaration, &MethodServer)>) {
        let shown = active.map(|(declaration, server)| ShownRegistration {
            path: declaration.path.clone(),
            command: declaration.registration.server.command.clone(),
            methods: self.names(declaration),
            health: server.health(),
        });
        *self.shown.lock() = shown;
    }

    /// The names of a registration that was checked before; none if the space was renamed so that they break a rule.
    fn names(&self, declaration: &Declaration) -> Vec<MethodNames> {
        let space = self.binding.space().map(|space| space.name).unwrap_or_default();
        declaration.names(&space).unwrap_or_default()
    }

    /// Counts a change, and returns its number.
    fn count_change(&self) -> u64 {
        self.changes.fetch_add(1, Ordering::Relaxed) + 1
    }
}

fn check_script_runs(by: Option<&SetupChanges>) -> Result<(), RegisterError> {
    match by {
        Some(by) if by.summary().ended => Err(RegisterError::ScriptEnded),
        _ => Ok(()),
    }
}
