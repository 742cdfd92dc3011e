//! All stored scripts, in memory and on disk. A change is made in both or in neither, one at a time, and is carried
//! through even if its caller goes away.
//!
//! One change at a time, of all owners: what an owner may have is bounded in number and bytes, and names are unique,
//! which is then plain to check. Scripts are written by people, so that nobody waits long.

use super::{Script, ScriptUnavailable};
use crate::{
    model::{
        id::{ScriptId, UserId},
        library::Language,
        owner::Owner,
        script_spec::ScriptKind,
    },
    platform::store::{Batch, Change, Lanes, Store, StoreError, Table, carried_through, keys},
    scripting::lua::{CompileError, ModuleSource, Program},
};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::Arc,
};
use tokio::sync::{Mutex, MutexGuard};

const SCRIPTS: Table<Script> = Table::new(keys::SCRIPTS);

/// What the libraries of one owner may take together, in bytes as they are sent: a space gets those of two owners, and
/// they are to fit into one message with room to spare.
pub const MAX_LIBRARIES: usize = 4 << 20;

/// Every stored script there is. Cloning the handle is cheap.
#[derive(Clone)]
pub struct Scripts(Arc<Shared>);

struct Shared {
    store: Store,
    /// Scripts an owner can have.
    most: usize,
    index: RwLock<Index>,
    /// Held over a whole change.
    turn: Mutex<()>,
    /// Held by whoever makes one script of what it was.
    lanes: Lanes,
    listeners: RwLock<Vec<OutputWriter>>,
}

type OutputWriter = Box<dyn Fn(&Change<Script>) + Send + Sync>;

