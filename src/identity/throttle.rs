//! Slows down guessing. After a few failures an address has to wait before its next attempt on the same name, and
//! after some more before any attempt, twice as long each time.
//!
//! A name alone is never made to wait, or anybody could keep its owner out by failing; after very many failures its
//! attempts are only held up a little, wherever they come from.
//!
//! An attempt counts as failed from its start and is forgiven if it succeeds, so that many attempts at
//! once are no way around the count. The maps are bounded; what has been quiet longest is forgotten first.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

/// Failures an address has free with one name, and with all, since there may be many people behind it.
const FREE_PER_PAIR: u32 = 5;
const FREE_PER_ADDRESS: u32 = 20;

/// Failures a name has free, and how long each attempt on it is held up after that.
const FREE_PER_NAME: u32 = 100;
const HOLD_UP: Duration = Duration::from_secs(1);

/// The wait after the first failure too many. It doubles from there.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest wait. It stays short enough that nobody can lock out for good who shares their address.
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
    pairs: HashMap<(String, IpAddr), Strikes>,
    names: HashMap<String, Strikes>,
    addresses: HashMap<IpAddr, Strikes>,
}

#[derive(Clone, Copy)]
struct Strikes {
    count: u32,
    last: Instant,
}

impl Throttle {
    /// Lets an attempt start, counted as failed until [`Throttle::forgive`], and says how long to hold it up.
    ///
    /// # Errors
    ///
    /// Says how long to wait instead. An attempt that was not let in does not count.
    pub fn admit(&self, name: &str, address: IpAddr, now: Instant) -> Result<Duration, Duration> {
        let mut failures = self.failures.lock();
        let address = network(address);
        let pair = (name.to_owned(), address);
        let of_pair = wait(failures.pairs.get(&pair), FREE_PER_PAIR, now);
        let wait = of_pair.max(wait(failures.addresses.get(&address), FREE_PER_ADDRESS, now));
        if !wait.is_zero() {
            return Err(wait);
        }
        strike(&mut failures.pairs, pair, now);
        strike(&mut failures.addresses, address, now);
        let of_name = strike(&mut failures.names, name.to_owned(), now);
        Ok(if of_name > FREE_PER_NAME { HOLD_UP } else { Duration::ZERO })
    }

    /// Takes back what a successful attempt was counted as. The address starts anew with this name. Otherwise it
    /// only loses this one, or somebody with a password of their own could go on guessing others'; and so does the
    /// name, which others may go on guessing.
    pub fn forgive(&self, name: &str, address: IpAddr) {
        let mut failures = self.failures.lock();
        let Failures { pairs, names, addresses } = &mut *failures;
        let address = network(address);
        pairs.remove(&(name.to_owned(), address));
        for strikes in [addresses.get_mut(&address), names.get_mut(name)].into_iter().flatten() {
            strikes.count = strikes.count.saturating_sub(1);
        }
    }
}

/// What counts as one address: of version 6 the part that tells one customer from another.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

fn wait(strikes: Option<&Strikes>, free: u32, now: Instant) -> Duration {
    let Some(strikes) = strikes.filter(|strikes| strikes.count >= free) else { return Duration::ZERO };
    let doublings = (strikes.count - free).min(16);
    let wait = (FIRST_WAIT * (1 << doublings)).min(LONGEST_WAIT);
    wait.saturating_sub(now.saturating_duration_since(strikes.last))
}

/// Counts one more and returns how many there are now.
fn strike<K: Hash + Eq + Clone>(map: &mut HashMap<K, Strikes>, key: K, now: Instant) -> u32 {
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
    strikes.count
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
        let throttle = Throttle::default();
        let mut now = Instant::now();
        for _ in 0..5 {
            assert_eq!(throttle.admit("ada", address(1), now), AT_ONCE);
        }
        let mut waits = Vec::new();
        for _ in 0..9 {
            let wait = throttle.admit("ada", address(1), now).unwrap_err();
            waits.push(wait.as_secs());
            now += wait;
            assert_eq!(throttle.admit("ada", address(1), now), AT_ONCE);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(throttle.admit("bob", address(1), now), AT_ONCE, "other names are not held up");
        assert_eq!(throttle.admit("ada", address(2), now), AT_ONCE, "nor is the name elsewhere");
    }

    #[test]
    fn a_name_that_many_addresses_guess_is_held_up_but_never_refused() {
        let throttle = Throttle::default();
        let now = Instant::now();
        let guesser = |number: u32| IpAddr::from(number.to_be_bytes());
        for number in 0..FREE_PER_NAME {
            assert_eq!(throttle.admit("ada", guesser(number), now), AT_ONCE);
        }
        for number in 0..1000 {
            assert_eq!(throttle.admit("ada", guesser(FREE_PER_NAME + number), now), Ok(HOLD_UP));
        }
    }

    #[test]
    fn a_whole_network_of_version_6_is_one_address() {
        let throttle = Throttle::default();
        let now = Instant::now();
        let within = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 7, 0, 0, 0, last]);
        for last in 0..5 {
            assert_eq!(throttle.admit("ada", within(last), now), AT_ONCE);
        }
        assert_eq!(throttle.admit("ada", within(5), now), Err(FIRST_WAIT));
        assert_eq!(throttle.admit("ada", "2001:db8:0:8::1".parse().unwrap(), now), AT_ONCE);
    }

    #[test]
    fn an_address_that_tries_many_names_waits_too() {
        let throttle = Throttle::default();
        let now = Instant::now();
        for attempt in 0..FREE_PER_ADDRESS {
            assert_eq!(throttle.admit(&format!("user{attempt}"), address(1), now), AT_ONCE);
        }
        assert_eq!(throttle.admit("another", address(1), now), Err(FIRST_WAIT));
        assert_eq!(throttle.admit("another", address(2), now), AT_ONCE);
    }

    #[test]
    fn a_success_clears_the_name_at_the_address_but_only_itself_elsewhere() {
        let throttle = Throttle::default();
        let now = Instant::now();
        for _ in 0..5 {
            throttle.admit("ada", address(1), now).unwrap();
        }
        throttle.forgive("ada", address(1));
        assert_eq!(throttle.admit("ada", address(1), now), AT_ONCE);
        let failures = throttle.failures.lock();
        assert_eq!((failures.addresses[&address(1)].count, failures.names["ada"].count), (5, 5));
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
        assert_eq!(throttle.failures.lock().names["ada"].count, 1);
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
        let failures = throttle.failures.lock();
        assert_eq!((failures.pairs.len(), failures.names.len(), failures.addresses.len()), (ROOM, ROOM, ROOM));
        assert!(!failures.names.contains_key("user0"), "the quietest went");
    }
}
