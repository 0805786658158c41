//! Tests of RAM volumes.

use std::num::NonZeroU64;
use std::time::Duration;

use block::Lba;

use super::*;
use crate::filters::{Delay, Latency};

const MIB: u64 = 1 << 20;

fn no_progress(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn disk(size_bytes: u64, budget_bytes: u64) -> Arc<RamVolume> {
    let budget = Arc::new(Budget::new(budget_bytes));
    RamVolume::new(RamSpec::thin(ByteSize(size_bytes)), &budget).expect("a good spec")
}

fn extent(lba: u64, blocks: u64) -> Extent {
    Extent::new(Lba(lba), Blocks(blocks))
}

fn write(disk: &RamVolume, lba: u64, data: &[u8]) -> Result<(), Status> {
    let extent = extent(lba, data.len() as u64 / 512);
    disk.execute(Op::Write { extent, data })
}

fn read(disk: &RamVolume, lba: u64, blocks: u64) -> Vec<u8> {
    let mut buffer = vec![0xEE; blocks as usize * 512];
    let dest = ReadDest::Copy(&mut buffer);
    let extent = extent(lba, blocks);
    disk.execute(Op::Read { extent, dest }).expect("in range");
    buffer
}

fn admit(disk: &RamVolume, now: Instant, kind: OpKind, len_bytes: u64) -> Admission {
    let ticket = Ticket {
        connection: 1,
        slot: 0,
        generation: 0,
    };
    let extents = &[extent(0, len_bytes / 512)];
    let intent = Intent {
        kind,
        extents,
        len_bytes,
    };
    disk.admit(now, &intent, ticket)
}

#[test]
fn sizes_that_no_volume_has_are_refused_with_a_hint() {
    let check = |size, block_size| {
        RamSpec {
            size: ByteSize(size),
            block_size,
            provision: Provision::Thin,
        }
        .check()
    };
    assert_eq!(check(MIB, BlockSize::B4096), Ok(()));
    assert_eq!(check(64 << 40, BlockSize::B512), Ok(()));
    let small = check(MIB - 512, BlockSize::B512).expect_err("too small");
    assert_eq!(
        small.to_string(),
        "size 1048064 B is out of range; choose a size from 1 MiB to 64 TiB"
    );
    assert!(check((64 << 40) + 512, BlockSize::B512).is_err());
    let uneven = check(MIB + 512, BlockSize::B4096).expect_err("no whole blocks");
    assert!(
        uneven
            .to_string()
            .ends_with("the next valid size is 1028 KiB")
    );
}

#[test]
fn every_operation_does_what_it_says() {
    let disk = disk(16 * MIB, 16 * MIB);
    write(&disk, 10, &[1; 1024]).expect("fits");
    let copy = Op::Copy {
        from: extent(10, 2),
        to: Lba(11),
    };
    disk.execute(copy).expect("in range");
    let swap = Op::CompareAndWrite {
        extent: extent(12, 1),
        compare: &[1; 512],
        write: &[2; 512],
    };
    disk.execute(swap).expect("equal");
    let zero = Op::WriteZeroes {
        extent: extent(11, 1),
        unmap: Unmap::Forbidden,
    };
    disk.execute(zero).expect("in range");
    let mut expected = vec![1; 512];
    expected.extend([0; 512]);
    expected.extend([2; 512]);
    assert_eq!(read(&disk, 10, 3), expected);
    let compare = |data: &[u8]| {
        disk.execute(Op::Compare {
            extent: extent(10, 3),
            data,
        })
    };
    assert_eq!(compare(&expected), Ok(()));
    expected[700] = 9;
    let offset_bytes = 700;
    assert_eq!(compare(&expected), Err(Status::Miscompare { offset_bytes }));
    disk.execute(Op::Flush).expect("nothing to do");
    let verify = |extent| disk.execute(Op::Verify { extent });
    assert_eq!(verify(extent(0, 32_768)), Ok(()));
    assert_eq!(verify(extent(0, 32_769)), Err(Status::LbaOutOfRange));
    let discard = Op::Discard {
        extent: extent(0, 32_768),
    };
    disk.execute(discard).expect("in range");
    assert_eq!(disk.allocated_bytes(), 0);
}

#[test]
fn data_that_do_not_fit_their_extent_are_invalid() {
    let disk = disk(MIB, MIB);
    let extent = extent(0, 2);
    let data = &[0; 512];
    assert_eq!(
        disk.execute(Op::Write { extent, data }),
        Err(Status::Invalid)
    );
    assert_eq!(
        disk.execute(Op::Compare { extent, data }),
        Err(Status::Invalid)
    );
    let swap = Op::CompareAndWrite {
        extent,
        compare: &[0; 1024],
        write: data,
    };
    assert_eq!(disk.execute(swap), Err(Status::Invalid));
    let dest = ReadDest::Copy(&mut [0; 512]);
    assert_eq!(
        disk.execute(Op::Read { extent, dest }),
        Err(Status::Invalid)
    );
}

#[test]
fn a_locked_volume_reads_and_refuses_every_change() {
    let disk = disk(MIB, 4 * MIB);
    write(&disk, 0, &[5; 512]).expect("writable");
    disk.set_write_lock(WriteLock::ReadOnly);
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
    disk.set_write_lock(WriteLock::Writable);
    write(&disk, 0, &[6; 512]).expect("writable again");
}

#[test]
fn a_removed_volume_answers_gone_and_holds_nothing() {
    let disk = disk(8 * MIB, 16 * MIB);
    write(&disk, 0, &[5; 512]).expect("fits");
    disk.mark_gone();
    assert_eq!(write(&disk, 0, &[5; 512]), Err(Status::Gone));
    assert_eq!(disk.execute(Op::Flush), Err(Status::Gone));
    let gone = Admission::Fail(Status::Gone, None);
    assert_eq!(admit(&disk, Instant::now(), OpKind::Read, 512), gone);
    assert_eq!(disk.allocated_bytes(), 0);
    let resized = disk.resize(ByteSize(16 * MIB), &mut no_progress);
    assert!(matches!(resized, Err(VolumeError::Gone)));
}

#[test]
fn an_offline_volume_executes_nothing_until_it_is_online() {
    let disk = disk(MIB, 8 * MIB);
    write(&disk, 0, &[5; 512]).expect("fits");
    assert!(disk.is_ready());
    disk.set_availability(Availability::Offline);
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
    disk.set_availability(Availability::Online);
    assert_eq!(read(&disk, 0, 1), [5; 512]);
}

#[test]
fn changes_that_sessions_must_see_are_counted() {
    let disk = disk(MIB, MIB);
    let mut seen = disk.change_count();
    let mut changed = || {
        let before = std::mem::replace(&mut seen, disk.change_count());
        before != seen
    };
    assert!(!changed());
    disk.resize(ByteSize(2 * MIB), &mut no_progress)
        .expect("thin");
    assert!(changed());
    assert_eq!(disk.geometry().blocks, Blocks(4096));
    assert!(
        disk.resize(ByteSize(2 * MIB + 1), &mut no_progress)
            .is_err()
    );
    assert!(!changed(), "a refused resize changes nothing");
    disk.set_write_lock(WriteLock::ReadOnly);
    assert!(changed());
    disk.set_availability(Availability::Offline);
    assert!(changed());
    disk.mark_gone();
    assert!(changed());
}

#[test]
fn a_thick_volume_beyond_the_budget_is_refused_before_it_takes_anything() {
    let budget = Arc::new(Budget::new(8 * MIB));
    let spec = |size| RamSpec {
        provision: Provision::Thick,
        ..RamSpec::thin(ByteSize(size))
    };
    let error = RamVolume::new(spec(10 * MIB), &budget).expect_err("too large");
    assert!(error.to_string().contains("--memory"), "{error}");
    assert_eq!(budget.used_bytes(), 0);
    let disk = RamVolume::new(spec(8 * MIB), &budget).expect("fits");
    assert_eq!(budget.free_bytes(), 0);
    assert!(disk.resize(ByteSize(10 * MIB), &mut no_progress).is_err());
    assert_eq!(disk.geometry().blocks, Blocks(16_384));
    disk.resize(ByteSize(4 * MIB), &mut no_progress)
        .expect("shrinking");
    assert_eq!(budget.free_bytes(), 4 * MIB);
}

#[test]
fn a_full_budget_fails_one_write_and_recovers() {
    let disk = disk(1 << 40, 4 * MIB);
    let far = 1 << 30;
    write(&disk, 0, &[1; 512]).expect("fits");
    write(&disk, far, &[2; 512]).expect("fits");
    assert_eq!(
        write(&disk, far / 2, &[3; 512]),
        Err(Status::CapacityExceeded)
    );
    assert_eq!(read(&disk, far, 1), [2; 512]);
    let discard = Op::Discard {
        extent: extent(0, 4096),
    };
    disk.execute(discard).expect("in range");
    write(&disk, far / 2, &[3; 512]).expect("memory came back");
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
    disk.set_filters(slow.clone());
    assert_eq!(disk.filters(), slow);
    let due = Admission::NotBefore(now + latency + Duration::from_millis(1));
    assert_eq!(admit(&disk, now, OpKind::Read, 512), due);
    disk.set_filters(FilterSpec::default());
    assert_eq!(admit(&disk, now, OpKind::Read, 512), Admission::Now);
}

#[test]
fn a_thousand_terabyte_volumes_cost_next_to_nothing() {
    let budget = Arc::new(Budget::new(64 * MIB));
    let volumes: Vec<_> = (0..1000)
        .map(|_| RamVolume::new(RamSpec::thin(ByteSize(1 << 40)), &budget).expect("thin"))
        .collect();
    assert_eq!(budget.used_bytes(), 0);
    assert!(
        volumes[0].overhead_bytes() < 6 << 10,
        "{}",
        volumes[0].overhead_bytes()
    );
    for (number, disk) in volumes.iter().step_by(100).enumerate() {
        write(disk, 1 << 30, &[number as u8 + 1; 512]).expect("fits");
    }
    for (number, disk) in volumes.iter().step_by(100).enumerate() {
        assert_eq!(read(disk, 1 << 30, 1), [number as u8 + 1; 512]);
    }
    assert_eq!(budget.used_bytes(), 20 * MIB);
    drop(volumes);
    assert_eq!(budget.used_bytes(), 0);
}
