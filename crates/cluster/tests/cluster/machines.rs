//! Machines for tests: nodes in this process, each with an address of its own and real etcd.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use block::testing::Folder;
use cluster::{Node, NodeConfig};
use control::{ClusterControl, ClusterView, Engine, LostContents, NewCluster, NodeState, Token};
use node_link::Replicas;
use server::{Cores, ServerConfig};

/// How long something may take: far more than it needs, as machines that test are busy.
const LIMIT: Duration = Duration::from_secs(90);
/// How long commands may take when a machine stops.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// The memory of a machine.
const MEMORY_BYTES: u64 = 1 << 30;
/// The token that machines share unless a test says otherwise.
pub(crate) const TOKEN: &str = "the token that all machines of these tests share";

/// A machine.
pub(crate) struct Machine {
    pub(crate) address: SocketAddr,
    pub(crate) folder: PathBuf,
    name: String,
    token: String,
    node: Option<Node>,
    engine: Option<Engine>,
}

/// Addresses that no other test uses: 127.0.0.1 and so on, with four ports each.
pub(crate) fn addresses(count: u8) -> Vec<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Below the ports that systems give out, and another one for each process.
    let of_process = (std::process::id() % 400) as u16 * 28;
    let port = 20_000 + of_process + 4 * NEXT.fetch_add(1, Ordering::Relaxed);
    (1..=count)
        .map(|last| SocketAddr::from(([127, 0, 0, last], port)))
        .collect()
}

impl Machine {
    /// One that holds the token.
    pub(crate) fn start(folder: &Folder, name: &str, address: SocketAddr) -> Self {
        Self::with_token(folder, name, address, TOKEN)
    }

    pub(crate) fn with_token(
        folder: &Folder,
        name: &str,
        address: SocketAddr,
        token: &str,
    ) -> Self {
        let mut machine = Self {
            address,
            folder: folder.join(name),
            name: name.to_owned(),
            token: token.to_owned(),
            node: None,
            engine: None,
        };
        fs::create_dir(&machine.folder).expect("a folder");
        machine.resume("etcd");
        machine
    }

    /// Starts it again. `etcd` is the program.
    pub(crate) fn resume(&mut self, etcd: &str) {
        let path = self.folder.join("token");
        fs::write(&path, &self.token).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        let name = self.name.parse::<cluster::Name>().expect("a name");
        let replicas = Arc::<Replicas>::default();
        let config = ServerConfig {
            cores: Cores::Count(1),
            memory_bytes: Some(MEMORY_BYTES),
            replicas: Some(Arc::clone(&replicas)),
            ..ServerConfig::default()
        };
        let state = self.folder.join("state");
        let engine = Engine::open(config, &state, LostContents::default()).expect("an engine");
        let node = Node::start(NodeConfig {
            address: self.address,
            token: Token::read(&path).expect("a token"),
            folder: self.folder.join("cluster"),
            zone: name.clone(),
            name,
            memory_bytes: MEMORY_BYTES,
            etcd: etcd.to_owned(),
            engine: engine.clone(),
            replicas,
        });
        self.node = Some(node.expect("a node"));
        self.engine = Some(engine);
    }

    /// Stops it.
    pub(crate) fn stop(&mut self) {
        drop(self.node.take().expect("it runs"));
        self.engine.take().expect("it runs").stop(STOP_LIMIT);
    }

    pub(crate) fn control(&self) -> Arc<dyn ClusterControl> {
        self.node.as_ref().expect("it runs").control()
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("it runs")
    }

    /// The names of the nodes that it sees as up.
    pub(crate) fn up(&self) -> Vec<String> {
        let nodes = self
            .control()
            .show()
            .map_or_else(|_| Vec::new(), |view| view.nodes);
        let up = nodes.into_iter().filter(|node| node.state == NodeState::Up);
        up.map(|node| node.name).collect()
    }

    /// Waits until it sees these nodes as up, and no others.
    pub(crate) fn wait_for_up(&self, names: &[&str]) {
        let begin = Instant::now();
        while self.up() != names {
            assert!(begin.elapsed() < LIMIT, "{:?}", self.control().show());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A cluster that is to be made of machines.
pub(crate) fn wish(machines: &[&Machine]) -> NewCluster {
    NewCluster {
        name: "lab".to_owned(),
        nodes: machines
            .iter()
            .map(|machine| machine.address.to_string())
            .collect(),
        witness: None,
        etcd: None,
    }
}

/// The names of a cluster's nodes.
pub(crate) fn names(view: &ClusterView) -> Vec<&str> {
    view.nodes.iter().map(|node| node.name.as_str()).collect()
}
