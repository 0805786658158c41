//! Commands of hosts.

use std::time::Duration;

use block::Extent;

use super::PrimaryTerm;
use crate::base::Base;
use crate::config::Config;
use crate::ids::{HostRequest, LocalTime};
use crate::medium::{Medium, Unwritten};
use crate::message::{Overwritten, Refusal};

impl<D: Clone> PrimaryTerm<D> {
    /// Whether no other member can be primary now.
    pub fn has_lease<M: Medium>(
        &self,
        base: &Base<M>,
        now: LocalTime,
        proposal: Option<&Config>,
    ) -> bool {
        self.lease_end(base, proposal).is_some_and(|end| now < end)
    }

    /// From when on another member may be primary. A configuration that was proposed may be in
    /// force already, so its members count, too. `None` if one of them has granted no lease.
    pub fn lease_end<M: Medium>(
        &self,
        base: &Base<M>,
        proposal: Option<&Config>,
    ) -> Option<LocalTime> {
        let counts = |id| proposal.is_some_and(|config| config.has(id));
        let peers = self.peers.iter();
        let members = peers.filter(|peer| peer.is_in_sync() || counts(peer.id));
        let mut ends = members.map(|peer| peer.lease_end(&base.settings));
        ends.try_fold(LocalTime(Duration::MAX), |first, end| Some(first.min(end?)))
    }

    /// What the writes in flight have overwritten, in their order.
    pub fn overwritten(&self) -> impl DoubleEndedIterator<Item = &Overwritten<D>> {
        let of_hosts = self.writes.iter().filter_map(|write| write.host.as_ref());
        of_hosts.map(|host| &host.overwritten)
    }

    /// A write, whose extent is allowed. It needs no lease: secondaries of a newer configuration
    /// reject it. It is answered when it is committed, also after [`Refusal::NoMemory`].
    pub fn handle_write<M: Medium<Data = D>>(
        &mut self,
        base: &mut Base<M>,
        now: LocalTime,
        request: HostRequest,
        extent: Extent,
        data: &D,
    ) -> Result<(), Refusal> {
        if !self.admits_writes() {
            return Err(Refusal::NotReady);
        }
        if self.places(base) == 0 {
            return Err(Refusal::Busy);
        }
        let written = self.write(base, now, extent, data, Some(request));
        written.map_err(|Unwritten| Refusal::NoMemory)
    }
}
