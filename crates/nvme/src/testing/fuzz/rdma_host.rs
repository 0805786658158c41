//! The host's end over RDMA: a session with a controller whose messages are determined by the
//! input.

use std::collections::HashMap;

use block::{Blocks, Extent, Lba};
use session::{HostWork, Reach, RemoteBuffer, RemoteKey};
use zerocopy::{FromBytes, IntoBytes};

use super::take;
use crate::host::{BufferRange, Command, CommandKey, Outcome, Transfer, io};
use crate::rdma::wire::{ConnectReject, ConnectReply, RejectStatus};
use crate::rdma::{HostConfig, HostSession};
use crate::wire::{Cid, Cqe, Nsid, SglKind, Sqe, Status};

const KEYS: u16 = 6;
const IN_FLIGHT_MAX: u16 = 5;
const IN_CAPSULE_MAX_BYTES: u32 = 4096;
/// Lengths of the commands by key: of each three keys one reads, one writes, one has no data.
const LENS: [u32; KEYS as usize] = [512, 512, 0, 65_536, 12_288, 0];

/// A host session whose controller and queue pair follow the input. Whatever they do, each command
/// ends once, and its key is closed then. Bare messages are also parsed as private data of replies
/// to a connection request.
pub fn rdma_host_session(input: &[u8]) {
    let mut script = input;
    let mut session = HostSession::new(HostConfig {
        keys: KEYS,
        in_flight_max: IN_FLIGHT_MAX,
        in_capsule_max_bytes: IN_CAPSULE_MAX_BYTES,
        in_capsule_batch_max: 1,
    });
    let mut pair = Pair::default();
    let mut done = Vec::new();
    let mut in_flight = [false; KEYS as usize];
    while let Some([step, key, a, b]) = take(&mut script) {
        for key in 0..KEYS {
            let is_free = !in_flight[usize::from(key)];
            in_flight[usize::from(key)] |=
                is_free && session.submit(CommandKey(key), &command(key)).is_ok();
        }
        pair.room = usize::from(step >> 4);
        pair.has_keys = b % 8 != 7;
        session.poll_transmit(&mut pair);
        let index = u16::from(key) % KEYS;
        let taken = match step % 4 {
            // One identifier in 32 is wrong.
            0 | 1 => {
                let cid = pair.cids[usize::from(index)] ^ if key >= 248 { 0x1000 } else { 0 };
                let status = Status::from_field(u16::from(a & 7) * 0x81);
                let cqe = Cqe::new(Cid(cid), status, b.into());
                let len = if a >= 252 { usize::from(b % 16) } else { 16 };
                let invalidated = pair.invalidated(index, b);
                session.handle_message(&cqe.as_bytes()[..len], invalidated, &mut pair, &mut done)
            }
            2 => Ok(()),
            _ => {
                let len = usize::from(a).min(script.len());
                let (raw, rest) = script.split_at(len);
                script = rest;
                answer_to_connect(raw);
                session.handle_message(raw, None, &mut pair, &mut done)
            }
        };
        check(&mut done, &mut in_flight, &pair);
        if taken.is_err() {
            assert!(!session.wants_transmit());
            session.handle_close(&mut pair);
            assert!(pair.open.is_empty(), "no key outlives its session");
            return;
        }
        let busy = in_flight.iter().filter(|busy| **busy).count();
        assert_eq!(usize::from(session.in_flight()), busy);
        assert!(session.in_flight() <= IN_FLIGHT_MAX);
    }
}

/// Private data of a controller's reply to a connection request, and of its rejection.
fn answer_to_connect(private_data: &[u8]) {
    if let Some(reply) = ConnectReply::parse(private_data) {
        let again = ConnectReply::new(reply.controller_receives.get());
        assert_eq!(again.as_bytes()[..4], private_data[..4]);
    }
    let Some(reject) = ConnectReject::parse(private_data) else {
        assert!(private_data.len() < size_of::<ConnectReject>());
        return;
    };
    let status = reject.status.get();
    let known = RejectStatus::from_wire(status);
    assert!(known.is_none_or(|known| ConnectReject::new(known).status.get() == status));
}

