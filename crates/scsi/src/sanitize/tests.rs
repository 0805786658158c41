use super::*;
use crate::device::{Begin, Device, NexusId};
use crate::sense::ScsiStatus;
use crate::testing::{device, open_nexus, sanitize};
use block::testing::{LateVolume, VecVolume};
use block::{BlockSize, Blocks, Lba, Op, ReadDest};

/// Long enough for several turns.
const LEN_BYTES: u64 = 64 << 20;
const IMMED: u8 = 0x80;
const AUSE: u8 = 0x20;
const BLOCK_ERASE: u8 = 0x02;
const EXIT_FAILURE_MODE: u8 = 0x1F;
const TEST_UNIT_READY: [u8; 16] = [0; 16];
/// The slot of the lease.
const SLOT: usize = 9;
const FAILED: Sense = Sense::new(SenseKey::MediumError, Asc::SANITIZE_FAILED);

struct Fixture {
    device: Device,
    nexus: NexusId,
    volume: Arc<dyn Volume>,
    leases: Leases,
}

impl Fixture {
    /// A logical unit that is full of ones.
    fn new() -> Self {
        let volume = Arc::new(VecVolume::new(BlockSize::B4096, LEN_BYTES >> 12));
        let ones = vec![1; LEN_BYTES as usize];
        let extent = Extent::new(Lba(0), Blocks(LEN_BYTES >> 12));
        let data = &ones[..];
        volume.execute(Op::Write { extent, data }).expect("written");
        Self::of(volume)
    }

    /// The same on a volume that answers late.
    fn late() -> (Self, Arc<LateVolume>) {
        let disk = Arc::new(VecVolume::new(BlockSize::B4096, LEN_BYTES >> 12));
        disk.fill(0, &vec![1; LEN_BYTES as usize]);
        let late = Arc::new(LateVolume::over(disk));
        (Self::of(Arc::clone(&late)), late)
    }

    fn of<V: Volume + 'static>(volume: Arc<V>) -> Self {
        let mut device = device("iqn.t", [(0, Arc::clone(&volume))]);
        let nexus = open_nexus(&mut device, "iqn.a");
        let mut fixture = Self {
            device,
            nexus,
            volume,
            leases: Leases::new(1),
        };
        let power_on = fixture.answer(&TEST_UNIT_READY).expect_err("told once");
        assert_eq!(power_on.asc, Asc::POWER_ON_OR_RESET);
        fixture
    }

    fn begin(&mut self, flags: u8) -> Begin {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (0x48, flags);
        self.device.begin(self.nexus, 0, &cdb)
    }

    fn sanitize(&mut self, flags: u8) -> SanitizeWork {
        match self.begin(flags) {
            Begin::Sanitize(work) => work,
            _ => panic!("it is begun"),
        }
    }

    /// An operation that its volume was asked to admit.
    fn admitted(&mut self, flags: u8) -> SanitizeWork {
        let mut work = self.sanitize(flags);
        work.admit(Instant::now(), &mut self.leases, SLOT);
        work
    }

    /// Its next turn.
    fn go_on(&mut self, work: &mut SanitizeWork) -> Step {
        work.go_on(&mut Turn::new(), &mut self.leases, SLOT)
    }

    /// Its next turn, after which there is more to do.
    fn go_on_some(&mut self, work: &mut SanitizeWork) {
        assert!(matches!(self.go_on(work), Step::More));
    }

    /// Runs turns until the operation waits or ends; returns the result if it has ended.
    fn go_on_all(&mut self, work: &mut SanitizeWork) -> Option<Response> {
        loop {
            match self.go_on(work) {
                Step::More => {}
                Step::Waits => return None,
                Step::Over(response) => return Some(response),
            }
        }
    }

    /// The volume answers the one ticket that waits.
    fn complete(&mut self, work: &mut SanitizeWork, late: &LateVolume, result: Result<(), Status>) {
        assert!(work.is_waiting() && late.waiting().len() == 1);
        let completion = late.complete(late.waiting()[0], result);
        let (slot, resumed) = self.leases.complete(completion).expect("it waits");
        assert_eq!(slot, SLOT);
        work.resume(resumed);
    }

    fn answer(&mut self, cdb: &[u8; 16]) -> Result<Vec<u8>, Sense> {
        match self.device.begin(self.nexus, 0, cdb) {
            Begin::Done(response) => response.sense.map_or(Ok(response.data_in), Err),
            Begin::Medium(..) => Ok(Vec::new()),
            Begin::Sanitize(_) | Begin::Parameters { .. } => panic!("no such command"),
        }
    }

    fn reads_at_once(&self) -> bool {
        self.device.view(self.nexus, 0).expect("it is there").reads
    }

    fn last_byte(&self) -> u8 {
        let mut block = [0; 4096];
        let read = Op::Read {
            extent: Extent::new(Lba((LEN_BYTES >> 12) - 1), Blocks(1)),
            dest: ReadDest::Copy(&mut block),
        };
        self.volume.execute(read).expect("read");
        block[4095]
    }
}

