//! PDUs that end the connection, and the C2HTermReq with the reason.

use zerocopy::IntoBytes;

use super::*;
use crate::tcp::wire::{IcReq, TermReq};
use crate::testing::subsystem;

fn fresh() -> Peer {
    Peer::new(
        ControllerConfig::default(),
        subsystem::<VecVolume>(Limits::default(), &[]),
        1,
    )
}

/// Sends `bytes` in several chunkings to a new connection and gives the violation with which it
/// ends.
fn violation_at_start(bytes: &[u8]) -> (Fes, u32) {
    let run = |chunks| {
        let mut io = fresh();
        io.chunks = chunks;
        let error = io.send(bytes);
        let Err(SessionError::Violation(violation)) = error else {
            panic!("a violation was expected: {error:?}");
        };
        assert!(io.session.is_closing());
        assert!(io.send(&[0; 100]).is_ok(), "the rest is ignored");
        (violation, io.received().to_vec())
    };
    let whole = run(Chunks::Whole);
    assert_eq!(run(Chunks::Of(1)), whole);
    let pdus = crate::testing::pdus(&whole.1, Layout::default());
    assert_eq!(types(&pdus).last(), Some(&PduType::C2hTermReq));
    (whole.0.fes, whole.0.fei)
}

/// The same on a connected I/O queue.
fn violation_on_queue(bytes: &[u8]) -> (Fes, u32) {
    let run = |chunks| {
        let (mut io, _admin) = peer(&volume());
        io.chunks = chunks;
        let error = io.send(bytes);
        let Err(SessionError::Violation(violation)) = error else {
            panic!("a violation was expected: {error:?}");
        };
        let pdus = io.pdus();
        assert_eq!(types(&pdus), [PduType::C2hTermReq]);
        (violation, pdus)
    };
    let whole = run(Chunks::Whole);
    assert_eq!(run(Chunks::Of(1)), whole);
    (whole.0.fes, whole.0.fei)
}

fn icreq(change: impl Fn(&mut IcReq)) -> Vec<u8> {
    let mut icreq = IcReq::new(Pda(0), Dgst::NONE, 1);
    change(&mut icreq);
    icreq.as_bytes().to_vec()
}

