//! A minimal host: it builds PDUs, passes them to a session in any chunking, and cuts the session's
//! output into PDUs.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use block::{Completion, Volume};
use session::{Segment, SendList, Session, StreamSession};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use super::{TestBackend, subsystem};
use crate::controller::{Limits, Subsystem};
use crate::tcp::wire::{
    CapsuleCmd, CapsuleResp, CommonHeader, DataPdu, Dgst, Digest, IcReq, IcResp, Layout, Pda,
    PduFlags, PduShape, PduType, Receiver,
};
use crate::tcp::{ControllerConfig, ControllerSession, SessionError};
use crate::wire::fabrics::{
    Configuration, ConnectData, ConnectSqe, NqnField, Property, PropertySqe,
};
use crate::wire::{Cid, Cqe, Sqe, Status};

/// The pieces in which a session receives its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunks {
    /// All at once.
    Whole,
    /// Pieces of this many bytes.
    Of(usize),
    /// Pieces of one byte to a few thousand, drawn from this seed.
    Random(u64),
}

impl Chunks {
    fn cut(self, bytes: &[u8]) -> Vec<&[u8]> {
        let mut random = Random(match self {
            Self::Random(seed) => seed | 1,
            Self::Whole | Self::Of(_) => 1,
        });
        let mut pieces = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let len = match self {
                Self::Whole => rest.len(),
                Self::Of(len) => len,
                Self::Random(_) => 1 + random.next() as usize % 3000,
            };
            let (piece, later) = rest.split_at(len.min(rest.len()));
            pieces.push(piece);
            rest = later;
        }
        pieces
    }
}

/// A PDU that the session sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdu {
    /// The PDU's type.
    pub pdu_type: PduType,
    /// Its flags.
    pub flags: PduFlags,
    /// Its header, digest not counted.
    pub header: Vec<u8>,
    /// Its data.
    pub data: Vec<u8>,
}

impl Pdu {
    /// The completion in a response capsule.
    pub fn cqe(&self) -> Cqe {
        let (response, _) = CapsuleResp::read_from_prefix(&self.header).expect("a response");
        Cqe::read_from_bytes(&response.cqe).expect("16 bytes")
    }

    /// The header of a C2HData; R2T has the same fields at the same places.
    pub fn data_header(&self) -> DataPdu {
        DataPdu::read_from_bytes(&self.header).expect("a data PDU or an R2T")
    }
}

/// A session, its backend, and the host's side of its state.
pub struct Peer {
    /// The session.
    pub session: ControllerSession<TestBackend>,
    /// Its backend.
    pub backend: TestBackend,
    /// The time.
    pub now: Instant,
    /// The layout of PDUs that the host sends.
    pub outgoing: Layout,
    /// The layout of PDUs that the host receives.
    pub incoming: Layout,
    /// The pieces into which the host's bytes are cut.
    pub chunks: Chunks,
    /// The Host Identifier in Connect.
    pub host_id: [u8; 16],
    out: SendList,
    received: Vec<u8>,
    parsed: usize,
}

impl Peer {
    /// A connection that has just been accepted.
    pub fn new(config: ControllerConfig, subsystem: Arc<Mutex<Subsystem>>, wake: u64) -> Self {
        let now = Instant::now();
        Self {
            session: ControllerSession::new(now, config),
            backend: TestBackend::new(subsystem, wake),
            now,
            outgoing: Layout::default(),
            incoming: Layout::default(),
            chunks: Chunks::Whole,
            host_id: [7; 16],
            out: SendList::with_capacity(2 * ControllerSession::<TestBackend>::SEND_LIST_MIN_BYTES),
            received: Vec::new(),
            parsed: 0,
        }
    }

