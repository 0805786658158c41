//! Measures one queue: `rate URL [read|write] [BYTES] [DEPTH] [SECONDS]`. Prints operations per
//! second and the CPU time of this process per operation. `rate serve CORE` serves a volume of 1
//! GiB.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::{
    error::Error,
    time::{Duration, Instant},
};

use block::{Blocks, Extent, Lba};
use initiator::{Device, DeviceOptions, Operation, Request, Slot, Url, WaitStrategy};
use rustix::time::{ClockId, clock_gettime};
use server::{
    ByteSize, Cores, HostPolicy, NamespaceDefinition, PortalAuth, PortalDefinition, PortalGroup,
    RdmaChoice, Server, ServerConfig, TargetDefinition, Transport, VolumeSpec,
};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |index: usize, default: &'static str| {
        args.get(index).map_or(default.to_owned(), String::clone)
    };
    if arg(0, "") == "serve" {
        return serve(arg(1, "0").parse()?);
    }
    let operation = operation(&arg(1, "read"));
    let len_bytes: usize = arg(2, "512").parse()?;
    let depth: u16 = arg(3, "128").parse()?;
    let runtime = Duration::from_secs(arg(4, "3").parse()?);
    let url: Url = arg(0, "").parse()?;
    let options = DeviceOptions {
        depth,
        buffer_bytes: len_bytes,
        ..DeviceOptions::default()
    };
    let mut device = Device::connect(&url, &options)?;
    let geometry = device.geometry();
    let blocks = Blocks(len_bytes as u64 >> geometry.block_size.shift());
    let places = geometry.blocks.0 / blocks.0;
    let mut queue = device.take_queues().remove(0);
    let mut seed = 1u64;
    let mut request = |slot| {
        let lba = Lba(xorshift(&mut seed) % places * blocks.0);
        Request {
            slot,
            operation,
            extent: Extent::new(lba, blocks),
        }
    };
    for slot in 0..queue.depth() {
        queue.submit(request(Slot(slot)))?;
    }
    let mut done = Vec::with_capacity(depth.into());
    let (began, cpu_began) = (Instant::now(), cpu());
    let mut count = 0u64;
    let mut polls = 0u64;
    while began.elapsed() < runtime {
        queue.wait(WaitStrategy::Spin, Duration::from_secs(1), &mut done)?;
        polls += 1;
        count += done.len() as u64;
        for completion in done.drain(..) {
            completion.result?;
            queue.submit(request(completion.slot))?;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let cpu = cpu().saturating_sub(cpu_began).as_secs_f64();
    println!(
        "{operation:?} {len_bytes} B, depth {depth}: {:.0}/s, {:.0} ns of CPU each, {:.1} per poll",
        count as f64 / seconds,
        cpu * 1e9 / count as f64,
        count as f64 / polls as f64,
    );
    Ok(())
}

fn operation(word: &str) -> Operation {
    match word {
        "write" => Operation::Write,
        _ => Operation::Read,
    }
}

/// The next pseudo-random number.
fn xorshift(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::from_secs(time.tv_sec.unsigned_abs())
        + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}

fn serve(core: usize) -> Result<(), Box<dyn Error>> {
    let server = Server::start(ServerConfig {
        cores: Cores::Pinned(vec![core]),
        memory_bytes: Some(2 << 30),
        ..ServerConfig::default()
    })?;
    let spec = VolumeSpec::thick(ByteSize(1 << 30));
    server.create_volume("rate".parse()?, &spec, &mut |_| {})?;
    server.create_target(TargetDefinition {
        name: "rate".parse()?,
        logins: server::LoginPolicy::default(),
        hosts: HostPolicy::Local,
        namespaces: vec![NamespaceDefinition {
            nsid: 1,
            volume: "rate".parse()?,
        }],
    })?;
    let portal = server.add_portal(PortalDefinition {
        transport: Transport::NvmeTcp,
        address: "127.0.0.1:4499".parse()?,
        group: PortalGroup::default(),
        rdma: RdmaChoice::default(),
        auth: PortalAuth::default(),
        tls: server::TlsPolicy::Off,
    })?;
    println!("nvme+tcp://{}/rate", portal.address);
    let portal = server.add_portal(PortalDefinition {
        transport: Transport::NvmeRdma,
        address: "127.0.46.1:46001".parse()?,
        group: PortalGroup::default(),
        rdma: RdmaChoice::default(),
        auth: PortalAuth::default(),
        tls: server::TlsPolicy::Off,
    })?;
    println!("nvme+rdma://{}/rate", portal.address);
    std::thread::park();
    Ok(())
}
