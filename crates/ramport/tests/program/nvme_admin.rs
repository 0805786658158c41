//! A bare NVMe/TCP host with an admin queue, which reads what hosts with several paths read.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(90);

const HOST_NQN: &[u8] = b"nqn.2014-08.org.nvmexpress:uuid:11111111-1111-4111-8111-111111111111";
/// The command identifier of the Asynchronous Event Request.
const EVENT: u16 = 0xE;

/// An admin queue of an enabled controller.
pub(crate) struct AdminHost {
    stream: TcpStream,
    next_cid: u16,
    /// Double word 0 of an event that was reported while another answer was awaited.
    event: Option<u32>,
}

/// What Identify Controller says of subsystem and controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) serial: Vec<u8>,
    pub(crate) model: Vec<u8>,
    pub(crate) subsystem_nqn: Vec<u8>,
    pub(crate) multipath: u8,
    pub(crate) ana: Vec<u8>,
}

impl AdminHost {
    /// Connects to a subsystem at `portal`, which is `nvme+tcp://ADDRESS:PORT`.
    pub(crate) fn connect(portal: &str, subsystem_nqn: &str) -> Self {
        let address = portal.trim_start_matches("nvme+tcp://");
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let mut host = Self {
            stream,
            next_cid: 0x100,
            event: None,
        };
        let mut icreq = [0; 128];
        (icreq[2], icreq[4]) = (128, 128);
        host.stream.write_all(&icreq).expect("sent");
        assert_eq!(host.pdu().0, 1, "ICResp");
        let mut data = vec![0; 1024];
        data[16..18].fill(0xFF);
        data[256..256 + subsystem_nqn.len()].copy_from_slice(subsystem_nqn.as_bytes());
        data[512..512 + HOST_NQN.len()].copy_from_slice(HOST_NQN);
        let mut connect = [0; 64];
        (connect[0], connect[4], connect[44]) = (0x7F, 0x01, 31);
        host.command(connect, &data);
        // CC: enabled, entries of 64 and 16 bytes.
        let mut enable = [0; 64];
        (enable[0], enable[44]) = (0x7F, 0x14);
        enable[48..52].copy_from_slice(&0x0046_0001_u32.to_le_bytes());
        host.command(enable, &[]);
        host
    }

    /// Identify Controller; and the controller's ID.
    pub(crate) fn identity(&mut self) -> (Identity, u16) {
        let bytes = self.identify(1, 0);
        let identity = Identity {
            serial: bytes[4..24].to_vec(),
            model: bytes[24..64].to_vec(),
            subsystem_nqn: bytes[768..1024].to_vec(),
            multipath: bytes[76],
            ana: bytes[342..352].to_vec(),
        };
        (identity, u16::from_le_bytes([bytes[78], bytes[79]]))
    }

    /// What hosts compare of a namespace on several paths: the identification descriptors, and of
    /// Identify Namespace the sharing, reservation capabilities and ANA group.
    pub(crate) fn namespace(&mut self, nsid: u32) -> (Vec<u8>, Vec<u8>) {
        let descriptors = self.identify(3, nsid);
        let bytes = self.identify(0, nsid);
        (descriptors, [&bytes[30..32], &bytes[92..96]].concat())
    }

    /// The ANA state of a namespace, by the log page.
    pub(crate) fn ana_state(&mut self, nsid: u32) -> u8 {
        // As Linux reads it: all of it at once.
        let identity = self.identify(1, 0);
        let word =
            |at: usize| u32::from_le_bytes(identity[at..at + 4].try_into().expect("4 bytes"));
        let len_bytes = 16 + 32 * word(348) + 4 * word(540);
        let mut sqe = [0; 64];
        sqe[0] = 0x02;
        sqe[4..8].fill(0xFF);
        sqe[40] = 0x0C;
        sqe[42..44].copy_from_slice(&((len_bytes / 4 - 1) as u16).to_le_bytes());
        let log = self.read(sqe, len_bytes);
        let word = |at: usize| u32::from_le_bytes(log[at..at + 4].try_into().expect("4 bytes"));
        let mut at = 16;
        for _ in 0..u16::from_le_bytes([log[8], log[9]]) {
            let members = word(at + 4) as usize;
            let mut nsids = (0..members).map(|member| word(at + 32 + 4 * member));
            if nsids.any(|member| member == nsid) {
                return log[at + 16];
            }
            at += 32 + 4 * members;
        }
        panic!("namespace {nsid} is in no group: {log:?}");
    }

