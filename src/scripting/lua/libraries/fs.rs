//! `fs`: the files of a space. `read(path)`, `write(path, text, [mode])`, `append(path, text)`, `list(path)`,
//! `exists(path)`, `stat(path)`, `mkdir(path)`, `remove(path, [{ recursive = true }])`, `rename(from, to)`,
//! `copy(from, to)`.
//!
//! Relative paths start at the program's directory. A disk may be slow and a pipe has no end, so each waits
//! elsewhere than on the thread of the run.

use super::{Maker, Raise, space::surroundings};
use crate::scripting::lua::{json::array_metatable, limits::Watch};
use mlua::{Lua, LuaString, Table};
use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::UNIX_EPOCH,
};

/// The most that is read of a file if the run's memory has no limit.
const MAX_FILE: usize = 1 << 30;

/// The most names a listing has.
const MAX_NAMES: usize = 100_000;

pub(super) fn module(maker: &Maker<'_>) -> mlua::Result<Table> {
    let module = maker.lua.create_table()?;
    let read = maker.waiting("fs.read", |lua, path: LuaString| async move {
        let (path, most) = (located(&lua, &path)?, memory(&lua));
        let content = apart(move || whole(&path, most)).await?;
        Ok(lua.create_string(content)?)
    })?;
    module.raw_set("read", read)?;
    let write =
        maker.waiting("fs.write", |lua, (path, text, mode): (LuaString, LuaString, Option<String>)| async move {
            let (path, text) = (located(&lua, &path)?, text.as_bytes().to_vec());
            let mode = mode.map(|mode| permissions(&mode)).transpose()?;
            apart(move || {
                fs::write(&path, text).map_err(about(&path))?;
                mode.map_or(Ok(()), |mode| fs::set_permissions(&path, mode)).map_err(about(&path))
            })
            .await
        })?;
    module.raw_set("write", write)?;
    let append = maker.waiting("fs.append", |lua, (path, text): (LuaString, LuaString)| async move {
        let (path, text) = (located(&lua, &path)?, text.as_bytes().to_vec());
        apart(move || {
            let opened = OpenOptions::new().append(true).create(true).open(&path);
            opened.and_then(|mut file| file.write_all(&text)).map_err(about(&path))
        })
        .await
    })?;
    module.raw_set("append", append)?;
    let list = maker.waiting("fs.list", |lua, path: LuaString| async move {
        let path = located(&lua, &path)?;
        let names = apart(move || names_in(&path)).await?;
        let names = names.iter().map(|name| lua.create_string(name)).collect::<mlua::Result<Vec<_>>>()?;
        let list = lua.create_sequence_from(names)?;
        list.set_metatable(Some(array_metatable(&lua)?))?;
        Ok(list)
    })?;
    module.raw_set("list", list)?;
    let exists = maker.waiting("fs.exists", |lua, path: LuaString| async move {
        let path = located(&lua, &path)?;
        apart(move || fs::exists(&path).map_err(about(&path))).await
    })?;
    module.raw_set("exists", exists)?;
    let stat = maker.waiting("fs.stat", |lua, path: LuaString| async move {
        let path = located(&lua, &path)?;
        let found = apart(move || match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some).map_err(about(&path)),
        });
        let Some(found) = found.await? else { return Ok(None) };
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
    module.raw_set("stat", stat)?;
    let mkdir = maker.waiting("fs.mkdir", |lua, path: LuaString| async move {
        let path = located(&lua, &path)?;
        apart(move || fs::create_dir_all(&path).map_err(about(&path))).await
    })?;
    module.raw_set("mkdir", mkdir)?;
    let remove = maker.waiting("fs.remove", |lua, (path, how): (LuaString, Option<Table>)| async move {
        let path = located(&lua, &path)?;
        let recursive = how.map_or(Ok(None), |how| how.raw_get::<Option<bool>>("recursive"))?.unwrap_or(false);
        apart(move || removed(&path, recursive).map_err(about(&path))).await
    })?;
    module.raw_set("remove", remove)?;
    let rename = maker.waiting("fs.rename", |lua, (from, to): (LuaString, LuaString)| async move {
        let (from, to) = (located(&lua, &from)?, located(&lua, &to)?);
        apart(move || fs::rename(&from, to).map_err(about(&from))).await
    })?;
    module.raw_set("rename", rename)?;
    let copy = maker.waiting("fs.copy", |lua, (from, to): (LuaString, LuaString)| async move {
        let (from, to) = (located(&lua, &from)?, located(&lua, &to)?);
        apart(move || fs::copy(&from, to).map(drop).map_err(about(&from))).await
    })?;
    module.raw_set("copy", copy)?;
    Ok(module)
}

/// What a path that a program wrote means.
pub(super) fn located(lua: &Lua, path: &LuaString) -> Result<PathBuf, Raise> {
    let path = path.as_bytes();
    if path.is_empty() || path.contains(&0) {
        return Err(Raise::Message("this is no path".to_owned()));
    }
    Ok(surroundings(lua)?.directory.join(OsStr::from_bytes(&path)))
}

/// Does what may take long where it holds up no run.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> Result<T, Raise> + Send + 'static) -> Result<T, Raise> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Raise::Message(format!("it was not finished: {error}"))))
}

/// An error of the system, with what it is about.
fn about(path: &Path) -> impl FnOnce(io::Error) -> Raise {
    let path = path.display().to_string();
    move |error| Raise::Message(format!("{path}: {error}"))
}

/// The most that fits into the run's memory.
fn memory(lua: &Lua) -> usize {
    let limit = lua.app_data_ref::<Arc<Watch>>().map_or(0, |watch| watch.memory());
    if limit == 0 { MAX_FILE } else { limit }
}

fn whole(path: &Path, most: usize) -> Result<Vec<u8>, Raise> {
    let mut content = Vec::new();
    let read = File::open(path).and_then(|file| file.take(most as u64 + 1).read_to_end(&mut content));
    read.map_err(about(path))?;
    if content.len() > most {
        return Err(Raise::Message(format!("{}: it has more than {most} bytes", path.display())));
    }
    Ok(content)
}

fn names_in(path: &Path) -> Result<Vec<Vec<u8>>, Raise> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(about(path))? {
        names.push(entry.map_err(about(path))?.file_name().as_bytes().to_vec());
        if names.len() > MAX_NAMES {
            return Err(Raise::Message(format!("{}: it has more than {MAX_NAMES} entries", path.display())));
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Removes a file, a link or a directory, and says whether there was one.
fn removed(path: &Path, recursive: bool) -> io::Result<bool> {
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

fn permissions(mode: &str) -> Result<Permissions, Raise> {
    let bits = u32::from_str_radix(mode, 8).ok().filter(|bits| *bits <= 0o7777);
    bits.map(Permissions::from_mode)
        .ok_or_else(|| Raise::Message(format!("`{mode}` is no mode: write one such as \"755\"")))
}
