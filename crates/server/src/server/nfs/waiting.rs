//! Calls of a connection that other threads execute, and their answers.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ::nfs::{
    Answer, Backend, Clients, Completed, Export, ExportId, Refusal, ReplyCache, WaitingCall,
};
use net::Accepted;
use volume::Charge;

use super::super::Core;
use crate::Transport;
use crate::nfs::{Share, transfer_bytes_max};
use crate::workers::Workers;

/// The calls of a connection that other threads execute.
#[derive(Default)]
pub(super) struct Waiting {
    /// For these calls and their replies: charged when the first comes.
    charge: Option<Charge>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
}

impl Waiting {
    /// Charges the memory of these calls, if it is not. Returns whether it is.
    pub(super) fn charge(&mut self, core: &Core) -> bool {
        if self.charge.is_none() {
            self.charge = core.budget.reserve(WaitingCall::BYTES_MAX).ok();
        }
        self.charge.is_some()
    }

    /// Has a call executed by one of `workers`. Returns the call if that is not possible now.
    pub(super) fn submit(
        &self,
        call: WaitingCall,
        workers: &Arc<Workers>,
        (core, accepted, transport): (&Arc<Core>, &Accepted, Transport),
    ) -> Result<(), WaitingCall> {
        let mut backend = WorkerBackend {
            core: Arc::clone(core),
            peer: accepted.peer,
            local: accepted.local.ip(),
            transport,
            export: None,
        };
        let (answers, connection) = (Arc::clone(&self.answers), accepted.id);
        // A job that is not taken returns its call here.
        let slot = Arc::new(Mutex::new(Some(call)));
        let of_job = Arc::clone(&slot);
        let is_taken = workers.push(Box::new(move || {
            let Some(call) = take(&of_job) else {
                return;
            };
            let executed = catch_unwind(AssertUnwindSafe(|| {
                let core = Arc::clone(&backend.core);
                let _executing = core.exports.begin_call();
                call.execute(&mut backend)
            }));
            let handle = &backend.core.handle;
            match executed {
                Ok(answer) => {
                    let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
                    answers.push_back(answer);
                    drop(answers);
                    handle.wake(connection);
                }
                // The panic was reported when it happened.
                Err(_) => handle.close(connection),
            }
        }));
        if is_taken {
            return Ok(());
        }
        take(&slot).map_or(Ok(()), Err)
    }

    /// The next answer.
    pub(super) fn next(&self) -> Option<Answer> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.pop_front()
    }
}

fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// What a call asks of the server in a thread that is not its connection's. Shares are looked up
/// anew each time, and calls are counted by the connection.
struct WorkerBackend {
    core: Arc<Core>,
    peer: SocketAddr,
    local: IpAddr,
    transport: Transport,
    export: Option<Export>,
}

impl WorkerBackend {
    fn find(&mut self, is_it: impl Fn(&Share) -> bool) -> Result<&Export, Refusal> {
        let shares = self.core.exports.shares();
        let share = shares.iter().find(|share| is_it(share));
        let share = share.ok_or(Refusal::Unknown)?;
        if let Some(refusal) = share.refusal(self.peer, self.transport) {
            return Err(refusal);
        }
        Ok(self.export.insert(share.export.clone()))
    }
}

impl Backend for WorkerBackend {
    fn by_id(&mut self, id: ExportId) -> Result<&Export, Refusal> {
        self.find(|share| share.export.id == id)
    }

    fn by_path(&mut self, path: &[u8]) -> Result<&Export, Refusal> {
        self.find(|share| share.export.path.as_bytes() == path)
    }

    fn each_export(&mut self, take: &mut dyn FnMut(&str, &[String])) {
        self.core.exports.each_for(self.peer.ip(), take);
    }

    fn each_mount(&mut self, _: &mut dyn FnMut(&str, &[u8])) {}

    fn mounted(&mut self, path: &[u8]) {
        let client = self.client();
        let exports = &self.core.exports;
        exports.with_mounts(|mounts| mounts.add(client, path));
    }

    fn unmounted(&mut self, _: Option<&[u8]>) {}

    fn write_verifier(&self) -> [u8; 8] {
        self.core.exports.verifier()
    }

    fn scope(&self) -> [u8; 16] {
        self.core.exports.scope()
    }

    fn client(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }

    fn transfer_bytes_max(&self) -> usize {
        transfer_bytes_max(self.transport)
    }

    /// Channels are bound in the connection's own thread.
    fn back_channel(&self) -> Option<u64> {
        None
    }

    fn local(&self) -> IpAddr {
        self.local.to_canonical()
    }

    fn with_replies(&mut self, use_cache: &mut dyn FnMut(&mut ReplyCache)) {
        self.core.exports.with_replies(use_cache);
    }

    fn with_clients(&mut self, use_clients: &mut dyn FnMut(&mut Clients)) {
        self.core.exports.with_clients(use_clients);
    }

    fn settle_records(&mut self) {
        self.core.exports.settle_records();
    }

    fn charge_waiting(&mut self) -> bool {
        false
    }

    fn submit(&mut self, call: WaitingCall) -> Result<(), WaitingCall> {
        Err(call)
    }

    fn next_answer(&mut self) -> Option<Answer> {
        None
    }

    fn count(&mut self, _: &Completed, _: Instant) {}
}
