//! Libraries: Lua modules that programs `require`, or Python modules that they `import`, by name.
//!
//! A library is a file of a package; each dot of its name is a directory separator ([`Library::path`]).

mod python;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de};
use std::fmt;

/// The longest name, in bytes.
const MAX_NAME: usize = 100;

/// First words of names that are reserved for libraries of the product, in Lua or Python.
const RESERVED: [&str; 14] =
    ["crypto", "event", "fs", "http", "init", "json", "kv", "log", "process", "re", "runtime", "space", "svc", "time"];

/// Dot-separated words, each an identifier in both languages: `acme.text`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
pub struct LibraryName(String);

/// The language of a library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    #[default]
    Lua,
    Python,
}

/// A library as it is sent to spaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Library {
    pub name: LibraryName,
    pub language: Language,
    pub source: String,
}

/// The rule that a library name breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibraryNameError {
    #[error("a library's name is at most {MAX_NAME} bytes long")]
    TooLong,
    #[error("`{0}` is no library's name: it takes words of letters, digits and _ with dots between, such as acme.text")]
    Malformed(String),
    #[error("`{0}` is the name of a library that comes with svc: take another")]
    Reserved(String),
    #[error("`{0}` ends in `init`, and spaces would load it by what is before that: take another name")]
    Init(String),
    #[error("`{name}`: `{module}` is a module of Python itself, and this would hide it in spaces: take another name")]
    Hiding { name: String, module: String },
    #[error("`{name}`: `{keyword}` is a keyword of Python, so nobody could import this: take another name")]
    Keyword { name: String, keyword: String },
}

impl LibraryName {
    pub fn parse(text: &str) -> Result<Self, LibraryNameError> {
        if text.len() > MAX_NAME {
            return Err(LibraryNameError::TooLong);
        }
        let is_word = |word: &str| {
            word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                && word.bytes().next().is_some_and(|first| !first.is_ascii_digit())
        };
        if !text.split('.').all(is_word) {
            return Err(LibraryNameError::Malformed(text.to_owned()));
        }
        if text.split('.').next().is_some_and(|first| RESERVED.contains(&first)) {
            return Err(LibraryNameError::Reserved(text.to_owned()));
        }
        // A directory's name loads its file `init`.
        if text.ends_with(".init") {
            return Err(LibraryNameError::Init(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }

    /// Checks the name for a library in this language: Python must be able to import it, and it must not hide a module
    /// of Python.
    pub fn check_for(&self, language: Language) -> Result<(), LibraryNameError> {
        if language != Language::Python {
            return Ok(());
        }
        let name = || self.0.clone();
        if let Some(keyword) = self.0.split('.').find(|word| python::is_keyword(word)) {
            return Err(LibraryNameError::Keyword { name: name(), keyword: keyword.to_owned() });
        }
        match self.0.split('.').next().filter(|first| python::is_module(first)) {
            Some(module) => Err(LibraryNameError::Hiding { name: name(), module: module.to_owned() }),
            None => Ok(()),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Language {
    /// The name used in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lua => "lua",
            Self::Python => "python",
        }
    }

    /// The extension of its files.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Lua => "lua",
            Self::Python => "py",
        }
    }
}

impl Library {
    /// The path of its file in a package.
    pub fn path(&self) -> String {
        format!("{}.{}", self.name.0.replace('.', "/"), self.language.extension())
    }
}

impl fmt::Display for LibraryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for LibraryName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_words_with_dots_between() {
        for name in ["a", "acme.text", "_x.Y_2"] {
            assert_eq!(LibraryName::parse(name).unwrap().as_str(), name);
        }
        for name in ["", ".", "a.", ".a", "a..b", "a-b", "2a", "a.2b", "../a", "a/b", "ä"] {
            assert_eq!(LibraryName::parse(name), Err(LibraryNameError::Malformed(name.to_owned())));
        }
        assert_eq!(LibraryName::parse(&"a".repeat(101)), Err(LibraryNameError::TooLong));
    }

    #[test]
    fn names_of_bundled_libraries_are_reserved() {
        for name in ["svc", "svc.mine", "json", "fs.more"] {
            assert_eq!(LibraryName::parse(name), Err(LibraryNameError::Reserved(name.to_owned())));
        }
        assert!(LibraryName::parse("jsonish").is_ok());
        assert!(serde_json::from_str::<LibraryName>("\"svc.x\"").is_err());
    }

    #[test]
    fn no_name_ends_in_init_which_would_be_loaded_by_the_part_before_it() {
        for name in ["zed.init", "acme.text.init"] {
            let refused = LibraryName::parse(name).unwrap_err().to_string();
            assert!(refused.contains(&format!("`{name}` ends in `init`")), "{refused}");
        }
        assert!(LibraryName::parse("zed.init.more").is_ok() && LibraryName::parse("zed.initial").is_ok());
    }

    #[test]
    fn a_python_library_hides_no_module_of_python_and_can_be_imported() {
        let check = |name: &str, language| LibraryName::parse(name).unwrap().check_for(language);
        for name in ["urllib", "urllib.more", "socket", "sitecustomize", "class", "acme.import", "None"] {
            assert!(check(name, Language::Python).is_err(), "{name}");
            assert_eq!(check(name, Language::Lua), Ok(()), "{name}");
        }
        for name in ["acme", "acme.urllib", "match", "urllib_of_ours"] {
            assert_eq!(check(name, Language::Python), Ok(()), "{name}");
        }
    }

    #[test]
    fn its_file_says_its_language() {
        let library =
            |language| Library { name: LibraryName::parse("acme.text").unwrap(), language, source: "".into() };
        assert_eq!(library(Language::Lua).path(), "acme/text.lua");
        assert_eq!(library(Language::Python).path(), "acme/text.py");
    }
}
