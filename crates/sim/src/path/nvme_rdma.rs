//! NVMe/RDMA: messages, and the host's memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use block::Completion;
use nvme::host::{Command, Transfer};
use nvme::testing::RdmaHost;
use nvme::wire::fabrics::{Configuration, ConnectData, Property, PropertySqe};
use nvme::wire::{Cid, Sqe};
use rand::Rng;
use rand::rngs::SmallRng;
use session::Session;

use super::nvme_tcp::{Ends, Pairs, commands, second_of};
use super::{AfterCut, DEPTH, Done, Path, Request, SLOT_BYTES};

const ADMIN_ENTRIES: u16 = 32;

pub(crate) struct NvmeRdmaPath {
    admin: RdmaHost,
    io: RdmaHost,
    /// Capsules in flight to the target.
    outbox: VecDeque<Sqe>,
    /// Commands that were not answered.
    in_flight: usize,
    pairs: Pairs,
}

impl NvmeRdmaPath {
    pub(crate) fn new(ends: &Ends) -> Self {
        let [first, second] = ends.connections;
        let mut admin = RdmaHost::new(Arc::clone(&ends.subsystem), first, 0, ADMIN_ENTRIES);
        let connected = admin.connect(0, ConnectData::CONTROLLER_ANY, ADMIN_ENTRIES);
        let cqe = connected.expect("a good capsule");
        assert!(cqe.status().is_success(), "{:?}", cqe.status());
        let enable = u64::from(Configuration::ENABLE_NVM.0);
        let set = PropertySqe::set(Cid(1), Property::Configuration, enable);
        let status = admin.status(&zerocopy::transmute!(set), &[]);
        assert!(status.is_success(), "{status:?}");
        let mut io = RdmaHost::new(Arc::clone(&ends.subsystem), second, 1, DEPTH + 1);
        let connected = io.connect(1, cqe.dw0() as u16, DEPTH + 1);
        let cqe = connected.expect("a good capsule");
        assert!(cqe.status().is_success(), "{:?}", cqe.status());
        Self {
            admin,
            io,
            outbox: VecDeque::new(),
            in_flight: 0,
            pairs: Pairs::default(),
        }
    }
}

/// The submission queue entry of a command, with its data in the host's memory.
fn entry(id: u16, command: &Command) -> Sqe {
    let mut sqe = command.sqe;
    sqe.cid = id.into();
    if let Transfer::ToHost(range) | Transfer::ToController(range) = command.transfer {
        let start = usize::from(range.slot) * SLOT_BYTES + range.offset as usize;
        sqe.sgl1 = RdmaHost::keyed(start, range.len_bytes as usize);
    }
    sqe
}

impl Path for NvmeRdmaPath {
    fn is_up(&mut self, now: Instant) -> bool {
        self.io.now = now;
        true
    }

    fn buffer(&mut self, key: u16) -> &mut [u8] {
        let start = usize::from(key) * SLOT_BYTES;
        &mut self.io.memory[start..start + SLOT_BYTES]
    }

    fn submit(&mut self, key: u16, request: Request) -> bool {
        let (first, second) = commands(key, request, self.buffer(key));
        let len = 1 + usize::from(second.is_some());
        if self.in_flight + len > usize::from(DEPTH) {
            return false;
        }
        self.in_flight += len;
        self.outbox.push_back(entry(key, &first));
        if let Some(second) = second {
            self.outbox.push_back(entry(second_of(key), &second));
            self.pairs.begin(key);
        }
        true
    }

    fn take_done(&mut self) -> Vec<Done> {
        let responses = self.io.responses();
        self.in_flight -= responses.len();
        let cqes = responses.into_iter().map(|response| response.cqe);
        cqes.filter_map(|cqe| self.pairs.end(cqe.cid.get(), cqe.status()))
            .collect()
    }

    fn shuffle(&mut self, now: Instant, rng: &mut SmallRng) {
        self.io.now = now;
        if self.io.session.poll_timeout().is_some_and(|due| due <= now) {
            let io = &mut self.io;
            let result = io.session.handle_timeout(now, &mut io.backend);
            result.expect("nothing is late in this world");
            io.poll();
        }
        if rng.random_bool(0.5) {
            if let Some(sqe) = self.outbox.pop_front() {
                let taken = self.io.send(&sqe, &[]);
                taken.expect("our host keeps to the protocol");
            }
        } else {
            let answered = self.io.answer_read();
            answered.expect("our host keeps to the protocol");
        }
    }

    fn complete(&mut self, now: Instant, completion: Completion) {
        self.io.now = now;
        self.io.complete(completion);
    }

    fn cut(&mut self, now: Instant) -> AfterCut {
        for host in [&mut self.io, &mut self.admin] {
            host.session.handle_close(now, &mut host.backend);
        }
        AfterCut::Ended
    }
}
