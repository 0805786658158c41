//! Definitions of the objects that a user wants to exist. `ramport apply` takes a file of
//! definitions; the state file contains them, too.
//!
//! ```
//! let text = r#"
//!     portals = ["nvme+tcp://127.0.0.1:4420"]
//!     [volumes.rd0]
//!     size = "1G"
//!     [targets."nqn.2025-01.io.ramport:rd0"]
//!     namespaces = { 1 = "rd0" }
//! "#;
//! let definitions = control::Definitions::from_toml(text)?;
//! assert_eq!(definitions.volumes.len(), 1);
//! # Ok::<(), control::DefinitionsError>(())
//! ```

mod chap;
mod convert;
mod dhchap;
mod fault;
mod filters;
mod identity;
mod kind;
mod parent_fault;
mod parents;
mod saving;
mod secret;
mod share;
mod share_options;
mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use server::{AddressRange, HostName, PortalDefinition, ShareName, TargetName, VolumeName};
use utoipa::ToSchema;
use uuid::Uuid;

pub(crate) use chap::ChapForm;
pub use chap::{Chap, MutualChap};
pub use dhchap::DhChap;
pub(crate) use dhchap::DhChapForm;
pub use fault::DefinitionFault;
pub use filters::{
    DelayFilter, FaultFilter, FaultRule, FaultStatus, FaultedKind, Filters, RateLimitFilter,
};
pub use identity::Identity;
pub use kind::KindFields;
pub(crate) use kind::resync_rate;
pub use parent_fault::ParentFault;
pub use saving::{AfterCrash, Saving, SavingFault};
pub use secret::{Secret, SecretFileError};
pub use share::{Share, ShareFault, ShareKind};
pub use share_options::{OptionFault, OptionList, ShareOptions};
pub use tls::Tls;
pub(crate) use tls::TlsForm;

use crate::text::{Portal, Size, Text};

/// The text that replaces a hidden secret.
const HIDDEN_SECRET: &str = "(hidden)";

/// Everything that is defined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Definitions {
    /// A UUID from which identifiers of disks are derived. Only a backup with secrets has it;
    /// without it the daemon keeps its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = json!(null))]
    pub machine: Option<Uuid>,
    /// The URLs of the addresses where protocols listen: nvme+tcp, nvme+rdma, iscsi (with `,GROUP`
    /// after the port for a portal group other than 1), iser, srp, brp, brp+rdma, nfs, nfs+udp and
    /// nfs+rdma. RDMA portals may end with `?rdma=auto`, `?rdma=hw` (an adapter only) or
    /// `?rdma=soft` (software only). NVMe and iSCSI portals may end with `?auth=required`, or
    /// `&auth=required` after another option: all hosts have to authenticate, for discovery too.
    #[schema(value_type = Vec<String>, example = json!(["nvme+tcp://127.0.0.1:4420", "nvme+rdma://192.0.2.1:4420?rdma=soft"]))]
    pub portals: BTreeSet<Text<Portal>>,
    /// The URLs of other NVMe discovery services, which the discovery log lists.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>, example = json!(["nvme+tcp://192.0.2.7:8009"]))]
    pub referrals: BTreeSet<Text<Portal>>,
    /// The hosts that targets list, by name: host NQNs, iSCSI initiator names, or any word for
    /// hosts that are identified by their addresses.
    #[schema(value_type = BTreeMap<String, Host>)]
    pub hosts: BTreeMap<Text<HostName>, Host>,
    /// The volumes, by name: letters, digits, `.`, `_` and `-`.
    #[schema(value_type = BTreeMap<String, Volume>)]
    pub volumes: BTreeMap<Text<VolumeName>, Volume>,
    /// The targets, by name: an NQN for NVMe, an IQN for iSCSI.
    #[schema(value_type = BTreeMap<String, Target>)]
    pub targets: BTreeMap<Text<TargetName>, Target>,
    /// The shares, by name: letters, digits, `.`, `_` and `-`. A share is exported as `/NAME`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Share>)]
    pub shares: BTreeMap<Text<ShareName>, Share>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    /// Capacity, from 1 MiB to 64 TiB, in whole blocks. A volume in a file that exists may leave it
    /// out: it is then as large as the file.
    #[serde(default)]
    #[schema(value_type = String, example = "50G")]
    pub size: Size,
    /// Bytes in a block: 512 or 4096. It cannot be changed later.
    #[serde(default)]
    #[schema(value_type = u32, default = 512, example = 4096)]
    pub block_size: BlockLen,
    /// What its blocks are kept in, with the settings of that kind.
    #[serde(flatten)]
    pub kind: KindFields,
    /// Identifiers by which hosts distinguish it from other disks.
    #[serde(default, skip_serializing_if = "Identity::is_empty")]
    pub identity: Identity,
    /// Whether writes are rejected.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schema(default = false)]
    pub read_only: bool,
    /// Filters that slow commands down or make them fail.
    #[serde(default, skip_serializing_if = "Filters::is_empty")]
    pub filters: Filters,
    /// When and where it is saved, for a RAM volume; absent: on request alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub save: Option<Saving>,
}

