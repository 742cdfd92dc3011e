//! Turns at hashing passwords: a few at a time, with a short queue, and memory that goes from one turn to the next.
//!
//! A flood of logins must neither take memory nor keep an honest user waiting. So few wait at all, fewer of one
//! network, and the rest are refused at once. Callers who are logged in come first, then networks by the number of
//! their recent attempts: a network that has tried nothing yet passes everyone who keeps trying. Attempts that succeed
//! count as well, since a user with a password could otherwise keep the turns busy. Equals come in the order of their
//! arrival.

use super::login_throttle::network;
use argon2::Block;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// The most hashings at once: half of the processors, so that a flood of logins leaves the others to everybody else,
/// and no more than two. Each has 19 MiB of memory while there is somebody to hash for.
fn max_concurrent() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).clamp(1, 2)
}

/// The most that wait for a turn. All of them together take less than a second.
pub const MAX_WAITING: usize = 16;

/// The most that wait for a turn from one network.
const MAX_WAITING_OF_NETWORK: usize = 4;

/// Attempts are forgotten after one to two of these.
const WINDOW: Duration = Duration::from_secs(60);

/// The most addresses in each of the two windows.
const MAX_ADDRESSES: usize = 10_000;

/// The queue. Cloning the handle is cheap.
#[derive(Clone)]
pub struct HashingQueue(Arc<Mutex<HashingState>>);

struct HashingState {
    /// The turns that nobody has, without memory.
    idle: Vec<Vec<Block>>,
    waiting: Vec<Waiting>,
    arrivals: u64,
    attempts: RecentAttempts,
}

struct Waiting {
    rank: HashRank,
    arrival: u64,
    turn: oneshot::Sender<HashingTurn>,
}

/// The rank of a hashing among those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashRank {
    /// An authenticated caller, who comes first.
    Caller,
    /// Somebody who logs in, with the number of recent attempts of the network; the fewest come first.
    Guest { network: IpAddr, attempts: u32 },
}

/// A turn at hashing, with the memory for it. Dropping it gives both to the next in the queue.
pub struct HashingTurn {
    pub memory: Vec<Block>,
    /// `None` once it was given back.
    queue: Option<HashingQueue>,
}

/// More wait for a turn than can be served soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashingOverload;

/// Attempts of addresses in the present window and in the one before.
struct RecentAttempts {
    since: Instant,
    present: HashMap<IpAddr, u32>,
    before: HashMap<IpAddr, u32>,
}

impl HashingQueue {
    pub fn new() -> Self {
        let attempts = RecentAttempts { since: Instant::now(), present: HashMap::new(), before: HashMap::new() };
        let idle = (0..max_concurrent()).map(|_| Vec::new()).collect();
        Self(Arc::new(Mutex::new(HashingState { idle, waiting: Vec::new(), arrivals: 0, attempts })))
    }

    /// Counts an attempt of an address, and returns its rank among those that wait.
    pub fn count_attempt(&self, address: IpAddr) -> HashRank {
        let network = network(address);
        HashRank::Guest { network, attempts: self.0.lock().attempts.count(network, Instant::now()) }
    }

    /// Waits for a turn.
    ///
    /// # Errors
    ///
    /// Fails if the queue, or the part of it that one network may have, is full and everyone there comes first, or
    /// someone has come since who does.
    pub async fn turn(&self, rank: HashRank) -> Result<HashingTurn, HashingOverload> {
        let waiting = {
            let mut state = self.0.lock();
            if let Some(memory) = state.idle.pop() {
                return Ok(self.with_memory(memory));
            }
            let (turn, waiting) = oneshot::channel();
            state.arrivals += 1;
            let arrival = state.arrivals;
            // Those who have gone away make room first.
            state.waiting.retain(|waiting| !waiting.turn.is_closed());
            state.waiting.push(Waiting { rank, arrival, turn });
            state.refuse_excess(rank);
            waiting
        };
        waiting.await.map_err(|_| HashingOverload)
    }

