//! Making queue pairs, posting requests to them, and failing them.

use std::ffi::c_uint;

use roce::wire::NakCode;

use super::adapter::Hw;
use super::queue_pair::{Qp, Source, Work};
use super::queue_pairs::{Label, Serial, depths};
use super::regions::remote_rights;
use super::sys::{ibv_qp_attr, ibv_sge, qp_attr_mask, qp_state, wr};
use crate::HwError;
use crate::verbs::{
    Completion, Data, Event, Gather, PostError, QpConfig, QpFailure, QpState, Qpn, RecvRequest,
    Remote, SendOp, SendRequest, WorkStatus,
};

impl Hw {
    pub(super) fn create_pair(&mut self, config: QpConfig) -> Result<Qpn, HwError> {
        let depths = depths(&config);
        let room = self.context.caps.queue_depth_max;
        for (what, asked) in [
            ("requests in a send queue", depths.sends),
            ("receives in a queue", depths.receives),
        ] {
            if asked > room {
                return Err(HwError::Room { what, asked, room });
            }
        }
        let completions = self.pairs.completions.plus(depths);
        self.queues
            .reserve(completions, self.context.caps.completions_max)?;
        let pd = self.pd(config.domain)?;
        let qp = Qp::new(&pd, &self.queues.cqs, depths)?;
        let attr = ibv_qp_attr {
            qp_state: qp_state::INIT,
            qp_access_flags: remote_rights(config.access),
            port_num: self.anchor.device_port(),
            ..ibv_qp_attr::default()
        };
        // From now on it takes receives. Its connection sets the partition.
        let mask = qp_attr_mask::STATE
            | qp_attr_mask::ACCESS_FLAGS
            | qp_attr_mask::PKEY_INDEX
            | qp_attr_mask::PORT;
        qp.modify(&attr, mask)?;
        Ok(self.pairs.insert(qp, config))
    }

    pub(super) fn destroy_pair(&mut self, qpn: Qpn) {
        let Some((serial, pair)) = self.pairs.by_qpn(qpn) else {
            return;
        };
        pair.state = QpState::Error;
        pair.qp.fail();
        if let Some(id) = pair.connection.take() {
            // If the connection has ended already, there is nothing to disconnect.
            let _ = self.end_connection(id);
        }
        // Takes the completions that the adapter still has. The others are flushed below.
        let _ = self.reap();
        self.regions.remove_owned(serial);
        if let Some(pair) = self.pairs.remove(serial) {
            let mut tracker = pair.tracker;
            drop(pair.qp);
            // The adapter may give the number to the next.
            let is_of_it =
                |event: &Event| matches!(event, Event::QpFailed { qpn: of, .. } if *of == qpn);
            self.events.retain(|event| !is_of_it(event));
            while let Some(completion) = tracker.flush() {
                self.completions.push_back((serial, completion));
            }
        }
    }

    /// Fails a queue pair: it takes no more requests, and everything outstanding is flushed.
    pub(super) fn fail_pair(&mut self, serial: Serial, failure: QpFailure) {
        let Some(pair) = self.pairs.get_mut(serial) else {
            return;
        };
        if pair.state == QpState::Error {
            return;
        }
        pair.state = QpState::Error;
        pair.qp.fail();
        if failure != QpFailure::Closed {
            self.events.push_back(Event::QpFailed {
                qpn: pair.qpn,
                id: pair.connection,
                failure,
            });
        }
    }

    pub(super) fn post_request(&mut self, qpn: Qpn, request: SendRequest) -> Result<(), PostError> {
        let (serial, pair) = self.pairs.by_qpn(qpn).ok_or(PostError::NoSuchQp)?;
        match pair.state {
            QpState::Init => return Err(PostError::NotConnected),
            QpState::Error => return Err(PostError::Failed),
            QpState::ReadyToSend => {}
        }
        if matches!(request.op, SendOp::Read(..)) && pair.initiator_depth == 0 {
            return Err(PostError::NoReads);
        }
        let domain = pair.config.domain;
        let ticket = pair.tracker.send(&request)?;
        let form = Form::of(&request.op);
        let source = match form.data {
            Data::Inline(data) => Source::Bytes(data),
            Data::Gather(gather) => {
                let mut parts = [ibv_sge::default(); Gather::PARTS_MAX];
                let pd = pair.qp.pd();
                let mut count = 0;
                for part in gather.parts().iter().filter(|part| part.range.len > 0) {
                    let Some(named) = self.memory.local(*part, domain, pd) else {
                        self.fail_locally(serial);
                        return Ok(());
                    };
                    parts[count] = named;
                    count += 1;
                }
                Source::Registered(parts, count)
            }
        };
        let work = Work {
            slot: ticket.number as usize,
            id: Label::of_send(serial, ticket),
            opcode: form.opcode,
            source,
            extra: form.extra,
            remote: form.remote,
            is_signaled: ticket.is_signaled,
        };
        self.pairs.hold(serial, work);
        Ok(())
    }

