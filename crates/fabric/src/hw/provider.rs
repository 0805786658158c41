//! The implementation of `Provider` for adapters.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::adapter::Hw;
use super::cma::{CmId, Key};
use crate::FabricError;
use crate::provider::{ConnectTo, PeerQp, Provider, Wait};
use crate::verbs::{
    CommId, Completion, Event, MemoryId, PostError, ProtectionDomain, QpConfig, Qpn, RecvRequest,
    Region, RejReason, Remote, Rkey, SendRequest,
};

impl Provider for Hw {
    fn allocate(&mut self, len_bytes: usize) -> Result<MemoryId, FabricError> {
        let domain = ProtectionDomain::default();
        let pd = self.pd(domain)?;
        Ok(self.memory.allocate(len_bytes, domain, &pd)?)
    }

    fn release(&mut self, memory: MemoryId) {
        self.regions.remove_of(memory);
        self.memory.release(memory);
    }

    fn bytes(&self, memory: MemoryId) -> &[u8] {
        self.memory.bytes(memory)
    }

    fn bytes_mut(&mut self, memory: MemoryId) -> &mut [u8] {
        self.memory.bytes_mut(memory)
    }

    fn register(&mut self, region: Region) -> Result<Remote, FabricError> {
        self.register_region(region)
    }

    fn invalidate(&mut self, key: Rkey) -> bool {
        self.regions.remove(key)
    }

    fn create_qp(&mut self, config: QpConfig) -> Result<Qpn, FabricError> {
        Ok(self.create_pair(config)?)
    }

    fn destroy_qp(&mut self, qpn: Qpn) {
        self.destroy_pair(qpn);
    }

    fn post_send(&mut self, qpn: Qpn, request: SendRequest) -> Result<(), PostError> {
        self.post_request(qpn, request)
    }

    fn post_recv(&mut self, qpn: Qpn, request: RecvRequest) -> Result<(), PostError> {
        self.post_receive(qpn, request)
    }

    fn listen(&mut self, port: u16) -> Result<(), FabricError> {
        if self.listeners.contains_key(&port) {
            return Ok(());
        }
        let id = CmId::bound_to(&self.channel, Key::Listener(port), self.address, port)?;
        id.listen(Self::BACKLOG)?;
        self.listeners.insert(port, id);
        Ok(())
    }

    fn stop_listening(&mut self, port: u16) {
        self.listeners.remove(&port);
    }

    fn connect(&mut self, qpn: Qpn, to: &ConnectTo<'_>) -> Result<CommId, FabricError> {
        self.request_connection(qpn, to)
    }

    fn pair(&mut self, qpn: Qpn, with: &PeerQp) -> Result<(), FabricError> {
        self.pair_with(qpn, with)
    }

    fn accept(&mut self, id: CommId, qpn: Qpn, private_data: &[u8]) -> Result<(), FabricError> {
        self.accept_request(id, qpn, private_data)
    }

    fn reject(
        &mut self,
        id: CommId,
        reason: RejReason,
        private_data: &[u8],
    ) -> Result<(), FabricError> {
        self.reject_request(id, reason, private_data)
    }

    fn disconnect(&mut self, id: CommId) -> Result<(), FabricError> {
        self.end_connection(id)
    }

    fn may_notice_late(&mut self, may: bool) {
        self.queues.watch.allow_late(may);
    }

    fn poll(&mut self, wait: Wait<'_>) -> io::Result<()> {
        self.post_held();
        let (at_most, event) = match wait {
            Wait::Poll => return self.turn().and(self.check_alive()),
            Wait::AtMost(at_most) => (at_most, None),
            Wait::Event { at_most, event } => (at_most, Some(event)),
        };
        if self.turn()? {
            return Ok(());
        }
        self.check_alive()?;
        // Completions between the last poll and arming raise no event, so poll again.
        if self.queues.arm()? && self.reap()? {
            return Ok(());
        }
        self.sleep(at_most, event)?;
        self.reap()?;
        self.check_alive()
    }

    fn next_completion(&mut self) -> Option<Completion> {
        let (serial, completion) = self.completions.pop_front()?;
        self.pairs.release(serial, completion.kind);
        Some(completion)
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

impl Hw {
    /// One round. Returns whether anything happened.
    fn turn(&mut self) -> io::Result<bool> {
        let has_reaped = self.reap()?;
        self.rounds += 1;
        if self.rounds >= Self::ROUNDS_PER_EVENTS {
            self.handle_events();
        }
        Ok(has_reaped || self.has_news())
    }

    /// Handles events of the device and of connections.
    fn handle_events(&mut self) {
        self.rounds = 0;
        self.handle_device_events();
        self.handle_connection_events();
        if Instant::now() >= self.next_search {
            self.follow_address();
        }
        self.watch();
    }

    /// Sleeps until something happens, at most `at_most`, and handles it.
    fn sleep(&mut self, at_most: Duration, event: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let at_most = self.queues.watch.limit(at_most.min(Self::SLEEP_MAX));
        let timeout = Timespec {
            tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        let completions = self.queues.channel.fd();
        let own = [completions, self.channel.fd(), self.context.async_fd()];
        // SAFETY: the provider holds the owners of the descriptors, so they are open during the
        // call.
        let own = own.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
        let count = own.len() + usize::from(event.is_some());
        let [first, second, third] = own;
        let mut fds = [first, second, third, event.unwrap_or(first)]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let ready = match poll(&mut fds[..count], Some(&timeout)) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let [has_completed, has_connected, has_changed, _] = fds.map(|fd| !fd.revents().is_empty());
        if has_completed {
            self.queues.take_notifications();
        }
        if ready == 0 {
            self.queues.watch.slept_without_event();
        }
        if ready == 0 || has_connected || has_changed {
            self.handle_events();
        } else {
            self.watch();
        }
        Ok(())
    }
}
