//! Calls to a client over its own connection, beside its calls and their replies.

use std::time::Instant;

use crate::Backend;
use crate::clients::{CALLBACK_BYTES_MAX, CALLBACKS_MAX, NextCallback};

/// When a connection has calls to make.
#[derive(Debug, Default)]
pub(crate) struct Callbacks {
    due: Option<Instant>,
}

/// What the calls of a connection that have no reply take, in bytes.
pub(crate) const CALLBACKS_BYTES_MAX: usize = CALLBACKS_MAX * 512;

const _: () = assert!(CALLBACK_BYTES_MAX < 512);

impl Callbacks {
    /// Takes the calls that are to be made now, as records.
    pub(crate) fn take<B: Backend>(
        &mut self,
        now: Instant,
        backend: &mut B,
        mut take: impl FnMut(Vec<u8>),
    ) {
        let Some(connection) = backend.back_channel() else {
            return;
        };
        backend.with_clients(&mut |clients| {
            loop {
                match clients.next_callback(now, connection) {
                    NextCallback::Call(record) => take(record),
                    NextCallback::Nothing(due) => {
                        self.due = due;
                        return;
                    }
                }
            }
        });
    }

    /// When there may be calls to make.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The connection has ended.
    pub(crate) fn close<B: Backend>(now: Instant, backend: &mut B) {
        if let Some(connection) = backend.back_channel() {
            backend.with_clients(&mut |clients| clients.close_connection(now, connection));
        }
    }
}

/// Takes a record that is the reply to a call of this server. Returns whether it is a reply.
pub(crate) fn take_reply<B: Backend>(record: &[u8], now: Instant, backend: &mut B) -> bool {
    let Some(xid) = crate::rpc::reply_xid(record) else {
        return false;
    };
    if let Some(connection) = backend.back_channel() {
        backend.with_clients(&mut |clients| clients.end_callback(now, connection, xid, record));
    }
    true
}
