//! What iSCSI sessions are, as values for requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What an iSCSI session is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IscsiSessionView {
    /// The initiator's part of the session ID, in hexadecimal digits.
    pub isid: String,
    /// The target's part; 0 for discovery.
    pub tsih: u16,
    /// How it stands.
    #[serde(default)]
    pub state: IscsiState,
    /// Its connections, oldest first.
    #[serde(default)]
    pub connections: Vec<IscsiConnectionView>,
    /// The negotiated keys of the session's first connection. `MaxXmitDataSegmentLength` is what
    /// the initiator declared as its `MaxRecvDataSegmentLength`.
    pub parameters: BTreeMap<String, String>,
}

/// How an iSCSI session stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IscsiState {
    /// In full feature phase.
    #[default]
    LoggedIn,
    /// Its initiator was asked to log out, and has not yet.
    LogoutRequested,
    /// It was dropped, and its connections are being closed.
    Dropped,
}

/// A connection of an iSCSI session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IscsiConnectionView {
    /// Its connection ID.
    pub cid: u16,
    /// Where it came from.
    pub peer: String,
    /// The local address of the connection.
    pub local: String,
    /// The negotiated keys; those of the session are the same for all of its connections.
    pub parameters: BTreeMap<String, String>,
}

impl From<server::IscsiState> for IscsiState {
    fn from(state: server::IscsiState) -> Self {
        match state {
            server::IscsiState::LoggedIn => Self::LoggedIn,
            server::IscsiState::LogoutRequested => Self::LogoutRequested,
            server::IscsiState::Dropped => Self::Dropped,
        }
    }
}

/// An ISID as 12 hexadecimal digits.
pub(super) fn isid_text(isid: [u8; 6]) -> String {
    let mut wide = [0; 8];
    wide[2..].copy_from_slice(&isid);
    format!("{:012x}", u64::from_be_bytes(wide))
}
