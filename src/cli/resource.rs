//! One description of each kind of record in the API: its path, its noun, how one is found by name, and how it is
//! shown.
//!
//! [`list`], [`show`] and [`ResourceKind::delete`] work on any kind. The descriptions stand with the commands of each
//! kind, as [`Resource`] of its view.

use super::{
    client::{Client, QueryString, ResponseText},
    failure::Failure,
    shell::{OutputFormat, Shell},
    table::{Cell, Fit, TextTable, printable},
};
use crate::model::{id::ScriptId, owner::OwnerSpec};
use serde::{Deserialize, de::DeserializeOwned};
use std::fmt::Display;

/// A kind of record in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceKind {
    /// The word for one record, and the command's name.
    pub noun: &'static str,
    pub path: &'static str,
    lookup: Lookup,
}

/// The query that finds a record by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lookup {
    /// The server filters by name.
    ByName,
    /// The server filters by slug, which is the name of a source.
    BySlug,
    /// The server filters by name; the caller's own records come before those of others.
    OwnFirst,
    /// There are few, so all are read.
    All,
}

/// A record that commands list, show and delete.
pub trait Resource: DeserializeOwned {
    const KIND: ResourceKind;

    /// One item of the list.
    type Item: DeserializeOwned;

    const COLUMNS: &'static [(&'static str, Fit)];

    /// The cells of an item, one for each column.
    fn row(item: Self::Item) -> Vec<Cell>;

    /// A line about an item that follows the table of the list.
    fn remark(_: &Self::Item) -> Option<String> {
        None
    }

    /// Adds the record's fields to the table that `show` prints. The client looks up names of other records.
    fn add_fields(&self, table: &mut TextTable, client: &Client);

    /// Prints what follows the table, such as the source of a script.
    ///
    /// # Errors
    ///
    /// Fails if stdout cannot be written.
    fn show_source(&self, _: &mut Shell<'_>) -> Result<(), Failure> {
        Ok(())
    }
}

/// The id and name of any record.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Named {
    pub id: String,
    #[serde(alias = "slug")]
    pub name: String,
}

/// Prints the records that match: a row for each, or the API's own JSON.
///
/// # Errors
///
/// Fails if the server refuses or cannot be reached.
pub fn list<R: Resource>(
    shell: &mut Shell<'_>,
    client: &Client,
    query: &QueryString,
    format: OutputFormat,
) -> Result<(), Failure> {
    list_at::<R>(shell, client, R::KIND.path, query, format)
}

/// Like [`list`], with the records at another path.
///
/// # Errors
///
/// Fails as [`list`] does.
pub fn list_at<R: Resource>(
    shell: &mut Shell<'_>,
    client: &Client,
    path: &str,
    query: &QueryString,
    format: OutputFormat,
) -> Result<(), Failure> {
    let listing = client.list(path, query, usize::MAX)?;
    if format == OutputFormat::Json {
        return shell.out.json(&listing.to_json());
    }
    let mut table = TextTable::new(R::COLUMNS);
    let mut remarks = Vec::new();
    for item in listing.read(client)? {
        remarks.extend(R::remark(&item));
        table.row(R::row(item));
    }
    shell.out.table(&table)?;
    remarks.iter().try_for_each(|remark| shell.out.line(&printable(remark)))
}

/// Prints the record called `text`.
///
/// # Errors
///
/// Fails as [`ResourceKind::find`] does, and if the server refuses.
pub fn show<R: Resource>(
    shell: &mut Shell<'_>,
    client: &Client,
    text: &str,
    format: OutputFormat,
) -> Result<(), Failure> {
    let answer = client.get(&R::KIND.path_of(client, text)?)?;
    if format == OutputFormat::Json {
        return shell.out.json(answer.as_str());
    }
    let record: R = client.read(&answer)?;
    let mut table = TextTable::of_fields();
    record.add_fields(&mut table, client);
    shell.out.table(&table)?;
    record.show_source(shell)
}

