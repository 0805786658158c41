//! What a member has in every role.

use std::collections::VecDeque;

use block::Extent;

use crate::config::Config;
use crate::ids::{Epoch, HostRequest, MemberId};
use crate::medium::{Medium, Unwritten};
use crate::message::{Body, Envelope, HostReply, Output};
use crate::settings::Settings;
use crate::stamps::Stamps;

/// Identity, copy, newest known configuration, and what the driver has to do.
pub(crate) struct Base<M: Medium> {
    pub id: MemberId,
    pub settings: Settings,
    pub medium: M,
    pub stamps: Stamps,
    pub config: Option<Config>,
    /// Emptied by the driver after each call.
    pub outputs: VecDeque<Output<M::Data>>,
}

impl<M: Medium> Base<M> {
    /// The epoch of the newest known configuration; 0 before the first.
    pub fn epoch(&self) -> Epoch {
        let config = self.config.as_ref();
        config.map_or(Epoch::default(), |config| config.epoch)
    }

    /// Writes to the copy and records the epoch, even of a write that failed halfway.
    pub fn write(&mut self, extent: Extent, data: &M::Data, epoch: Epoch) -> Result<(), Unwritten> {
        self.stamps.stamp(extent, epoch);
        self.medium.write(extent, data)
    }

    /// Whether one command or entry may write `data` to `extent`.
    pub fn allows_write(&self, extent: Extent, data: &M::Data) -> bool {
        let is_allowed = if M::needs_memory(data) {
            self.settings.allows(extent)
        } else {
            self.settings.allows_zeros(extent)
        };
        is_allowed && M::blocks(data) == extent.blocks.0
    }

    pub fn send(&mut self, to: MemberId, body: Body<M::Data>) {
        let message = Envelope {
            from: self.id,
            to,
            epoch: self.epoch(),
            body,
        };
        self.outputs.push_back(Output::Send(message));
    }

    pub fn reply(&mut self, request: HostRequest, reply: HostReply) {
        self.outputs.push_back(Output::Reply(request, reply));
    }
}
