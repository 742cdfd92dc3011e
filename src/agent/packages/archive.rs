//! Zip archives of libraries. The same files make the same archive, byte for byte.

use crate::model::library::{Language, Library};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Cursor, Write as _},
};
use zip::{CompressionMethod, DateTime, ZipWriter, write::SimpleFileOptions};

/// A zip archive, and the tag of its content.
#[derive(Clone, Debug)]
pub struct PackageArchive {
    pub bytes: Bytes,
    /// A hash of the bytes, as hexadecimal text.
    pub tag: String,
}

impl PackageArchive {
    pub fn new(bytes: Vec<u8>) -> Self {
        let tag = HEXLOWER.encode(&Sha256::digest(&bytes)[..16]);
        Self { bytes: bytes.into(), tag }
    }
}

/// The files of libraries in an archive. A Python library with others below it becomes a package, or those could not be
/// imported.
pub fn files_of(libraries: &[Library]) -> BTreeMap<String, &str> {
    let is_parent = |library: &Library| {
        let prefix = format!("{}.", library.name);
        let below = |other: &&Library| other.language == library.language && other.name.as_str().starts_with(&prefix);
        library.language == Language::Python && libraries.iter().any(|other| below(&other))
    };
    let path = |library: &Library| match is_parent(library) {
        true => format!("{}/__init__.py", library.name.as_str().replace('.', "/")),
        false => library.path(),
    };
    libraries.iter().map(|library| (path(library), library.source.as_str())).collect()
}

/// An archive of these files and of their directories, without which Python finds no package that is only a directory.
pub fn archive<'a>(files: impl IntoIterator<Item = (String, &'a str)>) -> Vec<u8> {
    let files: BTreeMap<String, &str> = files.into_iter().collect();
    let mut directories = BTreeSet::new();
    for path in files.keys() {
        directories.extend(path.match_indices('/').map(|(end, _)| &path[..end]));
    }
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .last_modified_time(DateTime::default());
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let write = || {
        for directory in directories {
            zip.add_directory(directory, options.unix_permissions(0o755))?;
        }
        for (path, text) in &files {
            zip.start_file(path.as_str(), options.unix_permissions(0o644))?;
            zip.write_all(text.as_bytes())?;
        }
        Ok::<_, zip::result::ZipError>(())
    };
    write().expect("memory takes what is written, and no name is there twice");
    zip.finish().expect("memory takes what is written").into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::library::LibraryName;

    fn library(name: &str, language: Language) -> Library {
        Library { name: LibraryName::parse(name).unwrap(), language, source: format!("# {name}") }
    }

    #[test]
    fn equal_files_make_equal_archives_in_any_order() {
        let (a, b) = (("a/x.py".to_owned(), "1"), ("b.lua".to_owned(), "2"));
        let one = PackageArchive::new(archive([a.clone(), b.clone()]));
        let other = PackageArchive::new(archive([b, a.clone()]));
        assert_eq!((&one.bytes, &one.tag), (&other.bytes, &other.tag));
        assert_ne!(one.tag, PackageArchive::new(archive([a])).tag);
        assert_eq!(one.tag.len(), 32);
    }

    #[test]
    fn a_library_is_the_file_of_its_name() {
        let libraries = [
            library("acme", Language::Python),
            library("acme.text", Language::Python),
            library("acme.text.deep", Language::Lua),
            library("acme", Language::Lua),
            library("acmes", Language::Python),
        ];
        let files = files_of(&libraries);
        let paths: Vec<&str> = files.keys().map(String::as_str).collect();
        assert_eq!(paths, ["acme.lua", "acme/__init__.py", "acme/text.py", "acme/text/deep.lua", "acmes.py"]);
    }

    #[test]
    fn directories_come_before_their_files() {
        let bytes = archive([("a/b/c.py".to_owned(), "x = 1")]);
        let mut zip = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
        let names: Vec<String> =
            (0..zip.len()).map(|index| zip.by_index(index).unwrap().name().unwrap().into_owned()).collect();
        assert_eq!(names, ["a/", "a/b/", "a/b/c.py"]);
    }
}
