//! Volumes that take time.

use block::testing::LateVolume;
use block::{Completion, Status};

use super::*;

fn late_bed() -> (Arc<LateVolume>, SrpBed) {
    let late = Arc::new(LateVolume::new(BlockSize::B512, BLOCKS));
    let target = TestTarget::new([Arc::clone(&late)]);
    (late, SrpBed::new(target.backend(), MEMORY_BYTES))
}

/// The volume answers what it was asked first.
fn answer(late: &LateVolume, result: Result<(), Status>) -> Completion {
    late.complete(late.waiting()[0], result)
}

#[test]
fn a_write_reads_its_data_when_its_volume_is_ready_and_is_answered_when_it_is_safe() {
    let (late, mut bed) = late_bed();
    bed.memory[..1024].fill(3);
    bed.send(&write(1, 0, 2)).expect("valid");
    bed.holds_reads = true;
    assert_eq!(bed.run(), Ok(Vec::new()));
    assert_eq!(bed.reads(), 0, "no data are asked for");
    bed.complete(answer(&late, Ok(()))).expect("valid");
    bed.run().expect("valid");
    assert_eq!(bed.reads(), 1);
    bed.holds_reads = false;
    assert_eq!(bed.run(), Ok(Vec::new()), "it is not safe");
    bed.complete(answer(&late, Ok(()))).expect("valid");
    let answers = bed.run().expect("valid");
    assert!(is_good(&answers[0]));
    assert_eq!(late.disk().contents()[..1024], [3; 1024]);
    assert_eq!(late.leases(), 0);
}

#[test]
fn immediate_data_wait_for_the_volume() {
    let (late, mut bed) = late_bed();
    let data = Some((Direction::Out, Form::Immediate));
    let message = command(1, &transfer(0x2A, 1, 1), data, &[], &[8; 512]);
    bed.send(&message).expect("valid");
    for _ in ["filled", "settled"] {
        assert_eq!(bed.run(), Ok(Vec::new()));
        bed.complete(answer(&late, Ok(()))).expect("valid");
    }
    assert!(is_good(&bed.run().expect("valid")[0]));
    assert_eq!(late.disk().contents()[512..1024], [8; 512]);
}

#[test]
fn a_volume_that_fails_fails_the_command() {
    let (late, mut bed) = late_bed();
    bed.send(&read(1, 0, 1)).expect("valid");
    bed.run().expect("valid");
    bed.complete(answer(&late, Err(Status::ReadError)))
        .expect("valid");
    let answers = bed.run().expect("valid");
    assert_eq!(answers[0].sense().map(|(key, _)| key), Some(3));
    assert_eq!(late.leases(), 0);
    let counted = bed.backend.completed.iter();
    let counted: Vec<_> = counted.map(|it| (it.kind, it.ok, it.len_bytes)).collect();
    assert_eq!(counted, [(OpKind::Read, false, 0)], "a failed read");
}

#[test]
fn an_aborted_command_holds_no_lease() {
    let (late, mut bed) = late_bed();
    bed.send(&read(1, 0, 1)).expect("valid");
    bed.run().expect("valid");
    bed.send(&crate::testing::management(2, 1, 1))
        .expect("valid");
    assert_eq!(bed.run().expect("valid").len(), 1);
    assert_eq!(late.leases(), 0);
}

#[test]
fn a_command_ends_with_its_logical_unit() {
    let late = Arc::new(LateVolume::new(BlockSize::B512, BLOCKS));
    let target = TestTarget::new([Arc::clone(&late)]);
    let mut bed = SrpBed::new(target.backend(), MEMORY_BYTES);
    bed.send(&read(1, 0, 1)).expect("valid");
    bed.run().expect("valid");
    target.device().remove_unit(0);
    let woken = bed.target.handle_wake(bed.now, &mut bed.backend);
    woken.expect("valid");
    let answers = bed.run().expect("valid");
    assert_eq!(answers[0].header.status, 2);
    assert_eq!(late.leases(), 0);
}

#[test]
fn a_sanitize_goes_on_without_its_channel() {
    let late = Arc::new(LateVolume::new(BlockSize::B512, BLOCKS));
    let target = TestTarget::new([Arc::clone(&late)]);
    let mut bed = SrpBed::new(target.backend(), MEMORY_BYTES);
    let mut cdb = [0; 10];
    (cdb[0], cdb[1]) = (0x48, 0x82);
    assert!(is_good(&ask(&mut bed, &command(1, &cdb, None, &[], &[]))));
    bed.target.handle_close(bed.now, &mut bed.backend);
    assert_eq!((target.adopted(), late.leases()), (1, 0));
}

/// Puts another volume behind LUN 0.
fn replace_unit(target: &TestTarget) -> Arc<VecVolume> {
    let other = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
    other.fill(0, &[7; 2048]);
    let identity = scsi::UnitIdentity::derived(9, "other".into());
    let volume: Arc<VecVolume> = Arc::clone(&other);
    target.device().insert_unit(0, volume, identity);
    other
}

#[test]
fn a_command_does_not_go_on_in_another_volume_behind_its_lun() {
    let data = Some((Direction::Out, Form::Direct));
    // UNMAP of block 1.
    let mut unmap = [0; 10];
    (unmap[0], unmap[8]) = (0x42, 24);
    let unmap = command(1, &unmap, data, &[SrpBed::buffer(0, 24)], &[]);
    let write_same = transfer(0x41, 0, 2);
    let write_same = command(1, &write_same, data, &[SrpBed::buffer(0, 512)], &[]);
    for message in [write(1, 0, 4), unmap, write_same] {
        let (_, target) = target();
        let mut bed = SrpBed::new(target.backend(), MEMORY_BYTES);
        bed.memory[..2048].fill(0);
        (bed.memory[1], bed.memory[3], bed.memory[15], bed.memory[19]) = (22, 16, 1, 1);
        bed.holds_reads = true;
        bed.send(&message).expect("valid");
        assert_eq!(bed.run(), Ok(Vec::new()));
        let other = replace_unit(&target);
        bed.holds_reads = false;
        let answers = bed.run().expect("valid");
        assert_eq!(answers[0].header.status, 2, "the volume is gone");
        assert_eq!(other.contents()[..2048], [7; 2048]);
    }
    let (_, target) = target();
    let mut bed = SrpBed::new(target.backend(), MEMORY_BYTES);
    bed.send(&read(1, 0, 4)).expect("valid");
    replace_unit(&target);
    let answers = bed.run().expect("valid");
    assert_eq!(answers[0].header.status, 2, "the volume is gone");
    assert_eq!(bed.memory[..2048], [0; 2048]);
}