fn read_10() -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[8]) = (0x28, 1);
    cdb
}

/// The progress of a sanitize operation, if `sense` reports one in progress.
fn progress(sense: Sense) -> Option<u16> {
    match sense.specific {
        Some(crate::KeySpecific::Progress(progress)) => {
            assert_eq!(
                (sense.key, sense.asc),
                (SenseKey::NotReady, Asc::NOT_READY_SANITIZE)
            );
            Some(progress)
        }
        _ => None,
    }
}

#[test]
fn meanwhile_the_unit_says_how_far_it_is_and_little_else() {
    let mut fixture = Fixture::new();
    assert!(fixture.reads_at_once());
    let mut work = fixture.admitted(IMMED | BLOCK_ERASE);
    assert!(work.is_immediate() && !fixture.reads_at_once());
    let (mut last, mut turns) = (0, 0);
    while let Step::More = fixture.go_on(&mut work) {
        for cdb in [TEST_UNIT_READY, read_10()] {
            let sense = fixture.answer(&cdb).expect_err("not ready");
            let progress = progress(sense).expect("it goes on");
            assert!(progress >= last);
            last = progress;
        }
        let Begin::Done(second) = fixture.begin(BLOCK_ERASE) else {
            panic!("one at a time")
        };
        assert_eq!(second.sense.and_then(progress), Some(last));
        turns += 1;
    }
    assert!(turns >= 3 && last > 32768, "{turns} turns, {last} at last");
    assert_eq!(fixture.answer(&read_10()), Ok(Vec::new()));
    assert!(fixture.reads_at_once());
    assert_eq!(fixture.last_byte(), 0);
}

#[test]
fn inquiry_and_request_sense_are_answered_meanwhile() {
    let mut fixture = Fixture::new();
    let mut work = fixture.admitted(IMMED | BLOCK_ERASE);
    fixture.go_on_some(&mut work);
    let mut inquiry = [0; 16];
    (inquiry[0], inquiry[4]) = (0x12, 96);
    assert_eq!(fixture.answer(&inquiry).map(|data| data.len()), Ok(96));
    let mut request_sense = [0; 16];
    (request_sense[0], request_sense[4]) = (0x03, 18);
    let sense = fixture.answer(&request_sense).expect("data");
    assert_eq!((sense[2], &sense[12..14]), (2, &[0x04, 0x1B][..]));
    assert!(sense[15] == 0x80 && sense[16..18] != [0, 0], "{sense:?}");
}

