//! Providers of queue pairs, as a host uses them.

use fabric::{Hw, Provider, Soft};

/// A provider that may use the host's own buffers.
pub(super) trait HostProvider: Provider {
    /// The provider in software, which can borrow the host's buffers. Adapters reach only memory
    /// that they have allocated.
    fn software(&mut self) -> Option<&mut Soft>;
}

impl HostProvider for Soft {
    fn software(&mut self) -> Option<&mut Soft> {
        Some(self)
    }
}

impl HostProvider for Hw {
    fn software(&mut self) -> Option<&mut Soft> {
        None
    }
}