/// Each command ends once, when its key is closed.
fn check(done: &mut Vec<Outcome>, in_flight: &mut [bool; KEYS as usize], pair: &Pair) {
    for outcome in done.drain(..) {
        let key = outcome.key;
        let busy = &mut in_flight[usize::from(key.0)];
        assert!(*busy, "a command ended twice");
        *busy = false;
        let is_open = pair.open.values().any(|range| range.slot == key.0);
        assert!(!is_open, "its key is open");
    }
}

fn command(key: u16) -> Command {
    let len_bytes = LENS[usize::from(key)];
    let extent = Extent::new(Lba(0), Blocks(u64::from(len_bytes) / 512));
    let data = BufferRange::first(key, len_bytes);
    match key % 3 {
        0 => io::read(Nsid(1), extent, data),
        1 => io::write(Nsid(1), extent, data),
        _ => io::flush(Nsid(1)),
    }
}

/// A queue pair with its memory, and the host's commands as the controller sees them.
#[derive(Default)]
struct Pair {
    room: usize,
    has_keys: bool,
    keys_made: u32,
    open: HashMap<u32, BufferRange>,
    /// Keys that the controller invalidated.
    gone: Vec<u32>,
    cids: [u16; KEYS as usize],
}

impl Pair {
    /// The key that a response invalidates: usually the key of its command, sometimes no key or the
    /// key of another command.
    fn invalidated(&mut self, index: u16, b: u8) -> Option<RemoteKey> {
        let wanted = match b % 4 {
            0 => return None,
            1 if b >= 240 => (index + 1) % KEYS,
            _ => index,
        };
        let found = self.open.iter().find(|(_, range)| range.slot == wanted);
        let key = found.map(|(key, _)| *key)?;
        self.open.remove(&key);
        self.gone.push(key);
        Some(RemoteKey(key))
    }
}

impl HostWork for Pair {
    fn open(&mut self, key: u16, range: BufferRange, reach: Reach) -> Option<RemoteBuffer> {
        assert_eq!(key, range.slot, "its own slot");
        if !self.has_keys {
            return None;
        }
        let Command { transfer, .. } = command(range.slot);
        let expected = match reach {
            Reach::Write => Transfer::ToHost(range),
            Reach::Read => Transfer::ToController(range),
        };
        assert_eq!(transfer, expected, "its own bytes, in its own direction");
        self.keys_made += 1;
        self.open.insert(self.keys_made, range);
        Some(RemoteBuffer {
            address: u64::from(range.slot) << 32,
            key: RemoteKey(self.keys_made),
            len_bytes: range.len_bytes,
        })
    }

    fn close(&mut self, key: RemoteKey) {
        let was_open = self.open.remove(&key.0).is_some();
        assert!(
            was_open || self.gone.contains(&key.0),
            "a key is closed once"
        );
    }

    fn send(&mut self, head: &[u8], data: Option<BufferRange>) -> bool {
        let sqe = Sqe::read_from_bytes(head).expect("an entry");
        if self.room == 0 {
            return false;
        }
        self.room -= 1;
        match sqe.sgl1.kind() {
            SglKind::InCapsule { len_bytes, .. } => {
                assert_eq!(data.map(|range| range.len_bytes), Some(len_bytes));
                assert!(len_bytes <= IN_CAPSULE_MAX_BYTES);
            }
            SglKind::Keyed { len_bytes, key, .. } => {
                let range = self.open.get(&key);
                assert_eq!(range.map_or(0, |range| range.len_bytes), len_bytes);
                assert_eq!(data, None);
            }
            other => panic!("{other:?} has no place in NVMe/RDMA"),
        }
        self.cids[usize::from(CommandKey::of(sqe.cid()).0)] = sqe.cid.get();
        true
    }
}