    /// Sends an Asynchronous Event Request.
    pub(crate) fn request_event(&mut self) {
        let mut sqe = [0; 64];
        sqe[0] = 0x0C;
        self.send(sqe, EVENT, &[]);
    }

    /// Waits for the event. Returns double word 0.
    pub(crate) fn event(&mut self) -> u32 {
        while self.event.is_none() {
            let (kind, pdu) = self.pdu();
            assert!(self.take_event(kind, &pdu), "only an event is awaited");
        }
        self.event.take().expect("awaited")
    }

    fn identify(&mut self, structure: u8, nsid: u32) -> Vec<u8> {
        let mut sqe = [0; 64];
        (sqe[0], sqe[40]) = (0x06, structure);
        sqe[4..8].copy_from_slice(&nsid.to_le_bytes());
        self.read(sqe, 4096)
    }

    /// A command that returns data.
    fn read(&mut self, mut sqe: [u8; 64], len_bytes: u32) -> Vec<u8> {
        sqe[32..36].copy_from_slice(&len_bytes.to_le_bytes());
        // Transport SGL data block.
        sqe[39] = 0x5A;
        self.command(sqe, &[])
    }

    /// Sends a command and returns the data of its answer.
    fn command(&mut self, sqe: [u8; 64], data: &[u8]) -> Vec<u8> {
        self.next_cid += 1;
        let opcode = sqe[0];
        self.send(sqe, self.next_cid, data);
        let mut received = Vec::new();
        loop {
            let (kind, pdu) = self.pdu();
            match kind {
                // C2HData: the flags, and the 16 bytes that are left of its header.
                0x07 => {
                    let is_last_with_success = pdu[0] & 0b1100 == 0b1100;
                    received.extend_from_slice(&pdu[17..]);
                    if is_last_with_success {
                        return received;
                    }
                }
                _ if self.take_event(kind, &pdu) => {}
                0x05 => {
                    let cqe = &pdu[1..];
                    let status = u16::from_le_bytes([cqe[14], cqe[15]]) >> 1;
                    assert_eq!(status, 0, "command {opcode:#x}");
                    return received;
                }
                _ => panic!("a PDU of type {kind}"),
            }
        }
    }

    /// Keeps the event of a response to its request.
    fn take_event(&mut self, kind: u8, pdu: &[u8]) -> bool {
        let cqe = &pdu[1..];
        let is_event = kind == 0x05 && cqe[12..14] == EVENT.to_le_bytes();
        if is_event {
            self.event = Some(u32::from_le_bytes(cqe[..4].try_into().expect("4 bytes")));
        }
        is_event
    }

    fn send(&mut self, mut sqe: [u8; 64], cid: u16, data: &[u8]) {
        let len_bytes = data.len() as u32;
        sqe[2..4].copy_from_slice(&cid.to_le_bytes());
        // SGLs; in the capsule at offset 0 if there are data.
        sqe[1] = 0x40;
        let mut pdu = vec![0x04, 0, 72, 0];
        if !data.is_empty() {
            sqe[32..36].copy_from_slice(&len_bytes.to_le_bytes());
            sqe[39] = 0x01;
            pdu[3] = 72;
        }
        pdu.extend((72 + len_bytes).to_le_bytes());
        pdu.extend(sqe);
        pdu.extend(data);
        self.stream.write_all(&pdu).expect("sent");
    }

    /// The next PDU: its type; its flags, and what follows the common header.
    fn pdu(&mut self) -> (u8, Vec<u8>) {
        let mut header = [0; 8];
        self.stream.read_exact(&mut header).expect("an answer");
        let len_bytes = u32::from_le_bytes(header[4..8].try_into().expect("4 bytes"));
        assert!(len_bytes <= 1 << 20, "{header:?}");
        let mut pdu = vec![0; len_bytes as usize - 7];
        pdu[0] = header[1];
        self.stream.read_exact(&mut pdu[1..]).expect("the rest");
        (header[0], pdu)
    }
}