#[derive(Default)]
struct Index {
    /// In order of creation, since ids are.
    scripts: BTreeMap<ScriptId, Arc<Script>>,
    /// In order of their names.
    owned: HashMap<Owner, BTreeMap<String, Arc<Script>>>,
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum ScriptsError {
    #[error("there is already a {kind} named `{name}` of this owner: choose another name, or change that one")]
    NameTaken { name: String, kind: ScriptKind },
    #[error("MCP clients would see this tool and `{0}` under one name: choose another name")]
    ToolNameTaken(String),
    #[error("an owner has at most {0} scripts: delete one first, or have `limits.scripts` raised")]
    TooMany(usize),
    #[error(
        "the libraries of an owner have at most {MAX_LIBRARIES} bytes together, and with this one they would have {0}: \
         delete or shorten some"
    )]
    TooMuch(usize),
    #[error("somebody else has changed the script meanwhile: look at it and try again")]
    Overtaken,
    #[error("there is no such script")]
    NotFound,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Scripts {
    /// Reads all scripts. They are compiled later, when each is first used. An owner can have `most`.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn open(store: Store, most: usize) -> Result<Self, StoreError> {
        let mut index = Index::default();
        for script in SCRIPTS.all(&store)? {
            index.put(Arc::new(script));
        }
        let (index, listeners) = (RwLock::new(index), RwLock::default());
        Ok(Self(Arc::new(Shared { store, most, index, turn: Mutex::new(()), lanes: Lanes::new(), listeners })))
    }

    /// Has `listener` told of every change from now on, in order and before the change's caller hears of it. It must
    /// neither block nor wait for a change.
    pub fn listen(&self, listener: impl Fn(&Change<Script>) + Send + Sync + 'static) {
        self.0.listeners.write().push(Box::new(listener));
    }

    /// Adds a script. `also` writes into the same batch, so that an audit entry stands or falls with the change.
    ///
    /// # Errors
    ///
    /// Fails if its owner has one of that name, or too many, or the store cannot be written.
    pub async fn create(
        &self,
        script: Script,
        also: impl FnOnce(&mut Batch<'_>) + Send + 'static,
    ) -> Result<Arc<Script>, ScriptsError> {
        let shared = self.0.clone();
        carried_through(async move {
            let _turn = shared.turn.lock().await;
            let script = shared.save(script, also).await?;
            shared.tell(&Change::Created(script.clone()));
            Ok(script)
        })
        .await
    }

    /// The turn of whoever will make this script anew of what it is, which takes compiling: held from reading it to
    /// [`Scripts::update`], so that of many at once none is overtaken.
    pub async fn turn(&self, id: ScriptId) -> MutexGuard<'_, ()> {
        self.0.lanes.turn(id.as_bytes()).await
    }

    /// Puts a script in the place of `before`, of which it was made.
    ///
    /// # Errors
    ///
    /// Fails if that one is gone or has become another meanwhile, or as [`Scripts::create`].
    pub async fn update(
        &self,
        before: Arc<Script>,
        script: Script,
        also: impl FnOnce(&mut Batch<'_>) + Send + 'static,
    ) -> Result<Arc<Script>, ScriptsError> {
        let shared = self.0.clone();
        carried_through(async move {
            let _turn = shared.turn.lock().await;
            let current = shared.read().scripts.get(&before.id).cloned().ok_or(ScriptsError::NotFound)?;
            if !Arc::ptr_eq(&current, &before) {
                return Err(ScriptsError::Overtaken);
            }
            let after = shared.save(script, also).await?;
            shared.tell(&Change::Updated { before, after: after.clone() });
            Ok(after)
        })
        .await
    }

    /// Removes a script and returns it. What still names it finds it missing.
    ///
    /// # Errors
    ///
    /// Fails if it is gone, or the store cannot be written.
    pub async fn delete(
        &self,
        id: ScriptId,
        also: impl FnOnce(&mut Batch<'_>) + Send + 'static,
    ) -> Result<Arc<Script>, ScriptsError> {
        let shared = self.0.clone();
        carried_through(async move {
            let _turn = shared.turn.lock().await;
            let script = shared.read().scripts.get(&id).cloned().ok_or(ScriptsError::NotFound)?;
            let write = shared.store.write(move |batch| {
                SCRIPTS.delete(batch, id.as_bytes());
                also(batch);
            });
            write.await?;
            shared.write().take(id);
            shared.tell(&Change::Deleted(script.clone()));
            Ok(script)
        })
        .await
    }

    pub fn get(&self, id: ScriptId) -> Option<Arc<Script>> {
        self.0.read().scripts.get(&id).cloned()
    }

    /// The script of this owner with this name.
    pub fn find(&self, owner: Owner, name: &str) -> Option<Arc<Script>> {
        self.0.read().owned.get(&owner)?.get(name).cloned()
    }

    /// Up to `limit` of the scripts that are `wanted`, oldest first, beginning after `cursor`.
    pub fn page(&self, cursor: Option<ScriptId>, limit: usize, wanted: impl Fn(&Script) -> bool) -> Vec<Arc<Script>> {
        let start = cursor.map_or(Bound::Unbounded, Bound::Excluded);
        let index = self.0.read();
        let after = index.scripts.range((start, Bound::Unbounded)).map(|(_, script)| script);
        after.filter(|script| wanted(script)).take(limit).cloned().collect()
    }

    /// Every script of this owner, by name.
    pub fn of(&self, owner: Owner) -> Vec<Arc<Script>> {
        self.0.read().owned.get(&owner).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Every script, oldest first.
    pub fn all(&self) -> Vec<Arc<Script>> {
        self.0.read().scripts.values().cloned().collect()
    }

    /// The script of this id as whoever runs as `owner` may run it.
    ///
    /// # Errors
    ///
    /// Says why it cannot be run.
    pub fn script(&self, owner: Owner, id: ScriptId) -> Result<Arc<Script>, ScriptUnavailable> {
        let script = self.get(id).filter(|script| owner.can_use(script.owner)).ok_or(ScriptUnavailable::Missing(id))?;
        match (script.kind, script.active) {
            (ScriptKind::Script, true) => Ok(script),
            (ScriptKind::Script, false) => Err(ScriptUnavailable::Inactive(script.name.clone())),
            (kind, _) => Err(ScriptUnavailable::OtherKind { name: script.name.clone(), kind }),
        }
    }

    /// The same, compiled.
    ///
    /// # Errors
    ///
    /// Says why it cannot be run.
    pub fn program(&self, owner: Owner, id: ScriptId) -> Result<Program, ScriptUnavailable> {
        let script = self.script(owner, id)?;
        match script.program() {
            Some(Ok(program)) => Ok(program.clone()),
            Some(Err(error)) => Err(ScriptUnavailable::Compile { name: script.name.clone(), error: error.clone() }),
            None => Err(ScriptUnavailable::Missing(id)),
        }
    }

    /// The Lua library that `require` finds under this name for whoever runs as `owner`: the owner's own, or
    /// everybody's.
    ///
    /// # Errors
    ///
    /// What was saved by an older version may no longer compile.
    pub fn library(&self, owner: Owner, name: &str) -> Result<Option<Program>, CompileError> {
        let found = |owner: Owner| {
            self.find(owner, name).filter(|script| {
                script.kind == ScriptKind::Library && script.active && script.language == Language::Lua
            })
        };
        let library = found(owner).or_else(|| found(Owner::Global));
        let program = library.as_ref().and_then(|library| library.program()).transpose();
        program.map(Option::<&Program>::cloned).map_err(CompileError::clone)
    }

    /// Every library that whoever runs as `owner` can load, by name and language. The owner's own hide everybody's.
    pub fn libraries_for(&self, owner: Owner) -> Vec<Arc<Script>> {
        let mut libraries = BTreeMap::new();
        for owner in [Owner::Global, owner] {
            let active =
                self.of(owner).into_iter().filter(|script| script.kind == ScriptKind::Library && script.active);
            libraries.extend(active.map(|library| ((library.name.clone(), library.language), library)));
        }
        libraries.into_values().collect()
    }

    /// Every tool that a user can call, by the name that MCP clients see. The user's own hide everybody's.
    pub fn tools_for(&self, user: UserId) -> Vec<Arc<Script>> {
        let mut tools = BTreeMap::new();
        for owner in [Owner::Global, Owner::User(user)] {
            let active = self.of(owner).into_iter().filter(|script| script.kind == ScriptKind::Tool && script.active);
            tools.extend(active.map(|tool| (tool.mcp_name(), tool)));
        }
        tools.into_values().collect()
    }
}

impl ModuleSource for Scripts {
    fn find(&self, owner: Owner, name: &str) -> Result<Option<Program>, String> {
        self.library(owner, name).map_err(|error| format!("the library `{name}` does not compile: {error}"))
    }
}

impl Shared {
    async fn save(
        &self,
        script: Script,
        also: impl FnOnce(&mut Batch<'_>) + Send + 'static,
    ) -> Result<Arc<Script>, ScriptsError> {
        let script = Arc::new(script);
        self.store.check_room()?;
        self.read().check(&script, self.most)?;
        let saved = script.clone();
        let write = self.store.write(move |batch| {
            SCRIPTS.put(batch, saved.id.as_bytes(), &saved);
            also(batch);
        });
        write.await?;
        self.write().put(script.clone());
        Ok(script)
    }

    fn tell(&self, change: &Change<Script>) {
        for listener in &*self.listeners.read() {
            listener(change);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write()
    }
}

impl Index {
    /// Whether there is room for a script beside the others of its owner.
    fn check(&self, script: &Script, most: usize) -> Result<(), ScriptsError> {
        let owned = self.owned.get(&script.owner);
        let others = || owned.into_iter().flat_map(BTreeMap::values).filter(|other| other.id != script.id);
        if let Some(other) = others().find(|other| other.name == script.name) {
            return Err(ScriptsError::NameTaken { name: other.name.clone(), kind: other.kind });
        }
        let has_it = self.scripts.get(&script.id).is_some_and(|old| old.owner == script.owner);
        if !has_it && others().count() >= most {
            return Err(ScriptsError::TooMany(most));
        }
        match script.kind {
            ScriptKind::Script => Ok(()),
            ScriptKind::Tool => {
                let mcp_name = script.mcp_name();
                let clash = others().find(|other| other.kind == ScriptKind::Tool && other.mcp_name() == mcp_name);
                clash.map_or(Ok(()), |other| Err(ScriptsError::ToolNameTaken(other.name.clone())))
            }
            ScriptKind::Library => {
                let bytes = weight(script) + others().map(|other| weight(other)).sum::<usize>();
                if bytes > MAX_LIBRARIES { Err(ScriptsError::TooMuch(bytes)) } else { Ok(()) }
            }
        }
    }

    fn put(&mut self, script: Arc<Script>) {
        self.take(script.id);
        self.owned.entry(script.owner).or_default().insert(script.name.clone(), script.clone());
        self.scripts.insert(script.id, script);
    }

    fn take(&mut self, id: ScriptId) {
        let Some(old) = self.scripts.remove(&id) else { return };
        if let Some(owned) = self.owned.get_mut(&old.owner) {
            owned.remove(&old.name);
            if owned.is_empty() {
                self.owned.remove(&old.owner);
            }
        }
    }
}

/// What a library takes of a message. Quotes and line ends take two bytes there, so that counting characters will not
/// do; nor is the text written out only to be counted.
fn weight(script: &Script) -> usize {
    /// Its name, its language and what is around them.
    const AROUND: usize = 200;
    if script.kind != ScriptKind::Library {
        return 0;
    }
    let byte = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..0x20 => 6,
        _ => 1,
    };
    AROUND + script.content.bytes().map(byte).sum::<usize>()
}
