use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::ExternalDriver;
use crate::parts::{Mailbox, Slots};
use crate::{ReactorOptions, Reactors, Threads};

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn connection(thread: usize) -> ConnectionId {
    let mut slots = Slots::new(thread);
    slots.insert_with(|_| Some(())).expect("the first slot")
}

/// What may happen to the threads of a model, in any order.
#[derive(Clone, Copy, Debug)]
enum Event {
    Start,
    /// The thread collects its mail.
    Collect(usize),
    /// The thread has handled its mail.
    Handle(usize),
    /// The thread ends, or begins anew.
    Toggle(usize),
}

fn event(threads: usize) -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Start),
        (0..threads).prop_map(Event::Collect),
        (0..threads).prop_map(Event::Handle),
        (0..threads).prop_map(Event::Toggle),
    ]
}

/// A thread of the model: what was posted, and what it has collected and is handling.
#[derive(Clone, Copy, Debug, Default)]
struct Modelled {
    runs: bool,
    posted: Option<GracePeriod>,
    handling: Option<GracePeriod>,
}

/// The grace periods under test, and what should become of them.
#[derive(Default)]
struct Model {
    periods: GracePeriods,
    threads: [Modelled; THREADS],
    /// Each period that is not over, with the threads that have not passed it.
    open: Vec<(GracePeriod, Vec<usize>)>,
}

const THREADS: usize = 3;

impl Model {
    /// Applies an event. Returns the waiters that are woken.
    fn apply(&mut self, event: Event) -> Vec<ConnectionId> {
        match event {
            Event::Start => {
                let period = self.periods.start();
                let runs = |one: &usize| self.threads[*one].runs;
                self.open
                    .push((period, (0..THREADS).filter(runs).collect()));
                // A mailbox may outlive its thread, or be there before it.
                for thread in &mut self.threads {
                    thread.posted = Some(period);
                }
            }
            Event::Collect(one) => {
                let thread = &mut self.threads[one];
                if thread.runs && thread.handling.is_none() {
                    thread.handling = thread.posted.take();
                }
            }
            Event::Handle(one) => {
                if let Some(period) = self.threads[one].handling.take() {
                    self.note_passed(one, period);
                    return self.periods.pass(one, period);
                }
            }
            Event::Toggle(one) if self.threads[one].runs => {
                self.threads[one].runs = false;
                self.threads[one].handling = None;
                self.note_passed(one, GracePeriod(u64::MAX));
                return self.periods.leave(one);
            }
            Event::Toggle(one) => {
                self.threads[one].runs = true;
                self.periods.join(one);
            }
        }
        Vec::new()
    }

    fn note_passed(&mut self, thread: usize, up_to: GracePeriod) {
        for (period, left) in &mut self.open {
            left.retain(|one| *one != thread || *period > up_to);
        }
    }

    /// The waiters of periods that are over; each asks for its period as soon as that began.
    fn take_over(&mut self) -> Vec<ConnectionId> {
        let is_over = |(_, left): &(GracePeriod, Vec<usize>)| left.is_empty();
        let over = self.open.extract_if(.., |open| is_over(open));
        over.map(|(period, _)| ConnectionId(period.0)).collect()
    }
}

proptest! {
    /// A grace period is over exactly if each thread that ran when it began has handled the mail
    /// that was posted by then, or has ended; and a caller that waits for it is woken then, once.
    #[test]
    fn a_period_is_over_when_each_thread_has_passed_it(
        events in proptest::collection::vec(event(THREADS), 1..60)
    ) {
        let mut model = Model::default();
        for event in events {
            let woken = model.apply(event);
            let over = model.take_over();
            if matches!(event, Event::Start) {
                for waiter in over {
                    prop_assert!(model.periods.is_over(GracePeriod(waiter.0), waiter));
                }
            } else {
                prop_assert_eq!(woken, over);
            }
            for (period, left) in &model.open {
                let is_over = model.periods.is_over(*period, ConnectionId(period.0));
                prop_assert!(!is_over, "{:?}: {:?}", period, left);
            }
        }
    }
}

