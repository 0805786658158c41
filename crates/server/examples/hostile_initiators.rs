//! Hostile initiators over iSER, for tests of other initiators' sessions meanwhile:
//!
//! ```sh
//! hostile_initiators 10.2.0.64 10.2.0.1:3260 iqn.2026-11.com.example:disks 20   # for 20 s, and until each attack was made twice
//! ```

#[path = "../tests/iser/attacks.rs"]
mod attacks;
#[path = "../tests/iser/peer.rs"]
#[expect(dead_code, reason = "the rest is for well-behaved initiators")]
mod peer;

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use attacks::Attackers;

/// The least number of times that each attack is made, with another key each time. More take
/// minutes against a portal of an emulated machine.
const ROUNDS_MIN: u32 = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [from, portal, target, seconds] = &arguments[..] else {
        return Err("give an address, the portal, the target, and seconds, such as 10.2.0.64 10.2.0.1:3260 iqn.2026-11.com.example:disks 20".into());
    };
    let attackers = Attackers {
        from: SocketAddr::new(from.parse()?, roce::wire::UDP_PORT),
        portal: portal.parse()?,
        target,
    };
    let end = Instant::now() + Duration::from_secs(seconds.parse()?);
    let mut rounds = 0;
    while rounds < ROUNDS_MIN || Instant::now() < end {
        attackers.attack(rounds);
        rounds += 1;
    }
    println!("each attack was made {rounds} times");
    Ok(())
}
