//! `fs`, the files of a space: `read(path)`, `write(path, text, [mode])`, `append(path, text)`, `list(path)`,
//! `exists(path)`, `stat(path)`, `mkdir(path)`, `remove(path, [{ recursive = true }])`, `rename(from, to)`,
//! `copy(from, to)`.
//!
//! Relative paths start at the program's directory. A disk may be slow and a pipe may never end, so each operation runs
//! on a blocking thread of tokio and not on the thread of the run.

use super::{function_builder::FunctionBuilder, library_error::LibraryError, run_context::resolve_path};
use crate::scripting::lua::{json::array_metatable, limits::RunClock};
use mlua::{Lua, LuaString, Table};
use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{OpenOptionsExt as _, PermissionsExt as _},
    },
    path::Path,
    sync::Arc,
    time::UNIX_EPOCH,
};

/// The most bytes read of a file if the run's memory has no limit.
const MAX_FILE: usize = 1 << 30;

/// The most names in a listing.
const MAX_NAMES: usize = 100_000;

pub(super) fn library(builder: &FunctionBuilder<'_>) -> mlua::Result<Table> {
    let library = builder.lua.create_table()?;
    let read = builder.async_function("fs.read", |lua, path: LuaString| async move {
        let (path, most) = (resolve_path(&lua, &path)?, memory_limit(&lua));
        let content = on_blocking_thread(move || read_file(&path, most)).await?;
        Ok(lua.create_string(content)?)
    })?;
    library.raw_set("read", read)?;
    let write = builder.async_function(
        "fs.write",
        |lua, (path, text, mode): (LuaString, LuaString, Option<String>)| async move {
            let (path, text) = (resolve_path(&lua, &path)?, text.as_bytes().to_vec());
            let mode = mode.map(|mode| mode_bits(&mode)).transpose()?;
            on_blocking_thread(move || write_file(&path, &text, mode).map_err(path_error(&path))).await
        },
    )?;
    library.raw_set("write", write)?;
    let append = builder.async_function("fs.append", |lua, (path, text): (LuaString, LuaString)| async move {
        let (path, text) = (resolve_path(&lua, &path)?, text.as_bytes().to_vec());
        on_blocking_thread(move || {
            let opened = OpenOptions::new().append(true).create(true).open(&path);
            opened.and_then(|mut file| file.write_all(&text)).map_err(path_error(&path))
        })
        .await
    })?;
    library.raw_set("append", append)?;
    let list = builder.async_function("fs.list", |lua, path: LuaString| async move {
        let path = resolve_path(&lua, &path)?;
        let names = on_blocking_thread(move || names_in(&path)).await?;
        let names = names.iter().map(|name| lua.create_string(name)).collect::<mlua::Result<Vec<_>>>()?;
        let list = lua.create_sequence_from(names)?;
        list.set_metatable(Some(array_metatable(&lua)?))?;
        Ok(list)
    })?;
    library.raw_set("list", list)?;
    let exists = builder.async_function("fs.exists", |lua, path: LuaString| async move {
        let path = resolve_path(&lua, &path)?;
        on_blocking_thread(move || fs::exists(&path).map_err(path_error(&path))).await
    })?;
    library.raw_set("exists", exists)?;
    let stat = builder.async_function("fs.stat", |lua, path: LuaString| async move {
        let path = resolve_path(&lua, &path)?;
        let metadata = on_blocking_thread(move || match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some).map_err(path_error(&path)),
        });
        let Some(found) = metadata.await? else { return Ok(None) };
        let stat = lua.create_table()?;
        let kind = if found.is_dir() {
            "directory"
        } else if found.is_file() {
            "file"
        } else {
            "other"
        };
        stat.raw_set("kind", kind)?;
        stat.raw_set("size", found.len())?;
        stat.raw_set("mode", format!("{:o}", found.permissions().mode() & 0o7777))?;
        let modified = found.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        stat.raw_set("modified", modified.map(|since| since.as_secs_f64()))?;
        Ok(Some(stat))
    })?;
    library.raw_set("stat", stat)?;
    let mkdir = builder.async_function("fs.mkdir", |lua, path: LuaString| async move {
        let path = resolve_path(&lua, &path)?;
        on_blocking_thread(move || fs::create_dir_all(&path).map_err(path_error(&path))).await
    })?;
    library.raw_set("mkdir", mkdir)?;
    let remove_path =
        builder.async_function("fs.remove", |lua, (path, how): (LuaString, Option<Table>)| async move {
            let path = resolve_path(&lua, &path)?;
            let recursive = how.map_or(Ok(None), |how| how.raw_get::<Option<bool>>("recursive"))?.unwrap_or(false);
            on_blocking_thread(move || remove(&path, recursive).map_err(path_error(&path))).await
        })?;
    library.raw_set("remove", remove_path)?;
    let rename = builder.async_function("fs.rename", |lua, (from, to): (LuaString, LuaString)| async move {
        let (from, to) = (resolve_path(&lua, &from)?, resolve_path(&lua, &to)?);
        on_blocking_thread(move || fs::rename(&from, to).map_err(path_error(&from))).await
    })?;
    library.raw_set("rename", rename)?;
    let copy = builder.async_function("fs.copy", |lua, (from, to): (LuaString, LuaString)| async move {
        let (from, to) = (resolve_path(&lua, &from)?, resolve_path(&lua, &to)?);
        on_blocking_thread(move || fs::copy(&from, to).map(drop).map_err(path_error(&from))).await
    })?;
    library.raw_set("copy", copy)?;
    Ok(library)
}

