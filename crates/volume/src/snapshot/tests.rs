use block::{DataUse, Persistence};
use memory::Budget;

use super::*;
use crate::Origin;
use crate::testing::io::{MIB, extent, no_progress, platform, read, write};

/// What a snapshot copies at once.
const PAGE_BYTES: u64 = 4096;

fn ram(budget: &Arc<Budget>) -> Arc<dyn ManagedVolume> {
    let spec = VolumeSpec::thin(ByteSize(4 * MIB));
    crate::create(
        &spec,
        Origin::New,
        &platform(Arc::clone(budget)),
        &mut no_progress,
    )
    .expect("fits")
}

fn spec_of(kind: VolumeKind) -> VolumeSpec {
    VolumeSpec {
        kind,
        ..VolumeSpec::thin(ByteSize(4 * MIB))
    }
}

fn snapshot_of(name: &str) -> VolumeSpec {
    spec_of(VolumeKind::Snapshot { of: name.into() })
}

fn take(volume: &Arc<dyn ManagedVolume>) -> Result<Arc<dyn ManagedVolume>, VolumeError> {
    let spec = snapshot_of("rd0");
    let mut taken = take_snapshots(&[(&spec, &**volume)]).map_err(|(_, error)| error)?;
    Ok(taken.pop().expect("one was asked for"))
}

fn clone(snapshot: &Arc<dyn ManagedVolume>) -> Result<Arc<dyn ManagedVolume>, VolumeError> {
    create_clone(&spec_of(VolumeKind::Clone { of: "s1".into() }), &**snapshot)
}

#[test]
fn a_snapshot_is_read_only_and_a_clone_of_it_is_not() {
    let budget = Arc::new(Budget::new(64 * MIB));
    let origin = ram(&budget);
    write(&*origin, 8, &[1; 1024]).expect("fits");
    let taken = take(&origin).expect("ram has snapshots");
    write(&*origin, 8, &[2; 512]).expect("fits");
    assert_eq!(taken.storage().spec(), snapshot_of("rd0"));
    assert!(taken.is_read_only());
    assert!(taken.pinned().is_none());
    assert_eq!(read(&*taken, 8, 2), [1; 1024]);
    let refused = Err(Status::WriteProtected);
    assert_eq!(write(&*taken, 8, &[3; 512]), refused);
    let discard = Op::Discard {
        extent: extent(0, 8),
    };
    assert_eq!(taken.execute(discard), refused);
    assert!(matches!(
        taken.resize(ByteSize(8 * MIB), &mut no_progress),
        Err(VolumeError::Unchangeable)
    ));
    assert!(matches!(
        taken.storage().erase(),
        Err(VolumeError::Unchangeable)
    ));
    let copy = clone(&taken).expect("of a snapshot");
    assert!(copy.pinned().is_none());
    write(&*copy, 9, &[4; 512]).expect("fits");
    assert_eq!(read(&*copy, 8, 2), [[1; 512], [4; 512]].concat());
    assert_eq!(read(&*taken, 8, 2), [1; 1024]);
    copy.resize(ByteSize(8 * MIB), &mut no_progress)
        .expect("a clone can grow");
    assert_eq!(read(&*copy, 8, 1), [1; 512]);
    let of_clone = take_snapshots(&[(
        &VolumeSpec {
            size: ByteSize(8 * MIB),
            ..snapshot_of("c1")
        },
        &*copy,
    )]);
    assert_eq!(of_clone.expect("a clone has snapshots").len(), 1);
}

#[test]
fn commands_that_write_are_refused_when_they_are_admitted() {
    let taken = take(&ram(&Arc::new(Budget::new(64 * MIB)))).expect("ram has snapshots");
    let admit = |kind, data_use| {
        let intent = Intent {
            kind,
            extents: &[extent(0, 8)],
            len_bytes: 4096,
            data_use,
            persistence: Persistence::Volatile,
        };
        let ticket = Ticket {
            connection: 0,
            slot: 0,
            generation: 0,
        };
        taken.admit(Instant::now(), &intent, ticket)
    };
    assert!(matches!(admit(OpKind::Read, DataUse::Read), Admission::Now));
    for (kind, data_use) in [
        (OpKind::Write, DataUse::Overwrite),
        (OpKind::Discard, DataUse::Erase),
    ] {
        let refused = admit(kind, data_use);
        assert!(matches!(
            refused,
            Admission::Fail(Status::WriteProtected, None)
        ));
    }
}