#[test]
fn a_waiter_asks_for_the_first_of_its_periods() {
    let periods = GracePeriods::default();
    periods.join(0);
    let (first, second) = (periods.start(), periods.start());
    let waiter = connection(0);
    assert!(!periods.is_over(second, waiter));
    assert!(!periods.is_over(first, waiter));
    assert_eq!(periods.pass(0, first), [waiter]);
    assert!(periods.is_over(first, waiter));
    assert!(!periods.is_over(second, waiter));
    periods.forget(waiter);
    assert_eq!(periods.pass(0, second), []);
    assert!(periods.is_over(second, waiter));
}

#[test]
fn idle_reactors_pass_at_once() {
    let reactors = Reactors::start(ReactorOptions {
        threads: Threads::Count(4),
        ..ReactorOptions::default()
    });
    let handle = reactors.expect("threads start").handle();
    for _ in 0..100 {
        let period = handle.start_grace_period();
        assert!(handle.wait_until_over(period, PATIENCE), "{period:?}");
    }
}

/// A thread that drives connections beside the reactors, and stays in a turn until the test ends
/// it.
struct Driver(Mailbox<()>);

impl ExternalDriver for Driver {
    fn wake(&self, _: ConnectionId) {}

    fn complete(&self, _: &[block::Completion]) {}

    fn close(&self, _: ConnectionId) {}

    fn post_checkpoint(&self, period: GracePeriod) {
        self.0.post_checkpoint(period);
    }
}

#[test]
fn a_thread_in_a_turn_holds_a_period_up_until_it_passes_or_ends() {
    let reactors = Reactors::start(ReactorOptions::default()).expect("threads start");
    let handle = reactors.handle();
    let driver = Arc::new(Driver(Mailbox::new().expect("an eventfd")));
    let membership = handle.join(driver.clone()).expect("room");
    let before = handle.start_grace_period();
    let member = handle.join_grace_periods(membership.index());
    assert!(handle.wait_until_over(before, PATIENCE), "it had not begun");
    driver.0.collect();
    let period = handle.start_grace_period();
    let moment = Duration::from_millis(50);
    assert!(!handle.wait_until_over(period, moment), "it is in a turn");
    let mail = driver.0.collect().expect("a checkpoint");
    assert_eq!(mail.checkpoint, Some(period));
    member.pass(period);
    assert!(handle.wait_until_over(period, PATIENCE));
    let last = handle.start_grace_period();
    assert!(!handle.wait_until_over(last, moment), "it is in a turn");
    drop(member);
    assert!(handle.wait_until_over(last, PATIENCE));
}

/// Threads check a number and then store by it, as connections check their session and then write.
/// The thread that moves the number and waits for the grace period finds nothing stored by an old
/// number afterwards.
#[test]
fn nothing_is_stored_by_an_old_number_after_a_grace_period() {
    const THREADS: usize = 3;
    const ROUNDS: u64 = 300;
    let reactors = Reactors::start(ReactorOptions::default()).expect("threads start");
    let handle = reactors.handle();
    let (number, disk) = (AtomicU64::new(1), AtomicU64::new(0));
    let (is_over, turns) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let driver = Arc::new(Driver(Mailbox::new().expect("an eventfd")));
            let membership = handle.join(driver.clone()).expect("room");
            let member = handle.join_grace_periods(membership.index());
            let (number, disk, is_over, turns) = (&number, &disk, &is_over, &turns);
            scope.spawn(move || {
                let _membership = membership;
                while !is_over.load(Ordering::Relaxed) {
                    if let Some(period) = driver.0.collect().and_then(|mail| mail.checkpoint) {
                        member.pass(period);
                    }
                    let seen = number.load(Ordering::Acquire);
                    // Preempted between the check and the execution.
                    thread::yield_now();
                    disk.store(seen, Ordering::Relaxed);
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let end = Instant::now() + PATIENCE;
        let mut overwritten = None;
        for round in 2..ROUNDS {
            number.store(round, Ordering::Release);
            let period = handle.start_grace_period();
            if !handle.wait_until_over(period, PATIENCE) {
                break;
            }
            disk.store(round, Ordering::Relaxed);
            let begun = turns.load(Ordering::Relaxed);
            while turns.load(Ordering::Relaxed) < begun + THREADS && Instant::now() < end {
                thread::yield_now();
            }
            let found = disk.load(Ordering::Relaxed);
            overwritten = overwritten.or((found != round).then_some((round, found)));
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(
            overwritten, None,
            "a round, and what was stored after its answer"
        );
        assert!(Instant::now() < end, "the threads go on");
    });
}
