mod fenced;
mod order;
mod waiting;
mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use block::testing::VecVolume;
use block::{Access, BlockSize, Volume};
use scsi::{Device, Lun, LunMap, NexusId, NexusPorts, View};
use session::{Segment, SendList, Session, SourceId, StreamSession};
use zerocopy::IntoBytes;

use super::{SEND_LIST_MIN_BYTES, TargetSession};
use crate::backend::{
    Abort, Authentication, Backend, Completed, LoggedIn, OpenError, Opened, Saved, SessionEnds,
    SessionState, TargetAddress, TargetRecord,
};
use crate::text::TextBuilder;
use crate::wire::command::ScsiResponse;
use crate::wire::data::{DataIn, R2t};
use crate::wire::other::reason;
use crate::wire::{FINAL, NO_TASK_TAG, response};
use crate::{
    AbortScope, CommandWindow, LoginStatus, PING_AFTER, PING_TIMEOUT, Parameters, PeerError,
};

/// Blocks of the disk.
const BLOCKS: u64 = 2048;

struct World {
    device: Device,
    disk: Arc<VecVolume>,
    view: Option<View>,
    secret: Option<crate::Credentials>,
    completed: usize,
    gather_max: u64,
    state: SessionState,
    unsaved: Option<u64>,
    saved: Saved,
    opened: Option<Opened>,
    shared: Option<(Parameters, CommandWindow)>,
    aborts: Vec<Abort>,
    /// Whether what was ended and aborted on other connections is over.
    is_past: bool,
}

impl World {
    fn new() -> Self {
        let disk = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
        Self::over(Arc::clone(&disk), disk)
    }

    /// A target whose LUN 0 is `unit`, which keeps its contents on `disk`.
    fn over<V: Volume + 'static>(unit: Arc<V>, disk: Arc<VecVolume>) -> Self {
        Self {
            device: scsi::testing::device("iqn.t", [(0, unit)]),
            disk,
            view: None,
            secret: None,
            completed: 0,
            gather_max: u64::MAX,
            state: SessionState::Active,
            unsaved: None,
            saved: Saved::Pending,
            opened: None,
            shared: None,
            aborts: Vec::new(),
            is_past: true,
        }
    }
}

impl Backend for World {
    fn authentication(&mut self, _: &str, _: Option<&str>) -> Option<Authentication> {
        Some(Authentication {
            initiator: self.secret.clone(),
            target: None,
        })
    }

    fn connection(&self) -> u64 {
        1
    }

    fn portal_group(&self) -> u16 {
        1
    }

    fn open(&mut self, ends: SessionEnds<'_>) -> Result<Opened, OpenError> {
        if ends.target != "iqn.t" {
            return Err(OpenError::NotFound);
        }
        let ports = NexusPorts {
            initiator: ends.initiator.into(),
            target_port: 1,
        };
        let nexus = self
            .device
            .open_nexus(ports, LunMap::All, Access::ReadWrite);
        let nexus = nexus.ok_or(OpenError::OutOfResources)?;
        let opened = Opened { tsih: 1, nexus };
        self.opened = Some(opened);
        Ok(opened)
    }

    fn share(&mut self, parameters: &Parameters, window: CommandWindow, _: u16) {
        self.shared = Some((parameters.clone(), window));
    }

    fn join(
        &mut self,
        _: SessionEnds<'_>,
        _: u16,
        _: u16,
    ) -> Result<(Opened, Parameters), OpenError> {
        let (parameters, _) = self.shared.as_ref().ok_or(OpenError::NoSession)?;
        let opened = self.opened.ok_or(OpenError::NoSession)?;
        Ok((opened, parameters.clone()))
    }

    fn with_window<R>(&mut self, call: impl FnOnce(&mut CommandWindow) -> R) -> R {
        let (_, window) = self.shared.as_mut().expect("the session is shared");
        call(window)
    }

    fn end_others(&mut self, cid: Option<u16>) -> usize {
        usize::from(cid == Some(7))
    }

    fn abort_on_others(&mut self, _: AbortScope, _: u32) {}

    fn fence(&mut self) -> u64 {
        0
    }

    fn is_past(&mut self, _: u64) -> bool {
        self.is_past
    }

    fn wake_other(&mut self, _: u16) {}

    fn logged_in(&mut self, _: &LoggedIn) {}