    /// Posts all requests since the last call to the adapter. One call posts many, since each call
    /// rings its doorbell.
    pub(super) fn post_held(&mut self) {
        let mut unposted = std::mem::take(&mut self.pairs.unposted);
        unposted
            .drain(..)
            .for_each(|serial| self.post_held_of(serial));
        self.pairs.unposted = unposted;
    }

    pub(super) fn post_held_of(&mut self, serial: Serial) {
        if self.is_gone {
            // They were flushed, or are when the queue pair is destroyed.
            return;
        }
        self.queues.watch.posted();
        if let Err(error) = self.pairs.post(serial) {
            let device = self.device();
            tracing::warn!(%error, device, "the adapter refuses requests; their connection ends");
            self.fail_pair(serial, QpFailure::Request(WorkStatus::LocalMemory));
        }
    }

    /// A request names memory that is not there: it fails before the adapter sees it.
    fn fail_locally(&mut self, serial: Serial) {
        self.post_held_of(serial);
        let status = WorkStatus::LocalMemory;
        if let Some(pair) = self.pairs.get_mut(serial) {
            let done = pair.tracker.fail_last_send(status);
            self.report(serial, done);
        }
        self.fail_pair(serial, QpFailure::Request(status));
    }

    pub(super) fn post_receive(&mut self, qpn: Qpn, request: RecvRequest) -> Result<(), PostError> {
        let (serial, pair) = self.pairs.by_qpn(qpn).ok_or(PostError::NoSuchQp)?;
        if pair.state == QpState::Error {
            return Err(PostError::Failed);
        }
        let mut into = request.into;
        into.range.len = into.range.len.min(u64::from(u32::MAX >> 1));
        let part = self.memory.local(into, pair.config.domain, pair.qp.pd());
        pair.tracker.recv(request.id)?;
        if part.is_none() {
            let done = pair.tracker.fail_last_recv(WorkStatus::LocalMemory);
            self.report(serial, done);
            let code = NakCode::RemoteOperationalError;
            self.fail_pair(serial, QpFailure::Responder(code));
            return Ok(());
        }
        let part = part.filter(|part| part.length > 0);
        let posted = pair.qp.post_recv(Label::of_recv(serial), part);
        posted.map_err(|error| {
            pair.tracker.retract_recv();
            refused(&error)
        })
    }

    /// Lets the caller take a completion.
    pub(super) fn report(&mut self, serial: Serial, completion: Option<Completion>) {
        if let Some(completion) = completion {
            self.completions.push_back((serial, completion));
        }
    }
}

/// A request as adapters take it.
struct Form {
    opcode: c_uint,
    data: Data,
    extra: u32,
    remote: Option<Remote>,
}

impl Form {
    const fn of(op: &SendOp) -> Self {
        let (opcode, data, extra, remote) = match *op {
            SendOp::Send(data) => (wr::SEND, data, 0, None),
            SendOp::SendImmediate(data, value) => (wr::SEND_WITH_IMM, data, value.to_be(), None),
            SendOp::SendInvalidate(data, key) => (wr::SEND_WITH_INV, data, key.0, None),
            SendOp::Write(data, to) => (wr::RDMA_WRITE, data, 0, Some(to)),
            SendOp::WriteImmediate(data, to, value) => {
                (wr::RDMA_WRITE_WITH_IMM, data, value.to_be(), Some(to))
            }
            SendOp::Read(into, from) => (wr::RDMA_READ, Data::Gather(into), 0, Some(from)),
        };
        Self {
            opcode,
            data,
            extra,
            remote,
        }
    }
}

/// Why the adapter took no request.
fn refused(error: &std::io::Error) -> PostError {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => PostError::Full,
        _ => PostError::Failed,
    }
}