#[test]
fn a_wrong_icreq_is_answered_with_the_field() {
    type Change<'a> = &'a dyn Fn(&mut IcReq);
    let invalid = Fes::InvalidPduHeaderField;
    let cases: [(Change<'_>, Fes, u32); 8] = [
        (&|pdu| pdu.pfv.set(1), Fes::UnsupportedParameter, 8),
        (&|pdu| pdu.hpda = Pda(32), invalid, 10),
        (&|pdu| pdu.dgst = Dgst(4), invalid, 11),
        (&|pdu| pdu.ch.pdu_type = 0x42, invalid, 0),
        (&|pdu| pdu.ch.pdu_type = PduType::IcResp as u8, invalid, 0),
        (&|pdu| pdu.ch.flags = PduFlags::HDGST, invalid, 1),
        (&|pdu| pdu.ch.hlen = 127, invalid, 2),
        (&|pdu| pdu.ch.plen.set(129), invalid, 4),
    ];
    for (change, fes, fei) in cases {
        assert_eq!(violation_at_start(&icreq(change)), (fes, fei));
    }
}

#[test]
fn the_offending_header_is_returned() {
    let bytes = icreq(|pdu| pdu.pfv.set(9));
    let mut io = fresh();
    io.send(&bytes).expect_err("an unknown version");
    let pdus = io.pdus();
    assert_eq!(pdus[0].data, bytes[..128]);
    assert_eq!(io.received().len(), 152);
}

#[test]
fn a_command_before_icreq_is_a_sequence_error() {
    let bytes = fresh().capsule(&read(1, 0, 1), &[]);
    assert_eq!(violation_at_start(&bytes), (Fes::PduSequenceError, 0));
}

#[test]
fn a_second_icreq_is_a_sequence_error() {
    let bytes = icreq(|_| {});
    assert_eq!(
        violation_at_start(&[bytes.clone(), bytes].concat()).0,
        Fes::PduSequenceError
    );
}

#[test]
fn pdus_that_only_controllers_send_are_fatal() {
    for pdu_type in [1, 3, 5, 7, 8, 9, 10, 0xFF] {
        let mut bytes = fresh().capsule(&read(1, 0, 1), &[]);
        bytes[0] = pdu_type;
        assert_eq!(violation_on_queue(&bytes), (Fes::InvalidPduHeaderField, 0));
    }
}

#[test]
fn a_capsule_with_a_wrong_field_is_answered_with_the_field() {
    for (offset, value) in [(1, 1), (1, 2), (2, 73), (3, 71), (3, 74), (4, 71)] {
        let mut bytes = fresh().capsule(&write_in_capsule(1, 0, 1), &[0; 512]);
        if offset == 4 {
            bytes[4..8].copy_from_slice(&[value, 0, 0, 0]);
        } else {
            bytes[offset] = value;
        }
        assert_eq!(
            violation_on_queue(&bytes),
            (Fes::InvalidPduHeaderField, offset as u32)
        );
    }
}

#[test]
fn in_capsule_data_beyond_the_advertised_length_are_fatal() {
    let most = Limits::default().in_capsule_data_max_bytes;
    let mut bytes = fresh().capsule(&write_in_capsule(1, 0, 1), &[0; 512]);
    bytes[4..8].copy_from_slice(&(72 + most + 1).to_le_bytes());
    assert_eq!(violation_on_queue(&bytes).0, Fes::LimitExceeded);
}

#[test]
fn more_commands_than_entries_are_fatal() {
    let (mut io, _admin) = io_peer(ControllerConfig::default(), &[volume()], 4);
    for cid in 0..4 {
        let capsule = io.capsule(&write_by_r2t(cid, 0, 1), &[]);
        io.send(&capsule).expect("a good capsule");
    }
    io.pdus();
    let capsule = io.capsule(&write_by_r2t(4, 0, 1), &[]);
    let error = io.send(&capsule);
    assert_eq!(
        error,
        Err(SessionError::QueueFull(QueueFull { entries: 4 }))
    );
    assert_eq!(types(&io.pdus()), [PduType::C2hTermReq]);
}

#[test]
fn a_host_that_terminates_gets_no_answer() {
    let (mut io, _admin) = peer(&volume());
    let violation = Violation {
        fes: Fes::DataTransferOutOfRange,
        fei: 77,
    };
    let mut bytes = TermReq::new(PduType::H2cTermReq, violation, 24)
        .as_bytes()
        .to_vec();
    bytes.extend([1; 24]);
    let error = io.send(&bytes);
    assert_eq!(error, Err(SessionError::Terminated { fes: 4, fei: 77 }));
    assert!(io.session.is_closing() && !io.session.wants_transmit());
}

#[test]
fn commands_before_connect_are_sequence_errors_of_the_command() {
    let mut io = fresh();
    io.initialize(Pda(0), Dgst::NONE, 1);
    let (_, status) = io.command(&read(1, 0, 1), &[]);
    assert_code(status, StatusCode::CommandSequenceError);
}

#[test]
fn disconnect_completes_and_closes() {
    let (mut io, _admin) = peer(&volume());
    let mut sqe = Sqe::new(Sqe::OPCODE_FABRICS, Cid(1), Nsid(0x08));
    sqe.sgl1 = Sgl::transport(0);
    let (_, status) = io.command(&sqe, &[]);
    assert!(status.is_success(), "{status:?}");
    assert!(io.session.is_closing());
}

#[test]
fn the_end_of_the_controller_closes_its_queues() {
    let (mut io, mut admin) = peer(&volume());
    admin.session.handle_close(admin.now, &mut admin.backend);
    io.session
        .handle_wake(io.now, &mut io.backend)
        .expect("nothing wrong");
    assert!(io.session.is_closing());
}
