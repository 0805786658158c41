//! Tests of RAM volumes.

use block::{Lba, OpKind};

use super::*;
use crate::testing::io::{MIB, extent, no_progress, read, write};

fn disk(size_bytes: u64, budget_bytes: u64) -> RamVolume {
    let budget = Arc::new(Budget::new(budget_bytes));
    created(&VolumeSpec::thin(ByteSize(size_bytes)), &budget).expect("fits")
}

fn created(spec: &VolumeSpec, budget: &Arc<Budget>) -> Result<RamVolume, VolumeError> {
    let VolumeKind::Ram { provision } = spec.kind else {
        panic!("{} is not RAM", spec.kind);
    };
    RamVolume::new(spec.geometry(), provision, budget, &mut no_progress)
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
    assert_eq!(disk.used_bytes(), 0);
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
fn a_thick_volume_beyond_the_budget_is_refused_before_it_takes_anything() {
    let budget = Arc::new(Budget::new(8 * MIB));
    let spec = |size| VolumeSpec::thick(ByteSize(size));
    let error = created(&spec(10 * MIB), &budget).expect_err("too large");
    assert!(error.to_string().contains("--memory"), "{error}");
    assert_eq!(budget.used_bytes(), 0);
    let disk = created(&spec(8 * MIB), &budget).expect("fits");
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
fn a_thousand_terabyte_volumes_cost_next_to_nothing() {
    let budget = Arc::new(Budget::new(64 * MIB));
    let volumes: Vec<_> = (0..1000)
        .map(|_| created(&VolumeSpec::thin(ByteSize(1 << 40)), &budget).expect("thin"))
        .collect();
    assert_eq!(budget.used_bytes(), 0);
    let overhead_bytes =
        size_of::<RamVolume>() as u64 + volumes[0].store.layout().lock_table_bytes();
    assert!(overhead_bytes < 6 << 10, "{overhead_bytes}");
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

#[test]
fn an_extent_beyond_all_numbers_is_out_of_range() {
    let disk = disk(MIB, MIB);
    let data = &[0; 512];
    for lba in [2048, u64::MAX / 512, u64::MAX / 512 + 1, u64::MAX] {
        let extent = extent(lba, 1);
        let dest = ReadDest::Copy(&mut [0; 512]);
        let copy = Op::Copy {
            from: self::extent(0, 1),
            to: Lba(lba),
        };
        let unmap = Unmap::Forbidden;
        for op in [
            Op::Read { extent, dest },
            Op::Write { extent, data },
            Op::WriteZeroes { extent, unmap },
            Op::Discard { extent },
            Op::Verify { extent },
            Op::Compare { extent, data },
            Op::CompareAndWrite {
                extent,
                compare: data,
                write: data,
            },
            copy,
        ] {
            let what = format!("{op:?}");
            assert_eq!(disk.execute(op), Err(Status::LbaOutOfRange), "{what}");
        }
        disk.prefetch(OpKind::Write, extent);
    }
    let discard = Op::Discard {
        extent: extent(1, u64::MAX),
    };
    assert_eq!(disk.execute(discard), Err(Status::LbaOutOfRange));
}
