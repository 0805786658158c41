//! Golden bytes in both directions, and the checks of the common header.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use super::*;

const BOTH: Layout = Layout {
    dgst: Dgst(3),
    pda: Pda(0),
};

#[test]
fn icreq_has_its_golden_bytes() {
    let icreq = IcReq::new(Pda(1), Dgst::HEADER | Dgst::DATA, 16);
    let mut golden = [0; 128];
    golden[..16].copy_from_slice(&[
        0x00, 0x00, 0x80, 0x00, // type, flags, HLEN 128, PDO
        0x80, 0x00, 0x00, 0x00, // PLEN 128
        0x00, 0x00, 0x01, 0x03, // PFV, HPDA (8 bytes), DGST
        0x0f, 0x00, 0x00, 0x00, // MAXR2T, 0's-based
    ]);
    assert_eq!(icreq.as_bytes(), golden);
    let parsed = IcReq::read_from_bytes(&golden).unwrap();
    assert_eq!(parsed.r2ts_max(), 16);
    assert_eq!(parsed.hpda.bytes(), 8);
}

#[test]
fn icresp_has_its_golden_bytes() {
    let icresp = IcResp::new(Pda(0), Dgst::DATA, 0x2_0000);
    assert_eq!(
        icresp.as_bytes()[..16],
        [1, 0, 0x80, 0, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 2, 0]
    );
    assert!(icresp.as_bytes()[16..].iter().all(|&b| b == 0));
}

#[test]
fn data_pdus_have_their_golden_bytes() {
    let pdu = DataPdu {
        ch: BOTH.common_header(PduType::C2hData, PduFlags::LAST | PduFlags::SUCCESS, 512),
        cccid: U16::new(0x1234),
        ttag: U16::new(0),
        datao: U32::new(0x1000),
        datal: U32::new(512),
        reserved: [0; 4],
    };
    let golden = [
        0x07, 0x0f, 0x18, 0x1c, // type, all four flags, HLEN 24, PDO 28
        0x20, 0x02, 0x00, 0x00, // PLEN 24 + 4 + 512 + 4
        0x34, 0x12, 0x00, 0x00, // CCCID, TTAG
        0x00, 0x10, 0x00, 0x00, // DATAO
        0x00, 0x02, 0x00, 0x00, // DATAL
        0x00, 0x00, 0x00, 0x00,
    ];
    assert_eq!(pdu.as_bytes(), golden);
    let (back, _) = DataPdu::read_from_prefix(&golden).unwrap();
    let shape = back.ch.shape(Receiver::Host, BOTH).unwrap();
    assert_eq!(
        (
            shape.header_bytes,
            shape.data_offset_bytes,
            shape.data_len_bytes
        ),
        (28, 28, 512)
    );
    assert_eq!(shape.plen_bytes(), 544);
}

#[test]
fn r2t_and_capsules_have_their_golden_headers() {
    let layout = Layout::default();
    let r2t = layout.common_header(PduType::R2t, PduFlags::NONE, 0);
    assert_eq!(r2t.as_bytes(), [9, 0, 24, 0, 24, 0, 0, 0]);
    let resp = layout.common_header(PduType::CapsuleResp, PduFlags::NONE, 0);
    assert_eq!(resp.as_bytes(), [5, 0, 24, 0, 24, 0, 0, 0]);
    let cmd = layout.common_header(PduType::CapsuleCmd, PduFlags::NONE, 4096);
    assert_eq!(cmd.as_bytes(), [4, 0, 72, 72, 72, 16, 0, 0]);
}

#[test]
fn termreq_has_its_golden_bytes() {
    let violation = Violation {
        fes: Fes::InvalidPduHeaderField,
        fei: 0x0102_0304,
    };
    let term = TermReq::new(PduType::C2hTermReq, violation, 8);
    let golden = [
        0x03, 0x00, 0x18, 0x00, 0x20, 0x00, 0x00, 0x00, // CH, PLEN 32
        0x01, 0x00, 0x04, 0x03, 0x02, 0x01, 0x00, 0x00, // FES, FEI
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    ];
    assert_eq!(term.as_bytes(), golden);
}

#[test]
fn data_start_at_the_alignment_that_the_receiver_asked_for() {
    for (pda, dgst, pdo) in [
        (0, 0, 24),
        (0, 1, 28),
        (7, 1, 32),
        (31, 0, 128),
        (15, 3, 64),
    ] {
        let layout = Layout {
            dgst: Dgst(dgst),
            pda: Pda(pda),
        };
        let ch = layout.common_header(PduType::H2cData, PduFlags::NONE, 4);
        assert_eq!(ch.pdo, pdo);
        let shape = ch.shape(Receiver::Controller, layout).unwrap();
        assert_eq!(
            (shape.data_offset_bytes, shape.data_len_bytes),
            (pdo.into(), 4)
        );
    }
}

#[test]
fn a_wrong_common_header_field_is_named_by_its_offset() {
    let good = BOTH.common_header(PduType::CapsuleCmd, PduFlags::NONE, 512);
    let fei = |change: fn(&mut CommonHeader)| {
        let mut ch = good;
        change(&mut ch);
        ch.shape(Receiver::Controller, BOTH).map_err(|v| v.fei)
    };
    assert!(fei(|_| {}).is_ok());
    assert_eq!(fei(|ch| ch.pdu_type = 8), Err(0));
    assert_eq!(fei(|ch| ch.pdu_type = PduType::R2t as u8), Err(0));
    assert_eq!(fei(|ch| ch.flags = PduFlags::DDGST), Err(1));
    assert_eq!(fei(|ch| ch.flags = PduFlags::HDGST), Err(1));
    assert_eq!(fei(|ch| ch.hlen = 71), Err(2));
    assert_eq!(fei(|ch| ch.pdo = 72), Err(3));
    assert_eq!(fei(|ch| ch.pdo = 77), Err(3));
    assert_eq!(fei(|ch| ch.plen = U32::new(80)), Err(4));
    assert_eq!(fei(|ch| ch.plen = U32::new(71)), Err(4));
    assert!(fei(|ch| ch.plen = U32::new(76)).is_ok(), "no data at all");
}

#[test]
fn termreq_longer_than_152_bytes_is_invalid() {
    let violation = Violation {
        fes: Fes::PduSequenceError,
        fei: 0,
    };
    let mut ch = TermReq::new(PduType::H2cTermReq, violation, 128).ch;
    let shape = ch.shape(Receiver::Controller, BOTH).unwrap();
    assert_eq!((shape.header_bytes, shape.data_len_bytes), (24, 128));
    ch.plen = U32::new(153);
    assert!(ch.shape(Receiver::Controller, BOTH).is_err());
}

#[test]
fn digest_is_crc32c_little_endian() {
    // RFC 3720 appendix B.4: 32 bytes of zeros.
    assert_eq!(Digest::of(&[0; 32]).to_wire(), [0xaa, 0x36, 0x91, 0x8a]);
    let mut pieces = Digest::default();
    pieces.update(&[0; 5]);
    pieces.update(&[0; 27]);
    assert_eq!(pieces, Digest::of(&[0; 32]));
}
