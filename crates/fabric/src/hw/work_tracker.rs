//! What is outstanding at a queue pair, so that every request completes exactly once, whatever the
//! adapter reports.
//!
//! Adapters report the completion of requests that are signaled, and of those that fail. A
//! completion also completes all requests before it in the same queue. In a long run of unsignaled
//! requests, one is signaled all the same: otherwise their places in the queue would never become
//! free.

use std::collections::VecDeque;

use crate::verbs::{
    Completion, PostError, QpConfig, Qpn, Rkey, SendRequest, Signal, WorkId, WorkKind, WorkStatus,
};

/// A request of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// The caller's.
    Request {
        id: WorkId,
        kind: WorkKind,
        len_bytes: u32,
        signal: Signal,
    },
    /// The binding of a window.
    Bind,
}

/// What arrived with a receive's completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) len_bytes: u32,
    pub(super) immediate: Option<u32>,
    pub(super) invalidated: Option<Rkey>,
}

/// A request's place in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    /// Its number, which its completion carries.
    pub(super) number: u32,
    /// Whether the adapter reports its completion.
    pub(super) is_signaled: bool,
}

/// The queues of one queue pair.
#[derive(Debug)]
pub(super) struct WorkTracker {
    qpn: Qpn,
    send_depth: u16,
    recv_depth: u16,
    sends: VecDeque<Sent>,
    /// The number of the first of `sends`.
    first: u32,
    /// Requests since the last signaled one.
    unanswered: u32,
    recvs: VecDeque<WorkId>,
    /// Requests that are posted, or completed but not yet taken by the caller. This bounds the
    /// completions.
    sends_held: u16,
    recvs_held: u16,
    binds: u16,
}

impl WorkTracker {
    /// The number of bits of a request's number.
    pub(super) const NUMBER_BITS: u32 = 31;
    const NUMBER_MASK: u32 = (1 << Self::NUMBER_BITS) - 1;

    pub(super) fn new(qpn: Qpn, config: &QpConfig) -> Self {
        Self {
            qpn,
            send_depth: config.send_depth,
            recv_depth: config.recv_depth,
            sends: VecDeque::with_capacity(config.send_depth.into()),
            first: 0,
            unanswered: 0,
            recvs: VecDeque::with_capacity(config.recv_depth.into()),
            sends_held: 0,
            recvs_held: 0,
            binds: 0,
        }
    }

    /// Adds a request to the send queue.
    pub(super) fn send(&mut self, request: &SendRequest) -> Result<Ticket, PostError> {
        if self.sends_held >= self.send_depth {
            return Err(PostError::Full);
        }
        self.sends_held += 1;
        let sent = Sent::Request {
            id: request.id,
            kind: request.op.kind(),
            len_bytes: request.op.len_bytes(),
            signal: request.signal,
        };
        Ok(self.push(sent, request.signal != Signal::OnError))
    }

    /// Adds the binding of a window.
    pub(super) fn bind(&mut self) -> Result<Ticket, PostError> {
        if self.binds >= self.send_depth {
            return Err(PostError::Full);
        }
        self.binds += 1;
        Ok(self.push(Sent::Bind, false))
    }

    /// Removes the last request, which the adapter refused.
    pub(super) fn retract_send(&mut self) {
        match self.sends.pop_back() {
            Some(Sent::Request { .. }) => self.sends_held -= 1,
            Some(Sent::Bind) => self.binds -= 1,
            None => {}
        }
    }

    /// The last request fails before the adapter sees it.
    pub(super) fn fail_last_send(&mut self, status: WorkStatus) -> Option<Completion> {
        let sent = self.sends.pop_back()?;
        let completion = self.completion_of(sent, status);
        if completion.is_none() {
            self.forget(Some(sent));
        }
        completion
    }

    /// Adds a receive.
    pub(super) fn recv(&mut self, id: WorkId) -> Result<(), PostError> {
        if self.recvs_held >= self.recv_depth {
            return Err(PostError::Full);
        }
        self.recvs_held += 1;
        self.recvs.push_back(id);
        Ok(())
    }