#[test]
fn what_cannot_have_a_snapshot_or_a_clone_is_refused_with_a_hint() {
    let budget = Arc::new(Budget::new(64 * MIB));
    let origin = ram(&budget);
    let taken = take(&origin).expect("ram has snapshots");
    let said = |error: VolumeError| error.to_string();
    assert_eq!(
        said(take(&taken).expect_err("of a snapshot")),
        "a volume of kind snapshot of rd0 cannot have snapshots; RAM volumes and clones can; to take one of a snapshot, clone it first"
    );
    assert_eq!(
        said(clone(&origin).expect_err("of ram")),
        "a volume of kind ram, thin is no snapshot; take one with `ramport volume snapshot`"
    );
    let spec = VolumeSpec {
        block_size: BlockSize::B4096,
        ..snapshot_of("rd0")
    };
    let other_blocks = take_snapshots(&[(&spec, &*origin)]);
    assert_eq!(
        said(other_blocks.expect_err("other blocks").1),
        "block size 4096 differs from the 512 of the volume that it is of; give 512"
    );
    let alone = crate::create(
        &snapshot_of("rd0"),
        Origin::New,
        &platform(budget),
        &mut no_progress,
    );
    assert!(matches!(alone, Err(VolumeError::NeedsParent { .. })));
    origin.remove();
    assert!(matches!(take(&origin), Err(VolumeError::Memory(_))));
}

#[test]
fn a_volume_rolls_back_to_a_snapshot_of_its_own_and_of_its_size() {
    let budget = Arc::new(Budget::new(64 * MIB));
    let (origin, other) = (ram(&budget), ram(&budget));
    write(&*origin, 0, &[1; 4096]).expect("fits");
    let taken = take(&origin).expect("ram has snapshots");
    assert_eq!(changed_bytes(&*taken).expect("a snapshot"), 0);
    write(&*origin, 1, &[2; 4096]).expect("fits");
    write(&*origin, 4096, &[3; 512]).expect("fits");
    assert_eq!(changed_bytes(&*taken).expect("a snapshot"), 3 * PAGE_BYTES);
    let back = |volume: &Arc<dyn ManagedVolume>| roll_back(&**volume, &*taken, &mut |_| {});
    assert!(matches!(back(&other), Err(VolumeError::OtherOrigin)));
    origin
        .resize(ByteSize(8 * MIB), &mut no_progress)
        .expect("fits");
    assert_eq!(
        back(&origin).expect_err("another size").to_string(),
        "the volume has 8 MiB and the snapshot 4 MiB; resize the volume to 4 MiB first"
    );
    origin
        .resize(ByteSize(4 * MIB), &mut no_progress)
        .expect("fits");
    back(&origin).expect("its own");
    assert_eq!(read(&*origin, 0, 8), [1; 4096]);
    assert_eq!(read(&*origin, 4096, 1), [0; 512]);
    assert_eq!(read(&*taken, 0, 8), [1; 4096]);
}

#[test]
fn a_removed_snapshot_answers_gone_and_holds_nothing() {
    let budget = Arc::new(Budget::new(64 * MIB));
    let origin = ram(&budget);
    write(&*origin, 0, &[1; 512]).expect("fits");
    let taken = take(&origin).expect("ram has snapshots");
    write(&*origin, 0, &[2; 512]).expect("fits");
    assert_eq!(taken.storage().used_bytes(), PAGE_BYTES);
    taken.remove();
    let verify = Op::Verify {
        extent: extent(0, 1),
    };
    assert_eq!(taken.execute(verify), Err(Status::Gone));
    assert_eq!(taken.storage().used_bytes(), 0);
}
