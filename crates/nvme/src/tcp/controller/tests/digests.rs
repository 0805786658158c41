//! Header and data digests.

use super::*;
use crate::tcp::wire::Digest;

#[test]
fn digests_are_granted_as_asked_and_configured() {
    let subsystem = crate::testing::subsystem::<VecVolume>(Limits::default(), &[]);
    let config = ControllerConfig {
        dgst: Dgst::HEADER,
        ..ControllerConfig::default()
    };
    let mut io = Peer::new(config, subsystem, 1);
    let icresp = io.initialize(Pda(0), Dgst::HEADER | Dgst::DATA, 1);
    assert_eq!(icresp.dgst, Dgst::HEADER);
}

#[test]
fn a_wrong_header_digest_is_fatal_and_reported_with_the_received_digest() {
    let volume = volume();
    for chunks in [Chunks::Whole, Chunks::Of(1)] {
        let (mut io, _admin) = digested(&volume, Dgst::HEADER, Pda(0));
        io.chunks = chunks;
        let mut bytes = io.capsule(&read(1, 0, 1), &[]);
        bytes[72] ^= 0x80;
        let came = u32::from_le_bytes(bytes[72..76].try_into().expect("4 bytes"));
        let error = io.send(&bytes);
        let violation = Violation {
            fes: Fes::HeaderDigestError,
            fei: came,
        };
        assert_eq!(error, Err(SessionError::Violation(violation)));
        let pdus = io.pdus();
        assert_eq!(types(&pdus), [PduType::C2hTermReq]);
        assert_eq!(pdus[0].data, bytes[..72]);
        assert!(io.session.is_closing());
    }
}

#[test]
fn a_wrong_data_digest_in_a_capsule_fails_only_that_command() {
    for chunks in [Chunks::Whole, Chunks::Of(1), Chunks::Of(500)] {
        let volume = volume();
        let (mut io, _admin) = digested(&volume, Dgst::DATA, Pda(0));
        io.chunks = chunks;
        let mut bytes = io.capsule(&write_in_capsule(1, 0, 4), &[7; 2048]);
        *bytes.last_mut().expect("not empty") ^= 1;
        io.send(&bytes).expect("not fatal");
        let status = io.pdus()[0].cqe().status();
        assert_code(status, StatusCode::TransientTransportError);
        assert!(!status.is_do_not_retry());
        assert!(volume.contents() == self::volume().contents());
        let (_, status) = io.command(&write_in_capsule(1, 0, 4), &[7; 2048]);
        assert!(status.is_success());
        assert_eq!(volume.block(3), [7; 512]);
    }
}

#[test]
fn a_wrong_data_digest_in_h2c_data_fails_the_command_when_all_has_come() {
    for chunks in [Chunks::Whole, Chunks::Of(100)] {
        let volume = volume();
        let (mut io, _admin) = digested(&volume, Dgst::DATA | Dgst::HEADER, Pda(0));
        io.chunks = chunks;
        let capsule = io.capsule(&write_by_r2t(1, 0, 4), &[]);
        io.send(&capsule).expect("a good capsule");
        let ttag = io.pdus()[0].data_header().ttag.get();
        let mut first = io.h2c_data(Cid(1), ttag, 0, PduFlags::NONE, &[7; 1024]);
        *first.last_mut().expect("not empty") ^= 1;
        io.send(&first).expect("not fatal");
        assert!(io.pdus().is_empty(), "more data are to come");
        let last = io.h2c_data(Cid(1), ttag, 1024, PduFlags::LAST, &[7; 1024]);
        io.send(&last).expect("good data");
        let status = io.pdus()[0].cqe().status();
        assert_code(status, StatusCode::TransientTransportError);
        assert!(volume.contents() == self::volume().contents());
    }
}

#[test]
fn data_to_the_host_carry_their_digest_and_keep_to_hpda() {
    let volume = volume();
    for (dgst, hpda, pdo) in [(1, 0, 28), (2, 7, 32), (3, 31, 128), (0, 9, 40)] {
        let (mut io, _admin) = digested(&volume, Dgst(dgst), Pda(hpda));
        let (data, status) = io.command(&read(1, 5, 300), &[]);
        assert!(status.is_success());
        assert_eq!(data, volume.contents()[5 * 512..][..300 * 512]);
        let before = io.received().len();
        let capsule = io.capsule(&read(1, 5, 1), &[]);
        io.send(&capsule).expect("a good capsule");
        let pdu = &io.received()[before..];
        assert_eq!(pdu[3], pdo, "PDO");
        let padding_from = if dgst & 1 == 1 { 28 } else { 24 };
        assert!(pdu[padding_from..pdo.into()].iter().all(|&byte| byte == 0));
        if dgst & 2 == 2 {
            let (data, digest) = pdu[pdo.into()..].split_at(512);
            assert_eq!(digest, Digest::of(data).to_wire());
        }
    }
}

#[test]
fn cpda_binds_what_the_host_sends() {
    let volume = volume();
    let config = ControllerConfig {
        cpda: Pda(31),
        ..ControllerConfig::default()
    };
    let (mut io, _admin) = io_peer(config, &[Arc::clone(&volume)], 16);
    assert_eq!(io.outgoing.pda, Pda(31));
    let (_, status) = io.command(&write_in_capsule(1, 0, 1), &[7; 512]);
    assert!(status.is_success());
    let status = io.write_by_r2t(&write_by_r2t(1, 1, 1), &[8; 512], 512);
    assert!(status.is_success());
    assert_eq!(
        (volume.block(0), volume.block(1)),
        (vec![7; 512], vec![8; 512])
    );
    io.outgoing.pda = Pda(0);
    let bytes = io.capsule(&write_in_capsule(1, 0, 1), &[7; 512]);
    let violation = Violation {
        fes: Fes::InvalidPduHeaderField,
        fei: 3,
    };
    assert_eq!(io.send(&bytes), Err(SessionError::Violation(violation)));
}
