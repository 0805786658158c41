use block::BlockSize;
use block::testing::{LateVolume, Lateness, VecVolume};

use super::*;
use crate::ScsiStatus;
use crate::testing::in_turns;

const LEN_BYTES: u64 = 16 << 20;
const SLOTS: CopySlots = CopySlots {
    source: 5,
    destination: 3,
};

fn ends(
    source: &Arc<VecVolume>,
    destination: &Arc<VecVolume>,
    to: u64,
) -> Result<SegmentEnds, Sense> {
    let segment = CopySegment {
        source: 0,
        destination: 1,
        blocks: (LEN_BYTES >> 9) as u16,
        source_lba: 0,
        destination_lba: to,
        counts_destination: false,
    };
    let volumes = [source, destination].map(|volume| Arc::clone(volume) as Arc<dyn Volume>);
    let [source, destination] = volumes;
    SegmentEnds::new(&segment, source, destination)
}

#[test]
fn much_is_copied_in_turns_up_to_the_segment_that_fails() {
    let source = Arc::new(VecVolume::new(BlockSize::B512, LEN_BYTES >> 9));
    let destination = Arc::new(VecVolume::new(BlockSize::B4096, (2 * LEN_BYTES) >> 12));
    let data = vec![7; LEN_BYTES as usize];
    let extent = Extent::new(Lba(0), Blocks(LEN_BYTES >> 9));
    let write = Op::Write {
        extent,
        data: &data,
    };
    source.execute(write).expect("as long as the volume");
    let second = LEN_BYTES >> 12;
    let segments = [second, 0, second + 1, 0].map(|to| ends(&source, &destination, to));
    let mut work = CopyWork::new(3, segments.into());
    let (mut leases, now) = (Leases::new(1), Instant::now());
    let (response, turns) = in_turns(|turn| work.go_on(now, turn, &mut leases, SLOTS));
    assert!(
        (8..=16).contains(&turns),
        "4 MiB or less in each of {turns}"
    );
    assert_eq!(response.status, ScsiStatus::CheckCondition);
    assert_eq!(
        response.sense.map(|sense| sense.key),
        Some(SenseKey::CopyAborted)
    );
    let kib = ((2 * LEN_BYTES) >> 10) as u32;
    let status = work.record().status();
    assert_eq!(status[4..8], [CopyState::Failed as u8, 0, 2, 1]);
    assert_eq!(status[8..], kib.to_be_bytes());
    assert_eq!(
        [0, second, 2 * second - 1].map(|lba| destination.block(lba)[4095]),
        [7; 3]
    );
}

/// A copy of 6 MiB, in 2 slices, between two volumes that answer late, and its leases.
struct Late {
    source: Arc<LateVolume>,
    destination: Arc<LateVolume>,
    work: CopyWork,
    leases: Leases,
}

impl Late {
    fn new() -> Self {
        let blocks = LEN_BYTES >> 9;
        let disk = Arc::new(VecVolume::new(BlockSize::B512, blocks));
        disk.fill(0, &vec![7; LEN_BYTES as usize]);
        let source = Arc::new(LateVolume::over(disk));
        let destination = Arc::new(LateVolume::new(BlockSize::B512, blocks));
        let segment = CopySegment {
            source: 0,
            destination: 1,
            blocks: (6 << 20 >> 9) as u16,
            source_lba: 0,
            destination_lba: 0,
            counts_destination: false,
        };
        let ends = SegmentEnds::new(
            &segment,
            Arc::clone(&source) as Arc<dyn Volume>,
            Arc::clone(&destination) as Arc<dyn Volume>,
        );
        Self {
            source,
            destination,
            work: CopyWork::new(3, [ends].into()),
            leases: Leases::new(1),
        }
    }

    fn go_on(&mut self) -> Step {
        loop {
            let turn = &mut Turn::new();
            let step = self
                .work
                .go_on(Instant::now(), turn, &mut self.leases, SLOTS);
            if !matches!(step, Step::More) {
                return step;
            }
        }
    }

