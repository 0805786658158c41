//! One command after the other through a protocol's target session, without sockets: what a command
//! costs can be counted.

use std::sync::Arc;
use std::time::Instant;

use block::{Blocks, Extent, Lba};
use brp::rdma::TargetSession as BrpRdmaSession;
use brp::tcp::TargetSession as BrpSession;
use brp::testing::{TestBackend as BrpBackend, TestTarget as BrpTarget};
use brp::wire::{Command, ConnectionRequest, Descriptor, Features, Flags, Login, Operation};
use iscsi::iser::TargetConfig;
use iscsi::iser::wire::Tag;
use iscsi::tcp::TargetSession;
use iscsi::testing::{IserBed, IserInitiator, TestBackend, TestTarget};
use iscsi::wire::{BHS_LEN, FINAL, request, response};
use nvme::tcp::ControllerConfig;
use nvme::tcp::wire::{PduFlags, PduType};
use nvme::testing::{RdmaHost, io_peer, rdma_host};
use nvme::wire::{Cid, Nsid, Sgl, Sqe, opcode};
use session::{
    MessageSession, RemoteBuffer, RemoteKey, Segment, SendList, StreamSession, WorkList,
};
use volume::{Managed, RamVolume};
use zerocopy::IntoBytes;

use crate::Protocol;
use crate::world::ram_volume;

const BLOCKS: u32 = 8;
const LEN_BYTES: usize = BLOCKS as usize * 512;

/// What executes one 4 KiB read or write on a RAM volume each time it is called, from the command's
/// arrival to its response. Data of reads over TCP are sent in place; all others are copied.
pub fn command_loop(protocol: Protocol, is_read: bool) -> Box<dyn FnMut()> {
    match protocol {
        Protocol::NvmeTcp => nvme_tcp(is_read),
        Protocol::NvmeRdma => nvme_rdma(is_read),
        Protocol::Iscsi => iscsi(is_read),
        Protocol::Iser => iser(is_read),
        Protocol::Brp => brp(is_read),
        Protocol::BrpRdma => brp_rdma(is_read),
    }
}

/// The same for a write whose data R2Ts request. `None` for protocols that have no R2T.
pub fn requested_write_loop(protocol: Protocol) -> Option<Box<dyn FnMut()>> {
    match protocol {
        Protocol::NvmeTcp => Some(nvme_tcp_by_r2t()),
        Protocol::Iscsi => Some(iscsi_by_r2t()),
        Protocol::NvmeRdma | Protocol::Iser | Protocol::Brp | Protocol::BrpRdma => None,
    }
}

fn volume() -> Arc<Managed<RamVolume>> {
    ram_volume(16 << 20)
}

fn command(is_read: bool, sgl: Sgl) -> Sqe {
    let opcode = if is_read { opcode::READ } else { opcode::WRITE };
    let mut sqe = Sqe::new(opcode, Cid(1), Nsid(1));
    sqe.cdw12 = (BLOCKS - 1).into();
    sqe.sgl1 = sgl;
    sqe
}

/// Write data come in the capsule, as Linux sends them.
fn nvme_tcp(is_read: bool) -> Box<dyn FnMut()> {
    let (mut io, _admin) = io_peer(ControllerConfig::default(), &[volume()], 2);
    let len_bytes = LEN_BYTES as u32;
    let capsule = if is_read {
        io.capsule(&command(is_read, Sgl::transport(len_bytes)), &[])
    } else {
        let sqe = command(is_read, Sgl::in_capsule(0, len_bytes));
        io.capsule(&sqe, &[7; LEN_BYTES])
    };
    let mut out = SendList::with_capacity(1 << 20);
    Box::new(move || {
        io.session
            .handle_bytes(io.now, &capsule, &mut io.backend)
            .expect("good PDUs");
        io.session.poll_transmit(io.now, &mut io.backend, &mut out);
        out.consume(out.len_bytes());
        assert_eq!(io.backend.completed.len(), 1, "each command is answered");
        io.backend.completed.clear();
    })
}

