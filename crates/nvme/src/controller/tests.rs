//! The control path as a host meets it: one subsystem, no transport.

mod admin;
mod connect;
mod discovery;
mod features;
mod hostile;
mod identify;
mod logs;
mod notices;
mod reservations;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{Access, BlockSize, HostPath, PathState, Volume};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use super::connection::ConnectRequest;
use super::*;
use crate::testing::VecVolume;
use crate::wire::discovery::TransportType;
use crate::wire::fabrics::{Configuration, Property, PropertySqe};
use crate::wire::log::{GetLogPage, OffsetType, RetainEvent};
use crate::wire::{Cid, Nsid, Sgl, Sqe, Status, StatusCode, opcode};

const HOST: &str = "nqn.2014-08.org.example:host";
const HOST_ID: [u8; 16] = [7; 16];
const CID: Cid = Cid(0x55);

struct FixedStatistics;

impl Statistics for FixedStatistics {
    fn usage(&self) -> Usage {
        Usage {
            read_bytes: 512_000,
            written_bytes: 1_024_000,
            read_commands: 3,
            write_commands: 4,
            busy_minutes: 5,
            power_on_hours: 6,
            media_errors: 7,
            spare_percent: 80,
        }
    }

    fn allocated_bytes(&self, nsid: Nsid) -> u64 {
        4096 * u64::from(nsid.0)
    }
}

fn config() -> SubsystemConfig {
    SubsystemConfig {
        nqn: "nqn.2014-08.org.example:test".to_owned(),
        serial: "4711".to_owned(),
        model: "ramport".to_owned(),
        firmware: "0.1.0".to_owned(),
        limits: Limits {
            controllers_max: 4,
            io_queues_max: 8,
            namespaces_max: 16,
            ..Limits::default()
        },
    }
}

fn origin(wake: u64) -> Origin {
    Origin {
        transport: TransportType::Tcp,
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        local: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        portal: PortalNumber(1),
        wake: WakeToken(wake),
    }
}

fn request(queue: u16, controller: u16, wake: u64) -> ConnectRequest {
    ConnectRequest {
        host: Host {
            nqn: HOST.to_owned(),
            id: HOST_ID,
        },
        controller,
        queue: QueueId(queue),
        sq_entries: 32,
        sq_flow: SqFlow::Enabled,
        keep_alive_timeout_ms: 0,
        origin: origin(wake),
        access: Access::ReadWrite,
        authentication: None,
    }
}

/// A subsystem with namespaces 1 (512 B blocks) and 2 (4 KiB blocks), and hosts that are connected
/// to it.
struct Fixture {
    subsystem: Subsystem,
    volumes: [Arc<VecVolume>; 2],
    now: Instant,
    wakes: u64,
}

impl Fixture {
    fn new() -> Self {
        let volumes = [
            Arc::new(VecVolume::new(BlockSize::B512, 64)),
            Arc::new(VecVolume::new(BlockSize::B4096, 16)),
        ];
        let mut fixture = Self {
            subsystem: Subsystem::new(config(), Box::new(FixedStatistics)),
            volumes,
            now: Instant::now(),
            wakes: 0,
        };
        for nsid in 1..=2 {
            fixture.add_namespace(nsid);
        }
        fixture
    }

    fn discovery() -> Self {
        Self {
            subsystem: Subsystem::discovery(config()),
            ..Self::new()
        }
    }

    /// Hosts reach namespace `nsid` so from now on.
    fn set_path(&mut self, nsid: u32, state: PathState) {
        let path = HostPath { state, machine: 1 };
        self.volumes[nsid as usize - 1].set_path(path);
        self.subsystem.path_changed(Nsid(nsid));
    }

    fn add_namespace(&mut self, nsid: u32) {
        let volume = Arc::clone(&self.volumes[(nsid as usize + 1) % 2]);
        let namespace = Namespace {
            volume: volume as Arc<dyn Volume>,
            ids: NamespaceIds::from_seed([nsid as u8; 16]),
        };
        self.subsystem
            .add_namespace(Nsid(nsid), namespace)
            .expect("free");
    }

    /// The admin queue of a new controller, enabled.
    fn host(&mut self) -> Connection {
        self.host_with(|_| {})
    }

