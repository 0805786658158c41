//! Commands of hosts.

use block::Extent;

use super::{Reign, WaitingRead};
use crate::base::Base;
use crate::config::Config;
use crate::ids::{HostRequest, LocalTime};
use crate::medium::Medium;
use crate::message::{HostReply, Refusal};

impl<D: Clone> Reign<D> {
    /// Whether no other member can be primary now. A configuration that was proposed may be in force
    /// already, so its members count, too.
    pub fn has_lease<M: Medium>(
        &self,
        base: &Base<M>,
        now: LocalTime,
        proposal: Option<&Config>,
    ) -> bool {
        let counts = |id| proposal.is_some_and(|config| config.has(id));
        self.peers
            .iter()
            .filter(|peer| peer.is_in_sync() || counts(peer.id))
            .all(|peer| peer.has_lease(now, &base.settings))
    }

    /// A read, whose extent is allowed. Contents that a failover could take back are held back until
    /// it no longer can.
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
    /// reject it.
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
        if !self.has_place(base) {
            return Err(Refusal::Busy);
        }
        self.write(base, now, extent, data, Some(request));
        Ok(())
    }
}
