//! Objects by name or id, whichever was typed.

use super::{
    api::{self, Named},
    client::{Answer, Client, Query},
    failure::Failure,
    shell::{Form, Shell},
    table::{Cell, Fit, Table, printable},
};
use crate::model::owner::OwnerSpec;
use serde::de::DeserializeOwned;

/// What kind of object is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Sink,
    Script,
    Space,
    Template,
    Token,
    User,
    Role,
    Group,
}

impl Kind {
    /// Where the API keeps these.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Sink => "/api/event-sinks",
            Self::Script => "/api/scripts",
            Self::Space => "/api/spaces",
            Self::Template => "/api/templates",
            Self::Token => "/api/tokens",
            Self::User => "/api/users",
            Self::Role => "/api/roles",
            Self::Group => "/api/groups",
        }
    }

    /// The word for one, which is also the command's.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Sink => "sink",
            Self::Script => "script",
            Self::Space => "space",
            Self::Template => "template",
            Self::Token => "token",
            Self::User => "user",
            Self::Role => "role",
            Self::Group => "group",
        }
    }

    /// The path of the one called `text`, by name or id.
    ///
    /// # Errors
    ///
    /// Fails if no object has this name, or if several have.
    pub fn path_of(self, client: &Client, text: &str) -> Result<String, Failure> {
        Ok(format!("{}/{}", self.path(), self.find(client, text)?.id))
    }

    /// What to call the one of this id: its name too, if the caller may know it.
    pub fn called(self, client: &Client, id: &str) -> String {
        let named = client.get(&format!("{}/{id}", self.path())).and_then(|answer| client.read::<Named>(&answer));
        named.map_or_else(|_| id.to_owned(), |named| format!("{}  {id}", named.name))
    }

    /// Lists all there are: a row for each, or the API's own JSON.
    ///
    /// # Errors
    ///
    /// Fails if the server will not.
    pub fn list<T: DeserializeOwned, const N: usize>(
        self,
        shell: &mut Shell<'_>,
        client: &Client,
        form: Form,
        columns: [(&'static str, Fit); N],
        row: impl Fn(T) -> [Cell; N],
    ) -> Result<(), Failure> {
        let listing = client.list(self.path(), &Query::default(), usize::MAX)?;
        if form == Form::Json {
            return shell.out.json(&listing.to_json());
        }
        let mut table = Table::new(&columns);
        for item in listing.read(client)? {
            table.row(row(item));
        }
        shell.out.table(&table)
    }

    /// Deletes the one called `text`, and says so.
    ///
    /// # Errors
    ///
    /// As [`Self::path_of`], and if the server will not.
    pub fn delete(self, shell: &mut Shell<'_>, client: &Client, text: &str, form: Form) -> Result<(), Failure> {
        let found = self.find(client, text)?;
        client.delete(&format!("{}/{}", self.path(), found.id))?;
        match form {
            Form::Json => shell.out.json(&serde_json::json!({ "deleted": found.id }).to_string()),
            Form::Text => shell.out.line(&format!("deleted {} {}", self.noun(), printable(&found.name))),
        }
    }

    /// Says that an object was made or changed, or shows what the API said about it.
    pub fn tell(
        self,
        shell: &mut Shell<'_>,
        done: &str,
        client: &Client,
        answer: &Answer,
        form: Form,
    ) -> Result<(), Failure> {
        if form == Form::Json {
            return shell.out.json(answer.as_str());
        }
        let named: Named = client.read(answer)?;
        shell.out.line(&format!("{done} {} {}  {}", self.noun(), printable(&named.name), named.id))
    }

    /// The one called `text`. What reads as an id is not looked up: the server does that.
    ///
    /// # Errors
    ///
    /// As [`Self::path_of`].
    pub fn find(self, client: &Client, text: &str) -> Result<Named, Failure> {
        if let Ok(id) = uuid::Uuid::parse_str(text) {
            return Ok(Named { id: id.to_string(), name: text.to_owned() });
        }
        // Some are many, so the server picks; the others are few, and read whole.
        let query = match self {
            Self::Sink | Self::Script | Self::Space | Self::Template => Query::default().with("name", text),
            Self::Token | Self::User | Self::Role | Self::Group => Query::default(),
        };
        let list = |query: &Query| client.list(self.path(), query, usize::MAX)?.read::<Named>(client);
        let mut all = match self {
            // Who sees everybody's means their own first.
            Self::Script | Self::Space => list(&query.clone().with("owner", "me"))?,
            _ => Vec::new(),
        };
        if all.is_empty() {
            all = list(&query)?;
        }
        self.pick(all, text)
    }

    /// The one called `text` among those of this owner.
    ///
    /// # Errors
    ///
    /// As [`Self::path_of`].
    pub fn find_owned(self, client: &Client, text: &str, owner: OwnerSpec) -> Result<Named, Failure> {
        if uuid::Uuid::parse_str(text).is_ok() {
            return self.find(client, text);
        }
        let query = Query::default().with("name", text).with("owner", api::owner(owner));
        self.pick(client.list(self.path(), &query, usize::MAX)?.read(client)?, text)
    }

    /// The one called `text` among these.
    fn pick(self, all: Vec<Named>, text: &str) -> Result<Named, Failure> {
        let mut called = all.into_iter().filter(|named| named.name == text);
        let noun = self.noun();
        let Some(first) = called.next() else {
            return Err(Failure::NoSuch(format!("no {noun} is named `{text}`: `svc {noun} list` shows what there is")));
        };
        match called.next() {
            None => Ok(first),
            Some(second) => Err(Failure::NoSuch(format!(
                "more than one {noun} is named `{text}`: use the id, {} or {}",
                first.id, second.id
            ))),
        }
    }
}