    fn login_refused(&mut self, _: &str, _: Option<&str>, _: LoginStatus) {}

    fn charge(&mut self, len_bytes: u64) -> bool {
        len_bytes <= self.gather_max
    }

    fn targets(&mut self, _: &str) -> Vec<TargetRecord> {
        let address = TargetAddress {
            ip: std::net::Ipv4Addr::LOCALHOST.into(),
            port: 3260,
            group: 1,
        };
        vec![TargetRecord {
            name: "iqn.t".into(),
            addresses: vec![address],
        }]
    }

    fn with_device<R>(&mut self, call: impl FnOnce(&mut Device, NexusId) -> R) -> R {
        let nexus = self.opened.expect("a session with a nexus").nexus;
        call(&mut self.device, nexus)
    }

    fn view(&mut self, lun: Lun) -> Option<(&View, SourceId)> {
        let nexus = self.opened?.nexus;
        self.view = self.device.view(nexus, lun);
        self.view
            .as_ref()
            .map(|view| (view, SourceId(u32::from(lun))))
    }

    fn unsaved(&mut self) -> Option<u64> {
        self.unsaved
    }

    fn saved(&mut self, _: u64) -> Saved {
        self.saved
    }

    fn random(&mut self) -> [u8; 17] {
        [7; 17]
    }

    fn completed(&mut self, _: Completed) {
        self.completed += 1;
    }

    fn take_aborts(&mut self) -> Vec<Abort> {
        std::mem::take(&mut self.aborts)
    }

    fn session_state(&mut self) -> SessionState {
        self.state
    }

    fn drop_session(&mut self) {
        self.state = SessionState::SessionDropped;
    }

    fn adopt(&mut self, _: Box<scsi::SanitizeWork>) {}

    fn close(&mut self) {
        if let Some(opened) = self.opened {
            self.device.close_nexus(opened.nexus);
        }
    }
}

/// A PDU as a test sees it: header and data segment without padding.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pdu {
    header: [u8; 48],
    data: Vec<u8>,
}

impl Pdu {
    fn cast<
        T: zerocopy::FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned,
    >(
        &self,
    ) -> &T {
        T::ref_from_bytes(&self.header).expect("48 bytes")
    }
}

/// An initiator and a connection in memory.
struct Fixture {
    world: World,
    connection: TargetSession<World>,
    now: Instant,
    chunk: usize,
    digests: bool,
    cmd_sn: u32,
}

impl Fixture {
    fn new(chunk: usize) -> Self {
        Self::of(World::new(), chunk)
    }

    fn of(world: World, chunk: usize) -> Self {
        Self {
            world,
            connection: TargetSession::new(),
            now: Instant::now(),
            chunk,
            digests: false,
            cmd_sn: 1,
        }
    }

    fn logged_in(chunk: usize, keys: &[(&str, &str)]) -> Self {
        Self::new(chunk).log_in(keys)
    }

    fn log_in(mut self, keys: &[(&str, &str)]) -> Self {
        let fixture = &mut self;
        let mut all = vec![("InitiatorName", "iqn.i"), ("TargetName", "iqn.t")];
        all.extend(keys);
        let answer = fixture.login(0x87, &all);
        assert_eq!(
            answer.header[36],
            0,
            "{}",
            String::from_utf8_lossy(&answer.data)
        );
        fixture.digests = keys
            .iter()
            .any(|(key, value)| *key == "DataDigest" && *value == "CRC32C");
        self
    }

    fn login(&mut self, flags: u8, keys: &[(&str, &str)]) -> Pdu {
        let mut text = TextBuilder::default();
        for (key, value) in keys {
            text.push(key, value);
        }
        let mut header = [0; 48];
        header[0] = 0x43;
        header[1] = flags;
        header[13] = 1;
        header[27] = 1;
        self.send(header, &text.into_bytes());
        self.receive().remove(0)
    }

    fn bytes_of(&self, mut header: [u8; 48], data: &[u8]) -> Vec<u8> {
        header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        let mut bytes = header.to_vec();
        if self.digests {
            bytes.extend(crc32c::crc32c(&header).to_le_bytes());
        }
        if !data.is_empty() {
            let mut padded = data.to_vec();
            padded.resize(data.len().next_multiple_of(4), 0);
            let crc = crc32c::crc32c(&padded);
            bytes.extend(padded);
            if self.digests {
                bytes.extend(crc.to_le_bytes());
            }
        }
        bytes
    }

