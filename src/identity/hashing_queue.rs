//! Turns at hashing passwords: a few at a time, with a short queue, and memory that is used again.
//!
//! A flood of logins must neither take memory nor keep an honest user waiting. So few wait at all, and the rest are refused
//! at once. Callers who are logged in come first, then addresses by the number of their recent attempts that did not succeed:
//! an address that has tried nothing yet passes everyone who keeps trying. Among equals the newest comes first, because the
//! longest waiting has the least chance to be in time.

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

/// The most hashings at once. Each has 19 MiB of memory, from the first use on.
pub const MAX_CONCURRENT: usize = 2;

/// The most that wait for a turn. All of them together take less than a second.
pub const MAX_WAITING: usize = 16;

/// Attempts are forgotten after one to two of these.
const WINDOW: Duration = Duration::from_secs(60);

/// The most addresses in each of the two windows.
const MAX_ADDRESSES: usize = 10_000;

/// The queue. Cloning the handle is cheap.
#[derive(Clone)]
pub struct HashingQueue(Arc<Mutex<HashingState>>);

struct HashingState {
    /// Memory of the turns that nobody has.
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

/// The place of a hashing among those that wait; the least comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HashRank {
    /// An authenticated caller.
    Caller,
    /// Somebody who logs in, with the number of recent attempts of the address that did not succeed.
    Guest(u32),
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
        let idle = (0..MAX_CONCURRENT).map(|_| Vec::new()).collect();
        Self(Arc::new(Mutex::new(HashingState { idle, waiting: Vec::new(), arrivals: 0, attempts })))
    }

    /// Counts an attempt of an address, and returns its rank among those that wait.
    pub fn count_attempt(&self, address: IpAddr) -> HashRank {
        HashRank::Guest(self.0.lock().attempts.count(network(address), Instant::now()))
    }

    /// Forgets the attempts of an address that has succeeded.
    pub fn forget_attempts(&self, address: IpAddr) {
        let attempts = &mut self.0.lock().attempts;
        attempts.present.remove(&network(address));
        attempts.before.remove(&network(address));
    }

    /// Waits for a turn.
    ///
    /// # Errors
    ///
    /// Fails if the queue is full and everyone in it comes first, or someone has come since who does.
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
            if state.waiting.len() > MAX_WAITING {
                let last = state.waiting.iter().enumerate().max_by_key(|(_, waiting)| waiting.place());
                let last = last.map(|(position, _)| position).expect("it is not empty");
                state.waiting.swap_remove(last);
            }
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
                        state.idle.push(memory);
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

impl Waiting {
    fn place(&self) -> (HashRank, std::cmp::Reverse<u64>) {
        (self.rank, std::cmp::Reverse(self.arrival))
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

    async fn take_all(queue: &HashingQueue) -> Vec<HashingTurn> {
        let mut turns = Vec::new();
        for _ in 0..MAX_CONCURRENT {
            turns.push(queue.turn(HashRank::Guest(0)).await.ok().unwrap());
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
    async fn the_least_rank_comes_first_and_the_newest_among_equals() {
        let queue = HashingQueue::new();
        let mut turns = take_all(&queue).await;
        let ranks = [HashRank::Guest(3), HashRank::Guest(0), HashRank::Guest(0), HashRank::Caller];
        let mut waiting = Vec::new();
        for rank in ranks {
            waiting.push(wait(&queue, rank).await);
        }
        for expected in [3, 2, 1, 0] {
            turns.pop();
            tokio::task::yield_now().await;
            let served: Vec<_> = (0..4).filter(|number| waiting[*number].is_finished()).collect();
            assert!(served.contains(&expected) && served.len() == 4 - expected, "{expected}: {served:?}");
            let turn = (&mut waiting[expected]).await.unwrap().ok().unwrap();
            turns.push(turn);
        }
    }

    #[tokio::test]
    async fn a_full_queue_refuses_the_last_in_order_and_not_the_newcomer_with_a_better_rank() {
        let queue = HashingQueue::new();
        let turns = take_all(&queue).await;
        let mut waiting = Vec::new();
        for _ in 0..MAX_WAITING {
            waiting.push(wait(&queue, HashRank::Guest(1)).await);
        }
        assert_eq!(queue.turn(HashRank::Guest(2)).now_or_never().unwrap().err(), Some(HashingOverload));
        let honest = wait(&queue, HashRank::Guest(0)).await;
        assert_eq!(waiting.remove(0).await.unwrap().err(), Some(HashingOverload), "the longest waiting made room");
        drop(turns);
        assert!(honest.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn a_turn_is_not_lost_with_somebody_who_goes_away() {
        let queue = HashingQueue::new();
        let turns = take_all(&queue).await;
        let gone = wait(&queue, HashRank::Caller).await;
        gone.abort();
        let _ = gone.await;
        drop(turns);
        assert_eq!(take_all(&queue).await.len(), MAX_CONCURRENT);
    }

    #[test]
    fn attempts_count_by_network_until_a_success_or_until_they_are_old() {
        let queue = HashingQueue::new();
        assert_eq!([(); 3].map(|()| queue.count_attempt(address(1))), [0, 1, 2].map(HashRank::Guest));
        assert_eq!(queue.count_attempt(address(2)), HashRank::Guest(0));
        queue.forget_attempts(address(1));
        assert_eq!(queue.count_attempt(address(1)), HashRank::Guest(0));
        let (attempts, now) = (&mut queue.0.lock().attempts, Instant::now());
        assert_eq!(attempts.count(address(1), now + WINDOW), 1, "the window before counts");
        assert_eq!(attempts.count(address(1), now + WINDOW * 4), 0);
    }
}
