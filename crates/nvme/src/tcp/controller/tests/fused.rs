//! Compare-and-write.

use super::*;

const COMPARE: u8 = 0b01;
const WRITE: u8 = 0b10;

fn half(opcode: u8, fuse: u8, cid: u16, sgl: Sgl) -> Sqe {
    let mut sqe = transfer(opcode, cid, 40, 2, sgl);
    sqe.flags |= fuse;
    sqe
}

fn compare() -> Sqe {
    half(opcode::COMPARE, COMPARE, 1, Sgl::in_capsule(0, 1024))
}

fn write() -> Sqe {
    half(opcode::WRITE, WRITE, 2, Sgl::in_capsule(0, 1024))
}

/// Sends capsules at once and gives the statuses by command identifier.
fn statuses(io: &mut Peer, capsules: &[(&Sqe, &[u8])]) -> Vec<(u16, Status)> {
    let bytes: Vec<u8> = capsules
        .iter()
        .flat_map(|(sqe, data)| io.capsule(sqe, data))
        .collect();
    io.send(&bytes).expect("good capsules");
    let mut statuses: Vec<_> = io
        .pdus()
        .iter()
        .filter(|pdu| pdu.pdu_type == PduType::CapsuleResp)
        .map(|pdu| (pdu.cqe().cid.get(), pdu.cqe().status()))
        .collect();
    statuses.sort_by_key(|&(cid, _)| cid);
    statuses
}

fn codes(statuses: &[(u16, Status)]) -> Vec<(u16, StatusCode)> {
    let code = |&(cid, status): &(u16, Status)| (cid, status.code().expect("known"));
    statuses.iter().map(code).collect()
}

#[test]
fn equal_blocks_are_written() {
    for chunks in [Chunks::Whole, Chunks::Of(33)] {
        let volume = volume();
        let (mut io, _admin) = peer(&volume);
        io.chunks = chunks;
        let old = volume.contents()[40 * 512..][..1024].to_vec();
        let pair = [(&compare(), &old[..]), (&write(), &[9; 1024][..])];
        let statuses = statuses(&mut io, &pair);
        assert!(statuses.iter().all(|(_, status)| status.is_success()));
        assert_eq!(statuses.len(), 2);
        assert_eq!(volume.contents()[40 * 512..][..1024], [9; 1024]);
    }
}

#[test]
fn a_miscompare_fails_the_first_and_aborts_the_second() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    let pair = [(&compare(), &[0xee; 1024][..]), (&write(), &[9; 1024][..])];
    assert_eq!(
        codes(&statuses(&mut io, &pair)),
        [
            (1, StatusCode::CompareFailure),
            (2, StatusCode::AbortedFailedFused)
        ]
    );
    assert!(volume.contents() == self::volume().contents());
}

#[test]
fn both_halves_may_come_by_r2t_in_either_order() {
    for order in [[0, 1], [1, 0]] {
        let volume = volume();
        let (mut io, _admin) = peer(&volume);
        let old = volume.contents()[40 * 512..][..1024].to_vec();
        let sqes = [
            half(opcode::COMPARE, COMPARE, 1, Sgl::transport(1024)),
            half(opcode::WRITE, WRITE, 2, Sgl::transport(1024)),
        ];
        assert!(statuses(&mut io, &[(&sqes[0], &[]), (&sqes[1], &[])]).is_empty());
        let r2ts = crate::testing::pdus(&io.received()[128 + 24..], io.incoming);
        let data = [old, vec![9; 1024]];
        for index in order {
            let header = r2ts[index].data_header();
            let cid = Cid(header.cccid.get());
            let bytes = io.h2c_data(cid, header.ttag.get(), 0, PduFlags::LAST, &data[index]);
            io.send(&bytes).expect("good data");
        }
        let pdus = io.pdus();
        assert_eq!(types(&pdus), [PduType::CapsuleResp; 2]);
        assert!(pdus.iter().all(|pdu| pdu.cqe().status().is_success()));
        assert_eq!(volume.contents()[40 * 512..][..1024], [9; 1024]);
    }
}

