//! The rules of the host's end, each by name, against PDUs made by hand.

use block::{Blocks, Extent, Lba};
use session::Segment;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::host::io;
use crate::tcp::wire::{
    CapsuleCmd, CapsuleResp, CommonHeader, DataPdu, Digest, IcReq, IcResp, Pda, PduFlags, PduType,
    R2t, Receiver, TermReq,
};
use crate::wire::{Cid, Cqe, Nsid, SglKind, Sqe, Status, StatusCode};

const SLOT_BYTES: usize = 64 * 1024;
const MAXH2CDATA: u32 = 8192;

/// A session and the bytes that it sends.
struct Fixture {
    session: HostSession,
    buffers: Buffers,
    done: Vec<Outcome>,
    list: SendList,
    layout: Layout,
}

/// A PDU from the host.
struct Sent {
    ch: CommonHeader,
    header: Vec<u8>,
    data: Vec<u8>,
}

impl Fixture {
    fn new(dgst: Dgst) -> Self {
        let config = HostConfig {
            dgst,
            keys: 8,
            in_flight_max: 7,
            in_capsule_max_bytes: 8192,
        };
        Self {
            session: HostSession::new(config),
            buffers: Buffers::new(8, SLOT_BYTES),
            done: Vec::new(),
            list: SendList::with_capacity(64 * 1024),
            layout: Layout::default(),
        }
    }

    fn ready(dgst: Dgst) -> Self {
        let mut fixture = Self::new(dgst);
        assert_eq!(fixture.sent().len(), 1, "ICReq");
        let terms = IcResp::new(Pda(0), dgst, MAXH2CDATA);
        fixture.receive(terms.as_bytes()).unwrap();
        fixture.layout.dgst = dgst;
        fixture
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), HostError> {
        self.session
            .handle_bytes(bytes, &mut self.buffers, &mut self.done)
    }

    /// The violation that these bytes are.
    fn violation(&mut self, bytes: &[u8]) -> (Fes, u32) {
        match self.receive(bytes) {
            Err(HostError::Violation { violation, .. }) => (violation.fes, violation.fei),
            other => panic!("{other:?}"),
        }
    }

    /// Everything that is to be sent, as PDUs; it counts as sent.
    fn sent(&mut self) -> Vec<Sent> {
        let bytes = self.emitted();
        self.session.handle_sent(bytes.len() as u64, &mut self.done);
        cut(&bytes, self.layout)
    }

    /// Everything that is to be sent, as bytes; it does not count as sent.
    fn emitted(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.session.wants_transmit() {
            self.session.poll_transmit(&self.buffers, &mut self.list);
            for segment in self.list.segments() {
                bytes.extend_from_slice(match segment {
                    Segment::Bytes(bytes) => bytes,
                    Segment::Place(place) => self.buffers.at(place.range.offset, place.range.len),
                });
            }
            let len = self.list.len_bytes();
            assert!(len > 0, "wants_transmit was true");
            self.list.consume(len);
        }
        bytes
    }

    fn read(&mut self, key: u16, len_bytes: u32) -> Sqe {
        let data = BufferRange::first(key, len_bytes);
        self.submit(key, &io::read(Nsid(1), extent(len_bytes), data))
    }

    fn write(&mut self, key: u16, len_bytes: u32) -> Sqe {
        for (i, byte) in self.buffers.slot_mut(key).iter_mut().enumerate() {
            *byte = (i / 64) as u8 ^ key as u8;
        }
        let data = BufferRange::first(key, len_bytes);
        self.submit(key, &io::write(Nsid(1), extent(len_bytes), data))
    }

    /// Submits, and gives the entry as it was sent.
    fn submit(&mut self, key: u16, command: &Command) -> Sqe {
        self.session
            .submit(CommandKey(key), command, &self.buffers)
            .unwrap();
        let sent = self.sent();
        assert_eq!(sent.len(), 1);
        sent[0].sqe()
    }

