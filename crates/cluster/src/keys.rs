//! The keys of a cluster in etcd, and their values.

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

/// That a cluster exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterRecord {
    pub(crate) id: Uuid,
    /// The number of the next node.
    pub(crate) next_number: u32,
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
