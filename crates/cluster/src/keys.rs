//! The keys of a cluster in etcd, and their values.

use control::VolumeName;
use node_link::VolumeId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::etcd::Entry;
use crate::fault::Fault;
use crate::name::Name;

/// The keys of one cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys<'a> {
    cluster: &'a Name,
}

/// That a node is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AliveRecord {
    pub(crate) number: u32,
    /// What distinguishes this start of the node from others; absent if it holds no copies of
    /// volumes.
    pub(crate) incarnation: Option<u64>,
}

/// That a cluster exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterRecord {
    pub(crate) id: Uuid,
    /// The number of the next node.
    pub(crate) next_number: u32,
    /// After how many seconds without a node its copies are made elsewhere; 0: never.
    #[serde(default = "repair_after_default_s")]
    pub(crate) repair_after_s: u64,
}

fn repair_after_default_s() -> u64 {
    ClusterRecord::REPAIR_AFTER_DEFAULT_S
}

impl ClusterRecord {
    /// Longer than a machine takes to start.
    pub(crate) const REPAIR_AFTER_DEFAULT_S: u64 = 600;
}

impl<'a> Keys<'a> {
    pub(crate) fn of(cluster: &'a Name) -> Self {
        Self { cluster }
    }

    /// What all of them begin with.
    pub(crate) fn all(self) -> String {
        format!("/ramport/{}/", self.cluster)
    }

    /// A [`ClusterRecord`].
    pub(crate) fn cluster(self) -> String {
        format!("{}cluster", self.all())
    }

    /// What the keys of nodes begin with; the rest is the name.
    pub(crate) fn nodes(self) -> String {
        format!("{}nodes/", self.all())
    }

    /// A [`NodeRecord`](crate::membership::NodeRecord).
    pub(crate) fn node(self, name: &Name) -> String {
        format!("{}{name}", self.nodes())
    }

    /// What the keys of nodes that are there begin with; the rest is the name. They end with the
    /// lease of their node.
    pub(crate) fn alive(self) -> String {
        format!("{}alive/", self.all())
    }

    /// What the keys of volumes begin with; the rest is the name. A value is a definition.
    pub(crate) fn volumes(self) -> String {
        format!("{}volumes/", self.all())
    }

    pub(crate) fn volume(self, name: &VolumeName) -> String {
        format!("{}{name}", self.volumes())
    }

    /// What the keys of configurations begin with; the rest is the volume's number in hexadecimal.
    /// A value is what [`replica::wire::encode_config`] makes.
    pub(crate) fn configs(self) -> String {
        format!("{}configs/", self.all())
    }

    pub(crate) fn config(self, id: VolumeId) -> String {
        format!("{}{:016x}", self.configs(), id.0)
    }

    /// Written by each change of the volumes, so that none is placed on what another one has
    /// taken.
    pub(crate) fn pool(self) -> String {
        format!("{}pool", self.all())
    }

    pub(crate) fn alive_node(self, name: &Name) -> String {
        format!("{}{name}", self.alive())
    }
}

/// A value as JSON.
pub(crate) fn value(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("records are structs that serialise")
}

/// Reads the value of an entry.
pub(crate) fn record<T: DeserializeOwned>(entry: &Entry) -> Result<T, Fault> {
    serde_json::from_slice(&entry.value).map_err(|_| Fault::Damaged {
        key: entry.key.clone(),
    })
}