impl ResourceKind {
    pub const SINK: Self = Self { noun: "sink", path: "/api/event-sinks", lookup: Lookup::ByName };
    pub const SOURCE: Self = Self { noun: "source", path: "/api/sources", lookup: Lookup::BySlug };
    pub const SCRIPT: Self = Self { noun: "script", path: "/api/scripts", lookup: Lookup::OwnFirst };
    pub const SPACE: Self = Self { noun: "space", path: "/api/spaces", lookup: Lookup::OwnFirst };
    pub const TEMPLATE: Self = Self { noun: "template", path: "/api/templates", lookup: Lookup::ByName };
    pub const TOKEN: Self = Self { noun: "token", path: "/api/tokens", lookup: Lookup::All };
    pub const USER: Self = Self { noun: "user", path: "/api/users", lookup: Lookup::All };
    pub const ROLE: Self = Self { noun: "role", path: "/api/roles", lookup: Lookup::All };
    pub const GROUP: Self = Self { noun: "group", path: "/api/groups", lookup: Lookup::All };

    /// The record called `text`, by name or id. A text that reads as an id is not looked up: the server does that.
    ///
    /// # Errors
    ///
    /// Fails if no record has this name, or if several have.
    pub fn find(self, client: &Client, text: &str) -> Result<Named, Failure> {
        if let Ok(id) = uuid::Uuid::parse_str(text) {
            return Ok(Named { id: id.to_string(), name: text.to_owned() });
        }
        let query = match self.lookup {
            Lookup::ByName | Lookup::BySlug | Lookup::OwnFirst => self.named_query(text),
            Lookup::All => QueryString::default(),
        };
        let list = |query: &QueryString| client.list(self.path, query, usize::MAX)?.read::<Named>(client);
        let mut all = match self.lookup {
            Lookup::OwnFirst => list(&query.clone().with("owner", "me"))?,
            Lookup::ByName | Lookup::BySlug | Lookup::All => Vec::new(),
        };
        if all.is_empty() {
            all = list(&query)?;
        }
        self.pick(all, text)
    }

    /// The record called `text`, by name or id, among those at another path.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::find`] does.
    pub fn find_at(self, client: &Client, path: &str, text: &str) -> Result<Named, Failure> {
        let all = client.list(path, &QueryString::default(), usize::MAX)?.read::<Named>(client)?;
        if let Some(found) = all.iter().find(|named| named.id == text) {
            return Ok(found.clone());
        }
        self.pick(all, text)
    }

    /// The record called `text` among those of this owner.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::find`] does.
    pub fn find_owned(self, client: &Client, text: &str, owner: OwnerSpec) -> Result<Named, Failure> {
        if uuid::Uuid::parse_str(text).is_ok() {
            return self.find(client, text);
        }
        self.pick(self.named(client, text, owner)?.into_iter().collect(), text)
    }

    /// The record of exactly this owner and name, if there is one.
    ///
    /// # Errors
    ///
    /// Fails if the server refuses or cannot be reached.
    pub fn named(self, client: &Client, name: &str, owner: OwnerSpec) -> Result<Option<Named>, Failure> {
        let query = self.named_query(name).with("owner", owner);
        let all: Vec<Named> = client.list(self.path, &query, usize::MAX)?.read(client)?;
        Ok(all.into_iter().find(|record| record.name == name))
    }

    /// The query for records of this name.
    fn named_query(self, name: &str) -> QueryString {
        let parameter = if self.lookup == Lookup::BySlug { "slug" } else { "name" };
        QueryString::default().with(parameter, name)
    }

    /// The path of the record called `text`.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::find`] does.
    pub fn path_of(self, client: &Client, text: &str) -> Result<String, Failure> {
        Ok(self.path_of_id(&self.find(client, text)?.id))
    }

    pub fn path_of_id(self, id: impl Display) -> String {
        format!("{}/{id}", self.path)
    }

