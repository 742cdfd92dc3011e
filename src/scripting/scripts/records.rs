//! All stored scripts, as a [`Collection`]: unique by name within their owner, bounded in number, and the libraries of
//! an owner bounded in bytes.

use super::script::{Script, ScriptUnavailable};
use crate::{
    model::{
        id::{ScriptId, UserId},
        library::Language,
        owner::Owner,
        script_spec::ScriptKind,
    },
    platform::{
        collection::{Change, Collection, CollectionError, CollectionRecord, Edit},
        store::{Batch, Store, StoreError, Table, keys},
    },
    scripting::workers::{LibraryTexts, ProgramText},
};
use std::{collections::BTreeMap, sync::Arc};

/// Bytes that the libraries of one owner may take together in a message to an agent. A space gets those of two owners,
/// and they must fit into one message with room to spare.
pub const MAX_LIBRARIES: usize = 4 << 20;

/// Every stored script there is. Cloning the handle is cheap.
#[derive(Clone)]
pub struct Scripts {
    records: Collection<Script>,
}

/// Reason for which a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum ScriptsError {
    #[error("there is already a {kind} named `{name}` of this owner: choose another name, or change that one")]
    NameTaken { name: String, kind: ScriptKind },
    #[error("an owner has at most {0} scripts: delete one first, or have `limits.scripts` raised")]
    TooMany(usize),
    #[error(transparent)]
    Refused(#[from] ScriptRefusal),
    #[error("somebody else has changed the script meanwhile: look at it and try again")]
    Conflict,
    #[error("there is no such script")]
    NotFound,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A rule that a script breaks together with the other scripts of its owner.
#[derive(Debug, thiserror::Error)]
pub enum ScriptRefusal {
    #[error("MCP clients would see this tool and `{0}` under one name: choose another name")]
    ToolNameTaken(String),
    #[error(
        "the libraries of an owner have at most {MAX_LIBRARIES} bytes together, and with this one they would have {0}: \
         delete or shorten some"
    )]
    LibrariesTooLarge(usize),
}

impl Scripts {
    /// Reads all scripts. They are compiled later, when each is first used. An owner can have `most`.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn open(store: Store, most: usize) -> Result<Self, StoreError> {
        Ok(Self { records: Collection::open(store, most)? })
    }

    /// Calls `listener` with every change from now on, by the rules of [`Collection::listen`].
    pub fn listen(&self, listener: impl Fn(&Change<Script>) + Send + Sync + 'static) {
        self.records.listen(listener);
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
        self.records.store().check_room()?;
        Ok(self.records.create(script, also).await?)
    }

    /// Changes a script by a decision on its present state, by the rules of [`Collection::edit`].
    ///
    /// # Errors
    ///
    /// Fails if it is gone, `decide` does, others keep changing it meanwhile, or as [`Scripts::create`].
    pub async fn edit<E: From<ScriptsError>, F: Future<Output = Result<Edit<Script>, E>>>(
        &self,
        id: ScriptId,
        decide: impl FnMut(Arc<Script>) -> F,
    ) -> Result<Arc<Script>, E> {
        self.records.store().check_room().map_err(ScriptsError::from)?;
        self.records.edit(id, decide).await.map_err(ScriptsError::from)?
    }

    /// Removes a script and returns it. A reference to it finds it missing from then on.
    ///
    /// # Errors
    ///
    /// Fails if it is gone, or the store cannot be written.
    pub async fn delete(
        &self,
        id: ScriptId,
        also: impl FnOnce(&mut Batch<'_>) + Send + 'static,
    ) -> Result<Arc<Script>, ScriptsError> {
        Ok(self.records.delete(id, also).await?)
    }

    pub fn get(&self, id: ScriptId) -> Option<Arc<Script>> {
        self.records.get(id)
    }

    /// The script of this owner with this name.
    pub fn find(&self, owner: Owner, name: &str) -> Option<Arc<Script>> {
        self.records.find(owner, name)
    }

    /// Up to `limit` of the scripts that are `wanted`, oldest first, beginning after `cursor`.
    pub fn page(&self, cursor: Option<ScriptId>, limit: usize, wanted: impl Fn(&Script) -> bool) -> Vec<Arc<Script>> {
        self.records.page(cursor, limit, wanted)
    }

    /// Every script of this owner, by name.
    pub fn of(&self, owner: Owner) -> Vec<Arc<Script>> {
        self.records.in_namespace(owner)
    }

    /// Every script, oldest first.
    pub fn all(&self) -> Vec<Arc<Script>> {
        self.records.all()
    }

    /// The script of this id, if `owner` may run it.
    pub fn script(&self, owner: Owner, id: ScriptId) -> Result<Arc<Script>, ScriptUnavailable> {
        let script = self.get(id).filter(|script| owner.can_use(script.owner)).ok_or(ScriptUnavailable::Missing(id))?;
        match (script.kind, script.active) {
            (ScriptKind::Script, true) => Ok(script),
            (ScriptKind::Script, false) => Err(ScriptUnavailable::Inactive(script.name.clone())),
            (kind, _) => Err(ScriptUnavailable::OtherKind { name: script.name.clone(), kind }),
        }
    }

    /// The program of this id, if `owner` may run it.
    pub fn program(&self, owner: Owner, id: ScriptId) -> Result<ProgramText, ScriptUnavailable> {
        self.script(owner, id)?.program().cloned().ok_or(ScriptUnavailable::Missing(id))
    }

    /// The Lua library that `require` finds under this name in scripts of `owner`: the owner's own, or else the global
    /// one.
    pub fn library(&self, owner: Owner, name: &str) -> Option<ProgramText> {
        let found = |owner: Owner| {
            self.find(owner, name).filter(|script| {
                script.kind == ScriptKind::Library && script.active && script.language == Language::Lua
            })
        };
        found(owner).or_else(|| found(Owner::Global))?.program().cloned()
    }

    /// Every library that scripts of `owner` can load, by name and language. The owner's own hide global ones.
    pub fn libraries_for(&self, owner: Owner) -> Vec<Arc<Script>> {
        let mut libraries = BTreeMap::new();
        for owner in [Owner::Global, owner] {
            let active =
                self.of(owner).into_iter().filter(|script| script.kind == ScriptKind::Library && script.active);
            libraries.extend(active.map(|library| ((library.name.clone(), library.language), library)));
        }
        libraries.into_values().collect()
    }

    /// Every tool that a user can call, by the name that MCP clients see. The user's own hide global ones.
    pub fn tools_for(&self, user: UserId) -> Vec<Arc<Script>> {
        let mut tools = BTreeMap::new();
        for owner in [Owner::Global, Owner::User(user)] {
            let active = self.of(owner).into_iter().filter(|script| script.kind == ScriptKind::Tool && script.active);
            tools.extend(active.map(|tool| (tool.mcp_name(), tool)));
        }
        tools.into_values().collect()
    }
}

