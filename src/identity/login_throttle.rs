//! Slows down password guessing. After a few failures an address must wait before its next attempt on the same name,
//! and after some more before any attempt; the wait doubles each time.
//!
//! A name alone is never refused, or anybody could lock its owner out by failing; after very many failures its attempts
//! are delayed a little, from every address.
//!
//! An attempt counts as failed from its start and is taken back if it succeeds, so that concurrent attempts do not
//! bypass the count. The maps are bounded; the entry without a failure for longest is removed first.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

/// Failures of an address before it must wait: with one name, and with all names, since many people may share it.
const FREE_PER_PAIR: u32 = 5;
const FREE_PER_ADDRESS: u32 = 20;

/// Failures of a name before its attempts are delayed, and the delay of each.
const FREE_PER_NAME: u32 = 100;
const DELAY: Duration = Duration::from_secs(1);

/// The first wait. It doubles with each further failure.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest wait: short enough that nobody can lock out others at the same address for good.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Failures are forgotten this long after the last one.
const FORGET_AFTER: Duration = Duration::from_secs(15 * 60);

/// The most entries of each map.
const MAX_ENTRIES: usize = 10_000;

/// Recent failures by name, by address and by both.
#[derive(Default)]
pub struct LoginThrottle {
    failures: Mutex<Failures>,
}

#[derive(Default)]
struct Failures {
    pairs: HashMap<(String, IpAddr), FailureCount>,
    names: HashMap<String, FailureCount>,
    addresses: HashMap<IpAddr, FailureCount>,
}

#[derive(Clone, Copy)]
struct FailureCount {
    count: u32,
    last: Instant,
}

impl LoginThrottle {
    /// Starts an attempt, which counts as failed until [`LoginThrottle::record_success`], and returns its delay.
    ///
    /// # Errors
    ///
    /// Returns the time to wait before the next attempt. A refused attempt does not count.
    pub fn start_attempt(&self, name: &str, address: IpAddr, now: Instant) -> Result<Duration, Duration> {
        let mut failures = self.failures.lock();
        let address = network(address);
        let pair = (name.to_owned(), address);
        let of_pair = wait(failures.pairs.get(&pair), FREE_PER_PAIR, now);
        let wait = of_pair.max(wait(failures.addresses.get(&address), FREE_PER_ADDRESS, now));
        if !wait.is_zero() {
            return Err(wait);
        }
        count_failure(&mut failures.pairs, pair, now);
        count_failure(&mut failures.addresses, address, now);
        let of_name = count_failure(&mut failures.names, name.to_owned(), now);
        Ok(if of_name > FREE_PER_NAME { DELAY } else { Duration::ZERO })
    }

    /// Takes back the failure that an attempt was counted as which ended without an answer about the password.
    pub fn withdraw(&self, name: &str, address: IpAddr) {
        let mut failures = self.failures.lock();
        let Failures { pairs, names, addresses } = &mut *failures;
        let address = network(address);
        let counts = [pairs.get_mut(&(name.to_owned(), address)), addresses.get_mut(&address), names.get_mut(name)];
        for failures in counts.into_iter().flatten() {
            failures.count = failures.count.saturating_sub(1);
        }
    }

    /// Takes back the failure that a successful attempt was counted as, and clears the address with this name.
    ///
    /// The counts of the address and of the name go down by one only: a user with a password could otherwise reset them
    /// and keep guessing.
    pub fn record_success(&self, name: &str, address: IpAddr) {
        let mut failures = self.failures.lock();
        let Failures { pairs, names, addresses } = &mut *failures;
        let address = network(address);
        pairs.remove(&(name.to_owned(), address));
        for failures in [addresses.get_mut(&address), names.get_mut(name)].into_iter().flatten() {
            failures.count = failures.count.saturating_sub(1);
        }
    }
}

/// The part of an address that identifies one customer: the /64 of an IPv6 address, or the whole IPv4 address.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

fn wait(failures: Option<&FailureCount>, free: u32, now: Instant) -> Duration {
    let Some(failures) = failures.filter(|failures| failures.count >= free) else { return Duration::ZERO };
    let doublings = (failures.count - free).min(16);
    let wait = (FIRST_WAIT * (1 << doublings)).min(LONGEST_WAIT);
    wait.saturating_sub(now.saturating_duration_since(failures.last))
}