    /// Gives the memory of a turn that has ended to the next.
    fn pass_on(&self, mut memory: Vec<Block>) {
        loop {
            let next = {
                let mut state = self.0.lock();
                let next = state.waiting.iter().enumerate().min_by_key(|(_, waiting)| waiting.place());
                match next.map(|(position, _)| position) {
                    Some(position) => state.waiting.swap_remove(position),
                    None => {
                        state.idle.push(Vec::new());
                        drop(state);
                        // The system gets it back.
                        drop(memory);
                        return;
                    }
                }
            };
            match next.turn.send(self.with_memory(memory)) {
                Ok(()) => return,
                // It does not wait any more.
                Err(mut unused) => {
                    unused.queue = None;
                    memory = std::mem::take(&mut unused.memory);
                }
            }
        }
    }

    fn with_memory(&self, memory: Vec<Block>) -> HashingTurn {
        HashingTurn { memory, queue: Some(self.clone()) }
    }
}

impl HashingState {
    /// Refuses the last of a network that has too many waiting, or else the last of all if there are too many.
    fn refuse_excess(&mut self, newcomer: HashRank) {
        let of_network = self.waiting.iter().filter(|waiting| waiting.rank.network() == newcomer.network()).count();
        let network = newcomer.network().filter(|_| of_network > MAX_WAITING_OF_NETWORK);
        if network.is_none() && self.waiting.len() <= MAX_WAITING {
            return;
        }
        let candidates = self.waiting.iter().enumerate();
        let candidates = candidates.filter(|(_, waiting)| network.is_none() || waiting.rank.network() == network);
        if let Some((last, _)) = candidates.max_by_key(|(_, waiting)| waiting.place()) {
            self.waiting.swap_remove(last);
        }
    }
}

impl Waiting {
    /// The place in the queue; the least comes first.
    fn place(&self) -> (Option<u32>, u64) {
        let attempts = match self.rank {
            HashRank::Caller => None,
            HashRank::Guest { attempts, .. } => Some(attempts),
        };
        (attempts, self.arrival)
    }
}

impl HashRank {
    fn network(self) -> Option<IpAddr> {
        match self {
            Self::Caller => None,
            Self::Guest { network, .. } => Some(network),
        }
    }
}

impl Drop for HashingTurn {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.pass_on(std::mem::take(&mut self.memory));
        }
    }
}

