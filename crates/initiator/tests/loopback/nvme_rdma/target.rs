//! An NVMe/RDMA target: the session core behind the runtime that portals use.

use std::net::{IpAddr, Ipv4Addr};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use block::testing::VecVolume;
use block::{Access, BlockSize, Pinned};
use fabric::runtime::{
    Admitted, MessageAcceptor, QueueShape, Refusal, Request, Runtime, RuntimeOptions,
    drive_messages,
};
use fabric::{Soft, SoftOptions};
use initiator::Url;
use memory::Budget;
use net::{
    Accepted, Attachment, CloseReason, ConnectionId, LoginProgress, ReactorHandle, ReactorOptions,
    Reactors,
};
use nvme::auth::{AuthOutcome, Credentials, Exponentiation, Power};
use nvme::controller::{
    Backend, Completed, ControllerId, Limits, NamespaceRef, OpenError, Origin, Subsystem,
};
use nvme::rdma::wire::ConnectReject;
use nvme::rdma::{ControllerConfig, ControllerSession};
use nvme::testing::{TestBackend, subsystem};
use nvme::wire::Nsid;
use nvme::wire::discovery::TransportType;
use zerocopy::IntoBytes as _;

use crate::nvme::NvmeTarget;

const PORT: u16 = 4420;

/// An NVMe/RDMA target that serves one volume as namespace 1 until it is dropped.
pub struct RdmaTarget {
    pub address: IpAddr,
    volume: Arc<VecVolume>,
    subsystem: Arc<Mutex<Subsystem>>,
    accepted: Arc<Mutex<Vec<ConnectionId>>>,
    // Dropped in this order.
    _runtime: Runtime,
    reactors: Reactors,
}

impl NvmeTarget for RdmaTarget {
    const QUERIES: &'static [&'static str] = &["rdma=auto", "rdma=soft"];

    fn start(blocks: u64) -> Self {
        Self::with_recv_buffer(blocks, 16 << 20)
    }

    fn url(&self, query: &str) -> Url {
        let text = format!(
            "nvme+rdma://{}/nqn.2014-08.org.example:test?{query}",
            self.address
        );
        text.parse().unwrap()
    }

    fn volume(&self) -> &Arc<VecVolume> {
        &self.volume
    }

    fn subsystem(&self) -> &Arc<Mutex<Subsystem>> {
        &self.subsystem
    }

    fn cut(&self) {
        for id in self.accepted.lock().unwrap().drain(..) {
            self.reactors.handle().close(id);
        }
    }
}

impl RdmaTarget {
    /// With a receive buffer of the socket's of this length: what does not fit is lost.
    pub fn with_recv_buffer(blocks: u64, recv_buffer_bytes: u32) -> Self {
        let volume = Arc::new(VecVolume::new(BlockSize::B512, blocks));
        let subsystem = subsystem(Limits::default(), &[Arc::clone(&volume)]);
        let reactors = Reactors::start(ReactorOptions::default()).unwrap();
        let address = address();
        let options = SoftOptions {
            recv_buffer_bytes,
            ..SoftOptions::at_ip(address)
        };
        let runtime = Runtime::start(
            move || Soft::bind(&options),
            &reactors.handle(),
            Arc::new(Budget::new(1 << 30)),
            RuntimeOptions::default(),
        )
        .unwrap();
        let accepted = Arc::default();
        let acceptor = Acceptor {
            subsystem: Arc::clone(&subsystem),
            accepted: Arc::clone(&accepted),
            handle: reactors.handle(),
        };
        runtime.listen(PORT, Arc::new(acceptor)).unwrap();
        Self {
            address,
            volume,
            subsystem,
            accepted,
            _runtime: runtime,
            reactors,
        }
    }

    /// Datagrams that its socket has lost.
    pub fn drops(&self) -> u64 {
        let IpAddr::V4(address) = self.address else {
            panic!("targets here have IPv4 addresses");
        };
        let local = format!("{:08X}:12B7", u32::from_ne_bytes(address.octets()));
        let table = std::fs::read_to_string("/proc/net/udp").unwrap();
        // Others have it as their peer.
        let is_own = |line: &&str| line.split_ascii_whitespace().nth(1) == Some(&local);
        let line = table.lines().find(is_own).unwrap();
        line.split_ascii_whitespace()
            .last()
            .unwrap()
            .parse()
            .unwrap()
    }
}