#[test]
fn one_that_is_cut_short_has_failed_until_another_is_whole() {
    let mut fixture = Fixture::new();
    let mut work = fixture.admitted(BLOCK_ERASE);
    assert!(!work.is_immediate());
    fixture.go_on_some(&mut work);
    drop(work);
    assert_eq!(fixture.answer(&read_10()), Err(FAILED));
    assert_eq!(fixture.last_byte(), 1);
    let Begin::Done(kept) = fixture.begin(EXIT_FAILURE_MODE) else {
        panic!("not allowed without AUSE")
    };
    assert_eq!(kept.status, ScsiStatus::CheckCondition);
    let mut again = fixture.admitted(BLOCK_ERASE);
    assert_eq!(fixture.go_on_all(&mut again), Some(Response::good()));
    assert_eq!(fixture.answer(&read_10()), Ok(Vec::new()));
    assert_eq!(fixture.last_byte(), 0);
}

#[test]
fn failure_mode_is_left_where_that_was_allowed() {
    let mut fixture = Fixture::new();
    let mut work = fixture.admitted(AUSE | BLOCK_ERASE);
    fixture.go_on_some(&mut work);
    drop(work);
    let sense = fixture.answer(&read_10()).expect_err("failed");
    assert_eq!(sense.asc, Asc::SANITIZE_FAILED);
    let Begin::Done(left) = fixture.begin(EXIT_FAILURE_MODE) else {
        panic!("done at once")
    };
    assert_eq!(left.status, ScsiStatus::Good);
    assert_eq!(fixture.answer(&read_10()), Ok(Vec::new()));
    assert!(fixture.reads_at_once());
}

#[test]
fn an_operation_that_never_began_changes_nothing() {
    let mut fixture = Fixture::new();
    drop(fixture.sanitize(BLOCK_ERASE));
    assert_eq!(fixture.answer(&read_10()), Ok(Vec::new()));
    assert_eq!(fixture.last_byte(), 1);
    let mut work = fixture.admitted(BLOCK_ERASE);
    fixture.go_on_some(&mut work);
    drop(work);
    drop(fixture.sanitize(AUSE | BLOCK_ERASE));
    assert_eq!(fixture.answer(&read_10()), Err(FAILED));
    let Begin::Done(kept) = fixture.begin(EXIT_FAILURE_MODE) else {
        panic!("the one that failed does not allow it")
    };
    assert_eq!(kept.status, ScsiStatus::CheckCondition);
}

#[test]
fn one_lease_of_all_blocks_is_held_from_the_first_to_the_last() {
    let (mut fixture, late) = Fixture::late();
    let mut work = fixture.admitted(BLOCK_ERASE);
    assert_eq!(fixture.go_on_all(&mut work), None);
    assert_eq!((late.disk().contents()[0], late.leases()), (1, 1));
    fixture.complete(&mut work, &late, Ok(()));
    assert_eq!(fixture.go_on_all(&mut work), None);
    assert_eq!(late.disk().contents()[LEN_BYTES as usize - 1], 0);
    let sense = fixture.answer(&read_10()).expect_err("not yet safe");
    assert_eq!(progress(sense), Some(u16::MAX));
    fixture.complete(&mut work, &late, Ok(()));
    assert_eq!(fixture.go_on_all(&mut work), Some(Response::good()));
    fixture.leases.release(SLOT);
    assert_eq!(fixture.answer(&read_10()), Ok(Vec::new()));
    assert_eq!(late.leases(), 0);
}

#[test]
fn it_fails_where_its_volume_fails() {
    for steps in [0, 1] {
        let (mut fixture, late) = Fixture::late();
        let mut work = fixture.admitted(BLOCK_ERASE);
        for _ in 0..steps {
            fixture.complete(&mut work, &late, Ok(()));
            assert_eq!(fixture.go_on_all(&mut work), None);
        }
        fixture.complete(&mut work, &late, Err(Status::WriteError));
        assert_eq!(fixture.go_on_all(&mut work), Some(Response::check(FAILED)));
        assert_eq!(fixture.answer(&read_10()), Err(FAILED));
    }
    let (mut fixture, late) = Fixture::late();
    late.set_settle_error(Some(Status::WriteError));
    let mut work = fixture.admitted(BLOCK_ERASE);
    fixture.complete(&mut work, &late, Ok(()));
    assert_eq!(fixture.go_on_all(&mut work), Some(Response::check(FAILED)));
}