    fn data(&self, cid: u16, flags: PduFlags, datao: u32, data: &[u8]) -> Vec<u8> {
        let pdu = DataPdu {
            ch: self
                .layout
                .common_header(PduType::C2hData, flags, data.len() as u32),
            cccid: U16::new(cid),
            ttag: U16::ZERO,
            datao: U32::new(datao),
            datal: U32::new(data.len() as u32),
            reserved: [0; 4],
        };
        let mut bytes = self.with_digest(pdu.as_bytes());
        bytes.extend_from_slice(data);
        if self.layout.dgst.data() && !data.is_empty() {
            bytes.extend_from_slice(&Digest::of(data).to_wire());
        }
        bytes
    }

    fn r2t(&self, cid: u16, ttag: u16, offset: u32, len_bytes: u32) -> Vec<u8> {
        let pdu = R2t {
            ch: self.layout.common_header(PduType::R2t, PduFlags::NONE, 0),
            cccid: U16::new(cid),
            ttag: U16::new(ttag),
            r2to: U32::new(offset),
            r2tl: U32::new(len_bytes),
            reserved: [0; 4],
        };
        self.with_digest(pdu.as_bytes())
    }

    fn response(&self, cid: u16, status: Status) -> Vec<u8> {
        let pdu = CapsuleResp {
            ch: self
                .layout
                .common_header(PduType::CapsuleResp, PduFlags::NONE, 0),
            cqe: zerocopy::transmute!(Cqe::new(Cid(cid), status, 0x1_0002_0003)),
        };
        self.with_digest(pdu.as_bytes())
    }

    fn with_digest(&self, header: &[u8]) -> Vec<u8> {
        let mut bytes = header.to_vec();
        if self.layout.dgst.header() {
            bytes.extend_from_slice(&Digest::of(header).to_wire());
        }
        bytes
    }
}

impl Sent {
    fn sqe(&self) -> Sqe {
        let (capsule, _) = CapsuleCmd::read_from_prefix(&self.header).unwrap();
        assert_eq!(self.ch.pdu_type, PduType::CapsuleCmd as u8);
        zerocopy::transmute!(capsule.sqe)
    }

    fn data_header(&self) -> DataPdu {
        assert_eq!(self.ch.pdu_type, PduType::H2cData as u8);
        DataPdu::read_from_bytes(&self.header).unwrap()
    }
}

/// Cuts a stream into PDUs as a controller does, digests checked.
fn cut(mut bytes: &[u8], layout: Layout) -> Vec<Sent> {
    let mut sent = Vec::new();
    while !bytes.is_empty() {
        let (ch, _) = CommonHeader::read_from_prefix(bytes).unwrap();
        let shape = ch.shape(Receiver::Controller, layout).unwrap();
        let (pdu, rest) = bytes.split_at(shape.plen_bytes());
        bytes = rest;
        let hlen = shape.pdu_type.hlen_bytes();
        if shape.header_bytes > hlen {
            assert_eq!(pdu[hlen..hlen + 4], Digest::of(&pdu[..hlen]).to_wire());
        }
        let (data, digest) = pdu[shape.data_offset_bytes..].split_at(shape.data_len_bytes);
        if !digest.is_empty() {
            assert_eq!(digest, Digest::of(data).to_wire());
        }
        sent.push(Sent {
            ch,
            header: pdu[..hlen].to_vec(),
            data: data.to_vec(),
        });
    }
    sent
}

fn extent(len_bytes: u32) -> Extent {
    Extent::new(Lba(0), Blocks(u64::from(len_bytes) / 512))
}

const LAST_AND_SUCCESS: PduFlags = PduFlags(PduFlags::LAST.0 | PduFlags::SUCCESS.0);

#[test]
fn icreq_asks_for_digests_and_r2ts_before_anything_else() {
    let mut fixture = Fixture::new(Dgst::HEADER | Dgst::DATA);
    let read = io::read(Nsid(1), extent(512), BufferRange::first(0, 512));
    fixture
        .session
        .submit(CommandKey(0), &read, &fixture.buffers)
        .unwrap();
    let bytes = fixture.emitted();
    let icreq = IcReq::read_from_bytes(&bytes).expect("ICReq alone until ICResp has come");
    assert_eq!(icreq.dgst, Dgst::HEADER | Dgst::DATA);
    assert_eq!(icreq.r2ts_max(), u64::from(HostSession::R2TS_MAX));
    assert!(!fixture.session.wants_transmit());
}