    fn send(&mut self, header: [u8; 48], data: &[u8]) {
        let bytes = self.bytes_of(header, data);
        self.send_raw(&bytes).expect("the connection goes on");
    }

    fn send_raw(&mut self, bytes: &[u8]) -> Result<(), PeerError> {
        for piece in bytes.chunks(self.chunk) {
            self.connection
                .handle_bytes(self.now, piece, &mut self.world)?;
        }
        Ok(())
    }

    /// Everything that the connection has to send.
    fn receive(&mut self) -> Vec<Pdu> {
        let mut stream = Vec::new();
        let mut list = SendList::with_capacity(SEND_LIST_MIN_BYTES);
        loop {
            self.connection
                .poll_transmit(self.now, &mut self.world, &mut list);
            if list.is_empty() {
                break;
            }
            for segment in list.segments() {
                match segment {
                    Segment::Bytes(bytes) => stream.extend_from_slice(bytes),
                    Segment::Place(place) => {
                        stream.extend(self.world.disk.bytes(place.range));
                    }
                }
            }
            list.consume(list.len_bytes());
        }
        self.cut(&stream)
    }

    fn cut(&self, mut stream: &[u8]) -> Vec<Pdu> {
        let digest = if self.digests { 4 } else { 0 };
        let mut pdus = Vec::new();
        while !stream.is_empty() {
            let header: [u8; 48] = stream[..48].try_into().expect("48 bytes");
            if self.digests {
                assert_eq!(crc32c::crc32c(&header).to_le_bytes(), stream[48..52]);
            }
            let len = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
            let padded = len.next_multiple_of(4);
            let start = 48 + digest;
            let data = stream[start..start + len].to_vec();
            if self.digests && len > 0 {
                let crc = crc32c::crc32c(&stream[start..start + padded]);
                assert_eq!(
                    crc.to_le_bytes(),
                    stream[start + padded..start + padded + 4]
                );
            }
            let tail = if len > 0 { padded + digest } else { 0 };
            stream = &stream[start + tail..];
            pdus.push(Pdu { header, data });
        }
        pdus
    }

    fn command(&mut self, flags: u8, cdb: &[u8], expected: u32, data: &[u8]) {
        let mut command = [0; 48];
        command[0] = 0x01;
        command[1] = flags;
        command[19] = self.cmd_sn as u8;
        command[20..24].copy_from_slice(&expected.to_be_bytes());
        command[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        command[32..32 + cdb.len()].copy_from_slice(cdb);
        self.cmd_sn += 1;
        self.send(command, data);
    }

    /// Reads the power-on unit attention away.
    fn settle(&mut self) {
        self.command(FINAL, &[0; 6], 0, &[]);
        let answer = self.receive().remove(0);
        assert_eq!(answer.header[3], 2);
        assert_eq!(answer.data[2 + 12], 0x29);
    }
}

const READ: u8 = FINAL | 0x40;
const WRITE: u8 = FINAL | 0x20;

fn write_10(lba: u8, blocks: u8) -> [u8; 10] {
    [0x2A, 0, 0, 0, 0, lba, 0, 0, blocks, 0]
}

fn read_10(lba: u8, blocks: u8) -> [u8; 10] {
    [0x28, 0, 0, 0, 0, lba, 0, 0, blocks, 0]
}

#[test]
fn what_is_written_reads_back_in_any_chunking_with_and_without_digests() {
    let plain: &[(&str, &str)] = &[("InitialR2T", "No")];
    let digests: &[(&str, &str)] = &[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")];
    for keys in [plain, digests] {
        for chunk in [1, 7, 48, 513, 1 << 20] {
            let mut fixture = Fixture::logged_in(chunk, keys);
            fixture.settle();
            let data: Vec<u8> = (0..2048_u32).map(|i| (i / 7) as u8).collect();
            fixture.command(WRITE, &write_10(3, 4), 2048, &data);
            let answer = fixture.receive().remove(0);
            assert_eq!(
                (answer.header[0], answer.header[3]),
                (response::SCSI_RESPONSE, 0)
            );
            fixture.command(READ, &read_10(3, 4), 2048, &[]);
            let answers = fixture.receive();
            assert_eq!(answers.len(), 1, "one Data-In with status");
            let data_in: &DataIn = answers[0].cast();
            assert_eq!(data_in.flags, FINAL | 1);
            assert_eq!(answers[0].data, data, "chunk {chunk}");
            assert_eq!(fixture.world.completed, 2);
        }
    }
}

#[test]
fn data_that_did_not_come_with_the_command_are_asked_for_in_bursts() {
    let keys = [
        ("MaxBurstLength", "1024"),
        ("MaxOutstandingR2T", "2"),
        ("FirstBurstLength", "512"),
    ];
    let mut fixture = Fixture::logged_in(100, &keys);
    fixture.settle();
    fixture.command(WRITE, &write_10(0, 5), 2560, &[9; 512]);
    let asks = fixture.receive();
    let bursts: Vec<_> = asks
        .iter()
        .map(Pdu::cast::<R2t>)
        .map(|r2t| {
            (
                r2t.r2t_sn.get(),
                r2t.buffer_offset.get(),
                r2t.desired_len.get(),
            )
        })
        .collect();
    assert_eq!(bursts, [(0, 512, 1024), (1, 1536, 1024)]);
    for ask in &asks {
        let r2t: &R2t = ask.cast();
        for (sn, offset) in [(0, 0), (1, 512)] {
            let mut header = [0; 48];
            header[0] = 0x05;
            header[1] = if sn == 1 { FINAL } else { 0 };
            header[16..20].copy_from_slice(r2t.itt.as_bytes());
            header[20..24].copy_from_slice(r2t.ttt.as_bytes());
            header[39] = sn;
            let at = r2t.buffer_offset.get() + offset;
            header[40..44].copy_from_slice(&at.to_be_bytes());
            fixture.send(header, &[at as u8; 512]);
        }
    }
    let answers = fixture.receive();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].cast::<ScsiResponse>().status, 0);
    assert_eq!(answers[0].cast::<ScsiResponse>().exp_data_sn.get(), 2);
    let volume = fixture.world.disk.contents();
    assert_eq!((volume[0], volume[512], volume[1024]), (9, 0, 0));
}

