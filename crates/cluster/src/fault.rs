//! Why the cluster did not do what was asked.

use std::io;
use std::net::SocketAddr;

use control::{ClusterFault, DefinitionFault, EngineError, ErrorKind, VolumeName};

use crate::certificates::CertificateFault;
use crate::etcd::EtcdError;
use crate::link::LinkError;
use crate::membership::FolderError;
use crate::name::{Name, NameFault};
use crate::placement::PlacementError;
use crate::url::EtcdUrlFault;

/// Why the cluster did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(
        "this machine belongs to no cluster; make one with `ramport cluster create NAME --nodes A,B,C`, or join one with `ramport cluster join ADDRESS`"
    )]
    NoCluster,
    #[error(
        "this machine ({node}) belongs to the cluster {cluster}; leave it first with `ramport cluster leave`"
    )]
    Member { cluster: Name, node: Name },
    #[error("another change of this machine's cluster is in progress; wait until it is done")]
    Busy,
    #[error(
        "{text:?} is not an address of a node; write ADDRESS or ADDRESS:PORT, as given to `ramport serve --cluster`"
    )]
    Address { text: String },
    #[error("{0}")]
    Name(#[from] NameFault),
    #[error("{0}")]
    EtcdUrl(#[from] EtcdUrlFault),
    #[error("{address} is given twice; give each node once")]
    Twice { address: SocketAddr },
    #[error(
        "two machines are called {name} ({first} and {second}); start one of them with another --node-name"
    )]
    SameName {
        name: Name,
        first: SocketAddr,
        second: SocketAddr,
    },
    #[error("a cluster of {given} nodes is out of range; give 1 to {max} addresses")]
    NodeCount { given: usize, max: usize },
    #[error(
        "this machine ({own}) is not one of the nodes; name it in --nodes, or run the command on one of them"
    )]
    NotAmongNodes { own: SocketAddr },
    #[error("the daemon at {asked} calls itself {own}; give that address")]
    OtherAddress { asked: SocketAddr, own: SocketAddr },
    #[error("a witness runs etcd, and with --etcd no node does; leave one of them out")]
    WitnessWithoutEtcd,
    #[error(
        "a cluster called {cluster} exists in that etcd; choose another name, or join it with `ramport cluster join ADDRESS`"
    )]
    ClusterExists { cluster: Name },
    #[error(
        "a node called {name} belongs to the cluster; start this daemon with another --node-name"
    )]
    NodeExists { name: Name },
    #[error(
        "the cluster's node {name} has the address {address}; start the daemon here with --node-name {name}, or with another address"
    )]
    AddressTaken { name: Name, address: SocketAddr },
    #[error(
        "another node joins the cluster at this moment; try again when `ramport cluster ls` shows that it has etcd"
    )]
    OtherJoins,
    #[error(
        "etcd does not say whether the cluster {cluster} was made; if `ramport cluster ls` shows it once etcd answers, it was; otherwise run `ramport cluster leave` on each machine and create it again"
    )]
    CreationUnknown { cluster: Name },
    #[error("the cluster was changed meanwhile; try again")]
    Changed,
    #[error(
        "etcd does not start: {last}; check that etcd is installed (Debian: etcd-server) and that {ports} are free"
    )]
    EtcdSilent { last: String, ports: String },
    #[error(
        "{program} cannot be executed; install etcd (Debian: etcd-server), or use an etcd that exists with --etcd URLS"
    )]
    NoEtcd { program: String },
    #[error("node {name} would leave the cluster {cluster}, and its memory with it")]
    LeaveNeedsForce { cluster: Name, name: Name },
    #[error(
        "node {name} is the last one: the cluster {cluster} and all that it agreed on would be destroyed"
    )]
    EndNeedsForce { cluster: Name, name: Name },
    #[error("node {name} does not exist; `ramport node ls` lists all nodes")]
    NoNode { name: String },
    #[error("node {name} is the witness, which holds no copies of volumes")]
    DrainOfWitness { name: Name },
    #[error(
        "node {name} has {copies} copies that fit on no other node; they would stay there, and be lost when it is stopped; add nodes or memory"
    )]
    DrainNeedsForce { name: Name, copies: usize },
    #[error("the cluster {cluster} is established; `ramport cluster leave` makes a node leave it")]
    Established { cluster: Name },
    #[error(
        "volume {name} exists, in the cluster or on this machine; `ramport volume ls` lists all volumes"
    )]
    VolumeExists { name: VolumeName },
    #[error(
        "this node holds no copies of volumes, since the third port after that of --cluster is taken; free it, and the node uses it within seconds"
    )]
    NoCopiesHere,
    #[error(
        "volume {name} was created, but this machine does not have it yet; its log says why, and `ramport volume ls` shows when it has it"
    )]
    CreatedElsewhere { name: VolumeName },
    #[error(
        "volume {name} was removed from the cluster, but this machine still has it; its log says why"
    )]
    RemovedElsewhere { name: VolumeName },
    #[error(
        "etcd does not say whether volume {name} was created; `ramport volume ls` shows it once etcd answers, if it was"
    )]
    VolumeUnknown { name: VolumeName },
    #[error(
        "etcd does not have the cluster {cluster} of this machine, so its volumes stay as they are; restore the data of etcd, or make this machine forget the cluster with `ramport cluster leave --force`"
    )]
    ClusterGone { cluster: Name },
    #[error("volume {name} would be removed from all nodes of the cluster, with what it holds")]
    RemoveNeedsForce { name: VolumeName },
    #[error("`replica` and `nodes` of volume {name} are chosen by the cluster; leave them out")]
    PlacedAlready { name: VolumeName },
    #[error("cannot place volume {name}: {reason}")]
    Placement {
        name: VolumeName,
        reason: PlacementError,
    },
    #[error(transparent)]
    Definition(#[from] DefinitionFault),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("cannot listen on {address} for traffic of volumes: {source}; free that port")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("cannot keep copies of volumes: {0}")]
    Copies(#[from] node_link::NodeError),
    #[error("cannot use the node's certificate between nodes: {0}")]
    Credentials(#[from] node_link::CredentialsError),
    #[error(transparent)]
    Certificate(#[from] CertificateFault),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    #[error("what etcd has for {key} is not understood; use the same version on all machines")]
    Damaged { key: String },
}

impl Fault {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoCluster | Self::NoNode { .. } => ErrorKind::NotFound,
            Self::Engine(error) => error.kind(),
            Self::Placement {
                reason: PlacementError::Room { .. },
                ..
            } => ErrorKind::Exhausted,
            Self::Address { .. }
            | Self::Name(_)
            | Self::EtcdUrl(_)
            | Self::Twice { .. }
            | Self::NodeCount { .. }
            | Self::NotAmongNodes { .. }
            | Self::OtherAddress { .. }
            | Self::WitnessWithoutEtcd
            | Self::PlacedAlready { .. }
            | Self::Definition(_)
            | Self::Certificate(_) => ErrorKind::Invalid,
            Self::Member { .. }
            | Self::Busy
            | Self::SameName { .. }
            | Self::ClusterExists { .. }
            | Self::NodeExists { .. }
            | Self::AddressTaken { .. }
            | Self::OtherJoins
            | Self::Changed
            | Self::LeaveNeedsForce { .. }
            | Self::EndNeedsForce { .. }
            | Self::DrainNeedsForce { .. }
            | Self::DrainOfWitness { .. }
            | Self::Established { .. }
            | Self::VolumeExists { .. }
            | Self::RemoveNeedsForce { .. }
            | Self::Placement { .. }
            | Self::Link(LinkError::Refused { .. }) => ErrorKind::Conflict,
            Self::EtcdSilent { .. }
            | Self::NoCopiesHere
            | Self::CreatedElsewhere { .. }
            | Self::RemovedElsewhere { .. }
            | Self::VolumeUnknown { .. }
            | Self::ClusterGone { .. }
            | Self::CreationUnknown { .. }
            | Self::NoEtcd { .. }
            | Self::Folder(_)
            | Self::Link(_)
            | Self::Etcd(_)
            | Self::Copies(_)
            | Self::Listen { .. }
            | Self::Credentials(_)
            | Self::Damaged { .. } => ErrorKind::Unavailable,
        }
    }
}

impl From<Fault> for ClusterFault {
    fn from(fault: Fault) -> Self {
        let needs_force = matches!(
            fault,
            Fault::LeaveNeedsForce { .. }
                | Fault::EndNeedsForce { .. }
                | Fault::DrainNeedsForce { .. }
                | Fault::RemoveNeedsForce { .. }
        );
        Self {
            kind: fault.kind(),
            message: fault.to_string(),
            needs_force,
        }
    }
}
