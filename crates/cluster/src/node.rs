//! This machine as a node: it listens for other daemons, and works as a member of its cluster, if
//! it belongs to one.

mod admit;
mod create;
mod drain;
mod join;
mod loads;
mod messages;
mod mirror;
mod place;
mod pool;
mod presence;
mod repair;
mod routes;
mod shared;
mod view;
mod volumes;
mod watch;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use control::{
    ClusterControl, ClusterFault, ClusterView, Engine, ErrorKind, Force, JoinCluster, NewCluster,
    RepairAfter, Token, Volume, VolumeName, WatchView,
};
use node_link::Replicas;
use rustls::ServerConfig;
use tokio::process::Command;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::certificates::{Authority, CertificateFault, Subject, client, server};
use crate::etcd_program::NODE_PORT_MAX;
use crate::fault::Fault;
use crate::link;
use crate::membership::{FolderError, Membership, NodeFolder};
use crate::name::Name;
use shared::{Own, Shared, SharedNode};

/// The port of nodes; etcd has the two after it, and traffic of replicated volumes the third.
pub const PORT_DEFAULT: u16 = 7450;
/// How long `etcd --version` may take.
const VERSION_LIMIT: Duration = Duration::from_secs(5);

/// How a machine takes part in clusters.
pub struct NodeConfig {
    /// Where other machines reach it.
    pub address: SocketAddr,
    /// What proves that machines may form a cluster.
    pub token: Token,
    /// Where it keeps its membership and its etcd.
    pub folder: PathBuf,
    /// Its name.
    pub name: Name,
    /// Nodes of a zone may fail together.
    pub zone: Name,
    /// Its memory budget.
    pub memory_bytes: u64,
    /// The program etcd.
    pub etcd: String,
    /// What has the volumes of this machine.
    pub engine: Engine,
    /// The copies of replicated volumes, as `engine` uses them.
    pub replicas: Arc<Replicas>,
}

