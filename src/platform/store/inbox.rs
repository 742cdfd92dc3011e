//! The jobs that wait for the writer thread, in the order in which they came.
//!
//! A job that somebody waits for wakes the thread, and several together do if the thread expects several. One that nobody waits
//! for runs with the next one that somebody waits for, or after [`GATHER`]: the thread is woken once for all that come in this
//! time.

use super::{Batch, StoreError};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// The longest time for which a job that nobody waits for is left. A sync of the disk takes the place of many then.
const GATHER: Duration = Duration::from_millis(10);

/// Jobs that run in less time than it takes to wake the writer for each.
const FEW: usize = 8;

/// Called with the result of the group's write.
pub type WriteCallback = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Gathers its writes into the batch of its group.
pub type Job = Box<dyn FnOnce(&mut Batch<'_>) -> WriteCallback + Send>;

/// The end at which jobs are added.
#[derive(Default)]
pub struct Inbox {
    jobs: Mutex<InboxJobs>,
    writer: Condvar,
}

#[derive(Default)]
struct InboxJobs {
    waiting: VecDeque<WaitingJob>,
    /// How many of them somebody waits for.
    awaited: usize,
    /// The number of those at which the writer is woken; 0 stands for 1.
    wake_at: usize,
    /// The time at which the writer looks for jobs that nobody waits for.
    gathered_at: Option<Instant>,
    stop: StopState,
    /// Jobs that came after the stop. They do not run.
    late: Vec<WaitingJob>,
}

#[derive(Default)]
enum StopState {
    #[default]
    Open,
    /// The writer ends after the jobs that wait, and then tells these.
    Stopping(Vec<oneshot::Sender<()>>),
    /// The writer takes no more jobs.
    Closed,
}

pub struct WaitingJob {
    pub job: Job,
    /// True if somebody waits for it.
    pub is_awaited: bool,
}

impl Inbox {
    /// Adds a job. One that comes after the stop is dropped once the writer has ended.
    pub fn add(&self, added: WaitingJob) {
        let mut jobs = self.jobs.lock();
        match jobs.stop {
            StopState::Open => {}
            StopState::Stopping(_) => return jobs.late.push(added),
            StopState::Closed => {
                // A value that a job holds may add another job when it is dropped.
                drop(jobs);
                return;
            }
        }
        let wakes = match added.is_awaited {
            true => {
                jobs.awaited += 1;
                jobs.awaited == jobs.wake_at.max(1)
            }
            false => jobs.gathered_at.is_none(),
        };
        if !added.is_awaited && wakes {
            jobs.gathered_at = Some(Instant::now() + GATHER);
        }
        jobs.waiting.push_back(added);
        if wakes {
            // Under the lock: the next caller relies on it.
            self.writer.notify_one();
        }
    }

    /// Ends the writer after the jobs that wait, and then tells `done`, or drops it if the writer has ended.
    pub fn stop(&self, done: oneshot::Sender<()>) {
        let mut jobs = self.jobs.lock();
        match &mut jobs.stop {
            StopState::Open => jobs.stop = StopState::Stopping(vec![done]),
            StopState::Stopping(others) => others.push(done),
            StopState::Closed => {}
        }
        drop(jobs);
        self.writer.notify_one();
    }
}

/// The writer's end. Dropping it drops the jobs that are left, unanswered.
pub struct InboxReader {
    inbox: Arc<Inbox>,
    /// Jobs that were taken and have not run yet.
    taken: VecDeque<WaitingJob>,
}

impl InboxReader {
    pub fn new(inbox: Arc<Inbox>) -> Self {
        Self { inbox, taken: VecDeque::new() }
    }

    /// Waits for the first job of a group. Returns `None` after the last job before the stop.
    pub fn first(&mut self) -> Option<WaitingJob> {
        if self.taken.is_empty() {
            let mut jobs = self.inbox.jobs.lock();
            while jobs.awaited == 0 && matches!(jobs.stop, StopState::Open) {
                let gathered_at = jobs.gathered_at;
                match gathered_at {
                    None => self.inbox.writer.wait(&mut jobs),
                    Some(at) if self.inbox.writer.wait_until(&mut jobs, at).timed_out() => {
                        if jobs.waiting.is_empty() {
                            jobs.gathered_at = None;
                        } else {
                            jobs.gathered_at = Some(Instant::now() + GATHER);
                            break;
                        }
                    }
                    Some(_) => {}
                }
            }
            self.taken = jobs.take();
        }
        self.taken.pop_front()
    }

    /// Returns the next job of the same group: one that waits, or one that comes within this time and that somebody waits for.
    ///
    /// The thread is not woken for each of the jobs that are `expected`, but by [`enough`] of them.
    pub fn next_within(&mut self, time: Duration, expected: usize) -> Option<WaitingJob> {
        if self.taken.is_empty() {
            let mut jobs = self.inbox.jobs.lock();
            if !time.is_zero() && jobs.waiting.is_empty() {
                jobs.wake_at = enough(expected);
                let few =
                    |jobs: &mut InboxJobs| jobs.awaited < jobs.wake_at.max(1) && matches!(jobs.stop, StopState::Open);
                self.inbox.writer.wait_while_for(&mut jobs, few, time);
                jobs.wake_at = 0;
            }
            self.taken = jobs.take();
        }
        self.taken.pop_front()
    }

    /// The jobs that have come since the last ones were taken and that somebody waits for.
    pub fn awaited(&self) -> usize {
        self.inbox.jobs.lock().awaited
    }

    /// Takes no more jobs, drops those that are left, and returns whom to tell.
    pub fn close(self) -> Vec<oneshot::Sender<()>> {
        self.end()
    }

    fn end(&self) -> Vec<oneshot::Sender<()>> {
        let (stop, left, late) = {
            let mut jobs = self.inbox.jobs.lock();
            let stop = std::mem::replace(&mut jobs.stop, StopState::Closed);
            (stop, jobs.take(), std::mem::take(&mut jobs.late))
        };
        drop((left, late));
        match stop {
            StopState::Stopping(done) => done,
            StopState::Open | StopState::Closed => Vec::new(),
        }
    }
}

impl Drop for InboxReader {
    fn drop(&mut self) {
        self.end();
    }
}

/// The number of jobs for which the writer is woken: all that are expected if these are few, or half of them, which run while
/// the others come.
fn enough(expected: usize) -> usize {
    expected.min(FEW.max(expected / 2))
}

impl InboxJobs {
    fn take(&mut self) -> VecDeque<WaitingJob> {
        self.awaited = 0;
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job that holds `held` for as long as it exists.
    fn job(is_awaited: bool, held: &Arc<()>) -> WaitingJob {
        let held = held.clone();
        let job: Job = Box::new(move |_| {
            drop(held);
            Box::new(|_| {})
        });
        WaitingJob { job, is_awaited }
    }

    /// The jobs of the next group: true for each that somebody waits for.
    fn group(reader: &mut InboxReader) -> Vec<bool> {
        let first = reader.first();
        let rest = std::iter::from_fn(|| reader.next_within(Duration::ZERO, 0));
        first.into_iter().chain(rest).map(|job| job.is_awaited).collect()
    }

    fn inbox() -> (Arc<Inbox>, InboxReader, Arc<()>) {
        let inbox = Arc::<Inbox>::default();
        (inbox.clone(), InboxReader::new(inbox), Arc::default())
    }

    #[test]
    fn jobs_run_in_the_order_in_which_they_came() {
        let (inbox, mut reader, held) = inbox();
        let order = [false, true, false, false, true];
        order.iter().for_each(|is_awaited| inbox.add(job(*is_awaited, &held)));
        assert_eq!(group(&mut reader), order);
    }

    #[test]
    fn jobs_that_nobody_waits_for_run_on_their_own_after_a_while() {
        let (inbox, mut reader, held) = inbox();
        let began = Instant::now();
        for group_number in 1..=3 {
            inbox.add(job(false, &held));
            inbox.add(job(false, &held));
            assert_eq!(group(&mut reader), [false, false]);
            assert!(began.elapsed() >= group_number * GATHER);
        }
    }

    #[test]
    fn the_writer_is_told_anew_of_jobs_that_nobody_waits_for_after_it_found_none() {
        let (inbox, mut reader, held) = inbox();
        inbox.add(job(false, &held));
        assert_eq!(group(&mut reader), [false]);
        let adder = std::thread::spawn({
            let inbox = inbox.clone();
            move || {
                while inbox.jobs.lock().gathered_at.is_some() {
                    std::thread::yield_now();
                }
                inbox.add(job(false, &held));
            }
        });
        assert_eq!(group(&mut reader), [false]);
        adder.join().unwrap();
    }

    #[test]
    fn a_job_that_somebody_waits_for_is_not_left_waiting() {
        let (inbox, mut reader, held) = inbox();
        let adder = std::thread::spawn(move || {
            for _ in 0..200 {
                inbox.add(job(false, &held));
                inbox.add(job(true, &held));
                while Arc::strong_count(&held) > 1 {
                    std::thread::yield_now();
                }
            }
            let (done, _) = oneshot::channel();
            inbox.stop(done);
        });
        let mut ran = 0;
        while let Some(job) = reader.first() {
            drop(job);
            ran += 1;
            while reader.next_within(Duration::from_micros(50), 1).is_some() {
                ran += 1;
            }
        }
        adder.join().unwrap();
        assert_eq!(ran, 400);
    }

    #[test]
    fn jobs_that_are_expected_wake_the_writer_together_and_the_time_does_if_fewer_come() {
        let (inbox, mut reader, held) = inbox();
        let add_when_expected = |count| {
            let (inbox, held) = (inbox.clone(), held.clone());
            std::thread::spawn(move || {
                for _ in 0..count {
                    while inbox.jobs.lock().wake_at != 2 {
                        std::thread::yield_now();
                    }
                    inbox.add(job(true, &held));
                    // Time to take this job alone, if that were done.
                    std::thread::sleep(Duration::from_millis(20));
                }
            })
        };
        let mut next = |time| {
            reader.next_within(time, 2)?;
            Some(1 + std::iter::from_fn(|| reader.next_within(Duration::ZERO, 0)).count())
        };
        assert_eq!([0, 1, 8, 15, 64].map(enough), [0, 1, 8, 8, 32]);
        assert_eq!(next(Duration::from_millis(1)), None);
        let adder = add_when_expected(2);
        assert_eq!(next(Duration::from_secs(60)), Some(2));
        adder.join().unwrap();
        let adder = add_when_expected(1);
        assert_eq!(std::iter::from_fn(|| Some(next(Duration::from_millis(50)))).find_map(|jobs| jobs), Some(1));
        adder.join().unwrap();
    }

    #[test]
    fn the_last_jobs_run_before_the_stop_and_later_ones_are_dropped_after_it() {
        let (inbox, mut reader, held) = inbox();
        inbox.add(job(true, &held));
        inbox.add(job(false, &held));
        let (done, mut stopped) = oneshot::channel();
        inbox.stop(done);
        inbox.add(job(true, &held));
        assert_eq!(group(&mut reader), [true, false]);
        assert!(group(&mut reader).is_empty());
        assert_eq!(Arc::strong_count(&held), 2, "the late one is kept until the writer ends");
        let done = reader.close();
        assert_eq!((Arc::strong_count(&held), stopped.try_recv().is_err()), (1, true));
        done.into_iter().for_each(|done| done.send(()).unwrap());
        inbox.add(job(true, &held));
        assert_eq!((Arc::strong_count(&held), stopped.try_recv()), (1, Ok(())));
        let (again, mut never) = oneshot::channel();
        inbox.stop(again);
        assert_eq!(never.try_recv(), Err(oneshot::error::TryRecvError::Closed), "there is nothing to wait for");
    }
}
