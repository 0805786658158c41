//! Commands on a volume that answers late.

use block::Status;
use block::testing::LateVolume;

use super::*;

fn late() -> (Arc<LateVolume>, Fixture) {
    late_for(LINUX)
}

fn late_for(private_data: &[u8]) -> (Arc<LateVolume>, Fixture) {
    let disk = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
    let late = Arc::new(LateVolume::over(Arc::clone(&disk)));
    let target = TestTarget::over(vec![Arc::clone(&late)], vec![disk]);
    let fixture = Fixture::of(target, private_data, &[], Layout::Expanded).ready();
    (late, fixture)
}

/// The oldest command that waits for the volume continues.
fn go_on(fixture: &mut Fixture, late: &LateVolume, result: Result<(), Status>) {
    let completion = late.complete(late.waiting()[0], result);
    fixture.complete(completion);
}

fn assert_done(fixture: &Fixture, late: &LateVolume) {
    assert_eq!(late.leases(), 0, "every lease has ended");
    assert!(fixture.session.is_idle() && fixture.inbox.is_empty() && fixture.refused.is_empty());
}

#[test]
fn data_in_are_written_when_their_blocks_are_in_memory() {
    // Without invalidation, the buffer stays.
    let (late, mut fixture) = late_for(&[]);
    late.disk().fill(0, &[6; 4096]);
    let to = fixture.buffer(5, vec![0; 4096]);
    fixture.post(READ | FINAL, &read_10(0, 8), 4096, &[], (None, Some(to)));
    assert!(fixture.inbox.is_empty() && !fixture.session.is_idle());
    assert_eq!(fixture.memory[0].2, [0; 4096]);
    go_on(&mut fixture, &late, Ok(()));
    assert_eq!(fixture.take().status(), GOOD);
    assert_eq!(fixture.memory[0].2, [6; 4096]);
    assert_done(&fixture, &late);
}

#[test]
fn data_out_are_read_when_the_volume_is_ready() {
    for immediate_len in [0, 1000, 8192] {
        let (late, mut fixture) = late();
        let data: Vec<u8> = (0..8192_u32).map(|i| (i / 5) as u8).collect();
        let (immediate, rest) = data.split_at(immediate_len);
        let from = fixture.buffer(5, rest.to_vec());
        fixture.holds_reads = true;
        let tags = (Some(from), None);
        fixture.post(WRITE | FINAL, &write_10(0, 16), 8192, immediate, tags);
        assert!(fixture.reads.is_empty(), "no RDMA READ yet");
        go_on(&mut fixture, &late, Ok(()));
        fixture.holds_reads = false;
        fixture.run().expect("the connection goes on");
        assert!(fixture.inbox.is_empty(), "not yet safe");
        go_on(&mut fixture, &late, Ok(()));
        assert_eq!(fixture.take().status(), GOOD);
        assert_eq!(fixture.stored(0, 8192), data, "{immediate_len}");
        assert_done(&fixture, &late);
    }
}

#[test]
fn a_command_that_could_not_be_made_ready_moves_no_data() {
    let (late, mut fixture) = late();
    let from = fixture.buffer(5, vec![1; 512]);
    fixture.post(WRITE | FINAL, &write_10(0, 1), 512, &[], (Some(from), None));
    go_on(&mut fixture, &late, Err(Status::ReadError));
    assert_eq!(fixture.take().status(), CHECK_CONDITION);
    assert_eq!(fixture.stored(0, 512), [0; 512]);
    assert_done(&fixture, &late);
}

#[test]
fn the_end_of_a_connection_ends_its_leases() {
    let (late, mut fixture) = late();
    let to = fixture.buffer(5, vec![0; 512]);
    fixture.post(READ | FINAL, &read_10(0, 1), 512, &[], (None, Some(to)));
    let ticket = late.waiting()[0];
    let Fixture { inner, .. } = &mut fixture;
    inner.session.handle_close(inner.now, &mut inner.backend);
    assert_eq!(late.leases(), 0);
    fixture.complete(late.complete(ticket, Ok(())));
    assert!(fixture.inbox.is_empty());
}