/// Why the machine cannot take part in clusters.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Others cannot reach the address.
    #[error(
        "other nodes cannot reach {address}; give --cluster an address of this machine, with a port up to {NODE_PORT_MAX}"
    )]
    Address {
        /// The address.
        address: SocketAddr,
    },
    /// The address is in use, or none of this machine's.
    #[error(
        "cannot listen on {address} for other nodes: {source}; choose another --cluster address"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The machine is known to its cluster by another address.
    #[error(
        "this machine belongs to the cluster {cluster} as {known}; start it with --cluster {known}"
    )]
    OtherAddress {
        /// The cluster.
        cluster: Name,
        /// The address that the cluster knows.
        known: SocketAddr,
    },
    /// Certificates cannot be made.
    #[error(transparent)]
    Certificate(#[from] CertificateFault),
    /// The folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The thread cannot be started.
    #[error("cannot start the cluster's thread: {0}")]
    Thread(#[source] io::Error),
}

/// The node, on a thread of its own. When it is dropped it stops, and ends etcd; the machine stays
/// a member.
pub struct Node {
    control: Arc<Control>,
    /// Dropped to stop the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    /// Listens, and begins to work as a member if the machine belongs to a cluster.
    pub fn start(config: NodeConfig) -> Result<Self, NodeError> {
        let address = config.address;
        if address.ip().is_unspecified() || !(1..=NODE_PORT_MAX).contains(&address.port()) {
            return Err(NodeError::Address { address });
        }
        let identity = Authority::of_token(&config.token)?.issue(&Subject {
            address: address.ip(),
            names: &[],
        })?;
        let tls = server(&identity)?;
        let link = client(&identity).map_err(CertificateFault::from)?;
        let folder = NodeFolder::new(config.folder);
        let membership = folder.load()?;
        if let Some(Membership { cluster, node, .. }) = &membership
            && node.address != address
        {
            return Err(NodeError::OtherAddress {
                cluster: cluster.clone(),
                known: node.address,
            });
        }
        let listen = || {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = listen().map_err(|source| NodeError::Listen { address, source })?;
        let own = Own {
            address,
            name: config.name,
            zone: config.zone,
            memory_bytes: config.memory_bytes,
            etcd: config.etcd,
        };
        let volumes = (config.engine, config.replicas);
        let shared = Arc::new(Shared::new(own, folder, link, volumes));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(NodeError::Thread)?;
        let control = Arc::new(Control {
            shared: Arc::clone(&shared),
            runtime: runtime.handle().clone(),
        });
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("cluster".to_owned())
            .spawn(move || {
                let work = run(shared, listener, tls, membership, stopped);
                if let Err(error) = runtime.block_on(work) {
                    tracing::error!(%error, "the cluster's thread ended");
                }
            });
        Ok(Self {
            control,
            stop: Some(stop),
            thread: Some(thread.map_err(NodeError::Thread)?),
        })
    }

    /// What answers requests about the cluster.
    pub fn control(&self) -> Arc<dyn ClusterControl> {
        Arc::<Control>::clone(&self.control)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

async fn run(
    shared: SharedNode,
    listener: std::net::TcpListener,
    tls: Arc<ServerConfig>,
    membership: Option<Membership>,
    stopped: oneshot::Receiver<()>,
) -> Result<(), Fault> {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a socket of this runtime");
    let serve = tokio::spawn(link::serve(listener, tls, routes::router(shared.clone())));
    match membership {
        Some(membership) => begin(&shared, membership)?,
        None => volumes::forget(&shared).await,
    }
    // The sender is dropped to stop the node.
    let _ = stopped.await;
    serve.abort();
    shared.end().await;
    Ok(())
}

/// Stores a membership and works as its member.
fn enter(shared: &SharedNode, membership: Membership) -> Result<(), Fault> {
    shared.require_none()?;
    if membership.node.address != shared.own.address {
        return Err(Fault::OtherAddress {
            asked: membership.node.address,
            own: shared.own.address,
        });
    }
    // An etcd of a former cluster would not start again with another one.
    shared.folder.clear()?;
    shared.folder.store(&membership)?;
    begin(shared, membership)
}

fn begin(shared: &SharedNode, membership: Membership) -> Result<(), Fault> {
    shared.begin(membership, |active| {
        let volumes = volumes::start(shared, active);
        let mut tasks = presence::start(shared, active);
        tasks.push(volumes);
        tasks.push(repair::start(shared, active));
        tasks
    })
}

/// Forgets a cluster that was not made after all.
async fn forget(shared: &SharedNode, id: Uuid) -> Result<(), Fault> {
    let Ok(active) = shared.active() else {
        return Ok(());
    };
    let membership = active.membership;
    if membership.id != id || membership.is_established {
        let cluster = membership.cluster;
        return Err(Fault::Established { cluster });
    }
    shared.end().await;
    Ok(shared.folder.clear()?)
}

/// Whether etcd can be executed.
async fn has_etcd(program: &str) -> bool {
    let version = Command::new(program)
        .arg("--version")
        .kill_on_drop(true)
        .output();
    let version = tokio::time::timeout(VERSION_LIMIT, version).await;
    matches!(version, Ok(Ok(output)) if output.status.success())
}

/// Answers requests of people, on their threads.
struct Control {
    shared: SharedNode,
    runtime: Handle,
}

impl Control {
    /// Does `work` on the cluster's thread and waits for it.
    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, ClusterFault> {
        let (done, answer) = mpsc::channel();
        self.runtime.spawn(async move {
            let _ = done.send(work.await);
        });
        match answer.recv() {
            Ok(answer) => Ok(answer?),
            Err(mpsc::RecvError) => Err(ClusterFault::new(
                ErrorKind::Unavailable,
                "the daemon is stopping; start it again",
            )),
        }
    }
}

impl ClusterControl for Control {
    fn show(&self) -> Result<ClusterView, ClusterFault> {
        let shared = self.shared.clone();
        self.wait(async move { view::show(&shared, &shared.active()?).await })
    }

    fn watch(&self) -> Result<WatchView, ClusterFault> {
        let shared = self.shared.clone();
        self.wait(async move { watch::watch(&shared).await })
    }

    fn create(&self, request: NewCluster) -> Result<ClusterView, ClusterFault> {
        let shared = self.shared.clone();
        self.wait(async move {
            create::create(&shared, request).await?;
            view::show(&shared, &shared.active()?).await
        })
    }

    fn join(&self, request: JoinCluster) -> Result<ClusterView, ClusterFault> {
        let shared = self.shared.clone();
        self.wait(async move {
            join::join(&shared, request).await?;
            view::show(&shared, &shared.active()?).await
        })
    }

    fn leave(&self, force: Force) -> Result<(), ClusterFault> {
        let shared = self.shared.clone();
        self.wait(async move { join::leave(&shared, force).await })
    }

    fn set_repair_after(&self, after: RepairAfter) -> Result<ClusterView, ClusterFault> {
        let shared = self.shared.clone();
        self.wait(async move {
            drain::set_repair_after(&shared, after).await?;
            view::show(&shared, &shared.active()?).await
        })
    }

    fn drain(&self, node: String, force: Force) -> Result<(), ClusterFault> {
        let shared = self.shared.clone();
        self.wait(async move { drain::drain(&shared, &node, force).await })
    }

    fn undrain(&self, node: String) -> Result<(), ClusterFault> {
        let shared = self.shared.clone();
        self.wait(async move { drain::undrain(&shared, &node).await })
    }

    fn create_volume(&self, name: VolumeName, volume: Volume) -> Result<(), ClusterFault> {
        let shared = self.shared.clone();
        self.wait(async move { place::create(&shared, name, volume).await })
    }

    fn remove_volume(&self, name: VolumeName, force: Force) -> Result<(), ClusterFault> {
        let shared = self.shared.clone();
        self.wait(async move { place::remove(&shared, name, force).await })
    }
}