#[test]
fn each_term_of_icresp_is_checked() {
    let good = IcResp::new(Pda(0), Dgst::NONE, 4096);
    let outcome = |change: fn(&mut IcResp)| {
        let mut terms = good;
        change(&mut terms);
        Fixture::new(Dgst::NONE).violation(terms.as_bytes())
    };
    let invalid = |offset| (Fes::InvalidPduHeaderField, offset);
    assert_eq!(outcome(|t| t.pfv = U16::new(1)), invalid(8));
    assert_eq!(outcome(|t| t.cpda = Pda(32)), invalid(10));
    assert_eq!(outcome(|t| t.dgst = Dgst(4)), invalid(11));
    assert_eq!(outcome(|t| t.maxh2cdata = U32::new(4092)), invalid(12));
    assert_eq!(outcome(|t| t.maxh2cdata = U32::new(4098)), invalid(12));
    assert_eq!(outcome(|t| t.ch.hlen = 127), invalid(2));
    assert_eq!(outcome(|t| t.ch.plen = U32::new(129)), invalid(4));
}

#[test]
fn digests_that_were_not_agreed_on_end_the_connection() {
    for (asked, used) in [(Dgst::NONE, Dgst::HEADER), (Dgst::DATA, Dgst::NONE)] {
        let mut fixture = Fixture::new(asked);
        let terms = IcResp::new(Pda(0), used, 4096);
        assert_eq!(
            fixture.receive(terms.as_bytes()),
            Err(HostError::Digests { asked, used })
        );
        assert!(fixture.session.is_closing());
    }
}

#[test]
fn a_pdu_out_of_sequence_is_fatal() {
    let mut fixture = Fixture::new(Dgst::NONE);
    let response = fixture.response(0, Status::SUCCESS);
    assert_eq!(fixture.violation(&response), (Fes::PduSequenceError, 0));
    let mut fixture = Fixture::ready(Dgst::NONE);
    let terms = IcResp::new(Pda(0), Dgst::NONE, 4096);
    assert_eq!(
        fixture.violation(terms.as_bytes()),
        (Fes::PduSequenceError, 0)
    );
}

#[test]
fn a_violation_is_reported_with_the_header_of_the_offending_pdu() {
    let mut fixture = Fixture::ready(Dgst::NONE);
    let response = fixture.response(9, Status::SUCCESS);
    assert_eq!(
        fixture.violation(&response),
        (Fes::InvalidPduHeaderField, 20),
        "the CID in the completion"
    );
    let bytes = fixture.emitted();
    let (term, offending) = TermReq::read_from_prefix(&bytes).unwrap();
    assert_eq!(term.ch.pdu_type, PduType::H2cTermReq as u8);
    assert_eq!(term.fes.get(), Fes::InvalidPduHeaderField as u16);
    assert_eq!(term.fei.get(), 20);
    assert_eq!(term.ch.plen.get() as usize, bytes.len());
    assert_eq!(offending, response);
    assert!(fixture.session.is_closing());
    assert_eq!(fixture.receive(&response), Err(HostError::Closed));
    assert_eq!(fixture.session.room(), 7);
    let flush = io::flush(Nsid(1));
    let refused = fixture
        .session
        .submit(CommandKey(0), &flush, &fixture.buffers);
    assert_eq!(refused, Err(NoRoom::Closed));
}

#[test]
fn a_termination_by_the_controller_is_reported() {
    let violation = Violation {
        fes: Fes::DataTransferOutOfRange,
        fei: 12,
    };
    for state in [Fixture::new(Dgst::NONE), Fixture::ready(Dgst::HEADER)] {
        let mut fixture = state;
        let mut bytes = TermReq::new(PduType::C2hTermReq, violation, 8)
            .as_bytes()
            .to_vec();
        bytes.extend_from_slice(&[0; 8]);
        assert_eq!(
            fixture.receive(&bytes),
            Err(HostError::Terminated { fes: 4, fei: 12 })
        );
        assert!(fixture.session.is_closing());
    }
}

