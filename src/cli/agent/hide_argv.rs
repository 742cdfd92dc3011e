//! Overwrites a secret in the process's arguments, which `ps` shows to every user.

use std::fs;

/// The least length of a secret. A shorter text would match other arguments.
const MIN_SECRET_BYTES: usize = 8;

/// Overwrites a secret in the arguments and the environment of the process. Call it while the process has one thread.
pub fn hide_secret(secret: &str) {
    if secret.len() < MIN_SECRET_BYTES {
        return;
    }
    let Some(areas) = fs::read_to_string("/proc/self/stat").ok().and_then(|stat| areas(&stat)) else { return };
    for (start, end) in areas {
        if start == 0 || end <= start {
            continue;
        }
        let area = std::ptr::with_exposed_provenance_mut::<u8>(start);
        // SAFETY: the kernel put the arguments and the environment there, in writable memory of this process, and no
        // other thread runs that could read them meanwhile. Rust holds copies of them.
        overwrite(unsafe { std::slice::from_raw_parts_mut(area, end - start) }, secret.as_bytes());
    }
}

/// The addresses of the arguments and the environment: fields 48 to 51. Field 2 may hold anything, brackets included.
fn areas(stat: &str) -> Option<[(usize, usize); 2]> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(45).map(str::parse);
    let mut next = || fields.next()?.ok();
    Some([(next()?, next()?), (next()?, next()?)])
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
    fn the_areas_are_those_of_this_process() {
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let [(arguments, arguments_end), (environment, environment_end)] = areas(&stat).unwrap();
        assert!(arguments < arguments_end && environment < environment_end);
        assert_eq!(arguments_end - arguments, fs::read("/proc/self/cmdline").unwrap().len());
    }
}