/// Counts one more failure and returns their number.
fn count_failure<K: Hash + Eq + Clone>(map: &mut HashMap<K, FailureCount>, key: K, now: Instant) -> u32 {
    if map.len() >= MAX_ENTRIES && !map.contains_key(&key) {
        map.retain(|_, failures| now.saturating_duration_since(failures.last) < FORGET_AFTER);
        if map.len() >= MAX_ENTRIES
            && let Some(oldest) = map.iter().min_by_key(|(_, failures)| failures.last).map(|(key, _)| key.clone())
        {
            map.remove(&oldest);
        }
    }
    let failures = map.entry(key).or_insert(FailureCount { count: 0, last: now });
    if now.saturating_duration_since(failures.last) >= FORGET_AFTER {
        failures.count = 0;
    }
    *failures = FailureCount { count: failures.count.saturating_add(1), last: now };
    failures.count
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Result<Duration, Duration> = Ok(Duration::ZERO);

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn the_sixth_attempt_on_a_name_waits_and_the_wait_doubles_up_to_a_minute() {
        let throttle = LoginThrottle::default();
        let mut now = Instant::now();
        for _ in 0..5 {
            assert_eq!(throttle.start_attempt("ada", address(1), now), AT_ONCE);
        }
        let mut waits = Vec::new();
        for _ in 0..9 {
            let wait = throttle.start_attempt("ada", address(1), now).unwrap_err();
            waits.push(wait.as_secs());
            now += wait;
            assert_eq!(throttle.start_attempt("ada", address(1), now), AT_ONCE);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(throttle.start_attempt("bob", address(1), now), AT_ONCE, "other names do not wait");
        assert_eq!(throttle.start_attempt("ada", address(2), now), AT_ONCE, "nor does the name at another address");
    }

    #[test]
    fn a_name_that_many_addresses_guess_is_delayed_but_never_refused() {
        let throttle = LoginThrottle::default();
        let now = Instant::now();
        let guesser = |number: u32| IpAddr::from(number.to_be_bytes());
        for number in 0..FREE_PER_NAME {
            assert_eq!(throttle.start_attempt("ada", guesser(number), now), AT_ONCE);
        }
        for number in 0..1000 {
            assert_eq!(throttle.start_attempt("ada", guesser(FREE_PER_NAME + number), now), Ok(DELAY));
        }
    }

    #[test]
    fn a_whole_network_of_version_6_is_one_address() {
        let throttle = LoginThrottle::default();
        let now = Instant::now();
        let within = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 7, 0, 0, 0, last]);
        for last in 0..5 {
            assert_eq!(throttle.start_attempt("ada", within(last), now), AT_ONCE);
        }
        assert_eq!(throttle.start_attempt("ada", within(5), now), Err(FIRST_WAIT));
        assert_eq!(throttle.start_attempt("ada", "2001:db8:0:8::1".parse().unwrap(), now), AT_ONCE);
    }

    #[test]
    fn an_address_that_tries_many_names_waits_too() {
        let throttle = LoginThrottle::default();
        let now = Instant::now();
        for attempt in 0..FREE_PER_ADDRESS {
            assert_eq!(throttle.start_attempt(&format!("user{attempt}"), address(1), now), AT_ONCE);
        }
        assert_eq!(throttle.start_attempt("another", address(1), now), Err(FIRST_WAIT));
        assert_eq!(throttle.start_attempt("another", address(2), now), AT_ONCE);
    }

    #[test]
    fn a_success_clears_the_name_at_the_address_but_only_itself_elsewhere() {
        let throttle = LoginThrottle::default();
        let now = Instant::now();
        for _ in 0..5 {
            throttle.start_attempt("ada", address(1), now).unwrap();
        }
        throttle.record_success("ada", address(1));
        assert_eq!(throttle.start_attempt("ada", address(1), now), AT_ONCE);
        let failures = throttle.failures.lock();
        assert_eq!((failures.addresses[&address(1)].count, failures.names["ada"].count), (5, 5));
    }

    #[test]
    fn old_failures_are_forgotten() {
        let throttle = LoginThrottle::default();
        let now = Instant::now();
        for _ in 0..5 {
            throttle.start_attempt("ada", address(1), now).unwrap();
        }
        let later = now + FORGET_AFTER;
        throttle.start_attempt("ada", address(1), later).unwrap();
        assert_eq!(throttle.failures.lock().names["ada"].count, 1);
    }

    #[test]
    fn the_maps_stay_bounded() {
        let throttle = LoginThrottle::default();
        let now = Instant::now();
        for number in 0..=MAX_ENTRIES {
            let later = now + Duration::from_nanos(number as u64);
            let address = IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
            throttle.start_attempt(&format!("user{number}"), address, later).unwrap();
        }
        let failures = throttle.failures.lock();
        assert_eq!(
            (failures.pairs.len(), failures.names.len(), failures.addresses.len()),
            (MAX_ENTRIES, MAX_ENTRIES, MAX_ENTRIES)
        );
        assert!(!failures.names.contains_key("user0"), "the oldest entry is removed");
    }
}
