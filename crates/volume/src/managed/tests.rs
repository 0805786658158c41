//! Tests of what managers do with volumes.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use block::testing::{LateVolume, Lateness};
use block::{BlockSize, Blocks, DataUse, Lba, Persistence, ReadDest, Unmap};
use memory::{Budget, Provision};

use super::*;
use crate::RamVolume;
use crate::filters::{Delay, Fault, FaultRule, FaultStatus, FaultWhen, Latency};
use crate::testing::io::{MIB, extent, no_progress, read, write};

const TICKET: Ticket = Ticket {
    connection: 1,
    slot: 0,
    generation: 0,
};

fn disk(size_bytes: u64, budget_bytes: u64) -> Managed<RamVolume> {
    let budget = Arc::new(Budget::new(budget_bytes));
    let geometry = VolumeSpec::thin(ByteSize(size_bytes)).geometry();
    let ram = RamVolume::new(geometry, Provision::Thin, &budget, &mut no_progress);
    Managed::new(ram.expect("a good size"))
}

fn late() -> Managed<LateVolume> {
    Managed::new(LateVolume::new(BlockSize::B512, 2048))
}

fn admit(disk: &impl Volume, now: Instant, kind: OpKind, len_bytes: u64) -> Admission {
    let extents = &[extent(0, len_bytes / 512)];
    let intent = Intent {
        kind,
        extents,
        len_bytes,
        data_use: DataUse::Read,
        persistence: Persistence::Volatile,
    };
    disk.admit(now, &intent, TICKET)
}

#[test]
fn a_locked_volume_reads_and_refuses_every_change() {
    let disk = disk(MIB, 4 * MIB);
    write(&disk, 0, &[5; 512]).expect("writable");
    disk.controls().set_write_lock(WriteLock::ReadOnly);
    assert!(disk.is_read_only());
    let extent = extent(0, 1);
    let changes = [
        Op::Write {
            extent,
            data: &[6; 512],
        },
        Op::WriteZeroes {
            extent,
            unmap: Unmap::Allowed,
        },
        Op::Discard { extent },
        Op::CompareAndWrite {
            extent,
            compare: &[5; 512],
            write: &[6; 512],
        },
        Op::Copy {
            from: self::extent(1, 1),
            to: Lba(0),
        },
    ];
    for change in changes {
        assert_eq!(disk.execute(change), Err(Status::WriteProtected));
    }
    let now = Instant::now();
    let refused = Admission::Fail(Status::WriteProtected, None);
    assert_eq!(admit(&disk, now, OpKind::Write, 512), refused);
    assert_eq!(admit(&disk, now, OpKind::Discard, 0), refused);
    assert_eq!(admit(&disk, now, OpKind::Read, 512), Admission::Now);
    assert_eq!(read(&disk, 0, 1), [5; 512]);
    disk.controls().set_write_lock(WriteLock::Writable);
    write(&disk, 0, &[6; 512]).expect("writable again");
}

#[test]
fn a_removed_volume_answers_gone_and_holds_nothing() {
    let disk = disk(8 * MIB, 16 * MIB);
    write(&disk, 0, &[5; 512]).expect("fits");
    disk.remove();
    assert_eq!(write(&disk, 0, &[5; 512]), Err(Status::Gone));
    assert_eq!(disk.execute(Op::Flush), Err(Status::Gone));
    let gone = Admission::Fail(Status::Gone, None);
    assert_eq!(admit(&disk, Instant::now(), OpKind::Read, 512), gone);
    assert_eq!(disk.storage().used_bytes(), 0);
    let resized = disk.resize(ByteSize(16 * MIB), &mut no_progress);
    assert!(matches!(resized, Err(VolumeError::Gone)));
}

#[test]
fn an_offline_volume_executes_nothing_until_it_is_online() {
    let disk = disk(MIB, 8 * MIB);
    write(&disk, 0, &[5; 512]).expect("fits");
    assert!(disk.is_ready());
    disk.controls().set_availability(Availability::Offline);
    assert!(!disk.is_ready());
    let now = Instant::now();
    for kind in OpKind::ALL {
        let refused = Admission::Fail(Status::NotReady, None);
        assert_eq!(admit(&disk, now, kind, 512), refused);
    }
    let extent = extent(0, 1);
    let dest = ReadDest::InPlace;
    for op in [
        Op::Read { extent, dest },
        Op::Verify { extent },
        Op::Flush,
        Op::Discard { extent },
        Op::Write {
            extent,
            data: &[6; 512],
        },
    ] {
        assert_eq!(disk.execute(op), Err(Status::NotReady));
    }
    disk.controls().set_availability(Availability::Online);
    assert_eq!(read(&disk, 0, 1), [5; 512]);
}

