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
use control::{ClusterControl, ClusterView, NewCluster, NodeState, Token};

/// How long something may take: far more than it needs, as machines that test are busy.
const LIMIT: Duration = Duration::from_secs(90);
/// The token that machines share unless a test says otherwise.
pub(crate) const TOKEN: &str = "the token that all machines of these tests share";

/// A machine.
pub(crate) struct Machine {
    pub(crate) address: SocketAddr,
    pub(crate) folder: PathBuf,
    name: String,
    token: String,
    node: Option<Node>,
}

/// Addresses that no other test uses: 127.0.0.1 and so on, with three ports each.
pub(crate) fn addresses(count: u8) -> Vec<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Below the ports that systems give out, and another one for each process.
    let of_process = (std::process::id() % 500) as u16 * 20;
    let port = 20_000 + of_process + 3 * NEXT.fetch_add(1, Ordering::Relaxed);
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
        let node = Node::start(NodeConfig {
            address: self.address,
            token: Token::read(&path).expect("a token"),
            folder: self.folder.join("cluster"),
            zone: name.clone(),
            name,
            memory_bytes: 1 << 30,
            etcd: etcd.to_owned(),
        });
        self.node = Some(node.expect("a node"));
    }

    /// Stops it.
    pub(crate) fn stop(&mut self) {
        drop(self.node.take().expect("it runs"));
    }

    pub(crate) fn control(&self) -> Arc<dyn ClusterControl> {
        self.node.as_ref().expect("it runs").control()
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