/// Runs slow work where it blocks no run.
async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LibraryError> + Send + 'static,
) -> Result<T, LibraryError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(LibraryError::Message(format!("it was not finished: {error}"))))
}

/// An error of the operating system, with the path it is about.
fn path_error(path: &Path) -> impl FnOnce(io::Error) -> LibraryError {
    let path = path.display().to_string();
    move |error| LibraryError::Message(format!("{path}: {error}"))
}

/// The most bytes that fit into the run's memory.
fn memory_limit(lua: &Lua) -> usize {
    let limit = lua.app_data_ref::<Arc<RunClock>>().map_or(0, |clock| clock.limits().memory);
    if limit == 0 { MAX_FILE } else { limit }
}

fn read_file(path: &Path, most: usize) -> Result<Vec<u8>, LibraryError> {
    let mut content = Vec::new();
    let read = File::open(path).and_then(|file| file.take(most as u64 + 1).read_to_end(&mut content));
    read.map_err(path_error(path))?;
    if content.len() > most {
        return Err(LibraryError::Message(format!("{}: it has more than {most} bytes", path.display())));
    }
    Ok(content)
}

/// Writes a file, with this mode before anything is in it: a secret is at no moment readable by others.
fn write_file(path: &Path, text: &[u8], mode: Option<u32>) -> io::Result<()> {
    let Some(mode) = mode else { return fs::write(path, text) };
    let access = mode & 0o777;
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).mode(access).open(path)?;
    // The file may have been there, and a new one lacks the bits of the umask. One whose mode cannot be set stays as it
    // is.
    file.set_permissions(Permissions::from_mode(access))?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(text)?;
    match mode == access {
        true => Ok(()),
        // A write takes these bits away.
        false => file.set_permissions(Permissions::from_mode(mode)),
    }
}

fn names_in(path: &Path) -> Result<Vec<Vec<u8>>, LibraryError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(path_error(path))? {
        names.push(entry.map_err(path_error(path))?.file_name().as_bytes().to_vec());
        if names.len() > MAX_NAMES {
            return Err(LibraryError::Message(format!("{}: it has more than {MAX_NAMES} entries", path.display())));
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Removes a file, a link or a directory, and returns whether there was one.
fn remove(path: &Path, recursive: bool) -> io::Result<bool> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    match (found.is_dir(), recursive) {
        (true, true) => fs::remove_dir_all(path)?,
        (true, false) => fs::remove_dir(path)?,
        (false, _) => fs::remove_file(path)?,
    }
    Ok(true)
}

fn mode_bits(mode: &str) -> Result<u32, LibraryError> {
    let bits = u32::from_str_radix(mode, 8).ok().filter(|bits| *bits <= 0o7777);
    bits.ok_or_else(|| LibraryError::Message(format!("`{mode}` is no mode: write one such as \"755\"")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::CString, thread};

    /// A pipe shows the moment: its writer waits, with more than the pipe takes, until its reader has looked.
    #[test]
    fn a_file_has_its_mode_before_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o644) }, 0);
        let written = path.clone();
        let writer = thread::spawn(move || write_file(&written, &vec![b'x'; 1 << 20], Some(0o600)).is_ok());
        let mut reader = File::open(&path).unwrap();
        reader.read_exact(&mut [0]).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        io::copy(&mut reader, &mut io::sink()).unwrap();
        assert!(writer.join().unwrap());
        assert_eq!(mode, 0o600);
    }

    #[test]
    fn a_new_file_and_an_old_one_get_every_bit_of_the_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        for bits in [0o600, 0o4755, 0o777, 0o640] {
            write_file(&path, b"new", Some(bits)).unwrap();
            assert_eq!((mode(), fs::read(&path).unwrap().as_slice()), (bits, &b"new"[..]), "{bits:o}");
        }
        write_file(&path, b"n", None).unwrap();
        assert_eq!((mode(), fs::read(&path).unwrap().as_slice()), (0o640, &b"n"[..]), "without a mode it stays");
    }
}
