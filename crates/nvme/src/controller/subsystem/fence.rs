//! Fences: a reservation command that takes rights from other hosts completes only when no
//! connection of theirs still uses its old permits. So do a controller reset and a shutdown, which
//! end I/O queues, and the Connect of an admin queue: its host may have had a controller before
//! whose I/O queues are in a turn.
//!
//! Connections learn of permits from their own copies. One that is in the middle of a turn while
//! another host preempts would continue writing for a moment after the preempt was said to be
//! complete, although the new holder relies on that to have the volume to itself. So the completion
//! waits until each such connection was woken and has called [`Subsystem::acknowledge`], which it
//! does between two turns.

use std::collections::BTreeSet;

use block::Access;

use super::state::Controller;
use crate::controller::{
    Completion, Connection, ControllerId, Permit, Reply, Subsystem, WakeToken, connected,
};
use crate::wire::{Cid, Nsid};

/// Outstanding fences, and connections that have lost their controller but may not know it yet.
#[derive(Debug, Default)]
pub(in crate::controller) struct Fences {
    /// At most one for each outstanding command.
    standing: Vec<Fence>,
    leaving: BTreeSet<WakeToken>,
}

#[derive(Debug)]
struct Fence {
    /// The connection whose command waits.
    issuer: WakeToken,
    cid: Cid,
    completion: Completion,
    waiting_for: BTreeSet<WakeToken>,
}

impl Fences {
    /// These connections were taken from their controllers.
    pub(in crate::controller) fn leave(&mut self, connections: impl Iterator<Item = WakeToken>) {
        self.leaving.extend(connections);
    }

    /// The connection has read the present state. Returns the connections whose commands no longer
    /// wait.
    pub(super) fn acknowledge(&mut self, connection: WakeToken) -> impl Iterator<Item = WakeToken> {
        self.leaving.remove(&connection);
        self.standing.iter_mut().filter_map(move |fence| {
            let was_last = fence.waiting_for.remove(&connection) && fence.waiting_for.is_empty();
            was_last.then_some(fence.issuer)
        })
    }

    /// Handles the end of a connection: drops what waited for it.
    fn forget(&mut self, connection: WakeToken) {
        self.standing.retain(|fence| fence.issuer != connection);
    }

    /// The next command of this connection that need wait no longer.
    fn poll(&mut self, connection: WakeToken) -> Option<(Cid, Completion)> {
        let is_done = |fence: &Fence| fence.issuer == connection && fence.waiting_for.is_empty();
        let at = self.standing.iter().position(is_done)?;
        let fence = self.standing.swap_remove(at);
        Some((fence.cid, fence.completion))
    }
}

/// What every controller and every foreign connection may do with a namespace.
pub(in crate::controller) struct Permits {
    controllers: Vec<(ControllerId, Permit)>,
    foreign: Permit,
}

impl Subsystem {
    /// What every controller and every foreign connection may do with `nsid` now.
    pub(in crate::controller) fn permits(&self, nsid: Nsid) -> Permits {
        let ids = self.controllers.keys();
        Permits {
            controllers: ids.map(|&id| (id, self.permit(id, nsid))).collect(),
            foreign: self.foreign_permit(Access::ReadWrite, nsid),
        }
    }

    /// Completes the command `cid` of `issuer`, which has changed permits from `before`: at once if
    /// no connection lost a permit, otherwise when all connections that did have noticed.
    pub(in crate::controller) fn fence(
        &mut self,
        issuer: &Connection,
        cid: Cid,
        nsid: Nsid,
        before: &Permits,
    ) -> Reply {
        let lost = before
            .controllers
            .iter()
            .filter(|&&(id, permit)| self.permit(id, nsid).takes_from(permit));
        let mut losers: BTreeSet<WakeToken> = lost
            .filter_map(|(id, _)| self.controllers.get(id))
            .flat_map(Controller::io_queues)
            .collect();
        let foreign = self.foreign_permit(Access::ReadWrite, nsid);
        if foreign.takes_from(before.foreign) {
            losers.extend(&self.foreign);
        }
        self.fence_behind(losers, (issuer.wake, cid), Completion::SUCCESS)
    }

    /// Completes the Connect that made `connection`.
    pub(in crate::controller) fn answer_connect(
        &mut self,
        connection: &Connection,
        cid: Cid,
    ) -> Reply {
        let completion = connected(connection);
        if connection.queue.is_admin() {
            self.fence_leaving((connection.wake, cid), completion)
        } else {
            Reply::Done(completion)
        }
    }

    /// Completes a command of a connection when no other that was taken from its controller
    /// executes commands any more.
    pub(in crate::controller) fn fence_leaving(
        &mut self,
        command: (WakeToken, Cid),
        completion: Completion,
    ) -> Reply {
        self.fence_behind(BTreeSet::new(), command, completion)
    }

    /// Completes a command when these connections, and all that are leaving, have noticed.
    fn fence_behind(
        &mut self,
        mut waiting_for: BTreeSet<WakeToken>,
        (issuer, cid): (WakeToken, Cid),
        completion: Completion,
    ) -> Reply {
        waiting_for.extend(&self.fences.leaving);
        waiting_for.remove(&issuer);
        if waiting_for.is_empty() {
            return Reply::Done(completion);
        }
        self.wakes.extend(&waiting_for);
        self.fences.standing.push(Fence {
            issuer,
            cid,
            completion,
            waiting_for,
        });
        Reply::Hold
    }

    /// The next kept command of `connection` to complete, and how: an Asynchronous Event Request or
    /// an Abort of an admin queue, or a command behind a fence. Ask until `None` when woken and
    /// after every command of the control path.
    pub fn poll_kept(&mut self, connection: &Connection) -> Option<(Cid, Completion)> {
        let kept = if connection.queue.is_admin() {
            let controller = self.controllers.get_mut(&connection.controller)?;
            let event = controller.events.poll();
            event.or_else(|| self.aborts.poll(connection.wake))
        } else {
            None
        };
        kept.or_else(|| self.fences.poll(connection.wake))
    }

    /// The connection was woken, is between two turns, and will check its namespaces again before
    /// it accesses them. `false` if it is not a queue of its controller any more and must be
    /// closed.
    pub fn acknowledge(&mut self, connection: &Connection) -> bool {
        self.wakes.extend(self.fences.acknowledge(connection.wake));
        self.is_connected(connection)
    }

    /// The connection has ended. That of the admin queue takes its controller with it.
    pub fn connection_closed(&mut self, connection: &Connection) {
        if self.is_connected(connection) {
            self.remove_queue(connection);
        }
        self.wakes.extend(self.fences.acknowledge(connection.wake));
        self.fences.forget(connection.wake);
        self.wakes.extend(self.aborts.forget(connection.wake));
        self.wakes.remove(&connection.wake);
    }
}
