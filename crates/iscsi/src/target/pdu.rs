//! A PDU of the initiator, from its header to its end.

use std::time::Instant;

use super::full_feature::FullFeature;
use super::task::Advertised;
use crate::backend::Backend;
use crate::peer::{PeerError, REPLIES_MAX};
use crate::wire::other::reason;
use crate::wire::{Bhs, request};

/// Where the data segment of a PDU goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sink {
    /// It is gathered by the transport and passed to [`FullFeature::finish_pdu`].
    Gather,
    /// It is data-out of the task in this slot, executed as they arrive:
    /// [`FullFeature::handle_data`].
    Write {
        /// The task.
        slot: usize,
    },
    /// It is discarded. It belongs to the command in this slot, which takes no data-out.
    Ignore {
        /// The task.
        slot: usize,
    },
    /// It is discarded. It belongs to no task.
    Discard,
}

impl FullFeature {
    /// Takes the header of a PDU, which is whole and right. `advertised` are the buffers that it
    /// names.
    #[inline]
    pub(crate) fn handle_header<B: Backend>(
        &mut self,
        now: Instant,
        bhs: &Bhs,
        advertised: Advertised,
        backend: &mut B,
    ) -> Result<Sink, PeerError> {
        match bhs.opcode() {
            request::LOGIN => Err(PeerError::SecondLogin),
            request::SCSI_COMMAND => Ok(self.begin_command(now, bhs, advertised, backend)),
            request::DATA_OUT => Ok(self.begin_data_out(bhs)),
            _ => Ok(Sink::Gather),
        }
    }

    /// Takes the end of a PDU. `sink` is the result of its header; `segment` is its data segment if
    /// that was gathered.
    pub(crate) fn finish_pdu<B: Backend>(
        &mut self,
        now: Instant,
        (bhs, sink): (&Bhs, Sink),
        segment: &[u8],
        backend: &mut B,
    ) -> Result<(), PeerError> {
        self.note_heard(now);
        match bhs.opcode() {
            request::SCSI_COMMAND => {
                if let Sink::Write { slot } | Sink::Ignore { slot } = sink {
                    self.advance(slot, now, backend);
                }
            }
            request::DATA_OUT => self.finish_data_out(now, bhs, backend),
            _ => self.control(now, bhs, segment, backend),
        }
        let mut unanswered = self.replies.len() + self.fenced.len();
        if self.tasks.has_early() {
            unanswered += self.tasks.early_controls();
            self.begin_early(now, backend);
        }
        if unanswered > REPLIES_MAX {
            Err(PeerError::Flood)
        } else {
            Ok(())
        }
    }

    /// Takes a PDU whose data digest is wrong. It is rejected, and its command ends with an error
    /// (RFC 7143 §7.8: at recovery level 0 nothing is sent again).
    pub(crate) fn reject_bad_data(&mut self, bhs: &Bhs, sink: Sink) {
        if let Sink::Write { slot } = sink {
            self.fail_of_bad_data(slot);
        }
        self.replies.reject(bhs, reason::DATA_DIGEST);
    }
}