impl RecentAttempts {
    /// Counts one more attempt and returns the number of those before.
    fn count(&mut self, address: IpAddr, now: Instant) -> u32 {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed >= WINDOW * 2 {
            self.before.clear();
            self.present.clear();
            self.since = now;
        } else if elapsed >= WINDOW || self.present.len() >= MAX_ADDRESSES {
            self.before = std::mem::take(&mut self.present);
            self.since = now;
        }
        let earlier = self.before.get(&address).copied().unwrap_or(0);
        let present = self.present.entry(address).or_insert(0);
        *present = present.saturating_add(1);
        earlier.saturating_add(*present - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use tokio::task::JoinHandle;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn guest(last: u8, attempts: u32) -> HashRank {
        HashRank::Guest { network: address(last), attempts }
    }

    async fn take_all(queue: &HashingQueue) -> Vec<HashingTurn> {
        let mut turns = Vec::new();
        for _ in 0..max_concurrent() {
            turns.push(queue.turn(HashRank::Caller).await.ok().unwrap());
        }
        turns
    }

    /// Begins to wait, and returns once it does.
    async fn wait(queue: &HashingQueue, rank: HashRank) -> JoinHandle<Result<HashingTurn, HashingOverload>> {
        let queue = queue.clone();
        let waiting = tokio::spawn(async move { queue.turn(rank).await });
        tokio::task::yield_now().await;
        waiting
    }

    #[tokio::test]
    async fn the_least_rank_comes_first_and_the_first_come_among_equals() {
        let queue = HashingQueue::new();
        let mut turns = take_all(&queue).await;
        let ranks = [guest(1, 3), guest(2, 0), guest(3, 0), HashRank::Caller];
        let mut waiting = Vec::new();
        for rank in ranks {
            waiting.push(wait(&queue, rank).await);
        }
        for (served_before, expected) in [3, 1, 2, 0].into_iter().enumerate() {
            turns.pop();
            tokio::task::yield_now().await;
            let served: Vec<_> = (0..4).filter(|number| waiting[*number].is_finished()).collect();
            assert!(served.contains(&expected) && served.len() == served_before + 1, "{expected}: {served:?}");
            let turn = (&mut waiting[expected]).await.unwrap().ok().unwrap();
            turns.push(turn);
        }
    }

    #[tokio::test]
    async fn a_full_queue_refuses_the_last_in_order_and_not_the_newcomer_with_a_better_rank() {
        let queue = HashingQueue::new();
        let turns = take_all(&queue).await;
        let mut waiting = Vec::new();
        for number in 0..16 {
            waiting.push(wait(&queue, guest(number, 1)).await);
        }
        assert_eq!(waiting.len(), MAX_WAITING);
        assert_eq!(queue.turn(guest(16, 1)).now_or_never().unwrap().err(), Some(HashingOverload));
        let honest = wait(&queue, guest(17, 0)).await;
        assert_eq!(waiting.pop().unwrap().await.unwrap().err(), Some(HashingOverload), "the newest made room");
        drop(turns);
        assert!(honest.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn one_network_has_a_part_of_the_queue() {
        let queue = HashingQueue::new();
        let _turns = take_all(&queue).await;
        let mut waiting = Vec::new();
        for _ in 0..MAX_WAITING_OF_NETWORK {
            waiting.push(wait(&queue, queue.count_attempt(address(1))).await);
        }
        let refused = queue.turn(queue.count_attempt(address(1))).now_or_never().unwrap();
        assert_eq!(refused.err(), Some(HashingOverload));
        waiting.push(wait(&queue, queue.count_attempt(address(2))).await);
        waiting.push(wait(&queue, HashRank::Caller).await);
        assert!(waiting.iter().all(|one| !one.is_finished()), "others still find a place");
    }

    #[tokio::test]
    async fn a_turn_is_not_lost_with_somebody_who_goes_away() {
        let queue = HashingQueue::new();
        let turns = take_all(&queue).await;
        let gone = wait(&queue, HashRank::Caller).await;
        gone.abort();
        let _ = gone.await;
        drop(turns);
        assert_eq!(take_all(&queue).await.len(), max_concurrent());
    }

    #[tokio::test]
    async fn logins_that_succeed_from_one_address_delay_an_honest_one_by_at_most_the_running_checks() {
        let queue = HashingQueue::new();
        let mut running = Vec::new();
        for _ in 0..max_concurrent() {
            running.push(queue.turn(queue.count_attempt(address(1))).await.ok().unwrap());
        }
        let honest = wait(&queue, queue.count_attempt(address(2))).await;
        for _ in 0..max_concurrent() {
            let newcomer = wait(&queue, queue.count_attempt(address(1))).await;
            running.remove(0);
            tokio::task::yield_now().await;
            if newcomer.is_finished() {
                running.push(newcomer.await.unwrap().ok().unwrap());
            }
        }
        assert!(honest.is_finished(), "newcomers of the flood passed the honest login");
    }

    #[test]
    fn attempts_count_by_network_until_they_are_old() {
        let queue = HashingQueue::new();
        assert_eq!([(); 3].map(|()| queue.count_attempt(address(1))), [0, 1, 2].map(|attempts| guest(1, attempts)));
        assert_eq!(queue.count_attempt(address(2)), guest(2, 0));
        let (attempts, now) = (&mut queue.0.lock().attempts, Instant::now());
        assert_eq!(attempts.count(address(1), now + WINDOW), 3, "the window before counts");
        assert_eq!(attempts.count(address(1), now + WINDOW * 4), 0);
    }
}
