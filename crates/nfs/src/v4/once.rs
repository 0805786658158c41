//! Compounds of minor version 0 that must not be executed twice. It has no sessions, so a compound
//! that a client sends again after a reconnection is known by its xid, as in version 3.
//!
//! Read first: RFC 7530 section 3.1.1, and RFC 1813 section 4.5.

use super::compound::Compound;
use super::operation::Operation;
use super::place::MinorVersion;
use crate::reply_cache::{CallKey, Known};
use crate::xdr::{Reader, Writer};
use crate::{Backend, Procedure};

impl<B: Backend> Compound<'_, B> {
    /// Looks the compound up in front of the first operation that is not to be repeated. If the
    /// compound was executed, its reply replaces what was written.
    pub(super) fn begin_once(&mut self, mut next: Reader<'_>, out: &mut Writer<'_>) -> Known {
        if self.at.minor != MinorVersion::Zero || self.at.kept.is_some() {
            return Known::New;
        }
        let operation = next
            .u32()
            .map(|number| Operation::new(number, self.at.minor));
        if !operation.is_ok_and(Operation::is_executed_once) {
            return Known::New;
        }
        let arguments = self.call.arguments.rest();
        let key = CallKey {
            xid: self.call.xid,
            procedure: Procedure::Compound,
            checksum: self.credential.checksum(crc32c::crc32c(arguments)),
            len_bytes: arguments.len(),
        };
        let (client, now) = (self.backend.client(), self.now);
        let (mut known, mut reply) = (Known::New, Vec::new());
        self.backend.with_replies(&mut |cache| {
            known = cache.begin(client, key, now, &mut Writer::new(&mut reply));
        });
        match known {
            Known::New => self.at.kept = Some(key),
            Known::Replied => {
                out.truncate(self.at.begin);
                out.raw(&reply);
            }
            Known::InProgress => {}
        }
        known
    }

    /// Keeps the reply, from the status of the compound on.
    pub(super) fn end_once(&mut self, reply: &[u8]) {
        if let Some(key) = self.at.kept {
            let client = self.backend.client();
            self.backend
                .with_replies(&mut |cache| cache.finish(client, key, reply));
        }
    }
}
