//! The values of features that a controller keeps.
//!
//! Read first: NVM Express Base 2.0, "Feature Values".

use std::collections::BTreeMap;
use std::time::Instant;

use crate::wire::Nsid;
use crate::wire::log::ReservationNotice;

/// Temperature thresholds that never trip: over, under.
pub(super) const TEMPERATURE_DEFAULTS: [u16; 2] = [0xFFFF, 0];

/// The values of a controller's features that are kept nowhere else.
#[derive(Debug)]
pub(in crate::controller) struct Features {
    pub(super) arbitration: u32,
    /// Over and under temperature threshold of the composite temperature, kelvin.
    pub(super) temperature_k: [u16; 2],
    /// Time Limited Error Recovery of namespaces if it is not 0, units of 100 ms.
    pub(super) error_recovery: BTreeMap<Nsid, u16>,
    pub(super) write_atomicity: u32,
    pub(super) timestamp: Option<(u64, Instant)>,
    /// Advanced Command Retry Enable and the other bytes of Host Behavior Support that hosts may
    /// set.
    pub(super) host_behavior: [u8; 512],
    /// Reservation Notification Mask of namespaces if it is not 0.
    pub(super) notification_masks: BTreeMap<Nsid, u32>,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            arbitration: 0,
            temperature_k: TEMPERATURE_DEFAULTS,
            error_recovery: BTreeMap::new(),
            write_atomicity: 0,
            timestamp: None,
            host_behavior: [0; 512],
            notification_masks: BTreeMap::new(),
        }
    }
}

impl Features {
    /// Over and under temperature threshold, kelvin.
    pub(in crate::controller) fn temperature_thresholds_k(&self) -> [u16; 2] {
        self.temperature_k
    }

    /// Whether the host enabled `notice` on `nsid`.
    pub(in crate::controller) fn wants(&self, notice: ReservationNotice, nsid: Nsid) -> bool {
        self.notification_masks.get(&nsid).copied().unwrap_or(0) & notice.mask_bit() == 0
    }

    /// Removes the settings of a namespace that was removed.
    pub(in crate::controller) fn forget(&mut self, nsid: Nsid) {
        self.error_recovery.remove(&nsid);
        self.notification_masks.remove(&nsid);
    }

    /// The Timestamp data structure: milliseconds in 48 bits, then where they come from.
    pub(super) fn timestamp(&self, now: Instant) -> Vec<u8> {
        const SET_BY_HOST: u8 = 0b001 << 1;
        let (ms, origin) = match self.timestamp {
            None => (0, 0),
            Some((ms, set_at)) => {
                let since = now.saturating_duration_since(set_at).as_millis() as u64;
                (ms.wrapping_add(since), SET_BY_HOST)
            }
        };
        let mut bytes = ms.to_le_bytes();
        bytes[6] = origin;
        bytes[7] = 0;
        bytes.to_vec()
    }
}
