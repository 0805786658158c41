//! R2T and H2CData.

use super::*;

/// A session whose R2Ts ask for 4 KiB each, with a host that takes `r2ts_max` of them at once, and
/// a write of 24 KiB.
fn pieces(volume: &Arc<VecVolume>, r2ts_max: u32) -> (Peer, Peer) {
    let config = ControllerConfig {
        r2t_max_bytes: 4096,
        ..ControllerConfig::default()
    };
    let (_, admin) = io_peer(config, &[Arc::clone(volume)], 128);
    let mut io = Peer::new(config, admin.backend.subsystem(), 3);
    io.initialize(Pda(0), Dgst::NONE, r2ts_max);
    let controller = admin.session.queue().connection().expect("connected");
    let cqe = io.connect(2, controller.controller.0, 16);
    assert!(cqe.status().is_success());
    (io, admin)
}

#[test]
fn as_many_r2ts_are_outstanding_as_the_host_takes() {
    for (r2ts_max, outstanding) in [(2, 2), (4, 4), (1000, 4)] {
        let volume = volume();
        let (mut io, _admin) = pieces(&volume, r2ts_max);
        let capsule = io.capsule(&write_by_r2t(1, 0, 48), &[]);
        io.send(&capsule).expect("a good capsule");
        let mut r2ts = io.pdus();
        assert_eq!(r2ts.len(), outstanding);
        let mut tags: Vec<_> = r2ts.iter().map(|r2t| r2t.data_header().ttag).collect();
        tags.dedup();
        assert_eq!(tags.len(), outstanding, "tags differ");
        for piece in 0..6u8 {
            let r2t = r2ts.remove(0).data_header();
            assert_eq!(
                (r2t.datao.get(), r2t.datal.get()),
                (u32::from(piece) * 4096, 4096)
            );
            let data = [piece; 4096];
            let bytes = io.h2c_data(
                Cid(1),
                r2t.ttag.get(),
                r2t.datao.get(),
                PduFlags::LAST,
                &data,
            );
            io.send(&bytes).expect("good data");
            r2ts.extend(io.pdus());
        }
        assert_eq!(types(&r2ts), [PduType::CapsuleResp]);
        assert!(r2ts[0].cqe().status().is_success());
        for piece in 0..6 {
            assert_eq!(volume.block(piece * 8 + 7), [piece as u8; 512]);
        }
    }
}

#[test]
fn a_host_that_takes_one_r2t_at_a_time_gets_one_for_all_data() {
    let volume = volume();
    let (mut io, _admin) = pieces(&volume, 1);
    let capsule = io.capsule(&write_by_r2t(1, 0, 48), &[]);
    io.send(&capsule).expect("a good capsule");
    let r2ts = io.pdus();
    assert_eq!(types(&r2ts), [PduType::R2t]);
    let r2t = r2ts[0].data_header();
    assert_eq!((r2t.datao.get(), r2t.datal.get()), (0, 48 * 512));
}

#[test]
fn by_default_a_mebibyte_is_requested_by_four_r2ts_at_once() {
    let volume = volume();
    let (_, admin) = peer(&volume);
    let mut io = Peer::new(ControllerConfig::default(), admin.backend.subsystem(), 3);
    io.initialize(Pda(0), Dgst::NONE, 8);
    let controller = admin.session.queue().connection().expect("connected");
    let cqe = io.connect(2, controller.controller.0, 128);
    assert!(cqe.status().is_success(), "{:?}", cqe.status());
    let capsule = io.capsule(&write_by_r2t(1, 0, 2048), &[]);
    io.send(&capsule).expect("a good capsule");
    let asked: Vec<_> = io
        .pdus()
        .iter()
        .map(|pdu| (pdu.pdu_type, pdu.data_header()))
        .map(|(kind, r2t)| (kind, r2t.datao.get(), r2t.datal.get()))
        .collect();
    let quarter = |n: u32| (PduType::R2t, n * (256 << 10), 256 << 10);
    assert_eq!(asked, [0, 1, 2, 3].map(quarter));
}

#[test]
fn data_of_many_commands_may_come_interleaved_in_odd_pieces() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    let mut tags = Vec::new();
    for cid in 0..100u16 {
        let capsule = io.capsule(&write_by_r2t(cid, u64::from(cid) * 4, 4), &[]);
        io.send(&capsule).expect("a good capsule");
        tags.push(io.pdus()[0].data_header().ttag.get());
    }
    for (offset, len) in [(0, 100), (100, 412), (512, 1), (513, 1000), (1513, 535)] {
        let flags = if offset == 1513 {
            PduFlags::LAST
        } else {
            PduFlags::NONE
        };
        for (cid, &ttag) in (0..).zip(&tags) {
            let data = vec![cid as u8; len];
            let bytes = io.h2c_data(Cid(cid), ttag, offset, flags, &data);
            io.send(&bytes).expect("good data");
        }
    }
    assert_eq!(io.pdus().len(), 100);
    for cid in 0..100u64 {
        assert_eq!(volume.block(cid * 4 + 3), [cid as u8; 512]);
    }
}

