//! A registration read from a TOML file or built by a script, checked by every rule that needs no server.
//!
//! An error in a file names the line, and an error in a script's registration the field.

use super::server_url::ServerUrl;
use crate::model::{
    id::GroupId,
    method::{GroupIds, Method, MethodNames, PublishError, Registration},
    toml_input::{InvalidToml, line_of},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// A registration and the file that it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Declaration {
    /// The TOML file, or the script that built it.
    pub path: PathBuf,
    /// The method server's working directory, if it is not the directory of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    pub registration: Registration,
    /// The groups that each server found for it, by the server's URL: a renamed group stays the same one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, GroupIds>,
}

/// A registration that a script has built.
#[derive(Clone, Debug)]
pub struct BuiltRegistration {
    /// The method server's working directory.
    pub directory: PathBuf,
    /// The script, for messages.
    pub script: Option<PathBuf>,
    pub registration: Box<RawValue>,
}

/// A file that cannot be registered.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationFileError {
    #[error(
        "{}: a registration is a file of TOML, Lua or Python: its name must end in .toml, .lua or .py", .0.display()
    )]
    Unknown(PathBuf),
    #[error("{}: give the whole path: the method server runs in that directory", .0.display())]
    Relative(PathBuf),
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{}: {fault}", path.display())]
    Toml { path: PathBuf, fault: InvalidToml },
    #[error("{}: {}{fault}", path.display(), LinePrefix(*line))]
    Rule { path: PathBuf, line: Option<usize>, fault: PublishError },
    /// The field and its fault; the script's own error carries the line.
    #[error("{0}")]
    Field(String),
}

/// The prefix of a message that names a line, empty if there is none.
pub struct LinePrefix(pub Option<usize>);

impl Declaration {
    /// Reads the text of a TOML file.
    ///
    /// # Errors
    ///
    /// Fails on the first broken rule, and names its line.
    pub fn from_toml(path: &Path, text: &str, space: &str) -> Result<Self, RegistrationFileError> {
        let path = path.to_owned();
        if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("toml")) {
            return Err(RegistrationFileError::Unknown(path));
        }
        if !path.is_absolute() {
            return Err(RegistrationFileError::Relative(path));
        }
        let registration = match Registration::from_toml(text) {
            Ok(registration) => registration,
            Err(fault) => return Err(RegistrationFileError::Toml { path, fault }),
        };
        let declared = Self { path, directory: None, registration, groups: BTreeMap::new() };
        match declared.names(space) {
            Ok(_) => Ok(declared),
            Err(fault) => {
                let line = line_of(text, &fault.field);
                Err(RegistrationFileError::Rule { path: declared.path, line, fault })
            }
        }
    }

    /// Reads a registration that a script has built.
    ///
    /// # Errors
    ///
    /// Fails on the first broken rule, and names its field.
    pub fn from_script(built: &BuiltRegistration, space: &str) -> Result<Self, RegistrationFileError> {
        let BuiltRegistration { directory, script, registration } = built;
        if !directory.is_absolute() {
            return Err(RegistrationFileError::Relative(directory.clone()));
        }
        let read = crate::model::json_input::parse(registration.get().as_bytes());
        let registration = read.map_err(|fault| RegistrationFileError::Field(fault.to_string()))?;
        let path = script.as_ref().unwrap_or(directory).clone();
        let declared = Self { path, directory: Some(directory.clone()), registration, groups: BTreeMap::new() };
        declared.names(space).map_err(|fault| RegistrationFileError::Field(fault.to_string()))?;
        Ok(declared)
    }

    /// The published and local names of the methods.
    ///
    /// # Errors
    ///
    /// Fails on the first broken rule that needs no server to check.
    pub fn names(&self, space: &str) -> Result<Vec<MethodNames>, PublishError> {
        // Only the server knows the groups.
        let any = GroupId::from_slice(&[0; 16]);
        let methods = self.registration.publish(space, |_| any)?;
        let named =
            |method: Method| MethodNames { name: method.name.to_string(), local_name: method.local_name.to_string() };
        Ok(methods.into_iter().map(named).collect())
    }

    /// The groups that this server found for the registration before.
    pub fn groups_at(&self, server: &ServerUrl) -> GroupIds {
        self.groups.get(&server.to_string()).cloned().unwrap_or_default()
    }

    /// The method server's working directory.
    pub fn directory(&self) -> PathBuf {
        let of_file = || self.path.parent().unwrap_or(Path::new("/")).to_owned();
        self.directory.clone().unwrap_or_else(of_file)
    }
}

