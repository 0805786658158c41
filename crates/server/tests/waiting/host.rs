//! A host of the volume: our own initiator, or over iSER, which that does not have, a small one of
//! the tests.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use block::{Blocks, Extent, Lba};
use initiator::{
    Backoff, CommandError, Device, DeviceOptions, OnLoss, Operation, Queue, Request, Slot,
    WaitStrategy,
};
use iscsi::iser::wire::Tag;
use iscsi::testing::Received;
use iscsi::wire::response;
use scsi::host::{Command, CommandFailure, ReceivedSense, Transfer, io};
use session::BufferRange;

use crate::peer::{Addresses, GOOD, Peer, READ, WRITE};
use crate::{BLOCKS, IQN, LBA, LEN_BYTES};

/// How a command ended.
pub type Outcome = Result<(), CommandError>;

/// What the tests need of a host, whose commands are all on the same blocks.
pub trait Host {
    /// The data of `slot`.
    fn buffer_mut(&mut self, slot: Slot) -> &mut [u8];

    /// Sends a command.
    fn submit(&mut self, slot: Slot, operation: Operation);

    /// Handles input until a command ends or for `time`. Returns the outcomes of commands that have
    /// ended.
    fn wait(&mut self, time: Duration) -> Vec<Outcome>;

    /// Lets a millisecond pass, during which the target reaches the host's memory.
    fn pass(&mut self);
}

/// Our initiator.
pub struct Initiator {
    queue: Queue,
    /// Queues that stay idle.
    _others: Vec<Queue>,
    _device: Device,
}

impl Initiator {
    pub fn connect(url: &str) -> Self {
        let options = DeviceOptions {
            queues: 2,
            depth: 8,
            buffer_bytes: 64 << 10,
            on_loss: OnLoss::Fail,
            backoff: Backoff {
                first: Duration::from_millis(1),
                max: Duration::from_millis(20),
                give_up_after: Duration::from_secs(2),
                ..Backoff::default()
            },
            ..DeviceOptions::default()
        };
        let url = url.parse().expect("a URL");
        let mut device = Device::connect(&url, &options).expect("attaches");
        let mut queues = device.take_queues();
        Self {
            queue: queues.remove(0),
            _others: queues,
            _device: device,
        }
    }
}

impl Host for Initiator {
    fn buffer_mut(&mut self, slot: Slot) -> &mut [u8] {
        &mut self.queue.buffer_mut(slot)[..LEN_BYTES]
    }

    fn submit(&mut self, slot: Slot, operation: Operation) {
        let request = Request {
            slot,
            operation,
            extent: extent(),
        };
        self.queue.submit(request).expect("the slot is free");
        let mut done = Vec::new();
        let polled = self.queue.poll(Instant::now(), &mut done);
        polled.expect("connected");
        assert_eq!(done, [], "the volume makes commands wait");
    }

    fn wait(&mut self, time: Duration) -> Vec<Outcome> {
        let mut done = Vec::new();
        let waited = self.queue.wait(WaitStrategy::Sleep, time, &mut done);
        assert_eq!(waited.expect("the queue lives"), done.len());
        done.iter().map(|done| done.result).collect()
    }

    fn pass(&mut self) {
        thread::sleep(Duration::from_millis(1));
    }
}

/// A host over iSER. It repeats commands that a unit attention ended, and does not log out when the
/// target asks for it.
pub struct IserHost {
    peer: Peer,
    in_flight: Vec<InFlight>,
    next_itt: u32,
}

struct InFlight {
    itt: u32,
    slot: Slot,
    operation: Operation,
    /// The registration of the slot's data.
    tag: Tag,
}

impl IserHost {
    pub fn connect(from: SocketAddr, to: SocketAddr) -> Self {
        let peer = Peer::connect(from, to, Addresses::InFull);
        let mut peer = peer.expect("accepts the connection");
        let status = peer.log_in("iqn.2026-11.com.example:host", IQN);
        assert_eq!(status, GOOD);
        Self {
            peer,
            in_flight: Vec::new(),
            next_itt: 1,
        }
    }

    /// The outcome of a command that the target has answered, unless it is to be repeated.
    fn on_answer(&mut self, answer: &Received) -> Option<Outcome> {
        // The target may ask for a logout first, or for a sign of life.
        if answer.bhs.opcode() != response::SCSI_RESPONSE {
            return None;
        }
        let itt = answer.bhs.itt.get();
        let at = self.in_flight.iter().position(|it| it.itt == itt);
        let ended = self.in_flight.remove(at.expect("a command in flight"));
        self.peer.invalidate(ended.tag);
        let (response, status) = answer.status();
        assert_eq!(response, 0, "the target executed the command");
        if status == 0 {
            return Some(Ok(()));
        }
        let sense_len = answer.segment.first_chunk::<2>();
        let sense = sense_len.and_then(|_| ReceivedSense::parse(&answer.segment[2..]));
        if sense.is_some_and(|sense| sense.attention().is_some()) {
            self.submit(ended.slot, ended.operation);
            return None;
        }
        let failure = CommandFailure::Status { status, sense };
        Some(Err(CommandError::Scsi(failure)))
    }
}

impl Host for IserHost {
    fn buffer_mut(&mut self, slot: Slot) -> &mut [u8] {
        &mut self.peer.data()[usize::from(slot.0) * LEN_BYTES..][..LEN_BYTES]
    }

    fn submit(&mut self, slot: Slot, operation: Operation) {
        let offset = u64::from(slot.0) * LEN_BYTES as u64;
        let tag = self.peer.register_at(offset, LEN_BYTES as u64);
        let Command { cdb, transfer } = command(operation);
        let (flags, tags) = match transfer {
            Transfer::ToHost(_) => (READ, (None, Some(tag))),
            Transfer::ToTarget(_) => (WRITE, (Some(tag), None)),
            Transfer::None => unreachable!("the tests read and write"),
        };
        let itt = self.next_itt;
        self.next_itt += 1;
        let initiator = &mut self.peer.initiator;
        let message = initiator.command((itt, flags), &cdb, transfer.len_bytes(), &[], tags);
        self.peer.send(&message);
        self.in_flight.push(InFlight {
            itt,
            slot,
            operation,
            tag,
        });
    }

    fn wait(&mut self, time: Duration) -> Vec<Outcome> {
        let end = Instant::now() + time;
        let mut done = Vec::new();
        while done.is_empty() && Instant::now() < end {
            self.peer.turn();
            while let Some(answer) = self.peer.try_receive() {
                done.extend(self.on_answer(&answer));
            }
            if self.peer.is_gone {
                let lost = self.in_flight.drain(..);
                done.extend(lost.map(|_| Err(CommandError::ConnectionLost)));
            }
        }
        done
    }

    fn pass(&mut self) {
        self.peer.turn();
    }
}

/// Where a host over RDMA is, at RoCEv2's UDP port.
pub fn rdma_address(host: Ipv4Addr) -> SocketAddr {
    (host, roce::wire::UDP_PORT).into()
}

fn extent() -> Extent {
    Extent::new(Lba(LBA), Blocks(BLOCKS))
}

fn command(operation: Operation) -> Command {
    let data = BufferRange::first(0, LEN_BYTES as u32);
    match operation {
        Operation::Read => io::read(extent(), data),
        Operation::Write => io::write(extent(), data),
        other => unreachable!("the tests read and write, not {other:?}"),
    }
}
