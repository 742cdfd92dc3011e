//! The files of a directory that define sinks or sources.

use super::{
    sink_file::{self, Draft, SinkFileError},
    source_file,
};
use crate::model::{owner::OwnerSpec, source_spec::SourceSpec};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

/// The definitions at a path: the file itself, or every `.toml` file in a directory, by name.
///
/// # Errors
///
/// Fails if the path cannot be read.
pub fn find(path: &Path) -> Result<Vec<PathBuf>, SinkFileError> {
    let wrong = |source| SinkFileError::Read { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(wrong)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path).map_err(wrong)?.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    Ok(files)
}

/// Reads files of sinks.
///
/// # Errors
///
/// Fails as the first file does that cannot be read, with the variables that all of them lack, or if two define one
/// sink.
pub fn read_sinks(
    files: &[PathBuf],
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Draft>, SinkFileError> {
    read_files(files, |file| sink_file::read(file, &environment), |draft| (draft.owner(), draft.name()))
}

/// Reads files of sources. No two have one slug, whoever owns them.
///
/// # Errors
///
/// As [`read_sinks`] does.
pub fn read_sources(
    files: &[PathBuf],
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Vec<SourceSpec>, SinkFileError> {
    read_files(files, |file| source_file::read(file, &environment), |source| (OwnerSpec::Global, &source.slug))
}

/// Reads files, none of which may have the owner and name of another.
fn read_files<T>(
    files: &[PathBuf],
    read: impl Fn(&Path) -> Result<T, SinkFileError>,
    identity: impl Fn(&T) -> (OwnerSpec, &str),
) -> Result<Vec<T>, SinkFileError> {
    let (mut items, mut lacking) = (Vec::new(), Vec::new());
    for file in files {
        match read(file) {
            Ok(item) => items.push((file, item)),
            Err(SinkFileError::Unset(unset)) => lacking.extend(unset),
            Err(error) => return Err(error),
        }
    }
    if !lacking.is_empty() {
        return Err(SinkFileError::Unset(lacking));
    }
    let mut named = HashMap::new();
    for (file, item) in &items {
        let (owner, name) = identity(item);
        if let Some(first) = named.insert((owner, name), file) {
            let (first, second, name) = (first.to_path_buf(), file.to_path_buf(), name.to_owned());
            return Err(SinkFileError::SameName { first, second, name });
        }
    }
    Ok(items.into_iter().map(|(_, item)| item).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_files_for_one_sink_are_refused_with_both_names() {
        let directory = tempfile::tempdir().unwrap();
        let write = |file: &str, head: &str| {
            let text = format!("{head}\nevents = \"*\"\ntype = \"webhook\"\n[webhook]\nurl = \"http://a/\"\n");
            std::fs::write(directory.path().join(file), text).unwrap();
        };
        let read = || {
            let read = read_sinks(&find(directory.path()).unwrap(), |_| None);
            read.map(|sinks| sinks.len()).map_err(|error| error.to_string())
        };
        write("a.toml", "name = \"one\"");
        write("b.toml", "name = \"one\"\nowner = \"global\"");
        assert_eq!(read(), Ok(2), "one of them is global");
        write("c.toml", "name = \"one\"");
        let error = read().unwrap_err();
        assert!(error.contains("a.toml and ") && error.contains("c.toml both define `one`"), "{error}");
    }

    #[test]
    fn a_directory_means_its_toml_files_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        for name in ["b.toml", "a.toml", "a.lua"] {
            std::fs::write(path(name), "").unwrap();
        }
        assert_eq!(find(directory.path()).unwrap(), [path("a.toml"), path("b.toml")]);
        assert_eq!(find(&path("a.lua")).unwrap(), [path("a.lua")]);
        assert!(find(&path("none")).is_err());
    }
}
