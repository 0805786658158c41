//! BRP over TCP or RDMA: a session that goes on after a cut. Its host sends commands again that are
//! unanswered, and the target's record decides whether they are executed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use block::{Completion, Volume};
use brp::host::{self, HostCommand, Outcome, Resumption};
use brp::target::TargetConfig;
use brp::testing::{Link, Setup, TestTarget};
use brp::wire::{Features, Login, Status};
use rand::Rng;
use rand::rngs::SmallRng;
use session::{BufferRange, Buffers};

use super::{AfterCut, BLOCK_BYTES, DEPTH, Done, End, Path, Request, SLOT_BYTES};

/// How long the target keeps a session, in virtual ms: longer than a run.
const HOLD_MS: u32 = 600_000;
/// The most data inside a reply over RDMA in bytes.
const REPLY_DATA_MAX_BYTES: u32 = 4096;

pub(crate) struct BrpPath<L> {
    target: Arc<TestTarget>,
    volume: Arc<dyn Volume>,
    setup: Setup,
    /// There is one, except within a cut.
    link: Option<L>,
    /// What the last connection that logged in has left.
    resumption: Option<Resumption>,
    /// By tag, commands that were not answered.
    unanswered: BTreeMap<u16, HostCommand>,
    /// Whether they were sent on this connection.
    is_up: bool,
}

impl<L: Link> BrpPath<L> {
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
        login.reply_data_max_bytes.set(REPLY_DATA_MAX_BYTES);
        let setup = Setup {
            login,
            config: TargetConfig::default(),
            slot_bytes: SLOT_BYTES,
        };
        let link = L::connect(now, target, Arc::clone(&volume), &setup, None);
        Self {
            target: Arc::clone(target),
            volume,
            setup,
            link: Some(link),
            resumption: None,
            unanswered: BTreeMap::new(),
            is_up: false,
        }
    }

    fn link(&mut self) -> &mut L {
        self.link.as_mut().expect("no cut is being made")
    }
}

fn command(key: u16, request: Request) -> HostCommand {
    let data = |blocks: u64| BufferRange::first(key, (blocks as usize * BLOCK_BYTES) as u32);
    match request {
        Request::Read(extent) => host::read(extent, data(extent.blocks.0)),
        Request::Write(extent) => host::write(extent, data(extent.blocks.0)),
        Request::WriteZeroes(extent, unmap) => host::write_zeroes(extent, unmap),
        Request::Discard(extent) => host::discard(extent),
        Request::CompareAndWrite(extent) => {
            host::compare_and_write(extent, data(2 * extent.blocks.0))
        }
        Request::Flush => host::flush(),
    }
}

impl<L: Link> Path for BrpPath<L> {
    fn is_up(&mut self, _: Instant) -> bool {
        let link = self.link.as_mut().expect("no cut is being made");
        if !self.is_up && link.terms().is_some() {
            for (&tag, command) in &self.unanswered {
                let taken = link.submit(tag, command);
                taken.expect("there are credits for each tag");
            }
            self.is_up = true;
        }
        self.is_up
    }

    fn buffer(&mut self, key: u16) -> &mut [u8] {
        self.link().buffers().slot_mut(key)
    }

    fn submit(&mut self, key: u16, request: Request) -> bool {
        let command = command(key, request);
        let is_taken = self.link().submit(key, &command).is_ok();
        if is_taken {
            self.unanswered.insert(key, command);
        }
        is_taken
    }

    fn take_done(&mut self) -> Vec<Done> {
        let done = std::mem::take(self.link().done());
        let done = done.into_iter().map(|outcome: Outcome| {
            self.unanswered.remove(&outcome.tag);
            Done {
                key: outcome.tag,
                end: End::of(
                    outcome.status == Status::Success,
                    outcome.status == Status::Miscompare,
                ),
            }
        });
        done.collect()
    }

    fn shuffle(&mut self, now: Instant, rng: &mut SmallRng) {
        let amount = match rng.random_range(0..4) {
            0 => rng.random_range(1..8),
            1 => rng.random_range(1..200),
            _ => rng.random_range(1..40_000),
        };
        self.link().advance(now, amount);
    }

    fn complete(&mut self, now: Instant, completion: Completion) {
        self.link().complete(now, completion);
    }

    fn cut(&mut self, now: Instant) -> AfterCut {
        let mut link = self.link.take().expect("no cut is being made");
        let done = std::mem::take(link.done());
        let buffers = std::mem::replace(link.buffers(), Buffers::new(1, 0));
        let left = link.cut(now);
        self.resumption = left.or(self.resumption.take());
        let (volume, resumption) = (Arc::clone(&self.volume), self.resumption.as_ref());
        let mut link = L::connect(now, &self.target, volume, &self.setup, resumption);
        // Outcomes that had come before the cut are known.
        for outcome in &done {
            self.unanswered.remove(&outcome.tag);
        }
        *link.buffers() = buffers;
        *link.done() = done;
        self.link = Some(link);
        self.is_up = false;
        AfterCut::GoesOn
    }
}