    /// Removes the last receive, which the adapter refused.
    pub(super) fn retract_recv(&mut self) {
        if self.recvs.pop_back().is_some() {
            self.recvs_held -= 1;
        }
    }

    /// The last receive fails before the adapter sees it.
    pub(super) fn fail_last_recv(&mut self, status: WorkStatus) -> Option<Completion> {
        let id = self.recvs.pop_back()?;
        Some(self.completion_of_recv(id, status, Arrived::default()))
    }

    /// The adapter has completed a request of the send queue. Returns the completion for the
    /// caller, if there is one. Completions of requests that no longer exist are ignored.
    pub(super) fn sent(&mut self, number: u32, status: WorkStatus) -> Option<Completion> {
        let index = number.wrapping_sub(self.first) & Self::NUMBER_MASK;
        if index as usize >= self.sends.len() {
            return None;
        }
        for _ in 0..index {
            // The requests before it succeeded, and their caller requested no completion.
            let sent = self.pop();
            self.forget(sent);
        }
        let sent = self.pop();
        let completion = self.completion_of(sent?, status);
        if completion.is_none() {
            self.forget(sent);
        }
        completion
    }

    /// The adapter has answered for the oldest receive.
    pub(super) fn received(&mut self, status: WorkStatus, arrived: Arrived) -> Option<Completion> {
        let id = self.recvs.pop_front()?;
        Some(self.completion_of_recv(id, status, arrived))
    }

    /// The completion of the next request that the failure of the queue pair has flushed.
    pub(super) fn flush(&mut self) -> Option<Completion> {
        while let Some(sent) = self.pop() {
            match self.completion_of(sent, WorkStatus::Flushed) {
                Some(completion) => return Some(completion),
                None => self.forget(Some(sent)),
            }
        }
        self.received(WorkStatus::Flushed, Arrived::default())
    }

    /// The caller has taken a completion of this queue pair: its place is free.
    pub(super) fn release(&mut self, kind: WorkKind) {
        let held = match kind {
            WorkKind::Recv => &mut self.recvs_held,
            WorkKind::Send | WorkKind::Write | WorkKind::Read => &mut self.sends_held,
        };
        *held = held.saturating_sub(1);
    }

    fn push(&mut self, sent: Sent, wants_answer: bool) -> Ticket {
        let number = self.first.wrapping_add(self.sends.len() as u32) & Self::NUMBER_MASK;
        self.sends.push_back(sent);
        self.unanswered += 1;
        let is_signaled = wants_answer || self.unanswered >= u32::from(self.send_depth / 4);
        if is_signaled {
            self.unanswered = 0;
        }
        Ticket {
            number,
            is_signaled,
        }
    }

    fn pop(&mut self) -> Option<Sent> {
        let sent = self.sends.pop_front()?;
        self.first = self.first.wrapping_add(1) & Self::NUMBER_MASK;
        Some(sent)
    }

    /// The completion of a request that ended with `status`.
    const fn completion_of(&self, sent: Sent, status: WorkStatus) -> Option<Completion> {
        match sent {
            Sent::Request {
                id,
                kind,
                len_bytes,
                signal,
            } => {
                if matches!((signal, status), (Signal::OnError, WorkStatus::Success)) {
                    return None;
                }
                Some(Completion {
                    qpn: self.qpn,
                    id,
                    kind,
                    status,
                    len_bytes,
                    at: None,
                    immediate: None,
                    invalidated: None,
                })
            }
            Sent::Bind => None,
        }
    }

    const fn completion_of_recv(
        &self,
        id: WorkId,
        status: WorkStatus,
        arrived: Arrived,
    ) -> Completion {
        Completion {
            qpn: self.qpn,
            id,
            kind: WorkKind::Recv,
            status,
            len_bytes: arrived.len_bytes,
            at: None,
            immediate: arrived.immediate,
            invalidated: arrived.invalidated,
        }
    }

    /// Frees the places of requests that report no completion.
    fn forget(&mut self, sent: Option<Sent>) {
        match sent {
            Some(Sent::Request { .. }) => self.sends_held = self.sends_held.saturating_sub(1),
            Some(Sent::Bind) => self.binds = self.binds.saturating_sub(1),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
