use std::sync::atomic::AtomicUsize;

use super::*;

/// A queue that counts its turns, and panics or ends in one of them.
#[derive(Debug, Default)]
struct Counted {
    turns: Arc<AtomicUsize>,
    panics_at: Option<usize>,
    ends_at: Option<usize>,
    is_dropped: Arc<AtomicBool>,
}

impl Counted {
    fn take_turn(&self) -> Turn {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        assert_ne!(Some(turn), self.panics_at, "as the test wants it");
        if Some(turn) == self.ends_at {
            Turn::Over
        } else {
            Turn::Idle
        }
    }
}

impl LaneQueue for Counted {
    fn reap(&mut self) -> Turn {
        self.take_turn()
    }

    fn submit(&mut self) -> Turn {
        self.take_turn()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.is_dropped.store(true, Ordering::Relaxed);
        assert!(self.panics_at.is_none(), "once more");
    }
}

fn open() -> (Arc<LaneRegistry>, Box<dyn block::Lane>, Arc<LaneHandle>) {
    let lanes = Arc::<LaneRegistry>::default();
    let lane = block::LaneOpener::open(Arc::clone(&lanes)).expect("a descriptor is left");
    let door = lanes.of(thread::current().id()).expect("it is open");
    (lanes, lane, door)
}

#[test]
fn a_lane_is_found_by_its_thread_until_it_ends() {
    let (lanes, lane, _) = open();
    let elsewhere = thread::scope(|scope| {
        let of_it = scope.spawn(|| lanes.of(thread::current().id()).is_some());
        of_it.join().expect("no panic")
    });
    assert!(!elsewhere);
    drop(lane);
    assert!(lanes.of(thread::current().id()).is_none());
}

#[test]
fn a_queue_that_ends_or_panics_leaves_the_others() {
    let (_lanes, mut lane, door) = open();
    let mut turns = Vec::new();
    let mut drops = Vec::new();
    for (panics_at, ends_at) in [(Some(1), None), (None, Some(2)), (None, None)] {
        let mut queue = Counted::default();
        (queue.panics_at, queue.ends_at) = (panics_at, ends_at);
        turns.push(Arc::clone(&queue.turns));
        drops.push(Arc::clone(&queue.is_dropped));
        door.adopt(Box::new(queue)).expect("the lane is open");
    }
    let worked: Vec<_> = (0..3).flat_map(|_| [lane.reap(), lane.submit()]).collect();
    // What one does may be work for another, so a round follows each in which one has worked.
    assert_eq!(worked, [false, true, false, false, false, false]);
    let turns: Vec<_> = turns.iter().map(|it| it.load(Ordering::Relaxed)).collect();
    assert_eq!(turns, [2, 3, 8]);
    let drops: Vec<_> = drops.iter().map(|it| it.load(Ordering::Relaxed)).collect();
    assert_eq!(drops, [true, true, false]);
}

#[test]
fn a_lane_that_ends_drops_its_queues_and_takes_no_more() {
    let (_lanes, lane, door) = open();
    let queue = Counted::default();
    let is_dropped = Arc::clone(&queue.is_dropped);
    door.adopt(Box::new(queue)).expect("the lane is open");
    drop(lane);
    assert!(is_dropped.load(Ordering::Relaxed), "though it had no turn");
    assert!(door.adopt(Box::new(Counted::default())).is_err());
}
