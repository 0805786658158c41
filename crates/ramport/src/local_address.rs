//! The address of this machine that other machines reach.

use std::net::{IpAddr, UdpSocket};

/// The address that packets to other machines come from, in the family of `family`. Nothing is
/// sent.
pub(crate) fn facing_others(family: IpAddr) -> Option<IpAddr> {
    // TEST-NET-1 and its like in IPv6: any address beyond the local network does.
    let (any, far) = if family.is_ipv4() {
        ("0.0.0.0:0", "192.0.2.1:9")
    } else {
        ("[::]:0", "[2001:db8::1]:9")
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(far).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}