#[test]
fn one_that_its_volume_refuses_has_never_been() {
    let (mut fixture, late) = Fixture::late();
    late.set_leases_max(0);
    let mut work = fixture.sanitize(BLOCK_ERASE);
    let admitted = work.admit(Instant::now(), &mut fixture.leases, SLOT);
    assert_eq!(admitted, Admitted::Fail(Status::Busy, None));
    assert_eq!(fixture.answer(&read_10()), Ok(Vec::new()));
    drop(work);
    assert_eq!(fixture.answer(&read_10()), Ok(Vec::new()));
}

#[test]
fn another_driver_goes_on_with_it_and_does_again_what_may_not_be_safe() {
    for steps in [0, 1] {
        let (mut fixture, late) = Fixture::late();
        let mut work = fixture.admitted(BLOCK_ERASE);
        for _ in 0..steps {
            fixture.complete(&mut work, &late, Ok(()));
            assert_eq!(fixture.go_on_all(&mut work), None);
        }
        assert!(work.suspend(&mut fixture.leases, SLOT));
        assert_eq!((late.leases(), fixture.go_on_all(&mut work)), (0, None));
        // What was zeroed under the lease that has ended.
        late.disk().fill(0, &[1]);
        let stale = late.waiting();
        late.complete(stale[0], Ok(()));
        fixture.leases = Leases::new(2);
        work.admit(Instant::now(), &mut fixture.leases, SLOT);
        for _ in ["filled", "settled"] {
            assert_eq!(fixture.go_on_all(&mut work), None);
            fixture.complete(&mut work, &late, Ok(()));
        }
        assert_eq!(fixture.go_on_all(&mut work), Some(Response::good()));
        assert!(!work.suspend(&mut fixture.leases, SLOT), "it is over");
        assert_eq!((late.disk().contents()[0], late.leases()), (0, 0));
    }
}

#[test]
fn it_ends_when_its_logical_unit_is_removed() {
    let gone = Response::check(Sense::of_volume(Status::Gone));
    let mut fixture = Fixture::new();
    let mut work = fixture.admitted(BLOCK_ERASE);
    fixture.go_on_some(&mut work);
    fixture.device.remove_unit(0);
    assert_eq!(fixture.go_on_all(&mut work), Some(gone.clone()));
    assert_eq!(fixture.last_byte(), 1, "nothing more is done");

    let (mut fixture, late) = Fixture::late();
    let mut work = fixture.admitted(BLOCK_ERASE);
    fixture.device.remove_unit(0);
    assert!(
        !work.suspend(&mut fixture.leases, SLOT),
        "nobody goes on with it"
    );
    assert_eq!(fixture.go_on_all(&mut work), Some(gone));
    assert_eq!(late.leases(), 0);
}

#[test]
fn a_whole_one_is_answered_so_for_every_host() {
    let (mut fixture, late) = Fixture::late();
    let mut work = fixture.admitted(BLOCK_ERASE);
    fixture.complete(&mut work, &late, Ok(()));
    assert_eq!(fixture.go_on_all(&mut work), None);
    fixture.complete(&mut work, &late, Ok(()));
    // The unit forgets the operation.
    assert_eq!(fixture.answer(&read_10()), Ok(Vec::new()));
    assert_eq!(fixture.go_on_all(&mut work), Some(Response::good()));
}

#[test]
fn a_volume_in_memory_is_sanitized_without_a_lease() {
    let mut fixture = Fixture::new();
    let mut work = fixture.sanitize(BLOCK_ERASE);
    assert_eq!(sanitize(&mut work), Response::good());
    assert_eq!(fixture.last_byte(), 0);
}