    /// Sends bytes in pieces, and receives the session's output after each piece.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        for piece in self.chunks.cut(bytes) {
            let result = self.feed_one(piece);
            self.drain();
            result?;
        }
        Ok(())
    }

    /// Sends bytes in pieces, without receiving the session's output.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        let pieces = self.chunks.cut(bytes);
        pieces
            .into_iter()
            .try_for_each(|piece| self.feed_one(piece))
    }

    fn feed_one(&mut self, piece: &[u8]) -> Result<(), SessionError> {
        self.session
            .handle_bytes(self.now, piece, &mut self.backend)
    }

    /// Advances the time and notifies the session.
    pub fn advance(&mut self, by: Duration) -> Result<(), SessionError> {
        self.now += by;
        while self
            .session
            .poll_timeout()
            .is_some_and(|due| due <= self.now)
        {
            let result = self.session.handle_timeout(self.now, &mut self.backend);
            self.drain();
            result?;
        }
        Ok(())
    }

    /// Wakes the session, and receives its output.
    pub fn wake(&mut self) -> Result<(), SessionError> {
        let result = self.session.handle_wake(self.now, &mut self.backend);
        self.drain();
        result
    }

    /// A volume completes a command that waits for it.
    pub fn complete(&mut self, completion: Completion) {
        self.session
            .handle_completion(self.now, completion, &mut self.backend)
            .expect("completions end no connection");
        self.drain();
    }

    /// Receives the session's output.
    pub fn drain(&mut self) {
        while self.session.wants_transmit() {
            self.session
                .poll_transmit(self.now, &mut self.backend, &mut self.out);
            assert!(!self.out.is_empty(), "wants_transmit was true");
            for segment in self.out.segments() {
                match segment {
                    Segment::Bytes(bytes) => self.received.extend_from_slice(bytes),
                    Segment::Place(placement) => {
                        let volume = self.backend.volume(placement.source).expect("a source");
                        let start = self.received.len();
                        self.received
                            .resize(start + placement.range.len as usize, 0);
                        read(&**volume, placement.range, &mut self.received[start..]);
                    }
                }
            }
            let len = self.out.len_bytes();
            self.out.consume(len);
        }
    }

    /// The PDUs received since the last call. Digests are checked.
    pub fn pdus(&mut self) -> Vec<Pdu> {
        let pdus = pdus(&self.received[self.parsed..], self.incoming);
        self.parsed = self.received.len();
        pdus
    }

    /// All bytes that were received.
    pub fn received(&self) -> &[u8] {
        &self.received
    }

    /// Exchanges ICReq and ICResp.
    pub fn initialize(&mut self, hpda: Pda, dgst: Dgst, r2ts_max: u32) -> IcResp {
        self.send(IcReq::new(hpda, dgst, r2ts_max).as_bytes())
            .expect("a good ICReq");
        let pdus = self.pdus();
        let icresp = IcResp::read_from_bytes(&pdus[0].header).expect("ICResp");
        self.outgoing = Layout {
            dgst: icresp.dgst,
            pda: icresp.cpda,
        };
        self.incoming = Layout {
            dgst: icresp.dgst,
            pda: hpda,
        };
        icresp
    }

    /// Connects to `queue` of `controller`, which Connect's data name.
    pub fn connect(&mut self, queue: u16, controller: u16, sq_entries: u16) -> Cqe {
        let mut sqe = ConnectSqe::new(Cid(0), queue, sq_entries);
        sqe.attributes = ConnectSqe::ATTRIBUTE_NO_SQ_FLOW;
        self.connect_with(sqe, controller)
    }

    /// Connects by this command.
    pub fn connect_with(&mut self, sqe: ConnectSqe, controller: u16) -> Cqe {
        let name = |name| NqnField::new(name).expect("a short name");
        let data = ConnectData::new(
            self.host_id,
            controller,
            name("nqn.2014-08.org.example:test"),
            name("nqn.2014-08.org.example:host"),
        );
        let sqe: Sqe = zerocopy::transmute!(sqe);
        let bytes = self.capsule(&sqe, data.as_bytes());
        self.send(&bytes).expect("a good Connect");
        self.pdus()[0].cqe()
    }

    /// A command capsule.
    pub fn capsule(&self, sqe: &Sqe, data: &[u8]) -> Vec<u8> {
        let ch =
            self.outgoing
                .common_header(PduType::CapsuleCmd, PduFlags::NONE, data.len() as u32);
        let capsule = CapsuleCmd {
            ch,
            sqe: zerocopy::transmute!(*sqe),
        };
        self.assemble(PduType::CapsuleCmd, capsule.as_bytes(), data)
    }

    /// An H2CData.
    pub fn h2c_data(
        &self,
        cid: Cid,
        ttag: u16,
        offset: u32,
        flags: PduFlags,
        data: &[u8],
    ) -> Vec<u8> {
        let pdu = DataPdu {
            ch: self
                .outgoing
                .common_header(PduType::H2cData, flags, data.len() as u32),
            cccid: U16::new(cid.0),
            ttag: U16::new(ttag),
            datao: U32::new(offset),
            datal: U32::new(data.len() as u32),
            reserved: [0; 4],
        };
        self.assemble(PduType::H2cData, pdu.as_bytes(), data)
    }

    /// Sends one command and returns its data and status. Data for the controller go in the capsule
    /// if the command says so; otherwise R2Ts are answered with H2CData of up to `piece` bytes.
    pub fn command(&mut self, sqe: &Sqe, in_capsule: &[u8]) -> (Vec<u8>, Status) {
        let bytes = self.capsule(sqe, in_capsule);
        self.send(&bytes).expect("a good capsule");
        let pdus = self.pdus();
        let mut data = Vec::new();
        let mut status = None;
        for pdu in &pdus {
            match pdu.pdu_type {
                PduType::C2hData => {
                    assert_eq!(pdu.data_header().datao.get() as usize, data.len());
                    data.extend_from_slice(&pdu.data);
                    if pdu.flags.contains(PduFlags::SUCCESS) {
                        status = Some(Status::SUCCESS);
                    }
                }
                PduType::CapsuleResp => status = Some(pdu.cqe().status()),
                other => panic!("{other:?} was not expected"),
            }
        }
        (data, status.expect("the command was completed"))
    }

    /// Sends one command whose data R2Ts request, answers them with H2CData of up to `piece` bytes,
    /// and returns its status.
    pub fn write_by_r2t(&mut self, sqe: &Sqe, data: &[u8], piece: usize) -> Status {
        let bytes = self.capsule(sqe, &[]);
        self.send(&bytes).expect("a good capsule");
        loop {
            let pdus = self.pdus();
            assert!(!pdus.is_empty(), "an R2T or a response comes");
            for pdu in pdus {
                if pdu.pdu_type == PduType::CapsuleResp {
                    return pdu.cqe().status();
                }
                assert_eq!(pdu.pdu_type, PduType::R2t);
                let r2t = pdu.data_header();
                let (start, len) = (r2t.datao.get() as usize, r2t.datal.get() as usize);
                let mut offset = start;
                let chunks = data[start..start + len].chunks(piece);
                let last = chunks.len() - 1;
                for (index, chunk) in chunks.enumerate() {
                    let flags = if index == last {
                        PduFlags::LAST
                    } else {
                        PduFlags::NONE
                    };
                    let bytes =
                        self.h2c_data(sqe.cid(), r2t.ttag.get(), offset as u32, flags, chunk);
                    self.send(&bytes).expect("good data");
                    offset += chunk.len();
                }
            }
        }
    }

    fn assemble(&self, pdu_type: PduType, header: &[u8], data: &[u8]) -> Vec<u8> {
        let mut bytes = header.to_vec();
        if self.outgoing.dgst.header() {
            bytes.extend_from_slice(&Digest::of(header).to_wire());
        }
        if !data.is_empty() {
            bytes.resize(self.outgoing.data_offset_bytes(pdu_type), 0);
            bytes.extend_from_slice(data);
            if self.outgoing.dgst.data() {
                bytes.extend_from_slice(&Digest::of(data).to_wire());
            }
        }
        bytes
    }
}