impl LibraryTexts for Scripts {
    fn find(&self, owner: Owner, name: &str) -> Option<ProgramText> {
        self.library(owner, name)
    }
}

impl CollectionRecord for Script {
    type Id = ScriptId;
    type Namespace = Owner;
    type Refusal = ScriptRefusal;

    const TABLE: Table<Self> = Table::new(keys::SCRIPTS);

    fn id(&self) -> ScriptId {
        self.id
    }

    fn key(&self) -> Vec<u8> {
        self.id.as_bytes().to_vec()
    }

    fn namespace(&self) -> Owner {
        self.owner
    }

    fn name(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn check(&self, others: &mut dyn Iterator<Item = &Self>) -> Result<(), ScriptRefusal> {
        match self.kind {
            ScriptKind::Script => Ok(()),
            ScriptKind::Tool => {
                let mcp_name = self.mcp_name();
                let clash = |other: &&Self| other.kind == ScriptKind::Tool && other.mcp_name() == mcp_name;
                let mut others = others;
                Iterator::find(&mut others, clash)
                    .map_or(Ok(()), |other| Err(ScriptRefusal::ToolNameTaken(other.name.clone())))
            }
            ScriptKind::Library => {
                let bytes = message_bytes(self) + others.map(message_bytes).sum::<usize>();
                if bytes > MAX_LIBRARIES { Err(ScriptRefusal::LibrariesTooLarge(bytes)) } else { Ok(()) }
            }
        }
    }
}

impl From<CollectionError<Script>> for ScriptsError {
    fn from(error: CollectionError<Script>) -> Self {
        match error {
            CollectionError::NameTaken(other) => Self::NameTaken { name: other.name.clone(), kind: other.kind },
            CollectionError::QuotaReached(most) => Self::TooMany(most),
            CollectionError::NotFound(_) => Self::NotFound,
            CollectionError::Conflict(_) => Self::Conflict,
            CollectionError::Refused(refusal) => Self::Refused(refusal),
            CollectionError::Store(error) => Self::Store(error),
        }
    }
}

/// Bytes that a library takes in a message to an agent, where quotes and line ends take two bytes each. Other scripts
/// are not sent and take none.
fn message_bytes(script: &Script) -> usize {
    /// Bytes for its name, its language and the JSON around them.
    const OVERHEAD: usize = 200;
    if script.kind != ScriptKind::Library {
        return 0;
    }
    let byte = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..0x20 => 6,
        _ => 1,
    };
    OVERHEAD + script.content.bytes().map(byte).sum::<usize>()
}