#[test]
fn commands_up_to_the_capsule_size_carry_their_data() {
    for dgst in [Dgst::NONE, Dgst::HEADER | Dgst::DATA] {
        for len_bytes in [512, 4096, 8192] {
            let mut fixture = Fixture::ready(dgst);
            let data = BufferRange::first(2, len_bytes);
            let command = io::write(Nsid(1), extent(len_bytes), data);
            fixture.buffers.slot_mut(2).fill(0xA5);
            fixture
                .session
                .submit(CommandKey(2), &command, &fixture.buffers)
                .unwrap();
            let sent = fixture.sent();
            assert_eq!(sent[0].data, vec![0xA5; len_bytes as usize]);
            let inside = SglKind::InCapsule {
                offset: 0,
                len_bytes,
            };
            assert_eq!(sent[0].sqe().sgl1.kind(), inside);
        }
        let mut fixture = Fixture::ready(dgst);
        let sqe = fixture.write(1, 8704);
        let outside = SglKind::Transport { len_bytes: 8704 };
        assert_eq!(sqe.sgl1.kind(), outside);
    }
}

#[test]
fn an_r2t_is_answered_in_pieces_of_maxh2cdata() {
    for dgst in [Dgst::NONE, Dgst::HEADER | Dgst::DATA] {
        let mut fixture = Fixture::ready(dgst);
        let cid = fixture.write(3, 32768).cid.get();
        let r2t = [
            fixture.r2t(cid, 0x55, 0, 20480),
            fixture.r2t(cid, 0x56, 20480, 12288),
        ]
        .concat();
        fixture.receive(&r2t).unwrap();
        let sent = fixture.sent();
        let got: Vec<_> = sent
            .iter()
            .map(|pdu| {
                let header = pdu.data_header();
                assert_eq!(header.cccid.get(), cid);
                assert_eq!(header.datal.get() as usize, pdu.data.len());
                let is_last = header.ch.flags.contains(PduFlags::LAST);
                (
                    header.ttag.get(),
                    header.datao.get(),
                    pdu.data.len(),
                    is_last,
                )
            })
            .collect();
        assert_eq!(
            got,
            [
                (0x55, 0, 8192, false),
                (0x55, 8192, 8192, false),
                (0x55, 16384, 4096, true),
                (0x56, 20480, 8192, false),
                (0x56, 28672, 4096, true),
            ]
        );
        let all: Vec<u8> = sent.iter().flat_map(|pdu| pdu.data.clone()).collect();
        assert_eq!(all, fixture.buffers.slot(3)[..32768]);
        let response = fixture.response(cid, Status::SUCCESS);
        fixture.receive(&response).unwrap();
        assert_eq!(fixture.done[0].status, Status::SUCCESS);
    }
}

#[test]
fn an_r2t_outside_of_the_commands_data_is_fatal() {
    let violation = |make: fn(&Fixture, u16) -> Vec<u8>| {
        let mut fixture = Fixture::ready(Dgst::NONE);
        let cid = fixture.write(1, 16384).cid.get();
        let bytes = make(&fixture, cid);
        fixture.violation(&bytes)
    };
    let out_of_range = Fes::DataTransferOutOfRange;
    assert_eq!(
        violation(|fixture, cid| fixture.r2t(cid, 1, 512, 512)),
        (out_of_range, 12)
    );
    assert_eq!(
        violation(|fixture, cid| fixture.r2t(cid, 1, 0, 16385)),
        (out_of_range, 16)
    );
    assert_eq!(
        violation(|fixture, cid| fixture.r2t(cid, 1, u32::MAX, u32::MAX)),
        (out_of_range, 12)
    );
    let invalid = Fes::InvalidPduHeaderField;
    assert_eq!(
        violation(|fixture, cid| fixture.r2t(cid, 1, 0, 0)),
        (invalid, 16)
    );
    assert_eq!(
        violation(|fixture, cid| fixture.r2t(cid + 1, 1, 0, 512)),
        (invalid, 8)
    );
    assert_eq!(
        violation(|fixture, _| fixture.r2t(0xFFFF, 1, 0, 512)),
        (invalid, 8)
    );
    assert_eq!(
        violation(|fixture, cid| (0..5)
            .flat_map(|i| fixture.r2t(cid, 1, i * 512, 512))
            .collect()),
        (Fes::LimitExceeded, 0)
    );
}

