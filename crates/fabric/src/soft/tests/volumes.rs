//! WRITEs that are sent from a volume.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block::testing::VecVolume;
use block::{BlockSize, Blocks, ByteRange, Extent, Lba, Op, Volume};
use net::Source;
use session::Placement;

use super::*;
use crate::verbs::{Access, Data, Gather, ProtectionDomain, SendOp, Signal, WorkId, WorkStatus};

const PORT: u16 = 4420;
const BLOCK: usize = 4096;
const BLOCKS: u64 = 16;
const WRITABLE: Access = Access {
    read: false,
    write: true,
    atomic: false,
    invalidate: false,
};

/// A volume that may be withdrawn.
struct Served {
    volume: VecVolume,
    may_send: AtomicBool,
}

impl Source for Served {
    fn volume(&self) -> &dyn Volume {
        &self.volume
    }

    fn may_send(&self) -> bool {
        self.may_send.load(Ordering::Relaxed)
    }
}

impl Served {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            volume: VecVolume::new(BlockSize::B4096, BLOCKS),
            may_send: AtomicBool::new(true),
        })
    }

    fn fill(&self, lba: u64, byte: u8) {
        let extent = Extent::new(Lba(lba), Blocks(1));
        let data = &[byte; BLOCK];
        let written = self.volume.execute(Op::Write { extent, data });
        written.expect("the block is there");
    }
}

/// Two ends with a connection, and memory of the second's that the first may write.
struct Ends {
    from: Soft,
    to: Soft,
    qpn: Qpn,
    memory: RegionId,
    remote: Remote,
    done: Vec<(u64, WorkStatus)>,
    is_connected: bool,
    has_failed: bool,
}

impl Ends {
    /// At their addresses, with packets of at most `path_mtu`.
    fn at(udp_port: u16, path_mtu: PathMtu) -> Self {
        let bind = |host| {
            let local = (Ipv4Addr::new(127, 38, 2, host), udp_port).into();
            let options = SoftOptions {
                path_mtu,
                ..SoftOptions::at(local)
            };
            Soft::bind(&options).expect("a port of loopback is free")
        };
        let (mut from, mut to) = (bind(1), bind(2));
        to.listen(PORT).expect("any port will do");
        let len = BLOCK * BLOCKS as usize;
        let memory = to.allocate(len).expect("memory");
        let region = Region {
            domain: ProtectionDomain(0),
            placement: place(memory, 0, len as u64),
            base_va: 0,
            access: WRITABLE,
        };
        let remote = to.register(region).expect("a key");
        let qpn = from.create_qp(QpConfig::default()).expect("room");
        let mut ends = Self {
            from,
            to,
            qpn,
            memory,
            remote,
            done: Vec::new(),
            is_connected: false,
            has_failed: false,
        };
        let to = ConnectTo {
            address: ends.to.local_addr().ip(),
            port: PORT,
            private_data: b"",
        };
        ends.from.connect(qpn, &to).expect("it is asked for");
        ends.until("a connection", |ends| ends.is_connected);
        ends
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !done(self) {
            assert!(Instant::now() < end, "{what} did not come");
            self.turn();
        }
    }

    fn turn(&mut self) {
        for provider in [&mut self.from, &mut self.to] {
            provider.poll(Wait::Poll).expect("the socket works");
        }
        while let Some(done) = self.from.next_completion() {
            self.done.push((done.id.0, done.status));
        }
        while let Some(event) = self.from.next_event() {
            self.is_connected |= matches!(event, Event::Connected { .. });
            self.has_failed |= matches!(event, Event::QpFailed { .. });
        }
        while let Some(event) = self.to.next_event() {
            if let Event::Request(request) = event {
                let config = QpConfig {
                    access: WRITABLE,
                    ..QpConfig::default()
                };
                let qpn = self.to.create_qp(config).expect("room");
                self.to.accept(request.id, qpn, b"").expect("it waits");
            }
        }
    }