/// One R2T requests all data, as for Linux's host.
fn nvme_tcp_by_r2t() -> Box<dyn FnMut()> {
    let (mut io, _admin) = io_peer(ControllerConfig::default(), &[volume()], 2);
    let capsule = io.capsule(&command(false, Sgl::transport(LEN_BYTES as u32)), &[]);
    let mut data = io.h2c_data(Cid(1), 0, 0, PduFlags::LAST, &[7; LEN_BYTES]);
    let mut out = SendList::with_capacity(1 << 20);
    Box::new(move || {
        let (now, backend) = (io.now, &mut io.backend);
        io.session
            .handle_bytes(now, &capsule, backend)
            .expect("good PDUs");
        io.session.poll_transmit(now, backend, &mut out);
        let r2t = sent(&out).expect("an R2T");
        assert_eq!(r2t[0], PduType::R2t as u8);
        // H2CData has CCCID, TTAG, DATAO and DATAL at the same places.
        data[8..20].copy_from_slice(&r2t[8..20]);
        out.consume(out.len_bytes());
        io.session
            .handle_bytes(now, &data, backend)
            .expect("data that were asked for");
        io.session.poll_transmit(now, backend, &mut out);
        out.consume(out.len_bytes());
        assert_eq!(backend.completed.len(), 1, "each command is answered");
        backend.completed.clear();
    })
}

/// The bytes that are sent, if they are not gathered.
fn sent(out: &SendList) -> Option<&[u8]> {
    match out.segments().next() {
        Some(Segment::Bytes(bytes)) => Some(bytes),
        _ => None,
    }
}

/// Write data come in the command.
fn brp(is_read: bool) -> Box<dyn FnMut()> {
    let target = BrpTarget::new(volume());
    let now = Instant::now();
    let mut backend = BrpBackend::new(&target);
    let mut session = BrpSession::new(now, brp::target::TargetConfig::default());
    let login = brp_login();
    let mut out = SendList::with_capacity(1 << 20);
    session
        .handle_bytes(now, login.as_bytes(), &mut backend)
        .expect("a good login");
    let mut command = brp_command(is_read);
    let data_bytes = if is_read { 0 } else { LEN_BYTES };
    command.data_bytes.set(data_bytes as u32);
    let mut message = command.as_bytes().to_vec();
    let header_bytes = message.len();
    message.resize(header_bytes + data_bytes, 7);
    let mut sequence = 0;
    Box::new(move || {
        sequence += 1;
        command.sequence.set(sequence);
        message[..header_bytes].copy_from_slice(command.as_bytes());
        session
            .handle_bytes(now, &message, &mut backend)
            .expect("a good command");
        session.poll_transmit(now, &mut backend, &mut out);
        out.consume(out.len_bytes());
        assert_eq!(backend.completed.len(), 1, "each command is answered");
        backend.completed.clear();
    })
}

/// Data are in the host's memory.
fn brp_rdma(is_read: bool) -> Box<dyn FnMut()> {
    let target = BrpTarget::new(volume());
    let now = Instant::now();
    let mut backend = BrpBackend::new(&target);
    let config = brp::target::TargetConfig::default();
    let request = ConnectionRequest::new(1);
    let accepted = BrpRdmaSession::accept(now, config, request.as_bytes(), 1);
    let mut session = accepted.expect("a good request").session;
    let mut out = OneBuffer::default();
    session
        .handle_message(now, brp_login().as_bytes(), None, &mut backend)
        .expect("a good login");
    session.poll_transmit(now, &mut backend, &mut out);
    let mut command = brp_command(is_read);
    command.descriptors.set(1);
    let memory = Descriptor::of(RemoteBuffer {
        address: 0x1000,
        key: RemoteKey(1),
        len_bytes: LEN_BYTES as u32,
    });
    let mut message = [command.as_bytes(), memory.as_bytes()].concat();
    let mut sequence = 0;
    Box::new(move || {
        sequence += 1;
        command.sequence.set(sequence);
        message[..size_of::<Command>()].copy_from_slice(command.as_bytes());
        session
            .handle_message(now, &message, None, &mut backend)
            .expect("a good command");
        session.poll_transmit(now, &mut backend, &mut out);
        if let Some(tag) = out.read.take() {
            session
                .handle_read(now, tag, &[7; LEN_BYTES], &mut backend)
                .expect("data that were asked for");
            session.poll_transmit(now, &mut backend, &mut out);
        }
        assert_eq!(backend.completed.len(), 1, "each command is answered");
        backend.completed.clear();
    })
}

fn brp_login() -> Login {
    let mut login = Login::new("nqn.h", "nqn.t", 1).expect("short names");
    login.tags.set(1);
    login.features.set(Features::ANY_ORDER.0);
    login.transfer_max_bytes.set(1 << 20);
    login
}