#[test]
fn an_r2t_for_a_command_without_data_to_ask_for_is_fatal() {
    let mut fixture = Fixture::ready(Dgst::NONE);
    let read = fixture.read(0, 512).cid.get();
    let r2t = fixture.r2t(read, 1, 0, 512);
    assert_eq!(fixture.violation(&r2t), (Fes::InvalidPduHeaderField, 8));
    let mut fixture = Fixture::ready(Dgst::NONE);
    let in_capsule = fixture.write(0, 512).cid.get();
    let r2t = fixture.r2t(in_capsule, 1, 0, 512);
    assert_eq!(fixture.violation(&r2t), (Fes::InvalidPduHeaderField, 8));
}

#[test]
fn data_land_in_their_buffer_in_order_and_success_completes() {
    for dgst in [Dgst::NONE, Dgst::HEADER | Dgst::DATA] {
        let mut fixture = Fixture::ready(dgst);
        let cid = fixture.read(4, 1024).cid.get();
        let bytes = [
            fixture.data(cid, PduFlags::NONE, 0, &[1; 512]),
            fixture.data(cid, LAST_AND_SUCCESS, 512, &[2; 512]),
        ]
        .concat();
        fixture.receive(&bytes).unwrap();
        assert_eq!(fixture.buffers.slot(4)[..512], [1; 512]);
        assert_eq!(fixture.buffers.slot(4)[512..1024], [2; 512]);
        assert_eq!(fixture.buffers.slot(4)[1024], 0);
        let outcome = Outcome {
            key: CommandKey(4),
            status: Status::SUCCESS,
            result: 0,
        };
        assert_eq!(fixture.done, [outcome]);
    }
}

#[test]
fn data_outside_of_the_requested_range_are_fatal() {
    let violation = |make: fn(&Fixture, u16) -> Vec<u8>| {
        let mut fixture = Fixture::ready(Dgst::NONE);
        let cid = fixture.read(1, 1024).cid.get();
        let bytes = make(&fixture, cid);
        let violation = fixture.violation(&bytes);
        assert!(
            fixture.buffers.slot(1).iter().all(|&b| b == 0),
            "nothing was written"
        );
        violation
    };
    let out_of_range = Fes::DataTransferOutOfRange;
    let invalid = Fes::InvalidPduHeaderField;
    assert_eq!(
        violation(|fixture, cid| fixture.data(cid, PduFlags::NONE, 512, &[1; 512])),
        (out_of_range, 12)
    );
    assert_eq!(
        violation(|fixture, cid| fixture.data(cid, PduFlags::NONE, 0, &[1; 1025])),
        (out_of_range, 16)
    );
    assert_eq!(
        violation(|fixture, cid| fixture.data(cid, PduFlags::NONE, 0, &[])),
        (invalid, 16)
    );
    assert_eq!(
        violation(|fixture, cid| fixture.data(cid ^ 0x1000, PduFlags::NONE, 0, &[1; 512])),
        (invalid, 8)
    );
    assert_eq!(
        violation(|fixture, cid| fixture.data(cid, LAST_AND_SUCCESS, 0, &[1; 512])),
        (invalid, 1)
    );
    assert_eq!(
        violation(|fixture, cid| fixture.data(cid, PduFlags::SUCCESS, 0, &[1; 1024])),
        (invalid, 1)
    );
}

#[test]
fn data_for_a_write_are_fatal() {
    let mut fixture = Fixture::ready(Dgst::NONE);
    let cid = fixture.write(1, 16384).cid.get();
    let data = fixture.data(cid, PduFlags::NONE, 0, &[1; 512]);
    assert_eq!(fixture.violation(&data), (Fes::InvalidPduHeaderField, 8));
}

#[test]
fn success_before_all_data_is_fatal() {
    let mut fixture = Fixture::ready(Dgst::NONE);
    let cid = fixture.read(1, 1024).cid.get();
    let bytes = [
        fixture.data(cid, PduFlags::LAST, 0, &[1; 512]),
        fixture.response(cid, Status::SUCCESS),
    ]
    .concat();
    assert_eq!(fixture.violation(&bytes), (Fes::PduSequenceError, 0));
    let mut fixture = Fixture::ready(Dgst::NONE);
    let cid = fixture.write(1, 16384).cid.get();
    let response = fixture.response(cid, Status::SUCCESS);
    assert_eq!(fixture.violation(&response), (Fes::PduSequenceError, 0));
}