    /// The name and id of the record with this id, or the id alone if the caller may not see it.
    pub fn name_and_id(self, client: &Client, id: impl Display) -> String {
        let named = client.get(&self.path_of_id(&id)).and_then(|answer| client.read::<Named>(&answer));
        named.map_or_else(|_| id.to_string(), |named| format!("{}  {id}", named.name))
    }

    /// Deletes the record called `text`, and prints that it did.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::find`] does, and if the server refuses.
    pub fn delete(
        self,
        shell: &mut Shell<'_>,
        client: &Client,
        text: &str,
        format: OutputFormat,
    ) -> Result<(), Failure> {
        self.delete_with(shell, client, text, &QueryString::default(), format)
    }

    /// Like [`Self::delete`], with further parameters.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::delete`] does.
    pub fn delete_with(
        self,
        shell: &mut Shell<'_>,
        client: &Client,
        text: &str,
        query: &QueryString,
        format: OutputFormat,
    ) -> Result<(), Failure> {
        let found = self.find(client, text)?;
        self.delete_found(shell, client, &found, query, format)
    }

    /// Deletes a record that was found, and prints that it did.
    ///
    /// # Errors
    ///
    /// Fails if the server refuses.
    pub fn delete_found(
        self,
        shell: &mut Shell<'_>,
        client: &Client,
        found: &Named,
        query: &QueryString,
        format: OutputFormat,
    ) -> Result<(), Failure> {
        client.delete(&query.on(&self.path_of_id(&found.id)))?;
        match format {
            OutputFormat::Json => shell.out.json(&serde_json::json!({ "deleted": found.id }).to_string()),
            OutputFormat::Text => shell.out.line(&format!("deleted {} {}", self.noun, printable(&found.name))),
        }
    }

    /// Prints that a record was made or changed, or the API's answer about it.
    ///
    /// # Errors
    ///
    /// Fails if the answer is not about a record, or stdout cannot be written.
    pub fn report(
        self,
        shell: &mut Shell<'_>,
        done: &str,
        client: &Client,
        answer: &ResponseText,
        format: OutputFormat,
    ) -> Result<(), Failure> {
        if format == OutputFormat::Json {
            return shell.out.json(answer.as_str());
        }
        let named: Named = client.read(answer)?;
        shell.out.line(&format!("{done} {} {}  {}", self.noun, printable(&named.name), named.id))
    }

    /// The one called `text` among these.
    fn pick(self, all: Vec<Named>, text: &str) -> Result<Named, Failure> {
        let mut called = all.into_iter().filter(|named| named.name == text);
        let noun = self.noun;
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

/// The id of the stored script that a record of this owner means by a name or id. Global records use global scripts;
/// the caller's own script of the same name is not meant.
///
/// # Errors
///
/// Fails if there is none, or the server cannot be asked.
pub fn find_script(client: &Client, owner: OwnerSpec, text: &str) -> Result<ScriptId, Failure> {
    let found = match owner {
        OwnerSpec::Me => ResourceKind::SCRIPT.find(client, text)?,
        OwnerSpec::Global => ResourceKind::SCRIPT.find_owned(client, text, owner)?,
    };
    found.id.parse().map_err(|_| Failure::NoSuch(format!("`{}` is no id of a script", found.id)))
}

/// Prints a program under its title. Tabs stay; every other control character is spelled out.
///
/// # Errors
///
/// Fails if stdout cannot be written.
pub fn print_source(shell: &mut Shell<'_>, title: &str, source: &str) -> Result<(), Failure> {
    shell.out.line(&format!("\n{title}:"))?;
    for line in source.lines() {
        shell.out.line(format!("  {}", line.split('\t').map(printable).collect::<Vec<_>>().join("\t")).trim_end())?;
    }
    Ok(())
}

/// The values with commas between, for a table.
pub fn joined<T: Display>(values: impl IntoIterator<Item = T>) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(", ")
}
