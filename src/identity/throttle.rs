//! Slows down guessing. After a few failures a name, or an address, has to wait before its next attempt,
//! twice as long each time.
//!
//! An attempt counts as failed from its start and is forgiven if it succeeds, so that many attempts at
//! once are no way around the count. Both maps are bounded; what has been quiet longest is forgotten first.

use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::Mutex,
    time::{Duration, Instant},
};

/// Failures a name has free, and an address, behind which there may be many people.
const FREE_PER_NAME: u32 = 5;
const FREE_PER_ADDRESS: u32 = 20;

/// The wait after the first failure too many. It doubles from there.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest wait. It stays short enough that nobody can lock a name out for good.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Failures are forgotten after this much quiet.
const MEMORY: Duration = Duration::from_secs(15 * 60);

/// Entries a map holds.
const ROOM: usize = 10_000;

/// Who has failed lately.
#[derive(Default)]
pub struct Throttle {
    failures: Mutex<Failures>,
}

#[derive(Default)]
struct Failures {
    names: HashMap<String, Strikes>,
    addresses: HashMap<IpAddr, Strikes>,
}

#[derive(Clone, Copy)]
struct Strikes {
    count: u32,
    last: Instant,
}

impl Throttle {
    /// Lets an attempt start, counted as failed until [`Throttle::forgive`].
    ///
    /// # Errors
    ///
    /// Says how long to wait instead. An attempt that was not let in does not count.
    pub fn admit(&self, name: &str, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let mut failures = self.failures.lock().expect("nothing panics while holding it");
        let wait = wait(failures.names.get(name), FREE_PER_NAME, now).max(wait(
            failures.addresses.get(&address),
            FREE_PER_ADDRESS,
            now,
        ));
        if !wait.is_zero() {
            return Err(wait);
        }
        strike(&mut failures.names, name.to_owned(), now);
        strike(&mut failures.addresses, address, now);
        Ok(())
    }

    /// Takes back what a successful attempt was counted as. The name starts anew; the address only loses this
    /// one, or somebody with a password of their own could go on guessing others'.
    pub fn forgive(&self, name: &str, address: IpAddr) {
        let mut failures = self.failures.lock().expect("nothing panics while holding it");
        failures.names.remove(name);
        if let Some(strikes) = failures.addresses.get_mut(&address) {
            strikes.count = strikes.count.saturating_sub(1);
        }
    }
}

fn wait(strikes: Option<&Strikes>, free: u32, now: Instant) -> Duration {
    let Some(strikes) = strikes.filter(|strikes| strikes.count >= free) else { return Duration::ZERO };
    let doublings = (strikes.count - free).min(16);
    let wait = (FIRST_WAIT * (1 << doublings)).min(LONGEST_WAIT);
    wait.saturating_sub(now.saturating_duration_since(strikes.last))
}

fn strike<K: Hash + Eq + Clone>(map: &mut HashMap<K, Strikes>, key: K, now: Instant) {
    if map.len() >= ROOM && !map.contains_key(&key) {
        map.retain(|_, strikes| now.saturating_duration_since(strikes.last) < MEMORY);
        if map.len() >= ROOM
            && let Some(quietest) = map.iter().min_by_key(|(_, strikes)| strikes.last).map(|(key, _)| key.clone())
        {
            map.remove(&quietest);
        }
    }
    let strikes = map.entry(key).or_insert(Strikes { count: 0, last: now });
    if now.saturating_duration_since(strikes.last) >= MEMORY {
        strikes.count = 0;
    }
    *strikes = Strikes { count: strikes.count.saturating_add(1), last: now };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn the_sixth_attempt_on_a_name_waits_and_the_wait_doubles_up_to_a_minute() {
        let throttle = Throttle::default();
        let mut now = Instant::now();
        for attempt in 0..5 {
            assert_eq!(throttle.admit("ada", address(attempt), now), Ok(()));
        }
        let mut waits = Vec::new();
        for attempt in 5..14 {
            let wait = throttle.admit("ada", address(attempt), now).unwrap_err();
            waits.push(wait.as_secs());
            now += wait;
            assert_eq!(throttle.admit("ada", address(attempt), now), Ok(()));
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(throttle.admit("bob", address(99), now), Ok(()), "others are not held up");
    }

    #[test]
    fn an_address_that_tries_many_names_waits_too() {
        let throttle = Throttle::default();
        let now = Instant::now();
        for attempt in 0..FREE_PER_ADDRESS {
            assert_eq!(throttle.admit(&format!("user{attempt}"), address(1), now), Ok(()));
        }
        assert_eq!(throttle.admit("another", address(1), now), Err(FIRST_WAIT));
        assert_eq!(throttle.admit("another", address(2), now), Ok(()));
    }

    #[test]
    fn a_success_clears_the_name_but_only_itself_at_the_address() {
        let throttle = Throttle::default();
        let now = Instant::now();
        for _ in 0..5 {
            throttle.admit("ada", address(1), now).unwrap();
        }
        throttle.forgive("ada", address(1));
        assert_eq!(throttle.admit("ada", address(1), now), Ok(()));
        assert_eq!(throttle.failures.lock().unwrap().addresses[&address(1)].count, 5);
    }

    #[test]
    fn quiet_failures_are_forgotten() {
        let throttle = Throttle::default();
        let now = Instant::now();
        for _ in 0..5 {
            throttle.admit("ada", address(1), now).unwrap();
        }
        let later = now + MEMORY;
        throttle.admit("ada", address(1), later).unwrap();
        assert_eq!(throttle.failures.lock().unwrap().names["ada"].count, 1);
    }

    #[test]
    fn the_maps_stay_bounded() {
        let throttle = Throttle::default();
        let now = Instant::now();
        for number in 0..=ROOM {
            let later = now + Duration::from_nanos(number as u64);
            let address = IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
            throttle.admit(&format!("user{number}"), address, later).unwrap();
        }
        let failures = throttle.failures.lock().unwrap();
        assert_eq!((failures.names.len(), failures.addresses.len()), (ROOM, ROOM));
        assert!(!failures.names.contains_key("user0"), "the quietest went");
    }
}