#[test]
fn an_error_ends_a_command_whose_data_are_not_complete() {
    let mut fixture = Fixture::ready(Dgst::NONE);
    let cid = fixture.read(1, 1024).cid.get();
    let error = Status::from(StatusCode::UnrecoveredReadError);
    let bytes = [
        fixture.data(cid, PduFlags::NONE, 0, &[1; 512]),
        fixture.response(cid, error),
    ]
    .concat();
    fixture.receive(&bytes).unwrap();
    assert_eq!(fixture.done[0].status, error);
    assert_eq!(fixture.done[0].dw0(), 0x0002_0003);
}

#[test]
fn a_completion_of_the_slots_last_command_is_fatal() {
    let mut fixture = Fixture::ready(Dgst::NONE);
    let first = fixture.read(1, 512).cid.get();
    let data = fixture.data(first, LAST_AND_SUCCESS, 0, &[1; 512]);
    fixture.receive(&data).unwrap();
    let second = fixture.read(1, 512).cid.get();
    assert_ne!(first, second, "the same key, another generation");
    assert_eq!(fixture.violation(&data), (Fes::InvalidPduHeaderField, 8));
}

#[test]
fn a_wrong_data_digest_fails_only_its_command() {
    let mut fixture = Fixture::ready(Dgst::DATA);
    let (bad, good) = (
        fixture.read(0, 512).cid.get(),
        fixture.read(1, 512).cid.get(),
    );
    let mut bytes = fixture.data(bad, LAST_AND_SUCCESS, 0, &[1; 512]);
    *bytes.last_mut().unwrap() ^= 1;
    bytes.extend(fixture.data(good, PduFlags::LAST, 0, &[2; 512]));
    bytes.extend(fixture.response(good, Status::SUCCESS));
    fixture.receive(&bytes).unwrap();
    assert_eq!(
        fixture.done[0].status.code(),
        Some(StatusCode::TransientTransportError)
    );
    assert!(!fixture.done[0].status.is_do_not_retry());
    assert_eq!(fixture.done[1].status, Status::SUCCESS);
}

#[test]
fn a_wrong_header_digest_is_fatal_and_reported() {
    let mut fixture = Fixture::ready(Dgst::HEADER);
    let cid = fixture.read(0, 512).cid.get();
    let mut bytes = fixture.response(cid, Status::SUCCESS);
    bytes[24..28].copy_from_slice(&[4, 3, 2, 1]);
    assert_eq!(
        fixture.violation(&bytes),
        (Fes::HeaderDigestError, 0x0102_0304)
    );
}

#[test]
fn an_outcome_waits_until_its_data_have_left() {
    let mut fixture = Fixture::ready(Dgst::NONE);
    let cid = fixture.write(1, 16384).cid.get();
    let r2t = fixture.r2t(cid, 1, 0, 16384);
    fixture.receive(&r2t).unwrap();
    let len_bytes = fixture.emitted().len() as u64;
    let error = fixture.response(cid, StatusCode::WriteFault.into());
    fixture.receive(&error).unwrap();
    assert_eq!(fixture.done, [], "the list still points into the buffer");
    fixture
        .session
        .handle_sent(len_bytes - 1, &mut fixture.done);
    assert_eq!(fixture.done, []);
    fixture.session.handle_sent(1, &mut fixture.done);
    assert_eq!(fixture.done.len(), 1);
}

#[test]
fn r2ts_of_a_command_that_failed_are_not_answered() {
    let mut fixture = Fixture::ready(Dgst::NONE);
    let cid = fixture.write(1, 16384).cid.get();
    let bytes = [
        fixture.r2t(cid, 1, 0, 16384),
        fixture.response(cid, StatusCode::WriteFault.into()),
    ]
    .concat();
    fixture.receive(&bytes).unwrap();
    assert_eq!(fixture.done.len(), 1);
    assert_eq!(fixture.sent().len(), 0);
}