#[test]
fn large_reads_go_in_segments_and_bursts_with_one_status() {
    let keys = [
        ("MaxBurstLength", "65536"),
        ("MaxRecvDataSegmentLength", "32768"),
    ];
    let mut fixture = Fixture::logged_in(1 << 20, &keys);
    fixture.settle();
    fixture.world.disk.fill(100_000, &[5]);
    fixture.command(READ, &[0x28, 0, 0, 0, 0, 0, 0, 1, 0, 0], 131_072, &[]);
    let answers = fixture.receive();
    let flags: Vec<_> = answers.iter().map(|pdu| pdu.header[1]).collect();
    assert_eq!(flags, [0, FINAL, 0, FINAL | 1]);
    let all: Vec<u8> = answers.iter().flat_map(|pdu| pdu.data.clone()).collect();
    assert_eq!((all.len(), all[100_000]), (131_072, 5));
}

#[test]
fn residuals_tell_over_and_underflow() {
    let mut fixture = Fixture::logged_in(1 << 20, &[]);
    fixture.settle();
    fixture.command(READ, &read_10(0, 1), 1024, &[]);
    let under = fixture.receive().remove(0);
    assert_eq!(
        (under.header[1] & 6, under.cast::<DataIn>().residual.get()),
        (2, 512)
    );
    fixture.command(READ, &read_10(0, 2), 512, &[]);
    let over = fixture.receive().remove(0);
    assert_eq!(
        (over.header[1] & 6, over.cast::<DataIn>().residual.get()),
        (4, 512)
    );
    assert_eq!(over.data.len(), 512);
}

#[test]
fn a_read_in_place_fails_if_any_of_its_blocks_was_cut_off() {
    let mut fixture = Fixture::logged_in(1 << 20, &[]);
    fixture.settle();
    // The data end inside the tenth block.
    fixture.command(READ, &read_10(0, 10), 9 * 512 + 100, &[]);
    fixture.world.disk.resize(9);
    let answers = fixture.receive();
    assert_eq!(answers.len(), 1, "{answers:x?}");
    let response: &ScsiResponse = answers[0].cast();
    assert_eq!(response.status, 2, "CHECK CONDITION");
}

