//! What a session of BRP is, as values for requests.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a session of BRP is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrpSessionView {
    /// The unit: the volume's number in the target.
    pub unit: u32,
    /// How many commands the host may have in flight at most.
    pub tags: u16,
    /// How long the session is kept if its connection is lost, in milliseconds.
    pub hold_ms: u64,
    /// Whether it has gone on from a connection that was lost.
    pub resumed: bool,
}

impl BrpSessionView {
    pub(super) fn new(unit: u32, tags: u16, hold: Duration, is_resumed: bool) -> Self {
        Self {
            unit,
            tags,
            hold_ms: u64::try_from(hold.as_millis()).unwrap_or(u64::MAX),
            resumed: is_resumed,
        }
    }
}