#[test]
fn no_more_commands_than_the_queue_takes() {
    let mut fixture = Fixture::ready(Dgst::NONE);
    let flush = io::flush(Nsid(1));
    for key in 0..7 {
        fixture
            .session
            .submit(CommandKey(key), &flush, &fixture.buffers)
            .unwrap();
    }
    let refused = fixture
        .session
        .submit(CommandKey(7), &flush, &fixture.buffers);
    assert_eq!(refused, Err(NoRoom::QueueFull));
    let cid = fixture.sent()[0].sqe().cid.get();
    let response = fixture.response(cid, Status::SUCCESS);
    fixture.receive(&response).unwrap();
    assert_eq!(fixture.session.room(), 1);
}

#[test]
fn any_chunking_gives_the_same_outcomes_and_bytes() {
    for dgst in [Dgst::NONE, Dgst::HEADER, Dgst::HEADER | Dgst::DATA] {
        let script = |fixture: &mut Fixture| {
            let long = fixture.read(0, 20480).cid.get();
            let short = fixture.read(1, 512).cid.get();
            let write = fixture.write(2, 16384).cid.get();
            [
                fixture.data(long, PduFlags::NONE, 0, &[3; 10000]),
                fixture.data(short, LAST_AND_SUCCESS, 0, &[4; 512]),
                fixture.r2t(write, 7, 0, 16384),
                fixture.data(long, PduFlags::LAST, 10000, &[5; 10480]),
                fixture.response(long, Status::SUCCESS),
            ]
            .concat()
        };
        let mut whole = Fixture::ready(dgst);
        let bytes = script(&mut whole);
        whole.receive(&bytes).unwrap();
        let sent = whole.emitted();
        for chunk in [1, 2, 3, 7, 23, 24, 25, 27, 28, 29, 511, 4096, 10001] {
            let mut fixture = Fixture::ready(dgst);
            assert_eq!(script(&mut fixture), bytes);
            for chunk in bytes.chunks(chunk) {
                fixture.receive(chunk).unwrap();
            }
            assert_eq!(fixture.done, whole.done, "chunks of {chunk}");
            assert_eq!(fixture.emitted(), sent, "chunks of {chunk}");
            for slot in 0..3 {
                assert_eq!(fixture.buffers.slot(slot), whole.buffers.slot(slot));
            }
        }
    }
}

#[test]
fn data_received_in_place_equal_data_copied() {
    for dgst in [Dgst::NONE, Dgst::HEADER | Dgst::DATA] {
        let mut fixture = Fixture::ready(dgst);
        let cid = fixture.read(0, 65536).cid.get();
        assert!(fixture.session.expects_bulk());
        let data: Vec<u8> = (0..65536u32).map(|i| (i / 3) as u8).collect();
        let bytes = fixture.data(cid, LAST_AND_SUCCESS, 0, &data);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            if let Some(place) = fixture.session.direct() {
                let len_bytes = place.len_bytes.min(5000);
                let (head, tail) = rest.split_at(len_bytes as usize);
                let part = BufferRange { len_bytes, ..place };
                fixture.buffers.range_mut(part).copy_from_slice(head);
                fixture
                    .session
                    .handle_placed(len_bytes, &fixture.buffers, &mut fixture.done);
                rest = tail;
            } else {
                let (head, tail) = rest.split_at(rest.len().min(100));
                fixture.receive(head).unwrap();
                rest = tail;
            }
        }
        assert_eq!(fixture.done.len(), 1);
        assert_eq!(fixture.done[0].status, Status::SUCCESS);
        assert_eq!(fixture.buffers.slot(0), data);
        assert!(!fixture.session.expects_bulk());
    }
}

#[test]
fn garbage_never_panics_and_ends_in_an_error_or_nothing() {
    let mut seed = 1u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for round in 0..2000 {
        let mut fixture = Fixture::ready(Dgst::NONE);
        let cids = [
            fixture.read(0, 4096).cid.get(),
            fixture.write(1, 16384).cid.get(),
        ];
        let cid = cids[round % 2];
        // PDUs that are good except for a few bytes reach further than noise does.
        let mut bytes = [
            fixture.r2t(cids[1], 1, 0, 4096),
            fixture.data(cid, PduFlags::LAST, 0, &[1; 4096]),
            fixture.response(cid, Status::SUCCESS),
        ]
        .concat();
        for _ in 0..=random() % 3 {
            let at = random() as usize % bytes.len();
            bytes[at] = random() as u8;
        }
        let _ = fixture.receive(&bytes);
        fixture.emitted();
    }
}