    fn waits(&mut self) -> bool {
        matches!(self.go_on(), Step::Waits) && self.work.is_waiting()
    }

    /// A volume answers what it was asked; whether the copy continues.
    fn complete(&mut self, is_source: bool, result: Result<(), Status>) -> bool {
        let (late, slot) = if is_source {
            (&self.source, SLOTS.source)
        } else {
            (&self.destination, SLOTS.destination)
        };
        let completion = late.complete(late.waiting()[0], result);
        let (held, resumed) = self.leases.complete(completion).expect("it waits");
        assert_eq!(held, slot);
        self.work.resume(resumed)
    }

    fn leases_held(&self) -> [usize; 2] {
        [self.source.leases(), self.destination.leases()]
    }

    /// It ends with an error, and holds nothing any more.
    fn assert_failed(&mut self, status: Status) {
        let Step::Over(response) = self.go_on() else {
            panic!("it has failed")
        };
        assert_eq!(response, Response::check(aborted(status)));
        assert_eq!((self.leases_held(), self.leases.is_empty()), ([0, 0], true));
        assert_eq!(self.work.record().status()[4], CopyState::Failed as u8);
    }
}

#[test]
fn each_slice_waits_for_both_volumes_and_is_safe_before_the_next() {
    for source_first in [true, false] {
        let mut copy = Late::new();
        for slice_end in [4 << 20, 6 << 20] {
            assert!(copy.waits());
            assert_eq!(copy.leases_held(), [1, 1]);
            assert!(!copy.complete(source_first, Ok(())), "one of two");
            assert!(copy.waits());
            assert!(copy.complete(!source_first, Ok(())));
            assert!(copy.waits(), "not yet safe");
            assert_eq!(copy.leases_held(), [0, 1]);
            let contents = copy.destination.disk().contents();
            assert_eq!((contents[slice_end - 1], contents[slice_end]), (7, 0));
            assert!(copy.complete(false, Ok(())));
        }
        let Step::Over(response) = copy.go_on() else {
            panic!("all is copied")
        };
        assert_eq!((response, copy.leases_held()), (Response::good(), [0, 0]));
    }
}

#[test]
fn a_volume_that_fails_ends_the_copy_and_its_leases() {
    for is_source in [true, false] {
        let mut copy = Late::new();
        assert!(copy.waits());
        assert!(copy.complete(is_source, Err(Status::ReadError)));
        assert!(!copy.complete(!is_source, Ok(())), "it was to go on before");
        copy.assert_failed(Status::ReadError);
    }
    let mut copy = Late::new();
    assert!(copy.waits());
    copy.complete(true, Ok(()));
    copy.complete(false, Ok(()));
    assert!(copy.waits());
    assert!(copy.complete(false, Err(Status::WriteError)));
    copy.assert_failed(Status::WriteError);
}

#[test]
fn a_volume_that_refuses_to_settle_or_has_no_room_ends_the_copy() {
    let mut copy = Late::new();
    let refusal = Status::WriteError;
    copy.destination.set_settle_error(Some(refusal));
    assert!(copy.waits());
    copy.complete(true, Ok(()));
    copy.complete(false, Ok(()));
    copy.assert_failed(refusal);
    let mut copy = Late::new();
    copy.destination.set_leases_max(0);
    copy.assert_failed(Status::Busy);
}

#[test]
fn only_what_takes_time_is_waited_for() {
    let mut copy = Late::new();
    copy.source.set_lateness(Lateness::Never);
    copy.destination.set_lateness(Lateness::Settling);
    for _ in 0..2 {
        assert!(copy.waits());
        assert_eq!(copy.leases_held(), [0, 1]);
        assert!(copy.complete(false, Ok(())));
    }
    assert!(matches!(copy.go_on(), Step::Over(_)));
}
