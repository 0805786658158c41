//! UDP ports for tests of RDMA in software. Both ends of a test share one, as all ends of RoCEv2
//! do, at loopback addresses of their own.

use std::collections::HashSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::{LazyLock, Mutex};

/// The ports that this process was given.
static TAKEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);
/// How often the system is asked.
const ATTEMPTS_MAX: usize = 100;

/// A port that is free at every address and that no other test of this process has, so that
/// parallel test runs do not collide.
pub fn free_udp_port() -> u16 {
    let mut taken = TAKEN.lock().expect("no test panics here");
    (0..ATTEMPTS_MAX)
        .map(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a UDP port is free"))
        .map(|socket| socket.local_addr().expect("it is bound").port())
        .find(|port| taken.insert(*port))
        .expect("the system gives out more than a few ports")
}
