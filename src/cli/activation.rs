//! `activate` and `deactivate` of sinks and sources.

use super::{
    client::{Client, to_json},
    failure::Failure,
    resource::ResourceKind,
    shell::{OutputFormat, Shell},
};
use crate::model::api::list::List;
use serde_json::{json, value::RawValue};

/// The change of a record's `active`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    Activate,
    Deactivate,
}

impl Activation {
    /// Changes the records with these names or ids, and prints each. Nothing is changed if one of them does not exist.
    ///
    /// # Errors
    ///
    /// Fails without a name, as [`ResourceKind::find`] does, and if the server refuses.
    pub fn apply(
        self,
        shell: &mut Shell<'_>,
        client: &Client,
        kind: ResourceKind,
        names: &[String],
        format: OutputFormat,
    ) -> Result<(), Failure> {
        let (verb, done) = match self {
            Self::Activate => ("activate", "activated"),
            Self::Deactivate => ("deactivate", "deactivated"),
        };
        if names.is_empty() {
            let noun = kind.noun;
            return Err(Failure::Usage(format!("no {noun} is named: see `svc {noun} {verb} --help`")));
        }
        let paths = names.iter().map(|name| kind.path_of(client, name)).collect::<Result<Vec<_>, _>>()?;
        // An id is not looked up for its path.
        paths.iter().try_for_each(|path| client.get(path).map(drop))?;
        let mut items: Vec<Box<RawValue>> = Vec::new();
        let change = |path: &String| -> Result<(), Failure> {
            let answer = client.patch(path, &json!({ "active": self == Self::Activate }))?;
            match format {
                OutputFormat::Text => kind.report(shell, done, client, &answer, format),
                OutputFormat::Json => {
                    items.push(client.read(&answer)?);
                    Ok(())
                }
            }
        };
        let changed = paths.iter().try_for_each(change);
        if format == OutputFormat::Json && (changed.is_ok() || !items.is_empty()) {
            shell.out.json(&to_json(&List { items, next: None }))?;
        }
        changed
    }
}
