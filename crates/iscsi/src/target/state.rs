//! Changes of shared state: the end of the session, aborts by others, and saved reservations.
//!
//! Read first: RFC 7143 §11.9 (Asynchronous Message).

use std::time::Instant;

use scsi::{Response, Sense, SenseKey};

use super::ending::Ending;
use super::full_feature::FullFeature;
use super::reply::{Numbering, ReplyHeader};
use super::task::Progress;
use crate::backend::{Backend, Saved, SessionState};
use crate::peer::PeerError;
use crate::wire::other::event;
use crate::wire::{NO_TASK_TAG, response};

/// INTERNAL TARGET FAILURE (44h/00h).
const INTERNAL_TARGET_FAILURE: scsi::Asc = scsi::Asc(0x4400);

impl FullFeature {
    /// Shared state has changed: commands were aborted by others, reservations were saved, a
    /// logical unit was removed, a command may start, or the session is to end.
    pub(crate) fn handle_wake<B: Backend>(&mut self, now: Instant, backend: &mut B) {
        self.take_aborts(backend);
        self.release_reservations(backend);
        self.fail_without_unit(backend);
        self.end_sanitizing_without_unit(now);
        self.check_session_state(now, backend);
        self.begin_early(now, backend);
        self.answer_fenced(backend);
        self.end_turn(now, backend);
    }

    /// Checks whether the session was ended by others. If so, nothing more is executed or answered,
    /// since an answer of a closed nexus would be taken for the medium's.
    #[inline]
    pub(crate) fn check_session_state<B: Backend>(&mut self, now: Instant, backend: &mut B) {
        match backend.session_state() {
            SessionState::Active => {}
            state => self.follow(state, now, backend),
        }
    }

    #[cold]
    fn follow<B: Backend>(&mut self, state: SessionState, now: Instant, backend: &mut B) {
        let ending = self.ending.after(state, now);
        if ending == self.ending {
            return;
        }
        self.ending = ending;
        let wait_s = self.parameters.time2wait_s as u16;
        let retain_s = self.parameters.time2retain_s as u16;
        match state {
            SessionState::Active => {}
            SessionState::LogoutRequested(within) => {
                let within_s = within.as_secs().clamp(1, u64::from(u16::MAX));
                self.queue_async(event::LOGOUT_REQUEST, [0, 0, within_s as u16]);
            }
            SessionState::SessionDropped => {
                self.discard_all(backend);
                self.queue_async(event::SESSION_DROP, [0, wait_s, retain_s]);
                self.replies.close_after_last();
            }
            SessionState::ConnectionDropped => {
                self.discard_all(backend);
                self.queue_async(event::CONNECTION_DROP, [self.cid, wait_s, retain_s]);
                self.replies.close_after_last();
            }
            SessionState::Ended => self.discard_all(backend),
        }
    }

    fn discard_all<B: Backend>(&mut self, backend: &mut B) {
        self.tasks.clear(backend);
        self.replies.clear();
        self.held.clear();
        self.fenced.clear();
    }

    /// An Asynchronous Message with its three parameters (RFC 7143 §11.9).
    fn queue_async(&mut self, event: u8, parameters: [u16; 3]) {
        let mut header = ReplyHeader::new(response::ASYNC, NO_TASK_TAG).encode();
        header[36] = event;
        for (i, parameter) in parameters.into_iter().enumerate() {
            header[38 + 2 * i..40 + 2 * i].copy_from_slice(&parameter.to_be_bytes());
        }
        self.replies.push(header, Vec::new(), Numbering::Status);
    }

    /// Ends the session, or the connection, if the time of the initiator is over.
    pub(super) fn check_ending<B: Backend>(
        &mut self,
        now: Instant,
        backend: &mut B,
    ) -> Result<(), PeerError> {
        match self.ending {
            Ending::Dropped(by) if now >= by => Err(PeerError::DropUnread),
            Ending::LogoutRequested(by) if now >= by => {
                self.ending = Ending::Open;
                backend.drop_session();
                self.check_session_state(now, backend);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Answers reservation commands whose reservations have been saved, or cannot be saved, and
    /// whose aborts are over.
    fn release_reservations<B: Backend>(&mut self, backend: &mut B) {
        for slot in self.tasks.reserving() {
            let Some(task) = self.tasks.get_mut(slot) else {
                continue;
            };
            let saved = task
                .unsaved
                .map_or(Saved::Yes, |number| backend.saved(number));
            if saved != Saved::Pending {
                task.unsaved = None;
            }
            if saved == Saved::Failed {
                let sense = Sense::new(SenseKey::HardwareError, INTERNAL_TARGET_FAILURE);
                task.response = Response::check(sense);
            }
            task.fence.take_if(|fence| backend.is_past(*fence));
            if !task.awaits_reservation() {
                task.enter(Progress::Sending);
                self.tasks.queue(slot);
            }
        }
    }
}