    /// Posts a WRITE of a block of the volume to the same place of the memory.
    fn write(&mut self, id: u64, volume: RegionId, lba: u64) {
        let at = lba * BLOCK as u64;
        let part = place(volume, at, BLOCK as u64);
        let data = Data::Gather(Gather::new(&[part]).expect("one part"));
        let to = Remote {
            va: self.remote.va + at,
            ..self.remote
        };
        let request = SendRequest {
            id: WorkId(id),
            op: SendOp::Write(data, to),
            signal: Signal::Always,
        };
        self.from.post_send(self.qpn, request).expect("room");
    }

    fn block(&self, lba: u64) -> &[u8] {
        &self.to.bytes(self.memory)[lba as usize * BLOCK..][..BLOCK]
    }
}

fn place(region: RegionId, offset: u64, len: u64) -> Placement {
    Placement {
        region,
        range: ByteRange { offset, len },
    }
}

#[test]
fn writes_are_sent_from_the_volume_as_it_is_then() {
    let mut ends = Ends::at(25_011, PathMtu::B61440);
    assert!(ends.from.sends_from_volumes(ends.qpn), "they use trains");
    let served = Served::new();
    let volume = ends.from.show(served.clone()).expect("it takes volumes");
    for lba in 0..BLOCKS {
        served.fill(lba, 0xEE);
        ends.write(lba, volume, lba);
        served.fill(lba, lba as u8 + 1);
    }
    ends.until("all writes", |ends| ends.done.len() == BLOCKS as usize);
    for lba in 0..BLOCKS {
        assert_eq!(ends.done[lba as usize], (lba, WorkStatus::Success));
        assert_eq!(ends.block(lba), [lba as u8 + 1; BLOCK]);
    }
}

#[test]
fn nothing_is_sent_of_a_volume_that_was_withdrawn() {
    let mut ends = Ends::at(25_012, PathMtu::B61440);
    let served = Served::new();
    let volume = ends.from.show(served.clone()).expect("it takes volumes");
    served.fill(3, 7);
    served.may_send.store(false, Ordering::Relaxed);
    ends.write(1, volume, 3);
    ends.until("three attempts", |ends| {
        ends.from.statistics().sends_refused >= 3
    });
    assert_eq!(ends.block(3), [0; BLOCK]);
    assert_eq!(ends.done, []);
    // It was given back before the queue pair gave up.
    served.may_send.store(true, Ordering::Relaxed);
    ends.until("the write", |ends| !ends.done.is_empty());
    assert_eq!(ends.done, [(1, WorkStatus::Success)]);
    assert_eq!(ends.block(3), [7; BLOCK]);
    served.may_send.store(false, Ordering::Relaxed);
    ends.write(2, volume, 3);
    ends.until("the end of its patience", |ends| ends.has_failed);
    assert_eq!(ends.done.last(), Some(&(2, WorkStatus::RetryExceeded)));
}

#[test]
fn a_volume_that_was_released_is_no_longer_there() {
    let mut ends = Ends::at(25_013, PathMtu::B61440);
    let served = Served::new();
    let volume = ends.from.show(served.clone()).expect("it takes volumes");
    let region = Region {
        domain: ProtectionDomain(0),
        placement: place(volume, 0, 512),
        base_va: 0,
        access: Access::default(),
    };
    let registered = ends.from.register(region);
    assert!(matches!(registered, Err(FabricError::NotAllocated)));
    assert!(ends.from.bytes(volume).is_empty());
    ends.from.release(volume);
    assert_eq!(Arc::strong_count(&served), 1);
    ends.write(1, volume, 0);
    ends.until("its failure", |ends| ends.has_failed);
    assert_eq!(ends.done, [(1, WorkStatus::LocalMemory)]);
}

#[test]
fn what_is_summed_is_not_sent_from_volumes() {
    // Packets that foreign peers understand have an ICRC.
    let mut ends = Ends::at(25_014, PathMtu::B4096);
    assert!(!ends.from.sends_from_volumes(ends.qpn));
    let served = Served::new();
    let volume = ends.from.show(served).expect("it takes volumes");
    ends.write(1, volume, 0);
    ends.until("its failure", |ends| ends.has_failed);
    assert_eq!(ends.done, [(1, WorkStatus::LocalMemory)]);
}
