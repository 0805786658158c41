//! Commands of hosts.

use std::time::Duration;

use block::Extent;

use super::{PrimaryTerm, WaitingRead};
use crate::base::Base;
use crate::config::Config;
use crate::ids::{HostRequest, LocalTime};
use crate::medium::{Medium, Unwritten};
use crate::message::{HostReply, Refusal};

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

    /// A read, whose extent is allowed. Contents that a failover could take back are held back
    /// until it no longer can.
    pub fn handle_read<M: Medium<Data = D>>(
        &mut self,
        base: &mut Base<M>,
        request: HostRequest,
        extent: Extent,
    ) -> Result<(), Refusal> {
        if !self.is_serving() {
            return Err(Refusal::NotReady);
        }
        let mut writes = self.writes.iter().rev();
        let until = writes.find(|write| write.extent.overlaps(extent));
        let until = until.map(|write| write.number);
        if until.is_some() && self.reads.len() >= base.settings.reads_max {
            return Err(Refusal::Busy);
        }
        let data = base.medium.read(extent);
        match until {
            None => base.reply(request, HostReply::Read(data)),
            Some(until) => self.reads.push(WaitingRead {
                request,
                until,
                data,
            }),
        }
        Ok(())
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
        if !self.is_serving() {
            return Err(Refusal::NotReady);
        }
        if self.places(base) == 0 {
            return Err(Refusal::Busy);
        }
        let written = self.write(base, now, extent, data, Some(request));
        written.map_err(|Unwritten| Refusal::NoMemory)
    }
}
