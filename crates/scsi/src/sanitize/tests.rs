use super::*;
use crate::device::{Begin, Device, NexusId};
use crate::sense::ScsiStatus;
use crate::testing::{Bytes, device, open_nexus};
use block::{BlockSize, Blocks, Extent, Lba, Op, ReadDest};

/// Some turns of it.
const LEN_BYTES: u64 = 64 << 20;
const IMMED: u8 = 0x80;
const AUSE: u8 = 0x20;
const BLOCK_ERASE: u8 = 0x02;
const EXIT_FAILURE_MODE: u8 = 0x1F;
const TEST_UNIT_READY: [u8; 16] = [0; 16];

struct Bed {
    device: Device,
    nexus: NexusId,
    volume: Arc<Bytes>,
}

impl Bed {
    /// A logical unit that is full of ones.
    fn new() -> Self {
        let volume = Bytes::new(BlockSize::B4096, LEN_BYTES >> 12);
        let ones = vec![1; LEN_BYTES as usize];
        let extent = Extent::new(Lba(0), Blocks(LEN_BYTES >> 12));
        let data = &ones[..];
        volume.execute(Op::Write { extent, data }).expect("written");
        let mut device = device("iqn.t", [(0, Arc::clone(&volume))]);
        let nexus = open_nexus(&mut device, "iqn.a");
        let mut bed = Self {
            device,
            nexus,
            volume,
        };
        let power_on = bed.answer(&TEST_UNIT_READY).expect_err("told once");
        assert_eq!(power_on.asc, Asc::POWER_ON_OR_RESET);
        bed
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

/// Whether `sense` says that a sanitize operation goes on; how far it is.
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
    let mut bed = Bed::new();
    assert!(bed.reads_at_once());
    let mut work = bed.sanitize(IMMED | BLOCK_ERASE);
    assert!(work.outcome().is_none(), "IMMED waits for nothing");
    assert!(!bed.reads_at_once());
    let (mut last, mut turns) = (0, 0);
    while work.go_on(&mut Turn::new()) {
        for cdb in [TEST_UNIT_READY, read_10()] {
            let sense = bed.answer(&cdb).expect_err("not ready");
            let progress = progress(sense).expect("it goes on");
            assert!(progress >= last);
            last = progress;
        }
        let Begin::Done(second) = bed.begin(BLOCK_ERASE) else {
            panic!("one at a time")
        };
        assert_eq!(second.sense.and_then(progress), Some(last));
        turns += 1;
    }
    assert!(turns >= 3 && last > 32768, "{turns} turns, {last} at last");
    assert_eq!(bed.answer(&read_10()), Ok(Vec::new()));
    assert!(bed.reads_at_once());
    assert_eq!(bed.last_byte(), 0);
}

#[test]
fn inquiry_and_request_sense_are_answered_meanwhile() {
    let mut bed = Bed::new();
    let mut work = bed.sanitize(IMMED | BLOCK_ERASE);
    assert!(work.go_on(&mut Turn::new()));
    let mut inquiry = [0; 16];
    (inquiry[0], inquiry[4]) = (0x12, 96);
    assert_eq!(bed.answer(&inquiry).map(|data| data.len()), Ok(96));
    let mut request_sense = [0; 16];
    (request_sense[0], request_sense[4]) = (0x03, 18);
    let sense = bed.answer(&request_sense).expect("data");
    assert_eq!((sense[2], &sense[12..14]), (2, &[0x04, 0x1B][..]));
    assert!(sense[15] == 0x80 && sense[16..18] != [0, 0], "{sense:?}");
}

#[test]
fn a_command_that_waits_learns_what_becomes_of_it() {
    let mut bed = Bed::new();
    let mut work = bed.sanitize(BLOCK_ERASE);
    let outcome = work.outcome().expect("it waits");
    while work.go_on(&mut Turn::new()) {
        assert!(matches!(outcome.look(), Step::More));
    }
    drop(work);
    let Step::Over(response) = outcome.look() else {
        panic!("it is over")
    };
    assert_eq!(response.status, ScsiStatus::Good);
}

#[test]
fn one_that_is_cut_short_has_failed_until_another_is_whole() {
    let mut bed = Bed::new();
    let mut work = bed.sanitize(BLOCK_ERASE);
    let outcome = work.outcome().expect("it waits");
    assert!(work.go_on(&mut Turn::new()));
    drop(work);
    let Step::Over(response) = outcome.look() else {
        panic!("it is over")
    };
    let failed = Sense::new(SenseKey::MediumError, Asc::SANITIZE_FAILED);
    assert_eq!(response.sense, Some(failed));
    assert_eq!(bed.answer(&read_10()), Err(failed));
    assert_eq!(bed.last_byte(), 1);
    let Begin::Done(kept) = bed.begin(EXIT_FAILURE_MODE) else {
        panic!("not allowed without AUSE")
    };
    assert_eq!(kept.status, ScsiStatus::CheckCondition);
    let mut again = bed.sanitize(BLOCK_ERASE);
    while again.go_on(&mut Turn::new()) {}
    assert_eq!(bed.answer(&read_10()), Ok(Vec::new()));
    assert_eq!(bed.last_byte(), 0);
}

#[test]
fn failure_mode_is_left_where_that_was_allowed() {
    let mut bed = Bed::new();
    let mut work = bed.sanitize(AUSE | BLOCK_ERASE);
    assert!(work.go_on(&mut Turn::new()));
    drop(work);
    let sense = bed.answer(&read_10()).expect_err("failed");
    assert_eq!(sense.asc, Asc::SANITIZE_FAILED);
    let Begin::Done(left) = bed.begin(EXIT_FAILURE_MODE) else {
        panic!("done at once")
    };
    assert_eq!(left.status, ScsiStatus::Good);
    assert_eq!(bed.answer(&read_10()), Ok(Vec::new()));
    assert!(bed.reads_at_once());
}

#[test]
fn one_that_never_began_leaves_all_as_it_was() {
    let mut bed = Bed::new();
    drop(bed.sanitize(BLOCK_ERASE));
    assert_eq!(bed.answer(&read_10()), Ok(Vec::new()));
    assert_eq!(bed.last_byte(), 1);
    let mut work = bed.sanitize(BLOCK_ERASE);
    assert!(work.go_on(&mut Turn::new()));
    drop(work);
    drop(bed.sanitize(AUSE | BLOCK_ERASE));
    let failed = Sense::new(SenseKey::MediumError, Asc::SANITIZE_FAILED);
    assert_eq!(bed.answer(&read_10()), Err(failed));
    let Begin::Done(kept) = bed.begin(EXIT_FAILURE_MODE) else {
        panic!("the one that failed does not allow it")
    };
    assert_eq!(kept.status, ScsiStatus::CheckCondition);
}
