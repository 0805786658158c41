//! Clients of shares, as definitions name them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::{AddressRange, AddressRangeFault};

/// A client of a share: addresses, or a machine's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareClient {
    /// An address or a network.
    Range(AddressRange),
    /// A machine, by the name under which its addresses are looked up.
    Name(ClientName),
}

/// A host name (RFC 1123 section 2.1), in lower case and without a dot at its end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientName(String);

/// Why a text names no client of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareClientFault {
    /// An address with an invalid prefix, or none.
    #[error(transparent)]
    Range(#[from] AddressRangeFault),
    /// It has wildcards of exports(5).
    #[error(
        "is a pattern of names, which is not served, because addresses would have to be turned into names while clients wait; list the \
         machines by name, or their network, such as 192.0.2.0/24"
    )]
    Pattern,
    /// It is a netgroup of exports(5).
    #[error(
        "is a netgroup, which is not served; list its machines by name, or their network, such as 192.0.2.0/24"
    )]
    Netgroup,
    /// It has a character, or a length, that no host name has.
    #[error(
        "is neither an address nor a host name; write 192.0.2.7, 192.0.2.0/24, 2001:db8::/32 or client.example.com"
    )]
    Name,
}

/// What is known of a client's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientNameInfo {
    /// The name.
    pub name: ClientName,
    /// The addresses that it has: clients at these may use the share.
    pub addresses: Vec<IpAddr>,
    /// Why the last look-up failed, and how to fix that.
    pub problem: Option<String>,
}

/// The longest name and the longest part of one in bytes (RFC 1035 section 2.3.4).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

impl ClientName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ShareClient {
    type Err = ShareClientFault;

    fn from_str(text: &str) -> Result<Self, ShareClientFault> {
        if text.starts_with('@') {
            return Err(ShareClientFault::Netgroup);
        }
        if text.contains(['*', '?', '[']) {
            return Err(ShareClientFault::Pattern);
        }
        let last = text.trim_end_matches('.').rsplit('.').next();
        // The last part of a name is never a number (RFC 1123 section 2.1).
        let is_number =
            last.is_some_and(|it| !it.is_empty() && it.bytes().all(|b| b.is_ascii_digit()));
        if text.contains(['/', ':']) || is_number {
            return Ok(Self::Range(text.parse()?));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.len() > NAME_BYTES_MAX || !name.split('.').all(is_label) {
            return Err(ShareClientFault::Name);
        }
        Ok(Self::Name(ClientName(name.to_ascii_lowercase())))
    }
}

/// Names of machines in practice have underscores, too.
fn is_label(label: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=LABEL_BYTES_MAX).contains(&label.len())
        && label.bytes().all(is_allowed)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

impl fmt::Display for ShareClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(range) => range.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_an_address_a_network_or_a_name() {
        for (text, written) in [
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("DB1.Example.com.", "db1.example.com"),
            ("localhost", "localhost"),
            ("build_7", "build_7"),
        ] {
            let client: ShareClient = text.parse().expect("a client");
            assert_eq!(client.to_string(), written);
            assert_eq!(written.parse(), Ok(client));
        }
    }

    #[test]
    fn what_exports_5_has_besides_is_refused_with_a_way_out() {
        let address = ShareClientFault::Range(AddressRangeFault::Address);
        let long = "a".repeat(64);
        let longer = "a.".repeat(128);
        for (text, fault) in [
            ("*.example.com", ShareClientFault::Pattern),
            ("db[0-9]", ShareClientFault::Pattern),
            ("@trusted", ShareClientFault::Netgroup),
            ("192.0.2", address),
            ("192.0.2.", address),
            ("192.0.2.256", address),
            ("db1/24", address),
            ("", ShareClientFault::Name),
            (".", ShareClientFault::Name),
            ("a..b", ShareClientFault::Name),
            ("-a", ShareClientFault::Name),
            ("a b", ShareClientFault::Name),
            ("\u{e9}t\u{e9}.example.com", ShareClientFault::Name),
            (&long, ShareClientFault::Name),
            (&longer, ShareClientFault::Name),
        ] {
            assert_eq!(text.parse::<ShareClient>(), Err(fault), "{text:?}");
        }
    }
}
