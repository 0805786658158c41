//! What each node says of the way by which its hosts reach the volume.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use block::{PathState, Volume as _};

use crate::cluster::{Cluster, PATIENCE};

use PathState::{Inaccessible, NonOptimized, Optimized};

impl Cluster {
    fn path(&self, place: usize) -> PathState {
        let volume = self.machines[place].volume.as_ref();
        volume.expect("the node runs").path().state
    }

    fn await_path(&self, place: usize, state: PathState) {
        let begin = Instant::now();
        while self.path(place) != state {
            let path = self.path(place);
            assert!(begin.elapsed() < PATIENCE, "{place} is {path:?}");
            sleep(Duration::from_millis(5));
        }
    }

    /// Counts the changes of a node's path from now on.
    fn count_changes(&self, place: usize) -> Arc<AtomicUsize> {
        let count = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&count);
        let volume = self.machines[place].volume.as_ref();
        volume.expect("the node runs").watch_path(Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        }));
        count.store(0, Ordering::SeqCst);
        count
    }
}

#[test]
fn the_primary_is_the_optimized_path_and_its_successor_after_it() {
    let mut cluster = Cluster::start();
    cluster.await_copies(0, 3);
    cluster.await_path(0, Optimized);
    for place in [1, 2] {
        cluster.await_path(place, NonOptimized);
    }
    let changes = [1, 2].map(|place| cluster.count_changes(place));
    cluster.kill(0);
    let primary = cluster.await_primary(2);
    cluster.await_path(primary, Optimized);
    assert!(changes[primary - 1].load(Ordering::SeqCst) > 0);
    cluster.await_path(3 - primary, NonOptimized);
    cluster.restart(0);
    cluster.await_path(0, NonOptimized);
    cluster.await_copies(primary, 3);
    assert_eq!(cluster.path(0), NonOptimized);
    assert_eq!(cluster.path(primary), Optimized);
}

#[test]
fn a_primary_that_is_cut_off_is_no_path_until_it_knows_its_successor() {
    let cluster = Cluster::start();
    cluster.await_copies(0, 3);
    cluster.await_path(0, Optimized);
    let changes = cluster.count_changes(0);
    cluster.cut_off(0);
    cluster.await_path(0, Inaccessible);
    assert!(changes.load(Ordering::SeqCst) > 0);
    let begin = Instant::now();
    while ![1, 2].iter().any(|place| cluster.path(*place) == Optimized) {
        assert!(begin.elapsed() < PATIENCE, "no successor");
        sleep(Duration::from_millis(5));
    }
    assert_eq!(cluster.path(0), Inaccessible);
    cluster.reconnect(0);
    cluster.await_path(0, NonOptimized);
}