/// Bytes in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct BlockLen(pub block::BlockSize);

/// A target. Without `hosts` and `any_host`, only hosts on this machine may use it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Target {
    /// What every host from any address may do; excludes `hosts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub any_host: Option<Access>,
    /// The hosts that may use it, and what each may do; excludes `any_host`. Each is a key of
    /// `hosts` at the top level.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, Access>>)]
    pub hosts: Option<BTreeMap<Text<HostName>, Access>>,
    /// The LUNs that a listed host of an iSCSI target sees, each with its number in `namespaces`.
    /// Hosts that are not named here see all volumes under those numbers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, BTreeMap<String, String>>)]
    pub luns: BTreeMap<Text<HostName>, BTreeMap<Nsid, Nsid>>,
    /// The groups of portals through which an iSCSI target is reachable. An empty list means all
    /// groups.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<u16>, example = json!([2]))]
    pub portal_groups: BTreeSet<NonZeroU16>,
    /// CHAP for logins of hosts that have no CHAP settings of their own (iSCSI targets only).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ChapForm>)]
    pub chap: Option<Chap>,
    /// Its volumes, by namespace ID (from 1) or, for an iSCSI target, by LUN (from 0).
    #[schema(value_type = BTreeMap<String, String>, example = json!({"1": "rd0"}))]
    pub namespaces: BTreeMap<Nsid, Text<VolumeName>>,
}

/// What a host may do with a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Read and write.
    ReadWrite,
    /// Read alone.
    ReadOnly,
}

/// The number of a volume in a target: a namespace ID, or a LUN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "NsidForm", into = "String")]
pub struct Nsid(pub u32);

/// A host that targets list. It is identified by its name, or only by its address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Host {
    /// What identifies it.
    pub told_by: ToldBy,
    /// Addresses and ranges from which it may connect. An empty list means any address.
    #[schema(value_type = Vec<String>, example = json!(["192.0.2.0/24"]))]
    pub addresses: Vec<Text<AddressRange>>,
    /// CHAP for its iSCSI logins, also for discovery.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ChapForm>)]
    pub chap: Option<Chap>,
    /// DH-HMAC-CHAP for the queues that it connects over NVMe.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<DhChapForm>)]
    pub dhchap: Option<DhChap>,
    /// Keys for TLS over NVMe/TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<TlsForm>)]
    pub tls: Option<Tls>,
}

/// What is to carry RDMA at a portal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RdmaChoice {
    /// An adapter if one has the address, otherwise software.
    #[default]
    Auto,
    /// An adapter, or nothing.
    Hw,
    /// Software: RoCEv2 by a UDP socket.
    Soft,
}