#[test]
fn filters_come_and_go_while_the_volume_is_in_use() {
    let disk = disk(MIB, MIB);
    let now = Instant::now();
    assert_eq!(admit(&disk, now, OpKind::Read, 512), Admission::Now);
    let latency = Duration::from_millis(3);
    let slow = FilterSpec {
        delay: Some(Delay {
            latency: Latency::same(latency),
            bytes_per_second: NonZeroU64::new(512_000),
        }),
        ..FilterSpec::default()
    };
    disk.controls().set_filters(slow.clone());
    assert_eq!(disk.controls().filters(), slow);
    let due = Admission::NotBefore(now + latency + Duration::from_millis(1));
    assert_eq!(admit(&disk, now, OpKind::Read, 512), due);
    disk.controls().set_filters(FilterSpec::default());
    assert_eq!(admit(&disk, now, OpKind::Read, 512), Admission::Now);
}

#[test]
fn a_size_that_no_volume_has_changes_nothing() {
    let disk = disk(MIB, 4 * MIB);
    let refused = disk.resize(ByteSize(2 * MIB + 1), &mut no_progress);
    assert!(matches!(refused, Err(VolumeError::Spec(_))));
    assert_eq!(disk.geometry().blocks, Blocks(2048));
    disk.resize(ByteSize(2 * MIB), &mut no_progress)
        .expect("thin");
    assert_eq!(disk.geometry().blocks, Blocks(4096));
    write(&disk, 0, &[5; 512]).expect("fits");
    disk.storage().erase().expect("it has no snapshots");
    assert_eq!(read(&disk, 0, 1), [0; 512]);
    assert_eq!(disk.storage().used_bytes(), 0);
}

#[test]
fn a_volume_that_takes_time_has_the_same_controls() {
    let disk = late();
    let now = Instant::now();
    disk.controls().set_write_lock(WriteLock::ReadOnly);
    let refused = Admission::Fail(Status::WriteProtected, None);
    assert_eq!(admit(&disk, now, OpKind::Write, 512), refused);
    disk.controls().set_availability(Availability::Offline);
    let refused = Admission::Fail(Status::NotReady, None);
    assert_eq!(admit(&disk, now, OpKind::Read, 512), refused);
    disk.controls().set_write_lock(WriteLock::Writable);
    disk.controls().set_availability(Availability::Online);
    assert_eq!(disk.volume.leases(), 0, "what is refused takes no lease");

    assert_eq!(
        admit(&disk, now, OpKind::Write, 512),
        Admission::Later(None)
    );
    let filled = disk.volume.complete(TICKET, Ok(()));
    assert_eq!(filled.ticket, TICKET);
    write(&disk, 0, &[5; 512]).expect("its block is in memory");
    assert_eq!(disk.settle(TICKET), Ok(Settled::Later));
    disk.remove();
    assert_eq!(write(&disk, 0, &[6; 512]), Err(Status::Gone));
    let refused = Admission::Fail(Status::Gone, None);
    assert_eq!(admit(&disk, now, OpKind::Read, 512), refused);
    disk.release(TICKET);
    assert_eq!(
        disk.volume.leases(),
        0,
        "a lease ends after the removal too"
    );
}

#[test]
fn filters_hold_back_what_the_volume_admits_late() {
    let disk = late();
    let now = Instant::now();
    let latency = Duration::from_millis(3);
    let delay = Some(Delay {
        latency: Latency::same(latency),
        bytes_per_second: None,
    });
    disk.controls().set_filters(FilterSpec {
        delay,
        ..FilterSpec::default()
    });
    let due = Some(now + latency);
    assert_eq!(admit(&disk, now, OpKind::Read, 512), Admission::Later(due));
    disk.release(TICKET);
    disk.volume.set_lateness(Lateness::Settling);
    let settling = Admission::NowThenSettle(due);
    assert_eq!(admit(&disk, now, OpKind::Write, 512), settling);
    disk.release(TICKET);
    disk.volume.set_leases_max(0);
    let busy = Admission::Fail(Status::Busy, due);
    assert_eq!(admit(&disk, now, OpKind::Read, 512), busy);

    disk.volume.set_leases_max(1);
    let every = FaultRule {
        kind: None,
        status: FaultStatus::ReadError,
        when: FaultWhen::EveryNth(NonZeroU64::MIN),
    };
    let fault = Fault::new(0, vec![every]).expect("one rule");
    disk.controls().set_filters(FilterSpec {
        fault: Some(fault),
        ..FilterSpec::default()
    });
    let failed = Admission::Fail(Status::ReadError, None);
    assert_eq!(admit(&disk, now, OpKind::Read, 512), failed);
    assert_eq!(disk.volume.leases(), 0, "what fails takes no lease");
}
