//! The vocabulary of the one access check that serves every protocol.

use std::net::IpAddr;

/// The identity of a host, as far as its protocol states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostIdentity<'a> {
    /// The name it gave: a host NQN, an initiator's IQN; none in protocols without names.
    pub name: Option<&'a str>,
    /// The address it came from.
    pub address: IpAddr,
}

/// What a host may do with a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing, not even see it.
    Denied,
    /// Read.
    ReadOnly,
    /// Read and write.
    ReadWrite,
}