/// How H2CData that differs from the good one ends the connection.
fn violation(change: impl Fn(&Peer, u16) -> Vec<u8>) -> Violation {
    let volume = volume();
    let (mut io, _admin) = pieces(&volume, 2);
    let capsule = io.capsule(&write_by_r2t(1, 0, 48), &[]);
    io.send(&capsule).expect("a good capsule");
    let ttag = io.pdus()[0].data_header().ttag.get();
    let bytes = change(&io, ttag);
    let Err(SessionError::Violation(violation)) = io.send(&bytes) else {
        panic!("a violation was expected");
    };
    let pdus = io.pdus();
    assert_eq!(types(&pdus), [PduType::C2hTermReq]);
    assert_eq!(pdus[0].header[8..10], (violation.fes as u16).to_le_bytes());
    assert_eq!(pdus[0].header[10..14], violation.fei.to_le_bytes());
    assert_eq!(pdus[0].data, bytes[..24]);
    assert!(volume.contents() == self::volume().contents());
    violation
}

fn invalid(fei: u32) -> Violation {
    Violation {
        fes: Fes::InvalidPduHeaderField,
        fei,
    }
}

#[test]
fn h2c_data_with_another_tag_is_fatal() {
    for wrong in [1, 16, 0xFFFF] {
        let violation =
            violation(|io, ttag| io.h2c_data(Cid(1), ttag ^ wrong, 0, PduFlags::LAST, &[0; 4096]));
        assert_eq!(violation, invalid(10));
    }
}

#[test]
fn h2c_data_with_another_command_identifier_is_fatal() {
    let violation = violation(|io, ttag| io.h2c_data(Cid(2), ttag, 0, PduFlags::LAST, &[0; 4096]));
    assert_eq!(violation, invalid(8));
}

#[test]
fn h2c_data_out_of_order_is_fatal() {
    let violation =
        violation(|io, ttag| io.h2c_data(Cid(1), ttag, 512, PduFlags::LAST, &[0; 3584]));
    assert_eq!(violation, invalid(12));
}

#[test]
fn h2c_data_beyond_r2t_is_fatal() {
    let violation = violation(|io, ttag| io.h2c_data(Cid(1), ttag, 0, PduFlags::LAST, &[0; 4097]));
    assert_eq!(violation.fes, Fes::DataTransferOutOfRange);
}

#[test]
fn h2c_data_beyond_maxh2cdata_is_fatal() {
    let len = ControllerConfig::default().maxh2cdata_bytes as usize + 4;
    let violation =
        violation(|io, ttag| io.h2c_data(Cid(1), ttag, 0, PduFlags::LAST, &vec![0; len]));
    assert_eq!(violation.fes, Fes::LimitExceeded);
}

#[test]
fn h2c_data_whose_length_field_differs_is_fatal() {
    let violation = violation(|io, ttag| {
        let mut bytes = io.h2c_data(Cid(1), ttag, 0, PduFlags::LAST, &[0; 4096]);
        bytes[16] = 4;
        bytes
    });
    assert_eq!(violation, invalid(16));
    let violation = violation_of_empty();
    assert_eq!(violation, invalid(16));
}

fn violation_of_empty() -> Violation {
    violation(|io, ttag| io.h2c_data(Cid(1), ttag, 0, PduFlags::NONE, &[]))
}

#[test]
fn only_the_last_data_have_the_last_flag() {
    let early = violation(|io, ttag| io.h2c_data(Cid(1), ttag, 0, PduFlags::LAST, &[0; 512]));
    assert_eq!(early, invalid(1));
    let missing = violation(|io, ttag| io.h2c_data(Cid(1), ttag, 0, PduFlags::NONE, &[0; 4096]));
    assert_eq!(missing, invalid(1));
}

#[test]
fn h2c_data_without_an_r2t_is_fatal() {
    let (mut io, _admin) = peer(&volume());
    let bytes = io.h2c_data(Cid(1), 0, 0, PduFlags::LAST, &[0; 512]);
    assert_eq!(io.send(&bytes), Err(SessionError::Violation(invalid(10))));
    let (mut io, _admin) = peer(&volume());
    let status = io.write_by_r2t(&write_by_r2t(1, 0, 1), &[0; 512], 512);
    assert!(status.is_success());
    let bytes = io.h2c_data(Cid(1), 0, 0, PduFlags::LAST, &[0; 512]);
    let error = io.send(&bytes);
    assert!(matches!(error, Err(SessionError::Violation(v)) if v == invalid(10)));
}

#[test]
fn a_connection_cut_inside_a_block_leaves_that_block_old() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    let capsule = io.capsule(&write_in_capsule(1, 0, 4), &[7; 2048]);
    io.send(&capsule[..72 + 1024 + 300]).expect("a good start");
    io.session.handle_close(io.now, &mut io.backend);
    assert_eq!(volume.block(1), [7; 512]);
    assert_eq!(volume.block(2), self::volume().block(2));
}
