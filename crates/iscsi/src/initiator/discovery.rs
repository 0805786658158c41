//! The response to SendTargets: the targets and their addresses.
//!
//! Read first: RFC 7143, appendix "SendTargets Operation".

use super::error::Violation;

/// A target that a discovery session found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveredTarget {
    /// TargetName.
    pub name: String,
    /// TargetAddress values; without any, the target is at the portal that was asked.
    pub portals: Vec<PortalAddress>,
}

/// A TargetAddress: `host[:port][,portal group tag]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortalAddress {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port; 3260 if none was given.
    pub port: u16,
    /// TargetPortalGroupTag.
    pub group: Option<u16>,
}

/// The text of an answer, gathered over several responses.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    text: Vec<u8>,
}

impl Discovery {
    /// The longest answer that is gathered: some ten thousand targets.
    const TEXT_BYTES_MAX: usize = 1 << 20;

    pub(super) fn gather(&mut self, part: &[u8]) -> Result<(), Violation> {
        if self.text.len() + part.len() > Self::TEXT_BYTES_MAX {
            return Err(Violation::Limit {
                limit: "the longest answer to SendTargets",
            });
        }
        self.text.extend_from_slice(part);
        Ok(())
    }

    pub(super) fn targets(&self) -> Result<Vec<DiscoveredTarget>, Violation> {
        parse_targets(&self.text).ok_or(Violation::Text)
    }
}

impl PortalAddress {
    /// The port of an address that has none.
    pub const PORT: u16 = 3260;

    /// Reads a TargetAddress value.
    pub fn parse(value: &str) -> Option<Self> {
        let (address, group) = match value.rsplit_once(',') {
            Some((address, group)) => (address, Some(group.parse().ok()?)),
            None => (value, None),
        };
        let (host, port) = match address.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']')?;
                match rest {
                    "" => (host, None),
                    rest => (host, Some(rest.strip_prefix(':')?)),
                }
            }
            None => match address.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (address, None),
            },
        };
        let port = match port {
            Some(port) => port.parse().ok()?,
            None => Self::PORT,
        };
        (!host.is_empty()).then(|| Self {
            host: host.to_owned(),
            port,
            group,
        })
    }
}

/// Reads a whole answer to SendTargets; `None` if it is malformed. Keys repeat here, unlike in a
/// negotiation. Addresses that cannot be parsed are skipped.
pub fn parse_targets(text: &[u8]) -> Option<Vec<DiscoveredTarget>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut targets: Vec<DiscoveredTarget> = Vec::new();
    for pair in text.split('\0').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=')?;
        match key {
            "TargetName" => targets.push(DiscoveredTarget {
                name: value.to_owned(),
                portals: Vec::new(),
            }),
            "TargetAddress" => {
                let target = targets.last_mut()?;
                target.portals.extend(PortalAddress::parse(value));
            }
            _ => {}
        }
    }
    Some(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_come_with_their_addresses() {
        let text =
            b"TargetName=iqn.a\0TargetAddress=10.0.0.1:3261,1\0TargetAddress=[fe80::1]:3260,2\0\
                     TargetName=iqn.b\0TargetAddress=disk.example,1\0TargetName=iqn.c\0";
        let targets = parse_targets(text).expect("well-formed");
        let shown: Vec<_> = targets
            .iter()
            .map(|target| (target.name.as_str(), target.portals.len()))
            .collect();
        assert_eq!(shown, [("iqn.a", 2), ("iqn.b", 1), ("iqn.c", 0)]);
        let [first, second] = &targets[0].portals[..] else {
            panic!("two addresses");
        };
        assert_eq!((first.host.as_str(), first.port), ("10.0.0.1", 3261));
        assert_eq!((second.host.as_str(), second.group), ("fe80::1", Some(2)));
        assert_eq!(targets[1].portals[0].port, PortalAddress::PORT);
    }

    #[test]
    fn malformed_answers_are_refused_and_odd_addresses_passed_over() {
        assert_eq!(parse_targets(b"TargetAddress=1.2.3.4:3260,1\0"), None);
        assert_eq!(parse_targets(b"TargetName\0"), None);
        assert_eq!(parse_targets(b"TargetName=\xFF\0"), None);
        for odd in [
            "",
            ":3260",
            "[::1",
            "[::1]3260",
            "a:b",
            "a:3260,x",
            "a:70000",
        ] {
            assert_eq!(PortalAddress::parse(odd), None, "{odd}");
        }
        assert_eq!(parse_targets(b""), Some(Vec::new()));
    }

    #[test]
    fn an_endless_answer_is_given_up() {
        let mut discovery = Discovery::default();
        let part = [b'x'; 8192];
        let refused = (0..1000).find_map(|_| discovery.gather(&part).err());
        assert!(matches!(refused, Some(Violation::Limit { .. })));
    }
}