    /// Likewise, for a Connect that is changed by `change`.
    fn host_with(&mut self, change: impl FnOnce(&mut ConnectRequest)) -> Connection {
        let connection = self.connect_with(change);
        let set = PropertySqe::set(CID, Property::Configuration, enabled());
        self.ok(&connection, &zerocopy::transmute!(set));
        connection
    }

    /// The admin queue of a new controller, not yet enabled.
    fn connect_with(&mut self, change: impl FnOnce(&mut ConnectRequest)) -> Connection {
        self.wakes += 1;
        let mut request = request(0, 0xFFFF, self.wakes);
        change(&mut request);
        self.subsystem
            .connect(self.now, request)
            .expect("room for a controller")
    }

    /// An I/O queue of the controller of `admin`.
    fn io_queue(&mut self, admin: &Connection, queue: u16) -> Connection {
        self.wakes += 1;
        let mut request = request(queue, admin.controller.0, self.wakes);
        request.host = self.subsystem.controllers[&admin.controller].host.clone();
        self.subsystem
            .connect(self.now, request)
            .expect("the queue is free")
    }

    fn admin(&mut self, connection: &Connection, sqe: &Sqe) -> Reply {
        self.admin_with(connection, sqe, &[])
    }

    fn admin_with(&mut self, connection: &Connection, sqe: &Sqe, data: &[u8]) -> Reply {
        self.subsystem
            .admin(self.now, connection.controller, sqe, data)
    }

    /// The result of a command that must succeed.
    fn ok(&mut self, connection: &Connection, sqe: &Sqe) -> u64 {
        match self.admin(connection, sqe) {
            Reply::Done(completion) if completion.status.is_success() => completion.result,
            other => panic!("expected success, got {other:?}"),
        }
    }

    /// The data of a command that must return some.
    fn data(&mut self, connection: &Connection, sqe: &Sqe) -> Vec<u8> {
        match self.admin(connection, sqe) {
            Reply::Data(bytes) => bytes,
            other => panic!("expected data, got {other:?}"),
        }
    }

    /// The status of a command that must fail.
    fn error(&mut self, connection: &Connection, sqe: &Sqe) -> StatusCode {
        code(&self.admin(connection, sqe))
    }

    fn property(&mut self, connection: &Connection, property: Property) -> u64 {
        self.ok(
            connection,
            &zerocopy::transmute!(PropertySqe::get(CID, property)),
        )
    }

    fn log(&mut self, connection: &Connection, page: u8, len_bytes: u64) -> Vec<u8> {
        self.data(connection, &log_sqe(page, 0, len_bytes, RetainEvent::Clear))
    }

    fn wakes(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.subsystem.poll_wake())
            .map(|wake| wake.0)
            .collect()
    }

    /// DW0 of the asynchronous events of a controller that are to be completed now.
    fn events(&mut self, connection: &Connection) -> Vec<u64> {
        std::iter::from_fn(|| self.subsystem.poll_kept(connection))
            .map(|(_, completion)| completion.result)
            .collect()
    }

    /// Submits `count` Asynchronous Event Requests.
    fn request_events(&mut self, connection: &Connection, count: u16) {
        for cid in 0..count {
            let sqe = Sqe::new(opcode::ASYNC_EVENT_REQUEST, Cid(0x100 + cid), Nsid::NONE);
            assert_eq!(self.admin(connection, &sqe), Reply::Hold);
        }
    }
}

fn enabled() -> u64 {
    u64::from(Configuration::ENABLE_NVM.0)
}

fn code(reply: &Reply) -> StatusCode {
    match reply {
        Reply::Done(completion) => completion.status.code().expect("a known status"),
        other => panic!("expected an error, got {other:?}"),
    }
}

/// A command with room for a page of data from the controller.
fn sqe(opcode: u8, nsid: u32, cdw10: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode, CID, Nsid(nsid));
    sqe.sgl1 = Sgl::transport(4096);
    sqe.cdw10 = U32::new(cdw10);
    sqe
}

fn log_sqe(page: u8, offset_bytes: u64, len_bytes: u64, event: RetainEvent) -> Sqe {
    let mut sqe = Sqe::new(opcode::GET_LOG_PAGE, CID, Nsid::ALL);
    sqe.sgl1 = Sgl::transport(len_bytes as u32);
    let fields = GetLogPage {
        page,
        specific: 0,
        event,
        len_bytes,
        offset_bytes,
        offset_type: OffsetType::Bytes,
    };
    fields.apply(&mut sqe);
    sqe
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}
