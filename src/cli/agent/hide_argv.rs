//! Takes a secret out of what the system shows of this process: `ps` shows everybody its arguments.

use std::fs;

/// Shorter ones are no secrets, and would be found in what is none.
const SHORTEST: usize = 8;

/// Overwrites a secret in the arguments and the environment that the process was started with. It is for the first
/// moments of a process, while it has one thread.
pub fn conceal(secret: &str) {
    if secret.len() < SHORTEST {
        return;
    }
    let Some(areas) = fs::read_to_string("/proc/self/stat").ok().and_then(|stat| areas(&stat)) else { return };
    for (start, end) in areas {
        if start == 0 || end <= start {
            continue;
        }
        let area = std::ptr::with_exposed_provenance_mut::<u8>(start);
        // SAFETY: the kernel put our arguments and our environment there, in our own writable memory, and no other
        // thread runs that could look at them meanwhile. What Rust has of them are copies.
        overwrite(unsafe { std::slice::from_raw_parts_mut(area, end - start) }, secret.as_bytes());
    }
}

/// Where the arguments and the environment are: fields 48 to 51. The second may hold anything, brackets included.
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
    fn the_system_says_where_they_are() {
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let [(arguments, arguments_end), (environment, environment_end)] = areas(&stat).unwrap();
        assert!(arguments < arguments_end && environment < environment_end);
        assert_eq!(arguments_end - arguments, fs::read("/proc/self/cmdline").unwrap().len());
    }
}
