//! Options of `ramport cluster` and `ramport node`, and those of `ramport serve` for clusters.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use cluster::{EtcdUrl, EtcdUrlFault, Name, NameFault, PORT_DEFAULT};

use control::RepairAfter;

use super::examples;
use super::values::parse_period;

#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Take part in clusters: the address of this machine where other nodes reach it [default port:
    /// 7450]. etcd has the two ports after it, and replicated volumes the third
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = parse_address, requires = "cluster_token_file", help_heading = "Cluster")]
    pub(crate) cluster: Option<SocketAddr>,
    /// The file with the cluster's token, the same on each machine: at least 32 bytes, readable by
    /// its owner only
    #[arg(
        long,
        value_name = "FILE",
        requires = "cluster",
        help_heading = "Cluster"
    )]
    pub(crate) cluster_token_file: Option<PathBuf>,
    /// This node's name [default: the first part of the machine's name]
    #[arg(long, value_name = "NAME", requires = "cluster", value_parser = parse_name, help_heading = "Cluster")]
    pub(crate) node_name: Option<Name>,
    /// The zone of this node: nodes of a zone may fail together [default: the node's name]
    #[arg(long, value_name = "ZONE", requires = "cluster", value_parser = parse_name, help_heading = "Cluster")]
    pub(crate) zone: Option<Name>,
    /// The program etcd
    #[arg(
        long,
        value_name = "PROGRAM",
        requires = "cluster",
        default_value = "etcd",
        help_heading = "Cluster"
    )]
    pub(crate) etcd_program: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterVerb {
    /// Make a cluster of machines whose daemons run with --cluster and the same token; this one is
    /// among them
    #[command(after_help = examples::CLUSTER_CREATE)]
    Create(ClusterCreateArgs),
    /// Make this machine a node of a cluster
    #[command(after_help = examples::CLUSTER_JOIN)]
    Join(ClusterJoinArgs),
    /// Make this machine leave its cluster, which ends with its last node
    #[command(after_help = examples::CLUSTER_LEAVE)]
    Leave(ClusterLeaveArgs),
    /// Change the cluster
    #[command(after_help = examples::CLUSTER_SET)]
    Set(ClusterSetArgs),
    /// Show the cluster that this machine belongs to
    #[command(visible_alias = "ls", after_help = examples::CLUSTER_LIST)]
    List,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterCreateArgs {
    /// Its name: lower-case letters, digits and hyphens
    #[arg(value_parser = parse_name)]
    pub(crate) name: Name,
    /// Addresses of the nodes, as given to `serve --cluster`
    #[arg(long, value_name = "ADDRESS,…", required = true, value_delimiter = ',', value_parser = parse_address)]
    pub(crate) nodes: Vec<SocketAddr>,
    /// Another machine that only runs etcd, so that one of two nodes can be lost
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address, conflicts_with = "etcd")]
    pub(crate) witness: Option<SocketAddr>,
    /// Use an etcd that exists, instead of one that the nodes run
    #[arg(long, value_name = "URL,…", value_delimiter = ',', value_parser = parse_etcd)]
    pub(crate) etcd: Vec<EtcdUrl>,
    /// File with the issuer of that etcd's certificates, as PEM
    #[arg(long, value_name = "FILE", requires_all = ["etcd", "etcd_cert", "etcd_key"])]
    pub(crate) etcd_ca: Option<PathBuf>,
    /// File with a certificate for that etcd, as PEM; all nodes use it
    #[arg(long, value_name = "FILE", requires = "etcd_ca")]
    pub(crate) etcd_cert: Option<PathBuf>,
    /// File with the certificate's private key, as PEM
    #[arg(long, value_name = "FILE", requires = "etcd_ca")]
    pub(crate) etcd_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterJoinArgs {
    /// The address of one of its nodes, as given to `serve --cluster`
    #[arg(value_name = "ADDRESS", value_parser = parse_address)]
    pub(crate) address: SocketAddr,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterLeaveArgs {
    /// Leave although the cluster loses this node's memory, or ends
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterSetArgs {
    /// After which time without a node its copies of volumes are made on other nodes, or `never`
    /// [at first: 10m]
    #[arg(long, value_name = "TIME", required = true, value_parser = parse_repair_after)]
    pub(crate) repair_after: RepairAfter,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeVerb {
    /// List the nodes of the cluster, and which of them are up
    #[command(visible_alias = "ls", after_help = examples::NODE_LIST)]
    List,
    /// Show a node
    #[command(after_help = examples::NODE_SHOW)]
    Show(NodeArgs),
    /// Move primaries and copies of volumes away from a node, and place none there; afterwards its
    /// daemon can be stopped
    #[command(after_help = examples::NODE_DRAIN)]
    Drain(NodeDrainArgs),
    /// Let a drained node hold primaries and copies again
    #[command(after_help = examples::NODE_UNDRAIN)]
    Undrain(NodeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NodeDrainArgs {
    /// Its name
    pub(crate) name: String,
    /// Drain it although some of its copies fit on no other node: they stay
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not wait until all have moved away; `node show` tells how far that is
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// Its name
    pub(crate) name: String,
}

/// Why a text is no address of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "write an IP address, with a port if that is not {PORT_DEFAULT}: 192.0.2.1 or [2001:db8::1]:7460"
)]
struct NodeAddressFault;

fn parse_address(text: &str) -> Result<SocketAddr, NodeAddressFault> {
    let address = text.parse::<SocketAddr>();
    address.or_else(|_| match text.parse::<IpAddr>() {
        Ok(ip) => Ok(SocketAddr::new(ip, PORT_DEFAULT)),
        Err(_) => Err(NodeAddressFault),
    })
}

/// Why a text is no time after which copies are made elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a time of at least 1 s, such as 10m, or never")]
struct RepairAfterFault;

fn parse_repair_after(text: &str) -> Result<RepairAfter, RepairAfterFault> {
    if text == "never" {
        return Ok(RepairAfter(0));
    }
    let period = parse_period(text).map_err(|_| RepairAfterFault)?;
    match period.0.as_secs() {
        0 => Err(RepairAfterFault),
        seconds => Ok(RepairAfter(seconds)),
    }
}

fn parse_name(text: &str) -> Result<Name, NameFault> {
    text.parse()
}

fn parse_etcd(text: &str) -> Result<EtcdUrl, EtcdUrlFault> {
    text.parse()
}
