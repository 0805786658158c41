//! When a reactor gives its lane turns.

use block::testing::CountedLanes;

use super::*;

#[test]
fn a_lane_has_a_turn_when_its_event_is_raised_and_after_those_of_connections() {
    let lanes = Arc::<CountedLanes>::default();
    let fixture = Fixture::new(ReactorOptions {
        lanes: Some(Arc::clone(&lanes) as _),
        ..ReactorOptions::default()
    });
    let counts = lanes.last();
    for _ in 0..3 {
        let before = counts.submits_when_quiet();
        counts.raise();
        counts.wait_for_more_than(before);
    }
    let before = counts.submits_when_quiet();
    fixture.log_in();
    counts.wait_for_more_than(before);
    fixture.reactors.stop(Duration::ZERO);
    counts.check_ended();
}
