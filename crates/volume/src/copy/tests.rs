use std::num::NonZeroU64;

use block::{BlockSize, Completion, Completions, OpKind, Status};
use memory::Budget;

use super::*;
use crate::filters::{Fault, FaultRule, FaultStatus, FaultWhen, FilterSpec};
use crate::testing::io::{MIB, read, write};
use crate::{Managed, Origin, Platform, Provision, RamVolume, VolumeKind, VolumeSpec, WriteLock};

struct Nobody;

impl Completions for Nobody {
    fn done(&self, _: Completion) {}
}

fn ram(size_bytes: u64, block_size: BlockSize) -> Arc<dyn ManagedVolume> {
    let spec = VolumeSpec {
        block_size,
        ..VolumeSpec::thin(ByteSize(size_bytes))
    };
    let budget = Arc::new(Budget::new(64 * MIB));
    let go_on = &mut |_| ControlFlow::Continue(());
    let volume = RamVolume::new(spec.geometry(), Provision::Thin, &budget, go_on);
    Arc::new(Managed::new(volume.expect("thin")))
}

fn copy(
    source: &Arc<dyn ManagedVolume>,
    destination: &Arc<dyn ManagedVolume>,
    before: Before,
) -> Result<Copied, CopyError> {
    let relay = Relay::new(Arc::new(Nobody));
    let copy = Copy {
        relay: &relay,
        source,
        destination,
        before,
        verify: Verify::ReadBack,
    };
    let mut last = 0;
    let copied = copy.run(&mut |progress| {
        assert!(progress.done_bytes > last, "it goes on");
        last = progress.done_bytes;
        ControlFlow::Continue(())
    });
    if copied.is_ok() {
        assert_eq!(last, source.geometry().len_bytes());
    }
    copied
}

#[test]
fn a_copy_is_its_source_and_zeros_are_not_written() {
    let source = ram(8 * MIB + 512, BlockSize::B512);
    write(&*source, 100, &[1; 1024]).expect("room");
    write(&*source, 16384, &[2; 512]).expect("the last block");
    for (before, fill) in [(Before::Anything, true), (Before::Zeros, false)] {
        let destination = ram(16 * MIB, BlockSize::B512);
        let blocks = 16 * MIB / 512;
        if fill {
            write(&*destination, 0, &vec![9; 16 * MIB as usize]).expect("room");
        }
        let copied = copy(&source, &destination, before).expect("it fits");
        assert_eq!(copied.total_bytes, 8 * MIB + 512);
        assert_eq!(copied.data_bytes, 64 * 1024 + 512, "{before:?}");
        assert_eq!(copied.zero_bytes, 8 * MIB - 64 * 1024);
        let data = read(&*destination, 0, blocks);
        let (copied, rest) = data.split_at(8 * MIB as usize + 512);
        assert!(copied == read(&*source, 0, 16385));
        let old = if fill { 9 } else { 0 };
        assert!(rest.iter().all(|&byte| byte == old), "the rest is kept");
    }
}

#[test]
fn a_file_is_copied_to_memory_and_back() {
    let folder = std::env::temp_dir().join(format!("ramport-copy-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a new folder");
    let relay = Relay::new(Arc::new(Nobody));
    let platform = Platform {
        budget: Arc::new(Budget::new(64 * MIB)),
        relay: Arc::clone(&relay),
        lanes: Arc::default(),
        record: None,
    };
    let file = |name: &str| {
        let spec = VolumeSpec {
            kind: VolumeKind::File {
                path: folder.join(name),
                provision: Provision::Thin,
            },
            ..VolumeSpec::thin(ByteSize(4 * MIB))
        };
        let go_on = &mut |_| ControlFlow::Continue(());
        crate::create(&spec, Origin::New, &platform, go_on).expect("created")
    };
    let mut written = vec![0; 4 * MIB as usize];
    written[5 << 16..(5 << 16) + 700].fill(7);
    std::fs::write(folder.join("from"), &written).expect("written");
    let (from, memory, to) = (file("from"), ram(4 * MIB, BlockSize::B4096), file("to"));
    for (source, destination) in [(&from, &memory), (&memory, &to)] {
        let copy = Copy {
            relay: &relay,
            source,
            destination,
            before: Before::Anything,
            verify: Verify::ReadBack,
        };
        assert!(!holds_data(&relay, destination));
        copy.run(&mut |_| ControlFlow::Continue(()))
            .expect("copied");
        assert!(holds_data(&relay, destination));
    }
    drop((from, to));
    assert!(std::fs::read(folder.join("to")).expect("it exists") == written);
    std::fs::remove_dir_all(&folder).expect("it exists");
}

#[test]
fn what_does_not_fit_is_refused_with_a_hint() {
    let source = ram(2 * MIB + 512, BlockSize::B512);
    let small = copy(&source, &ram(2 * MIB, BlockSize::B512), Before::Zeros);
    let small = small.expect_err("smaller").to_string();
    assert!(small.contains("grow the destination"), "{small}");
    let uneven = copy(&source, &ram(4 * MIB, BlockSize::B4096), Before::Zeros);
    let uneven = uneven.expect_err("part of a block").to_string();
    assert!(uneven.contains("blocks of 512 bytes"), "{uneven}");
    let locked = ram(4 * MIB, BlockSize::B512);
    locked.controls().set_write_lock(WriteLock::ReadOnly);
    let locked = copy(&source, &locked, Before::Zeros);
    assert_eq!(locked, Err(CopyError::ReadOnly));
}

#[test]
fn errors_say_which_side_and_stopping_says_how_far() {
    let source = ram(8 * MIB, BlockSize::B512);
    write(&*source, 0, &vec![3; 8 * MIB as usize]).expect("room");
    let destination = ram(8 * MIB, BlockSize::B512);
    let fail = |volume: &Arc<dyn ManagedVolume>, kind, status| {
        let rule = FaultRule {
            kind: Some(kind),
            status,
            when: FaultWhen::EveryNth(NonZeroU64::MIN),
        };
        let fault = Fault::new(0, vec![rule]).expect("one rule");
        volume.controls().set_filters(FilterSpec {
            fault: Some(fault),
            ..FilterSpec::default()
        });
    };
    fail(&source, OpKind::Read, FaultStatus::ReadError);
    let error = copy(&source, &destination, Before::Zeros).expect_err("not readable");
    let failed = DriveError::Status(Status::ReadError);
    assert!(
        matches!(error, CopyError::Read { error, .. } if error == failed),
        "{error}"
    );
    source.controls().set_filters(FilterSpec::default());
    fail(&destination, OpKind::Write, FaultStatus::WriteError);
    let error = copy(&source, &destination, Before::Zeros).expect_err("not writable");
    assert!(matches!(error, CopyError::Write { .. }), "{error}");
    destination.controls().set_filters(FilterSpec::default());
    let relay = Relay::new(Arc::new(Nobody));
    let stopped = Copy {
        relay: &relay,
        source: &source,
        destination: &destination,
        before: Before::Zeros,
        verify: Verify::No,
    };
    let error = stopped.run(&mut |_| ControlFlow::Break(()));
    let error = error.expect_err("it was stopped").to_string();
    assert!(
        error.contains("of 8 MiB") && error.contains("old contents"),
        "{error}"
    );
}
