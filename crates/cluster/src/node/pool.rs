//! The nodes as they can hold copies, from what etcd has.

use std::collections::BTreeMap;

use control::{NodeRole, Volume, VolumeKind};
use replica::MemberId;

use crate::etcd::Entry;
use crate::fault::Fault;
use crate::keys::{AliveRecord, record};
use crate::membership::NodeRecord;
use crate::placement::{Placed, Pool, PoolNode, Provision, Wish};

/// Volumes may promise all of the memory, and no more.
const OVERCOMMIT_PERCENT: u64 = 100;

/// The nodes that can hold copies, by number, with what shows that.
pub(super) struct Up(pub(super) BTreeMap<u32, (MemberId, Entry)>);

impl Up {
    pub(super) fn read(
        nodes: &[NodeRecord],
        alive: Vec<Entry>,
        prefix: &str,
    ) -> Result<Self, Fault> {
        let mut up = BTreeMap::new();
        for entry in alive {
            let name = entry.key.strip_prefix(prefix);
            let node = nodes.iter().find(|node| Some(node.name.as_str()) == name);
            let AliveRecord {
                number,
                incarnation,
            } = record(&entry)?;
            let is_storage =
                |node: &&NodeRecord| node.role == NodeRole::Storage && node.number == number;
            if let (Some(node), Some(incarnation)) = (node.filter(is_storage), incarnation) {
                let member = MemberId {
                    node: node.number,
                    incarnation,
                };
                up.insert(node.number, (member, entry));
            }
        }
        Ok(Self(up))
    }
}

/// The nodes, with the volumes that are placed on them. No copies are added to drained nodes.
pub(super) fn pool(nodes: &[NodeRecord], up: &Up, volumes: &[Entry]) -> Result<Pool, Fault> {
    let mut zones = BTreeMap::new();
    let nodes = nodes.iter().map(|node| {
        let next = u32::try_from(zones.len()).unwrap_or(u32::MAX);
        PoolNode {
            number: node.number,
            zone: *zones.entry(&node.zone).or_insert(next),
            memory_bytes: node.memory_bytes,
            is_usable: up.0.contains_key(&node.number) && !node.is_drained,
        }
    });
    let mut pool = Pool::new(nodes, OVERCOMMIT_PERCENT);
    for entry in volumes {
        let volume: Volume = record(entry)?;
        let VolumeKind::Replicated {
            copies,
            placement: Some(placement),
        } = &volume.kind.0
        else {
            let key = entry.key.clone();
            return Err(Fault::Damaged { key });
        };
        let placed = Placed {
            wish: wish(&volume, *copies),
            nodes: placement.nodes.clone(),
        };
        pool.insert(placement.volume, placed);
    }
    Ok(pool)
}

pub(super) fn wish(volume: &Volume, copies: u8) -> Wish {
    Wish {
        size_bytes: volume.size.0,
        copies: usize::from(copies),
        provision: Provision::Thin,
    }
}
