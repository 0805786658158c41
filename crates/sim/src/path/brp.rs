//! BRP over TCP: a session that goes on after a cut. Its host sends commands again that are unanswered, and the target's
//! record decides whether they are executed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use block::{Completion, Volume};
use brp::host::{self, HostCommand, Outcome, Resumption};
use brp::target::TargetConfig;
use brp::tcp::{HostSession, TargetSession};
use brp::testing::{TestBackend, TestTarget};
use brp::wire::{Features, Login, Status};
use rand::rngs::SmallRng;
use session::{BufferRange, Buffers, SendList};

use super::link::HostEnd;
use super::{AfterCut, BLOCK_BYTES, DEPTH, Done, Path, Request, SLOT_BYTES};

type Link = super::link::Link<HostSession, TargetSession<TestBackend>>;

/// How long the target keeps a session, in virtual ms: longer than a run.
const HOLD_MS: u32 = 600_000;

impl HostEnd for HostSession {
    type Outcome = Outcome;

    fn wants_transmit(&self) -> bool {
        self.wants_transmit()
    }

    fn poll_transmit(&mut self, buffers: &Buffers, out: &mut SendList) {
        self.poll_transmit(buffers, out);
    }

    fn handle_sent(&mut self, len_bytes: u64, done: &mut Vec<Outcome>) {
        self.handle_sent(len_bytes, done);
    }

    fn handle_bytes(&mut self, bytes: &[u8], buffers: &mut Buffers, done: &mut Vec<Outcome>) {
        self.handle_bytes(bytes, buffers, done)
            .expect("our target keeps to the protocol");
    }
}

pub(crate) struct BrpPath {
    target: Arc<TestTarget>,
    volume: Arc<dyn Volume>,
    login: Login,
    link: Link,
    /// What the last connection that logged in has left.
    resumption: Option<Resumption>,
    /// By tag, commands that were not answered.
    unanswered: BTreeMap<u16, HostCommand>,
    /// Whether they were sent on this connection.
    is_up: bool,
}

impl BrpPath {
    pub(crate) fn new(
        now: Instant,
        target: &Arc<TestTarget>,
        volume: Arc<dyn Volume>,
        host: u64,
    ) -> Self {
        let name = format!("nqn.2014-08.org.example:host{host}");
        let login = Login::new(&name, "nqn.2014-08.org.example:test", 1);
        let mut login = login.expect("short names");
        login.tags.set(DEPTH);
        login.features.set(Features::ANY_ORDER.0);
        login.hold_ms.set(HOLD_MS);
        login.transfer_max_bytes.set(SLOT_BYTES as u32);
        let session = HostSession::new(login, None);
        let host = (session, Buffers::new(DEPTH, SLOT_BYTES));
        Self {
            link: link(now, target, &volume, host),
            target: Arc::clone(target),
            volume,
            login,
            resumption: None,
            unanswered: BTreeMap::new(),
            is_up: false,
        }
    }
}

fn link(
    now: Instant,
    target: &Arc<TestTarget>,
    volume: &Arc<dyn Volume>,
    host: (HostSession, Buffers),
) -> Link {
    let session = TargetSession::new(now, TargetConfig::default());
    let backend = TestBackend::new(target);
    let send_list_bytes = TargetSession::<TestBackend>::SEND_LIST_MIN_BYTES;
    Link::new(
        host,
        (session, backend),
        Arc::clone(volume),
        send_list_bytes,
    )
}

fn command(key: u16, request: Request) -> HostCommand {
    let data = |blocks: u64| BufferRange::first(key, (blocks as usize * BLOCK_BYTES) as u32);
    match request {
        Request::Read(extent) => host::read(extent, data(extent.blocks.0)),
        Request::Write(extent) => host::write(extent, data(extent.blocks.0)),
        Request::WriteZeroes(extent, unmap) => host::write_zeroes(extent, unmap),
        Request::Discard(extent) => host::discard(extent),
    }
}

impl Path for BrpPath {
    fn is_up(&mut self, _: Instant) -> bool {
        let link = &mut self.link;
        if !self.is_up && link.host.terms().is_some() {
            for (&tag, command) in &self.unanswered {
                let taken = link.host.submit(tag, command, &link.buffers);
                taken.expect("there are credits for each tag");
            }
            self.is_up = true;
        }
        self.is_up
    }

    fn buffer(&mut self, key: u16) -> &mut [u8] {
        self.link.buffers.slot_mut(key)
    }

    fn submit(&mut self, key: u16, request: Request) -> bool {
        let command = command(key, request);
        let link = &mut self.link;
        let is_taken = link.host.submit(key, &command, &link.buffers).is_ok();
        if is_taken {
            self.unanswered.insert(key, command);
        }
        is_taken
    }

    fn take_done(&mut self) -> Vec<Done> {
        let unanswered = &mut self.unanswered;
        let done = |outcome: Outcome| {
            unanswered.remove(&outcome.tag);
            Done {
                key: outcome.tag,
                is_success: outcome.status == Status::Success,
            }
        };
        self.link.done.drain(..).map(done).collect()
    }

    fn shuffle(&mut self, now: Instant, rng: &mut SmallRng) {
        self.link.shuffle(now, rng);
    }

    fn complete(&mut self, now: Instant, completion: Completion) {
        self.link.complete(now, completion);
    }

    fn cut(&mut self, now: Instant) -> AfterCut {
        self.link.cut(now);
        let left = self.link.host.resumption();
        self.resumption = left.or(self.resumption.take());
        let session = HostSession::new(self.login, self.resumption.as_ref());
        let done = std::mem::take(&mut self.link.done);
        let buffers = std::mem::replace(&mut self.link.buffers, Buffers::new(1, 0));
        self.link = link(now, &self.target, &self.volume, (session, buffers));
        // Outcomes that had come before the cut are known.
        for outcome in &done {
            self.unanswered.remove(&outcome.tag);
        }
        self.link.done = done;
        self.is_up = false;
        AfterCut::GoesOn
    }
}
