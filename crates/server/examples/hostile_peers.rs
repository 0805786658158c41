//! Peers that mean harm to a portal over NVMe/RDMA, for tests with hosts that work beside them:
//!
//! ```sh
//! hostile_peers 10.2.0.64 10.2.0.1:4420 20     # from 10.2.0.64 to .67, for 20 s and for so many rounds that each was done often
//! ```

#[path = "../tests/nvme_rdma/harm.rs"]
mod harm;
#[path = "../tests/nvme_rdma/peer.rs"]
#[expect(dead_code, reason = "the rest is for peers that mean well")]
mod peer;

use std::error::Error;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use harm::Scene;

/// How often each harm is done, at the least.
const ROUNDS_MIN: u32 = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [first_host, portal, seconds] = &arguments[..] else {
        return Err("give the first of four addresses, the portal, and seconds, such as 10.2.0.64 10.2.0.1:4420 20".into());
    };
    let scene = Scene {
        portal: portal.parse()?,
        udp_port: roce::wire::UDP_PORT,
        first_host: first_host.parse()?,
        pause: Duration::from_millis(10),
        is_over: AtomicBool::new(false),
    };
    let end = Instant::now() + Duration::from_secs(seconds.parse()?);
    let rounds = std::thread::scope(|scope| {
        scene.disturb(scope);
        let mut rounds = 0;
        while rounds < ROUNDS_MIN || Instant::now() < end {
            scene.harm(rounds);
            rounds += 1;
        }
        scene.end();
        rounds
    });
    println!("each was done {rounds} times");
    Ok(())
}
