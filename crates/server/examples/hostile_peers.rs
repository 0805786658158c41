//! Hostile peers over NVMe/RDMA, for tests of other hosts' sessions meanwhile:
//!
//! ```sh
//! hostile_peers 10.2.0.64 10.2.0.1:4420 20     # from 10.2.0.64 to .67, for 20 s and until each attack was made twice
//! ```

#[path = "../tests/nvme_rdma/attacks.rs"]
mod attacks;
#[path = "../tests/nvme_rdma/peer.rs"]
#[expect(dead_code, reason = "the rest is for well-behaved peers")]
mod peer;

use std::error::Error;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use attacks::Attackers;

/// The least number of times that each attack is made, with another key each time. More take
/// minutes against a portal of an emulated machine.
const ROUNDS_MIN: u32 = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [first_host, portal, seconds] = &arguments[..] else {
        return Err("give the first of four addresses, the portal, and seconds, such as 10.2.0.64 10.2.0.1:4420 20".into());
    };
    let attackers = Attackers {
        portal: portal.parse()?,
        udp_port: roce::wire::UDP_PORT,
        first_host: first_host.parse()?,
        pause: Duration::from_millis(10),
        is_over: AtomicBool::new(false),
    };
    let end = Instant::now() + Duration::from_secs(seconds.parse()?);
    let rounds = std::thread::scope(|scope| {
        attackers.disturb(scope);
        let mut rounds = 0;
        while rounds < ROUNDS_MIN || Instant::now() < end {
            attackers.attack(rounds);
            rounds += 1;
        }
        attackers.end();
        rounds
    });
    println!("each attack was made {rounds} times");
    Ok(())
}
