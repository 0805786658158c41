//! Tries a host's every operation on a namespace or logical unit that may be overwritten: `check
//! URL`. For targets that are not ours.

use std::{error::Error, time::Duration};

use block::{Blocks, Extent, Lba, Unmap};
use initiator::{
    CommandError, Device, DeviceOptions, Operation, Queue, Request, Scheme, Slot, Url,
    WaitStrategy, discover, discover_targets,
};

const PATIENCE: Duration = Duration::from_secs(60);
const TRANSFER_BYTES_MAX: usize = 512 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let text = std::env::args().nth(1).ok_or("name a URL")?;
    let url: Url = text.parse()?;
    let queues = match url.scheme() {
        Scheme::NvmeTcp | Scheme::NvmeRdma => {
            for it in discover(&url.service(), PATIENCE)? {
                println!("{} at {}:{}", it.subsystem_nqn, it.address, it.service);
            }
            "queues=2"
        }
        Scheme::Brp | Scheme::BrpRdma => "queues=2",
        Scheme::Srp => "sessions=2",
        Scheme::Iscsi => {
            // Targets that prove themselves need not do so for discovery.
            match discover_targets(&url.service(), PATIENCE) {
                Ok(records) => {
                    for it in records {
                        println!("{} at {}:{}", it.target, it.address, it.port);
                    }
                }
                Err(error) => println!("no discovery: {error}"),
            }
            "sessions=2"
        }
    };
    let separator = if text.contains('?') { '&' } else { '?' };
    let digests: &[&str] = match url.scheme() {
        Scheme::Brp | Scheme::BrpRdma => &[],
        Scheme::NvmeTcp | Scheme::Iscsi => {
            &["hdgst=off", "hdgst=on", "ddgst=on", "hdgst=on&ddgst=on"]
        }
        Scheme::NvmeRdma | Scheme::Srp => &["rdma=auto"],
    };
    for digests in digests {
        let checked = check(&format!("{text}{separator}{digests}&{queues}").parse()?);
        if let Err(error) = checked {
            println!("{digests}: {error}");
        }
    }
    Ok(())
}

fn check(url: &Url) -> Result<(), Box<dyn Error>> {
    let options = DeviceOptions {
        buffer_bytes: TRANSFER_BYTES_MAX,
        depth: 32,
        ..DeviceOptions::default()
    };
    let mut device = Device::connect(url, &options)?;
    println!("{url}: {:?}, {:?}", device.info(), device.geometry());
    for queue in &mut device.take_queues() {
        write_and_read(queue)?;
        for operation in [
            Operation::Flush,
            Operation::WriteZeroes(Unmap::Allowed),
            Operation::Deallocate,
            Operation::Verify,
            Operation::Compare,
            Operation::CompareAndWrite,
        ] {
            let answer = run(queue, operation, 0, 1);
            println!("  {operation:?}: {answer:?}");
        }
    }
    Ok(())
}

/// Every length up to the longest, several in flight, so that long and short answers mix.
fn write_and_read(queue: &mut Queue) -> Result<(), Box<dyn Error>> {
    let shift = queue.geometry().block_size.shift();
    let blocks_max = (queue.transfer_bytes_max() >> shift) as u64;
    let mut done = Vec::new();
    for round in 0..8u64 {
        for operation in [Operation::Write, Operation::Read] {
            for slot in 0..queue.depth() {
                let blocks = 1 + (u64::from(slot) * 7919 + round * 104_729) % blocks_max;
                let fill = if operation == Operation::Write {
                    mark(round, slot)
                } else {
                    0
                };
                queue.buffer_mut(Slot(slot)).fill(fill);
                let lba = Lba(u64::from(slot) * blocks_max);
                let extent = Extent::new(lba, Blocks(blocks));
                queue.submit(Request {
                    slot: Slot(slot),
                    operation,
                    extent,
                })?;
            }
            while done.len() < queue.depth().into() {
                if queue.wait(WaitStrategy::Sleep, PATIENCE, &mut done)? == 0 {
                    return Err("no progress".into());
                }
            }
            for completion in done.drain(..) {
                completion.result?;
                let slot = completion.slot;
                let blocks = 1 + (u64::from(slot.0) * 7919 + round * 104_729) % blocks_max;
                let data = &queue.buffer(slot)[..(blocks << shift) as usize];
                let want = mark(round, slot.0);
                if data.iter().any(|&byte| byte != want) {
                    return Err(format!("slot {} holds wrong data", slot.0).into());
                }
            }
        }
    }
    println!("  {} rounds of {} commands verified", 8, queue.depth());
    Ok(())
}

fn mark(round: u64, slot: u16) -> u8 {
    (round as u8).wrapping_mul(37) ^ (slot as u8) | 1
}

fn run(
    queue: &mut Queue,
    operation: Operation,
    lba: u64,
    blocks: u64,
) -> Result<Result<(), CommandError>, Box<dyn Error>> {
    let mut done = Vec::new();
    let request = Request {
        slot: Slot(0),
        operation,
        extent: Extent::new(Lba(lba), Blocks(blocks)),
    };
    if let Err(refusal) = queue.submit(request) {
        println!("  {refusal}");
        return Ok(Ok(()));
    }
    queue.wait(WaitStrategy::Sleep, PATIENCE, &mut done)?;
    Ok(done.pop().ok_or("no answer")?.result)
}
