//! A connection's access to the command window of its session.

use scsi::Lun;

use crate::backend::Backend;
use crate::window::order::{AbortScope, Attribute, MemberId, WideCmdSn};
use crate::window::{Arrival, CommandWindow};

/// A connection's access to the command window of its session.
#[derive(Debug)]
pub(crate) enum SessionWindow {
    /// The session has this connection alone: the window needs no lock.
    Own(CommandWindow),
    /// The session may have other connections: the program around them owns the window.
    Shared(MemberId),
}

impl SessionWindow {
    /// Joins the window of a session that may have several connections, with this CID.
    pub(super) fn join<B: Backend>(cid: u16, backend: &mut B) -> Self {
        Self::Shared(backend.with_window(|window| window.join(cid)))
    }

    /// Records an arriving request: see [`CommandWindow::arrive`].
    #[inline]
    pub(super) fn arrive<B: Backend>(
        &mut self,
        cmd_sn: u32,
        attribute: Attribute,
        lun: Lun,
        backend: &mut B,
    ) -> Arrival {
        match self {
            Self::Own(window) => window.arrive_in_order(cmd_sn, attribute, lun),
            Self::Shared(member) => {
                let member = *member;
                backend.with_window(|window| window.arrive(cmd_sn, attribute, lun, member))
            }
        }
    }

    /// A SCSI command has been started.
    pub(super) fn started<B: Backend>(&mut self, attribute: Attribute, backend: &mut B) {
        self.with(backend, |window, _| window.started(attribute));
    }

    /// A SCSI command that arrived is rejected.
    pub(super) fn reject<B: Backend>(&mut self, arrival: Arrival, backend: &mut B) {
        self.with(backend, |window, _| match arrival {
            Arrival::Now => {
                window.started(Attribute::Simple);
                window.end(Attribute::Simple);
            }
            Arrival::Early(cmd_sn) => window.end_early(cmd_sn),
            Arrival::Ignored | Arrival::Aborted => {}
        });
    }

    /// Takes the next request that may start, if it arrived on this connection.
    pub(super) fn claim<B: Backend>(&mut self, backend: &mut B) -> Option<WideCmdSn> {
        self.with(backend, CommandWindow::claim)
    }

    /// A SCSI command has ended that was started with this attribute.
    pub(super) fn end<B: Backend>(&mut self, attribute: Attribute, backend: &mut B) {
        self.with(backend, |window, _| window.end(attribute));
    }

    /// A SCSI command has ended before it was started.
    pub(super) fn end_early<B: Backend>(&mut self, cmd_sn: WideCmdSn, backend: &mut B) {
        self.with(backend, |window, _| window.end_early(cmd_sn));
    }

    /// A SCSI command will not be started, and has yet to end.
    pub(super) fn withdraw<B: Backend>(&mut self, cmd_sn: WideCmdSn, backend: &mut B) {
        self.with(backend, |window, _| window.withdraw(cmd_sn));
    }

    /// Removes all waiting requests of this connection.
    pub(super) fn leave<B: Backend>(&mut self, backend: &mut B) {
        self.with(backend, CommandWindow::leave);
    }

    /// Commands with numbers before `cmd_sn` that have not arrived are aborted when they do. On a
    /// single connection all of them have arrived.
    pub(super) fn abort_before<B: Backend>(
        &mut self,
        cmd_sn: u32,
        scope: AbortScope,
        backend: &mut B,
    ) {
        if let Self::Shared(_) = self {
            backend.with_window(|window| window.abort_before(cmd_sn, scope));
        }
    }

    /// See [`CommandWindow::abort_early`].
    pub(super) fn abort_early<B: Backend>(&mut self, cmd_sn: u32, backend: &mut B) -> bool {
        self.with(backend, |window, _| window.abort_early(cmd_sn))
    }

    /// The CID of another connection whose request is the next to start, once.
    pub(super) fn next_elsewhere<B: Backend>(&mut self, backend: &mut B) -> Option<u16> {
        match self {
            Self::Own(_) => None,
            Self::Shared(member) => {
                let member = *member;
                backend.with_window(|window| window.next_elsewhere(member))
            }
        }
    }

    /// The number that is expected next.
    pub(super) fn expected<B: Backend>(&mut self, backend: &mut B) -> WideCmdSn {
        self.with(backend, |window, _| window.expected())
    }

    /// See [`CommandWindow::note_aborted`].
    pub(super) fn note_aborted<B: Backend>(&mut self, tag: u32, backend: &mut B) {
        self.with(backend, |window, _| window.note_aborted(tag));
    }

    /// See [`CommandWindow::take_aborted`].
    pub(super) fn take_aborted<B: Backend>(&mut self, tag: u32, backend: &mut B) -> bool {
        self.with(backend, |window, _| window.take_aborted(tag))
    }

    /// ExpCmdSN and MaxCmdSN.
    #[inline]
    pub(super) fn numbers<B: Backend>(&self, backend: &mut B) -> (u32, u32) {
        match self {
            Self::Own(window) => window.numbers(),
            Self::Shared(_) => backend.with_window(|window| window.numbers()),
        }
    }

    #[inline]
    fn with<B: Backend, R>(
        &mut self,
        backend: &mut B,
        call: impl FnOnce(&mut CommandWindow, MemberId) -> R,
    ) -> R {
        match self {
            Self::Own(window) => call(window, MemberId::ONLY),
            Self::Shared(member) => {
                let member = *member;
                backend.with_window(|window| call(window, member))
            }
        }
    }
}