/// An address of loopback for one more target: peers expect all of them at the same UDP port.
fn address() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let [_, _, a, b] = process::id().to_be_bytes();
    let number = NEXT.fetch_add(1, Ordering::Relaxed) as u8;
    Ipv4Addr::new(127, 32 + a % 16, b, 1 + number).into()
}

struct Acceptor {
    subsystem: Arc<Mutex<Subsystem>>,
    accepted: Arc<Mutex<Vec<ConnectionId>>>,
    handle: ReactorHandle,
}

impl MessageAcceptor for Acceptor {
    fn accept(
        &self,
        now: Instant,
        accepted: &Accepted,
        request: &Request<'_>,
    ) -> Result<Admitted, Refusal> {
        let config = ControllerConfig::default();
        let taken =
            ControllerSession::accept(now, &config, request.private_data, request.reads_max)
                .map_err(|status| Refusal::Protocol {
                    error: Box::new(status),
                    private_data: ConnectReject::new(status).as_bytes().to_vec(),
                })?;
        self.accepted.lock().unwrap().push(accepted.id);
        let mut backend = TestBackend::new(Arc::clone(&self.subsystem), accepted.id.0);
        backend.transport = TransportType::Rdma;
        let served = Served {
            backend,
            handle: self.handle.clone(),
        };
        Ok(Admitted {
            driven: drive_messages(taken.session, served),
            shape: QueueShape {
                receives: taken.receives,
                receive_len_bytes: taken.receive_len_bytes,
                sends: taken.sends,
                reads: taken.reads,
            },
            private_data: taken.reply.as_bytes().to_vec(),
        })
    }
}

/// The backend of a connection that a runtime drives.
struct Served {
    backend: TestBackend,
    handle: ReactorHandle,
}

impl Backend for Served {
    fn origin(&self) -> Origin {
        self.backend.origin()
    }

    fn open(&mut self, nqn: &str, host_nqn: &str, id: [u8; 16]) -> Result<Access, OpenError> {
        self.backend.open(nqn, host_nqn, id)
    }

    fn bind(&mut self, controller: ControllerId) {
        self.backend.bind(controller);
    }

    fn with_subsystem<R>(&mut self, f: impl FnOnce(&mut Subsystem) -> R) -> R {
        let handle = &self.handle;
        self.backend.with_subsystem(|subsystem| {
            let result = f(subsystem);
            while let Some(token) = subsystem.poll_wake() {
                handle.wake(ConnectionId(token.0));
            }
            result
        })
    }

    fn namespace(&mut self, nsid: Nsid) -> Option<NamespaceRef<'_>> {
        self.backend.namespace(nsid)
    }

    fn credentials(&mut self) -> Option<Arc<Credentials>> {
        self.backend.credentials()
    }

    fn random(&mut self, bytes: &mut [u8]) {
        self.backend.random(bytes);
    }

    fn compute(&mut self, power: Exponentiation) -> bool {
        self.backend.compute(power)
    }

    fn poll_power(&mut self) -> Option<Power> {
        self.backend.poll_power()
    }

    fn note_authentication(&mut self, outcome: &AuthOutcome) {
        self.backend.note_authentication(outcome);
    }

    fn charge_input(&mut self, len_bytes: u64) -> bool {
        self.backend.charge_input(len_bytes)
    }

    fn completed(&mut self, _command: &Completed) {}
}

impl Attachment for Served {
    fn memory(&self, region: session::SourceId) -> Option<&dyn Pinned> {
        self.backend
            .volume(region)
            .and_then(|volume| volume.pinned())
    }

    fn may_send(&self, _region: session::SourceId) -> bool {
        true
    }

    fn charged_bytes(&self) -> u64 {
        0
    }

    fn login_progress(&self) -> LoginProgress {
        LoginProgress::Admitted
    }

    fn handle_sent(&mut self, _now: Instant) {}

    fn handle_stalled(&mut self) {}

    fn handle_drained(&mut self) {}

    fn handle_closed(&mut self, _reason: &CloseReason) {}
}