fn brp_command(is_read: bool) -> Command {
    let extent = Extent::new(Lba(0), Blocks(BLOCKS.into()));
    let operation = if is_read {
        Operation::Read
    } else {
        Operation::Write
    };
    Command::new(operation, Flags::default(), extent)
}

fn nvme_rdma(is_read: bool) -> Box<dyn FnMut()> {
    let (mut io, _admin) = rdma_host(&[volume()], 2);
    let sqe = command(is_read, RdmaHost::keyed(0, LEN_BYTES));
    let message = sqe.as_bytes().to_vec();
    let mut out = OneBuffer::default();
    Box::new(move || {
        let (now, backend) = (io.now, &mut io.backend);
        io.session
            .handle_message(now, &message, None, backend)
            .expect("a good capsule");
        io.session.poll_transmit(now, backend, &mut out);
        if let Some(tag) = out.read.take() {
            io.session
                .handle_read(now, tag, &[7; LEN_BYTES], backend)
                .expect("data that were asked for");
            io.session.poll_transmit(now, backend, &mut out);
        }
        assert_eq!(backend.completed.len(), 1, "each command is answered");
        backend.completed.clear();
    })
}

/// READ (10) and WRITE (10).
fn cdb(is_read: bool) -> [u8; 10] {
    let opcode = if is_read { 0x28 } else { 0x2A };
    [opcode, 0, 0, 0, 0, 0, 0, 0, BLOCKS as u8, 0]
}

/// Final, and the direction of the data.
const fn flags(is_read: bool) -> u8 {
    if is_read { 0xC0 } else { 0xA0 }
}

/// A connection over TCP in full feature phase.
struct IscsiConnection {
    session: TargetSession<TestBackend>,
    backend: TestBackend,
    initiator: IserInitiator,
    now: Instant,
    out: SendList,
}

impl IscsiConnection {
    fn logged_in(keys: &[(&str, &str)]) -> Self {
        let target = TestTarget::over(vec![volume()], Vec::new());
        let mut it = Self {
            session: TargetSession::new(),
            backend: target.backend(),
            initiator: IserInitiator::default(),
            now: Instant::now(),
            out: SendList::with_capacity(1 << 20),
        };
        let names = [
            ("InitiatorName", "iqn.2026-11.com.example:host"),
            ("TargetName", TestTarget::NAME),
        ];
        let login = it.initiator.login(&[&names, keys].concat());
        it.send(&padded(&login));
        it.out.consume(it.out.len_bytes());
        it.backend.clear_attention();
        it
    }

    /// Sends a PDU to the target, and has it answer.
    fn send(&mut self, message: &[u8]) {
        let pdu = &message[ISER_HEADER_LEN..];
        self.session
            .handle_bytes(self.now, pdu, &mut self.backend)
            .expect("good PDUs");
        self.session
            .poll_transmit(self.now, &mut self.backend, &mut self.out);
    }
}

/// Write data come with the command, as Linux sends them.
fn iscsi(is_read: bool) -> Box<dyn FnMut()> {
    let mut it = IscsiConnection::logged_in(&[("InitialR2T", "No")]);
    let data = if is_read { &[][..] } else { &[7; LEN_BYTES] };
    let command = (1, flags(is_read));
    let mut command =
        it.initiator
            .command(command, &cdb(is_read), LEN_BYTES as u32, data, (None, None));
    let mut number = 0;
    Box::new(move || {
        number += 1;
        renumber(&mut command, number);
        it.send(&command);
        it.out.consume(it.out.len_bytes());
        assert_eq!(
            it.backend.completed,
            u64::from(number),
            "each command is answered"
        );
    })
}

/// The data of one R2T of iSCSI.
const BURST_BYTES: usize = LEN_BYTES / 2;