#[test]
fn a_first_without_its_second_is_aborted() {
    let (mut io, _admin) = peer(&volume());
    let flush = Sqe::new(opcode::FLUSH, Cid(3), Nsid(1));
    let commands = [(&compare(), &[0; 1024][..]), (&flush, &[])];
    assert_eq!(
        codes(&statuses(&mut io, &commands)),
        [
            (1, StatusCode::AbortedMissingFused),
            (3, StatusCode::Success)
        ]
    );
    let (_, status) = io.command(&write(), &[9; 1024]);
    assert_code(status, StatusCode::AbortedMissingFused);
}

#[test]
fn a_reservation_command_between_breaks_the_pair() {
    let (mut io, _admin) = peer(&volume());
    let report = Sqe::new(opcode::RESERVATION_REPORT, Cid(3), Nsid(1));
    let commands = [
        (&compare(), &[0; 1024][..]),
        (&report, &[][..]),
        (&write(), &[9; 1024][..]),
    ];
    let codes = codes(&statuses(&mut io, &commands));
    assert_eq!(codes[0], (1, StatusCode::AbortedMissingFused));
    assert_eq!(codes[1], (2, StatusCode::AbortedMissingFused));
}

#[test]
fn two_firsts_abort_the_former() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    let old = volume.contents()[40 * 512..][..1024].to_vec();
    let mut again = compare();
    again.cid = zerocopy::little_endian::U16::new(7);
    let commands = [
        (&compare(), &old[..]),
        (&again, &old[..]),
        (&write(), &[9; 1024][..]),
    ];
    assert_eq!(
        codes(&statuses(&mut io, &commands)),
        [
            (1, StatusCode::AbortedMissingFused),
            (2, StatusCode::Success),
            (7, StatusCode::Success)
        ]
    );
}

#[test]
fn halves_of_different_ranges_are_invalid() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    let mut other = write();
    other.set_cdw10_11(41);
    let pair = [(&compare(), &[0; 1024][..]), (&other, &[9; 1024][..])];
    assert_eq!(
        codes(&statuses(&mut io, &pair)),
        [(1, StatusCode::InvalidField), (2, StatusCode::InvalidField)]
    );
    assert!(volume.contents() == self::volume().contents());
}

#[test]
fn a_first_that_fails_aborts_its_second() {
    let (mut io, _admin) = peer(&volume());
    let mut far = compare();
    far.set_cdw10_11(BLOCKS);
    let pair = [(&far, &[0; 1024][..]), (&write(), &[9; 1024][..])];
    assert_eq!(
        codes(&statuses(&mut io, &pair)),
        [
            (1, StatusCode::LbaOutOfRange),
            (2, StatusCode::AbortedFailedFused)
        ]
    );
}

#[test]
fn a_second_that_fails_aborts_its_first() {
    let (mut io, _admin) = peer(&volume());
    let bad = half(opcode::WRITE, WRITE, 2, Sgl::in_capsule(0, 512));
    let pair = [(&compare(), &[0; 1024][..]), (&bad, &[9; 512][..])];
    assert_eq!(
        codes(&statuses(&mut io, &pair)),
        [
            (1, StatusCode::AbortedFailedFused),
            (2, StatusCode::DataSglLengthInvalid)
        ]
    );
}

#[test]
fn other_fused_commands_are_invalid() {
    let (mut io, _admin) = peer(&volume());
    for fuse in [COMPARE, 0b11] {
        let sqe = half(opcode::WRITE, fuse, 1, Sgl::in_capsule(0, 1024));
        let (_, status) = io.command(&sqe, &[0; 1024]);
        assert_code(status, StatusCode::InvalidField);
    }
}

#[test]
fn a_pair_longer_than_the_atomic_unit_is_refused() {
    let (mut io, _admin) = peer(&volume());
    let mut sqe = transfer(opcode::COMPARE, 1, 0, 9, Sgl::in_capsule(0, 9 * 512));
    sqe.flags |= COMPARE;
    let (_, status) = io.command(&sqe, &[0; 9 * 512]);
    assert_code(status, StatusCode::AtomicWriteUnitExceeded);
}