#[test]
fn a_wrong_data_digest_is_rejected_and_nothing_is_written() {
    let digests = [("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")];
    let mut fixture = Fixture::logged_in(1 << 20, &digests);
    fixture.settle();
    let mut command = [0; 48];
    command[0] = 0x01;
    command[1] = WRITE;
    command[19] = 9;
    command[22] = 2;
    command[27] = fixture.cmd_sn as u8;
    command[32..42].copy_from_slice(&write_10(0, 1));
    let mut bytes = fixture.bytes_of(command, &[0xEE; 512]);
    *bytes.last_mut().expect("not empty") ^= 1;
    fixture.send_raw(&bytes).expect("the connection goes on");
    let answers = fixture.receive();
    let opcodes: Vec<_> = answers
        .iter()
        .map(|pdu| (pdu.header[0], pdu.header[2]))
        .collect();
    assert!(
        opcodes.contains(&(response::REJECT, reason::DATA_DIGEST)),
        "{opcodes:x?}"
    );
    assert_eq!(fixture.world.disk.contents()[0], 0);
}

#[test]
fn a_wrong_header_digest_ends_the_connection() {
    let mut fixture = Fixture::logged_in(
        1 << 20,
        &[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")],
    );
    let mut bytes = fixture.bytes_of([0; 48], &[]);
    bytes[50] ^= 1;
    assert_eq!(fixture.send_raw(&bytes), Err(PeerError::HeaderDigest));
}

#[test]
fn commands_outside_of_the_window_are_ignored() {
    let mut fixture = Fixture::logged_in(1 << 20, &[]);
    fixture.settle();
    let expected = fixture.cmd_sn;
    for wrong in [expected - 1, expected + 1, expected + 100_000] {
        fixture.cmd_sn = wrong;
        fixture.command(FINAL, &[0; 6], 0, &[]);
        assert_eq!(fixture.receive(), []);
    }
    fixture.cmd_sn = expected;
    fixture.command(FINAL, &[0; 6], 0, &[]);
    assert_eq!(fixture.receive().len(), 1);
}

#[test]
fn an_oversized_segment_ends_the_connection_before_it_is_read() {
    let mut fixture = Fixture::logged_in(1 << 20, &[]);
    let mut header = [0; 48];
    header[5..8].copy_from_slice(&[0xFF; 3]);
    assert!(matches!(
        fixture.send_raw(&header),
        Err(PeerError::SegmentLength { .. })
    ));
}

#[test]
fn a_flood_of_pings_that_nobody_reads_is_bounded() {
    let mut fixture = Fixture::logged_in(1 << 20, &[]);
    let mut ping = [0; 48];
    ping[0] = 0x40;
    ping[19] = 1;
    let result = (0..1000).try_for_each(|_| fixture.send_raw(&ping));
    assert_eq!(result, Err(PeerError::Flood));
}

#[test]
fn silence_is_answered_by_a_ping_and_then_by_the_end() {
    let mut fixture = Fixture::logged_in(1 << 20, &[]);
    fixture.now += PING_AFTER;
    assert_eq!(fixture.connection.poll_timeout(), Some(fixture.now));
    fixture
        .connection
        .handle_timeout(fixture.now, &mut fixture.world)
        .expect("only asks");
    assert_eq!(fixture.receive()[0].header[0], response::NOP_IN);
    fixture.now += PING_TIMEOUT;
    let ended = fixture
        .connection
        .handle_timeout(fixture.now, &mut fixture.world);
    assert_eq!(ended, Err(PeerError::PingTimeout));
}

/// AsyncEvent and the three parameters.
fn event_of(pdu: &Pdu) -> (u8, [u16; 3]) {
    let message: &crate::wire::other::AsyncMessage = pdu.cast();
    assert_eq!(
        (message.opcode, message.itt.get()),
        (response::ASYNC, u32::MAX)
    );
    let parameters = [
        message.parameter_1,
        message.parameter_2,
        message.parameter_3,
    ];
    (
        message.event,
        parameters.map(zerocopy::big_endian::U16::get),
    )
}

#[test]
fn a_session_that_is_to_leave_is_served_until_it_logs_out_or_is_dropped() {
    let mut fixture = Fixture::logged_in(1 << 20, &[]);
    fixture.settle();
    fixture.world.state = SessionState::LogoutRequested(Duration::from_secs(3));
    let woken = fixture
        .connection
        .handle_wake(fixture.now, &mut fixture.world);
    woken.expect("it goes on");
    assert_eq!(event_of(&fixture.receive()[0]), (1, [0, 0, 3]));
    fixture.command(READ, &read_10(0, 1), 512, &[]);
    assert_eq!(fixture.receive()[0].header[0], response::DATA_IN);
    fixture.now += Duration::from_secs(3);
    assert_eq!(fixture.connection.poll_timeout(), Some(fixture.now));
    let timeout = fixture
        .connection
        .handle_timeout(fixture.now, &mut fixture.world);
    timeout.expect("it is told");
    fixture.command(READ, &read_10(0, 1), 512, &[]);
    let answers = fixture.receive();
    assert_eq!(answers.len(), 1, "commands are no longer served");
    assert_eq!(event_of(&answers[0]), (3, [0, 2, 20]));
    assert!(fixture.connection.is_closing());
}

#[test]
fn a_connection_that_is_dropped_is_told_which_and_closed_where_nobody_reads() {
    let mut fixture = Fixture::logged_in(1 << 20, &[("DefaultTime2Retain", "0")]);
    fixture.world.state = SessionState::ConnectionDropped;
    let woken = fixture
        .connection
        .handle_wake(fixture.now, &mut fixture.world);
    woken.expect("it is told");
    let unread = fixture
        .connection
        .poll_timeout()
        .expect("it does not wait for ever");
    let late = fixture
        .connection
        .handle_timeout(unread, &mut fixture.world);
    assert_eq!(late, Err(PeerError::DropUnread));
    assert_eq!(event_of(&fixture.receive()[0]), (2, [0, 2, 0]));
}

#[test]
fn discovery_lists_targets_and_takes_no_commands() {
    let mut fixture = Fixture::new(5);
    let keys = [("InitiatorName", "iqn.i"), ("SessionType", "Discovery")];
    assert_eq!(fixture.login(0x87, &keys).header[36], 0);
    let mut text = [0; 48];
    text[0] = 0x04;
    text[1] = FINAL;
    text[19] = 1;
    text[20..24].copy_from_slice(&[0xFF; 4]);
    text[27] = 1;
    fixture.send(text, b"SendTargets=All\0");
    let answer = fixture.receive().remove(0);
    assert_eq!(
        answer.data,
        b"TargetName=iqn.t\0TargetAddress=127.0.0.1:3260,1\0"
    );
    fixture.cmd_sn = 2;
    fixture.command(READ, &read_10(0, 1), 512, &[]);
    assert_eq!(fixture.receive()[0].header[0], response::REJECT);
}

#[test]
fn any_bytes_after_the_login_never_panic() {
    let mut seed = 1_u64;
    for _ in 0..2000 {
        let mut fixture = Fixture::logged_in(1 << 20, &[]);
        let mut bytes = vec![0; 96];
        for byte in &mut bytes {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (seed >> 56) as u8;
        }
        bytes[0] &= 0x1F;
        bytes[4] = 0;
        bytes[5] = 0;
        bytes[6] = 0;
        // Whether the connection continues is not the question here.
        let _ended = fixture.send_raw(&bytes).is_err();
        fixture.receive();
    }
}

#[test]
fn d_sense_selects_the_format_of_sense_data() {
    // MODE SENSE (6) of the control mode page without block descriptors, and MODE SELECT (6).
    const PAGE_BYTES: u8 = 16;
    let mut fixture = Fixture::logged_in(1 << 20, &[]);
    fixture.settle();
    let response_code = |fixture: &mut Fixture| {
        fixture.command(FINAL, &[0xFF; 6], 0, &[]);
        fixture.receive()[0].data[2]
    };
    assert_eq!(response_code(&mut fixture), 0x70);
    let sense = [0x1A, 0x08, 0x0A, 0, PAGE_BYTES, 0];
    fixture.command(READ, &sense, PAGE_BYTES.into(), &[]);
    let mut list = fixture.receive()[0].data[..PAGE_BYTES.into()].to_vec();
    list[..4].fill(0);
    // D_SENSE.
    list[4 + 2] |= 0x04;
    let select = [0x15, 0x10, 0, 0, PAGE_BYTES, 0];
    fixture.command(WRITE, &select, PAGE_BYTES.into(), &list);
    assert_eq!(fixture.receive()[0].header[3], 0);
    assert_eq!(response_code(&mut fixture), 0x72);
}