impl From<server::RdmaChoice> for RdmaChoice {
    fn from(choice: server::RdmaChoice) -> Self {
        match choice {
            server::RdmaChoice::Auto => Self::Auto,
            server::RdmaChoice::Hw => Self::Hw,
            server::RdmaChoice::Soft => Self::Soft,
        }
    }
}

impl From<RdmaChoice> for server::RdmaChoice {
    fn from(choice: RdmaChoice) -> Self {
        match choice {
            RdmaChoice::Auto => Self::Auto,
            RdmaChoice::Hw => Self::Hw,
            RdmaChoice::Soft => Self::Soft,
        }
    }
}

/// How a host is recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToldBy {
    /// By the name that it gives.
    #[default]
    Name,
    /// By its address.
    Address,
}

/// Why a file holds no definitions.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionsError {
    /// It is no TOML of definitions.
    #[error("invalid definitions file: {0}")]
    Toml(#[from] toml::de::Error),
    /// It is no JSON of definitions.
    #[error("invalid definitions file: {0}")]
    Json(#[from] serde_json::Error),
    /// Definitions contradict themselves or each other.
    #[error(transparent)]
    Fault(#[from] DefinitionFault),
}

impl Definitions {
    /// Reads a file, TOML or JSON (which begins with a brace).
    pub fn from_text(text: &str) -> Result<Self, DefinitionsError> {
        if text.trim_start().starts_with('{') {
            let definitions: Self = serde_json::from_str(text)?;
            definitions.check()?;
            Ok(definitions)
        } else {
            Self::from_toml(text)
        }
    }

    /// Reads TOML.
    pub fn from_toml(text: &str) -> Result<Self, DefinitionsError> {
        let definitions: Self = toml::from_str(text)?;
        definitions.check()?;
        Ok(definitions)
    }

    /// Writes TOML that reads back as the same.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("definitions have string keys and no empty values")
    }

    /// Whether nothing is defined.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The portals in the server's form.
    pub fn portal_definitions(&self) -> impl Iterator<Item = PortalDefinition> {
        self.portals.iter().map(|portal| portal.0.0)
    }
}

impl Default for BlockLen {
    fn default() -> Self {
        Self(block::BlockSize::B512)
    }
}

/// A block size that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("block size {0} is not supported; choose 512 or 4096")]
pub struct BlockLenFault(u64);

impl TryFrom<u64> for BlockLen {
    type Error = BlockLenFault;

    fn try_from(len_bytes: u64) -> Result<Self, BlockLenFault> {
        block::BlockSize::from_bytes(len_bytes)
            .map(Self)
            .ok_or(BlockLenFault(len_bytes))
    }
}

impl From<BlockLen> for u64 {
    fn from(len: BlockLen) -> Self {
        len.0.bytes()
    }
}

/// A text that is no namespace ID or LUN.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a namespace ID or LUN; write a number")]
pub struct NsidFault(String);

/// How such a number may stand: JSON and TOML keys are text.
#[derive(Deserialize)]
#[serde(untagged)]
enum NsidForm {
    Number(u32),
    Text(String),
}

impl TryFrom<NsidForm> for Nsid {
    type Error = NsidFault;

    fn try_from(form: NsidForm) -> Result<Self, NsidFault> {
        match form {
            NsidForm::Number(nsid) => Ok(Self(nsid)),
            NsidForm::Text(text) => text.parse(),
        }
    }
}

impl FromStr for Nsid {
    type Err = NsidFault;

    fn from_str(text: &str) -> Result<Self, NsidFault> {
        match text.parse() {
            Ok(nsid) => Ok(Self(nsid)),
            Err(_) => Err(NsidFault(text.to_owned())),
        }
    }
}

impl From<Nsid> for String {
    fn from(nsid: Nsid) -> Self {
        nsid.to_string()
    }
}

impl fmt::Display for Nsid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reads a field that may be null, and that means something else where it is absent.
pub(crate) fn some<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    field: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(field).map(Some)
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests;
