//! Referrals: other discovery services, which the discovery log lists besides the targets of this
//! server.

use super::{Server, State};
use crate::{PortalAuth, PortalDefinition, RdmaChoice, ServerError};

/// The most referrals.
const REFERRALS_MAX: usize = 256;

impl Server {
    /// Adds the discovery service at `referral` to the discovery log, and notifies persistent
    /// discovery controllers.
    pub fn add_referral(&self, referral: PortalDefinition) -> Result<(), ServerError> {
        let mut state = self.state();
        state.check_running()?;
        state.check_new_referral(referral)?;
        state.referrals.insert(referral);
        self.core().publish(&state);
        Ok(())
    }

    /// Removes a referral.
    pub fn remove_referral(&self, referral: PortalDefinition) -> Result<(), ServerError> {
        let mut state = self.state();
        state.check_running()?;
        if !state.referrals.remove(&referral) {
            return Err(ServerError::UnknownReferral(referral));
        }
        self.core().publish(&state);
        Ok(())
    }

    /// Every referral.
    pub fn referrals(&self) -> Vec<PortalDefinition> {
        self.state().referrals.iter().copied().collect()
    }
}

impl State {
    fn check_new_referral(&self, referral: PortalDefinition) -> Result<(), ServerError> {
        if self.referrals.contains(&referral) {
            return Err(ServerError::ReferralExists(referral));
        }
        if referral.rdma != RdmaChoice::default() {
            return Err(ServerError::NoRdma(referral));
        }
        if referral.auth != PortalAuth::default() {
            return Err(ServerError::NoAuthentication(referral));
        }
        if !referral.transport.is_nvme() {
            return Err(ServerError::ReferralProtocol(referral));
        }
        if self.portals.keys().any(|open| open.is_beside(&referral)) {
            return Err(ServerError::ReferralToSelf(referral));
        }
        let address = referral.address;
        if address.ip().is_unspecified() || address.ip().is_multicast() || address.port() == 0 {
            return Err(ServerError::ReferralAddress(referral));
        }
        if self.referrals.len() >= REFERRALS_MAX {
            return Err(ServerError::TooMany {
                what: "referrals",
                max: REFERRALS_MAX,
            });
        }
        Ok(())
    }
}
