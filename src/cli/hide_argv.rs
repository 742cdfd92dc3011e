//! Overwrites secrets in the process's arguments, which `ps` shows to every user.
//!
//! They can be seen until then, for about a millisecond. A secret in the environment or in a file is never seen.

use std::fs;

/// The least length of a secret. A shorter text would match other arguments.
const MIN_SECRET_BYTES: usize = 8;

/// Options of any command whose values are secrets. The value of a header is often one.
const SECRET_OPTIONS: [&[u8]; 3] = [b"--token", b"--secret", b"--header"];

/// Overwrites the values of [`SECRET_OPTIONS`] in the arguments of the process. Call it while the process has one
/// thread, and after the arguments were copied.
pub fn hide_secret_options() {
    change_areas(|[arguments, _]| overwrite_options(arguments));
}

/// Overwrites a secret in the arguments and the environment of the process. Call it while the process has one thread.
pub fn hide_secret(secret: &str) {
    if secret.len() < MIN_SECRET_BYTES {
        return;
    }
    change_areas(|areas| areas.into_iter().for_each(|area| overwrite(area, secret.as_bytes())));
}

/// Gives the arguments and the environment of the process to `change`.
fn change_areas(change: impl FnOnce([&mut [u8]; 2])) {
    let Some(areas) = fs::read_to_string("/proc/self/stat").ok().and_then(|stat| areas(&stat)) else { return };
    change(areas.map(|(start, end)| {
        if start == 0 || end <= start {
            return &mut [][..];
        }
        let area = std::ptr::with_exposed_provenance_mut::<u8>(start);
        // SAFETY: the kernel put the arguments and the environment there, in writable memory of this process, each in
        // an area of its own, and no other thread runs that could read them meanwhile. Rust holds copies of them.
        unsafe { std::slice::from_raw_parts_mut(area, end - start) }
    }));
}

/// The addresses of the arguments and the environment: fields 48 to 51. Field 2 may hold anything, brackets included.
fn areas(stat: &str) -> Option<[(usize, usize); 2]> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(45).map(str::parse);
    let mut next = || fields.next()?.ok();
    Some([(next()?, next()?), (next()?, next()?)])
}

/// Overwrites the word after each option, or the part of the word after `=`.
fn overwrite_options(arguments: &mut [u8]) {
    let mut is_value = false;
    for word in arguments.split_mut(|byte| *byte == 0) {
        if std::mem::take(&mut is_value) {
            word.fill(b'*');
            continue;
        }
        let name_end = word.iter().position(|byte| *byte == b'=').unwrap_or(word.len());
        if SECRET_OPTIONS.contains(&&word[..name_end]) {
            is_value = name_end == word.len();
            word[name_end..].iter_mut().skip(1).for_each(|byte| *byte = b'*');
        }
    }
}

fn overwrite(area: &mut [u8], secret: &[u8]) {
    let mut from = 0;
    while let Some(found) = area[from..].windows(secret.len()).position(|window| window == secret) {
        area[from + found..from + found + secret.len()].fill(b'*');
        from += found + secret.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_copy_of_a_secret_is_overwritten_and_nothing_else() {
        let mut area = b"svc\0--token\0sva_secret\0A=sva_secret\0B=sva_secre\0".to_vec();
        overwrite(&mut area, b"sva_secret");
        assert_eq!(area, b"svc\0--token\0**********\0A=**********\0B=sva_secre\0");
    }

    #[test]
    fn the_values_of_secret_options_are_overwritten_whatever_their_length() {
        let mut area = b"svc\0sink\0--token\0abc\0--name\0abc\0--header=A: b\0--secret\0".to_vec();
        overwrite_options(&mut area);
        assert_eq!(area, b"svc\0sink\0--token\0***\0--name\0abc\0--header=****\0--secret\0");
    }

    #[test]
    fn the_areas_are_those_of_this_process() {
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let [(arguments, arguments_end), (environment, environment_end)] = areas(&stat).unwrap();
        assert!(arguments < arguments_end && environment < environment_end);
        assert_eq!(arguments_end - arguments, fs::read("/proc/self/cmdline").unwrap().len());
    }
}