/// Two R2Ts at once.
fn iscsi_by_r2t() -> Box<dyn FnMut()> {
    let burst = BURST_BYTES.to_string();
    let mut it = IscsiConnection::logged_in(&[
        ("InitialR2T", "Yes"),
        ("ImmediateData", "No"),
        ("FirstBurstLength", &burst),
        ("MaxBurstLength", &burst),
        ("MaxOutstandingR2T", "2"),
    ]);
    let command = (1, flags(false));
    let mut command =
        it.initiator
            .command(command, &cdb(false), LEN_BYTES as u32, &[], (None, None));
    let mut data = [0; ISER_HEADER_LEN + BHS_LEN + BURST_BYTES];
    let bhs = &mut data[ISER_HEADER_LEN..];
    (bhs[0], bhs[1]) = (request::DATA_OUT, FINAL);
    bhs[5..8].copy_from_slice(&(BURST_BYTES as u32).to_be_bytes()[1..]);
    let mut number = 0;
    Box::new(move || {
        number += 1;
        renumber(&mut command, number);
        it.send(&command);
        let mut r2ts = [[0; BHS_LEN]; 2];
        let sent = sent(&it.out).expect("R2Ts");
        r2ts.as_flattened_mut().copy_from_slice(sent);
        for r2t in r2ts {
            assert_eq!(r2t[0], response::R2T);
            it.out.consume(it.out.len_bytes());
            // Data-Out has Initiator Task Tag, Target Transfer Tag and Buffer Offset at the same
            // places.
            let bhs = &mut data[ISER_HEADER_LEN..];
            bhs[16..24].copy_from_slice(&r2t[16..24]);
            bhs[40..44].copy_from_slice(&r2t[40..44]);
            it.send(&data);
        }
        it.out.consume(it.out.len_bytes());
        assert_eq!(it.backend.completed, u64::from(number));
    })
}

/// The header of iSER before a PDU.
const ISER_HEADER_LEN: usize = 28;

fn padded(message: &[u8]) -> Vec<u8> {
    let mut bytes = message.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Gives a command another Initiator Task Tag and CmdSN.
fn renumber(message: &mut [u8], number: u32) {
    let bhs = &mut message[ISER_HEADER_LEN..];
    bhs[16..20].copy_from_slice(&number.to_be_bytes());
    bhs[24..28].copy_from_slice(&number.to_be_bytes());
}

fn iser(is_read: bool) -> Box<dyn FnMut()> {
    let target = TestTarget::over(vec![volume()], Vec::new());
    let mut fixture = IserBed::new(&target, &[0x80, 0, 0, 0], TargetConfig::default());
    let mut initiator = IserInitiator::default();
    let login = initiator.login(&IserInitiator::KEYS);
    fixture.send(&login).expect("a sensible login");
    fixture.backend.clear_attention();
    let mut out = OneBuffer::default();
    let buffer = Some(Tag { stag: 5, base: 0 });
    let tags = if is_read {
        (None, buffer)
    } else {
        (buffer, None)
    };
    let command = (1, flags(is_read));
    let mut message = initiator.command(command, &cdb(is_read), LEN_BYTES as u32, &[], tags);
    let mut number = 0;
    Box::new(move || {
        number += 1;
        renumber(&mut message, number);
        let IserBed {
            session,
            backend,
            now,
            ..
        } = &mut fixture;
        session
            .handle_message(*now, &message, None, backend)
            .expect("a good message");
        session.poll_transmit(*now, backend, &mut out);
        if let Some(tag) = out.read.take() {
            session
                .handle_read(*now, tag, &[7; LEN_BYTES], backend)
                .expect("data that were asked for");
            session.poll_transmit(*now, backend, &mut out);
        }
        assert_eq!(
            backend.completed,
            u64::from(number),
            "each command is answered"
        );
    })
}

/// A send queue that drops posted work, so that its own cost is small.
struct OneBuffer {
    bytes: Vec<u8>,
    /// The tag of the last RDMA READ.
    read: Option<u64>,
}

impl Default for OneBuffer {
    fn default() -> Self {
        Self {
            bytes: vec![0; 64 << 10],
            read: None,
        }
    }
}

impl WorkList for OneBuffer {
    fn piece_max_bytes(&self) -> u32 {
        64 << 10
    }

    fn write(&mut self, to: RemoteBuffer) -> Option<&mut [u8]> {
        Some(&mut self.bytes[..to.len_bytes as usize])
    }

    fn retract(&mut self) {}

    fn read(&mut self, tag: u64, _from: RemoteBuffer) -> bool {
        self.read = Some(tag);
        true
    }

    fn send(&mut self, len_bytes: u32, _invalidate: Option<RemoteKey>) -> Option<&mut [u8]> {
        Some(&mut self.bytes[..len_bytes as usize])
    }
}