/// An I/O queue of `sq_entries` entries over `volumes`, and the admin queue of its controller.
pub fn io_peer<V: Volume + 'static>(
    config: ControllerConfig,
    volumes: &[Arc<V>],
    sq_entries: u16,
) -> (Peer, Peer) {
    let subsystem = subsystem(Limits::default(), volumes);
    host(config, &subsystem, [7; 16], 1, sq_entries)
}

/// Connections `wake` (admin) and `wake + 1` (I/O) of a host: an I/O queue of `sq_entries` entries,
/// and the admin queue of its controller.
pub fn host(
    config: ControllerConfig,
    subsystem: &Arc<Mutex<Subsystem>>,
    host_id: [u8; 16],
    wake: u64,
    sq_entries: u16,
) -> (Peer, Peer) {
    let peer = |wake| {
        let mut peer = Peer::new(config, Arc::clone(subsystem), wake);
        peer.host_id = host_id;
        peer.initialize(Pda(0), Dgst::NONE, 1);
        peer
    };
    let mut admin = peer(wake);
    let cqe = admin.connect(0, ConnectData::CONTROLLER_ANY, 32);
    assert!(cqe.status().is_success(), "{:?}", cqe.status());
    let enable = u64::from(Configuration::ENABLE_NVM.0);
    let set = PropertySqe::set(Cid(1), Property::Configuration, enable);
    let (_, status) = admin.command(&zerocopy::transmute!(set), &[]);
    assert!(status.is_success(), "{status:?}");
    let mut io = peer(wake + 1);
    let cqe = io.connect(1, cqe.dw0() as u16, sq_entries);
    assert!(cqe.status().is_success(), "{:?}", cqe.status());
    (io, admin)
}

/// Cuts a stream to the host into PDUs.
pub fn pdus(mut bytes: &[u8], layout: Layout) -> Vec<Pdu> {
    let mut pdus = Vec::new();
    while !bytes.is_empty() {
        let (ch, _) = CommonHeader::read_from_prefix(bytes).expect("whole PDUs");
        let shape: PduShape = ch.shape(Receiver::Host, layout).expect("well-formed PDUs");
        let (pdu, rest) = bytes.split_at(shape.plen_bytes());
        bytes = rest;
        let header = &pdu[..shape.pdu_type.hlen_bytes()];
        if shape.header_bytes > header.len() {
            let digest = &pdu[header.len()..shape.header_bytes];
            assert_eq!(digest, Digest::of(header).to_wire());
        }
        let data = &pdu[shape.data_offset_bytes..][..shape.data_len_bytes];
        if shape.data_digest_bytes > 0 {
            let digest = &pdu[shape.data_offset_bytes + shape.data_len_bytes..];
            assert_eq!(digest, Digest::of(data).to_wire());
        }
        pdus.push(Pdu {
            pdu_type: shape.pdu_type,
            flags: ch.flags,
            header: header.to_vec(),
            data: data.to_vec(),
        });
    }
    pdus
}

/// Reads the bytes of a placement.
pub(super) fn read(volume: &dyn Volume, range: block::ByteRange, dest: &mut [u8]) {
    let shift = volume.geometry().block_size.shift();
    let extent = block::Extent::new(
        block::Lba(range.offset >> shift),
        block::Blocks(range.len >> shift),
    );
    volume
        .execute(block::Op::Read {
            extent,
            dest: block::ReadDest::Copy(dest),
        })
        .expect("placements are inside the volume");
}

/// xorshift64: enough for chunk lengths.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