impl std::fmt::Display for LinePrefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(line) => write!(f, "line {line}: "),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const FILE: &str = "\
[server]
command = \"./serve\"

[[methods]]
name = \"{{space}}.a\"
local_name = \"a\"
description = \"A\"

[[methods]]
name = \"b\"
local_name = \"b\"
description = \"B\"
events = [
  \"custom.*\",
  \"custom.x\",
]
";

    fn read(path: &str, text: &str) -> Result<Declaration, String> {
        Declaration::from_toml(Path::new(path), text, "notes").map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_declares_methods_and_the_directory_of_their_server() {
        let declared = read("/srv/app/methods.toml", FILE).unwrap();
        assert_eq!(declared.directory(), Path::new("/srv/app"));
        let names: Vec<String> = declared.names("notes").unwrap().into_iter().map(|names| names.name).collect();
        assert_eq!(names, ["notes.a", "b"]);
    }

    #[test]
    fn an_error_in_a_file_names_its_line() {
        for (from, to, line) in [
            ("command = \"./serve\"", "command = \"./serve\"\nport = 5", "line 3: `server.port`"),
            ("\"custom.x\"", "\"a.*.b\"", "line 15: `methods[1].events[1]`"),
            ("name = \"b\"", "name = \"user.b\"", "line 10: `methods[1].name`"),
            ("name = \"b\"", "name = \"notes.a\"", "line 10: `methods[1].name`"),
            ("command = \"./serve\"", "command = \" \"", "line 2: `server.command`"),
        ] {
            let error = read("/m.toml", &FILE.replacen(from, to, 1)).unwrap_err();
            assert!(error.starts_with("/m.toml: ") && error.contains(line), "{to}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn an_error_in_a_scripts_registration_names_its_field() {
        let built = |registration: serde_json::Value| {
            let registration = RawValue::from_string(registration.to_string()).unwrap();
            let built = BuiltRegistration { directory: "/srv/app".into(), script: None, registration };
            Declaration::from_script(&built, "notes").map_err(|error| error.to_string())
        };
        let method = |name: &str| json!({"name": name, "local_name": "a", "description": "A"});
        let declared = built(json!({"server": {"command": "./serve"}, "methods": [method("{{space}}.a")]})).unwrap();
        assert_eq!(declared.directory(), Path::new("/srv/app"));
        assert_eq!(declared.names("notes").unwrap()[0].name, "notes.a");
        for (registration, start) in [
            (json!({"server": {"command": "x"}, "methods": [method("user.a")]}), "`methods[0].name`: "),
            (json!({"server": {"command": "x"}, "methods": []}), "`methods`: "),
            (json!({"server": {"command": "x", "mode": "fast"}, "methods": []}), "`server.mode`: unknown variant"),
            (json!({"server": {"command": "x", "timeout": 0}, "methods": []}), "`server.timeout`: "),
            (json!({"server": {"command": "x"}, "methods": [{"nam": 1}]}), "`methods[0].nam`: unknown field"),
            (json!([]), "the body must be a JSON object"),
        ] {
            let error = built(registration).unwrap_err();
            assert!(error.starts_with(start), "{start}: {error}");
        }
    }

    #[test]
    fn only_toml_files_with_a_whole_path_are_read() {
        assert!(read("/m.py", FILE).unwrap_err().contains(".toml"));
        assert!(read("/m", FILE).unwrap_err().contains(".toml"));
        assert!(read("m.toml", FILE).unwrap_err().contains("whole path"));
    }
}
