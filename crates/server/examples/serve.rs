//! Serves one RAM volume over NVMe/TCP, for measurements and for hosts that are to be tried by
//! hand.
//!
//! ```text
//! cargo run --release -p target --example serve -- [ADDRESS [CORE]]
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use block::Access;
use server::{
    ByteSize, Cores, HostPolicy, NamespaceDefinition, PortalAuth, PortalDefinition, PortalGroup,
    RdmaChoice, Server, ServerConfig, TargetDefinition, Transport, VolumeName, VolumeSpec,
};

const VOLUME_BYTES: u64 = 1 << 30;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = match arguments.next() {
        Some(text) => text.parse()?,
        None => ([127, 0, 0, 1], 4420).into(),
    };
    let cores = match arguments.next() {
        Some(core) => Cores::Pinned(vec![core.parse()?]),
        None => Cores::Count(1),
    };
    tracing_subscriber::fmt().init();
    let server = Server::start(ServerConfig {
        cores,
        memory_bytes: Some(4 * VOLUME_BYTES),
        ..ServerConfig::default()
    })?;
    let volume: VolumeName = "rd0".parse()?;
    let spec = VolumeSpec::thick(ByteSize(VOLUME_BYTES));
    server.create_volume(volume.clone(), &spec, &mut |_| {})?;
    let name = "nqn.2025-01.io.ramport:rd0";
    server.create_target(TargetDefinition {
        name: name.parse()?,
        logins: server::LoginPolicy::default(),
        hosts: HostPolicy::Any(Access::ReadWrite),
        namespaces: vec![NamespaceDefinition { nsid: 1, volume }],
    })?;
    let portal = server.add_portal(PortalDefinition {
        transport: Transport::NvmeTcp,
        address,
        group: PortalGroup::default(),
        rdma: RdmaChoice::default(),
        auth: PortalAuth::default(),
        tls: server::TlsPolicy::Off,
    })?;
    println!("{portal}/{name}?ns=1");
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}
