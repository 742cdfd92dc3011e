//! A source kept in a file: the TOML form of a [`SourceSpec`], with its Lua beside it and its secret outside.
//!
//! ```toml
//! slug = "github"
//! transform_file = "github.lua"
//! [verify]
//! type = "github"
//! secret = { env = "GITHUB_WEBHOOK_SECRET" }
//! [values]
//! branch = "main"
//! ```
//!
//! Variables, `[values]` and paths work as in the file of a sink ([`super::sink_file`]).

use super::sink_file::{FileReader, FileValue, SinkFileError, read_text};
use crate::model::{
    owner::OwnerSpec,
    source_spec::{DEFAULT_RATE, SourceSpec, VerifySpec},
    toml_input,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::{
    cell::RefCell,
    path::{Path, PathBuf},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceFile {
    slug: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    owner: OwnerSpec,
    active: Option<bool>,
    verify: Map<String, Value>,
    transform: Option<String>,
    transform_file: Option<PathBuf>,
    rate: Option<u32>,
    #[serde(default)]
    values: Map<String, Value>,
}

/// Reads a source's file and everything it refers to.
///
/// # Errors
///
/// Fails if a file cannot be read, has an unknown key (named with its line), or a variable is not set. The rules for
/// sources themselves are checked by [`SourceSpec::check`].
pub fn read(path: &Path, environment: impl Fn(&str) -> Option<String>) -> Result<SourceSpec, SinkFileError> {
    let text = read_text(path)?;
    let wrong = |source| SinkFileError::Toml { path: path.to_owned(), source };
    let mut file: SourceFile = toml_input::parse(&text).map_err(wrong)?;
    let reader = FileReader { path, environment, values: &file.values, unset: RefCell::default() };
    let transform = match (file.transform, file.transform_file) {
        (Some(_), Some(_)) => return Err(SinkFileError::Twice { path: path.to_owned(), field: "transform" }),
        (Some(source), None) => Some(source),
        (None, Some(beside)) => Some(read_text(&reader.beside(&beside))?),
        (None, None) if !file.values.is_empty() => return Err(SinkFileError::Values { path: path.to_owned() }),
        (None, None) => None,
    };
    if let Some(secret) = file.verify.get("secret").cloned() {
        let secret: FileValue =
            serde_json::from_value(secret).map_err(|source| SinkFileError::Secret { path: path.to_owned(), source })?;
        let secret = serde_json::to_value(reader.value("verify.secret", &secret)).expect("a value is text or a table");
        file.verify.insert("secret".to_owned(), secret);
    }
    let verify: VerifySpec = toml_input::read(file.verify)
        .map_err(|error| SinkFileError::Verify { path: path.to_owned(), message: error.to_string() })?;
    let spec = SourceSpec {
        slug: file.slug,
        description: file.description,
        owner: file.owner,
        active: file.active,
        verify,
        transform: transform.map(|source| reader.with_values(source)),
        rate: file.rate.unwrap_or(DEFAULT_RATE),
    };
    let unset = reader.unset.into_inner();
    if unset.is_empty() { Ok(spec) } else { Err(SinkFileError::Unset(unset)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::verifier::VerifierKind;
    use serde_json::json;

    fn read_text_of(text: &str) -> Result<SourceSpec, String> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a.lua"), "return nil").unwrap();
        let path = directory.path().join("a.toml");
        std::fs::write(&path, text).unwrap();
        let environment = |name: &str| (name == "SECRET").then(|| "from the environment".to_owned());
        read(&path, environment).map_err(|error| error.to_string())
    }

    #[test]
    fn the_secret_comes_from_the_environment_and_the_lua_from_its_file() {
        let spec = read_text_of(
            "slug = \"a\"\ntransform_file = \"a.lua\"\n[verify]\ntype = \"github\"\nsecret = { env = \"SECRET\" }\n\
             [values]\nbranch = \"main\"\n",
        );
        let spec = spec.unwrap();
        assert_eq!(spec.verify.kind, VerifierKind::Github);
        assert_eq!(spec.verify.secret, Some("from the environment".to_owned().into()));
        assert_eq!(spec.transform.as_deref(), Some("local values = {[\"branch\"]=\"main\",} return nil"));
        assert_eq!(spec.rate, DEFAULT_RATE);
    }

    #[test]
    fn a_secret_may_be_a_place_on_the_server() {
        for (place, expected) in [
            ("{ file = \"/run/github\" }", json!({"file": "/run/github"})),
            ("{ credential = \"github\" }", json!({"credential": "github"})),
            ("{ env = \"GITHUB\", at = \"delivery\" }", json!({"env": "GITHUB"})),
        ] {
            let spec = read_text_of(&format!("slug = \"a\"\n[verify]\ntype = \"github\"\nsecret = {place}\n")).unwrap();
            assert_eq!(serde_json::to_value(spec.verify.secret).unwrap(), expected);
        }
    }

    #[test]
    fn a_fault_names_the_file_and_the_field() {
        for (text, why) in [
            ("slug = \"a\"\n", "verify"),
            ("slug = \"a\"\ncolour = 1\n[verify]\ntype = \"github\"\n", "colour"),
            ("slug = \"a\"\n[verify]\ntype = \"magic\"\n", "magic"),
            ("slug = \"a\"\n[verify]\ntype = \"github\"\nsecret = { env = \"MISSING\" }\n", "MISSING"),
            ("slug = \"a\"\n[verify]\ntype = \"github\"\nsecret = 7\n", "verify.secret"),
            ("slug = \"a\"\n[verify]\ntype = \"github\"\n[values]\na = 1\n", "values"),
            ("slug = \"a\"\ntransform = \"\"\ntransform_file = \"a.lua\"\n[verify]\ntype = \"github\"\n", "transform"),
        ] {
            let error = read_text_of(text).unwrap_err();
            assert!(error.contains(why) && error.contains("a.toml"), "{text}: {error}");
        }
    }
}
