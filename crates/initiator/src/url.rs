//! URLs: `nvme+tcp://host:port/subnqn?ns=1&hdgst=on&ddgst=on&queues=4&hostnqn=…`.

use std::{fmt, str::FromStr};

/// Names a namespace (or, without a path, a discovery service) and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    scheme: Scheme,
    host: String,
    port: u16,
    subsystem: Option<String>,
    namespace: u32,
    header_digest: Switch,
    data_digest: Switch,
    queues: Option<u16>,
    host_nqn: Option<String>,
}

/// The protocol that a URL speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `nvme+tcp`: NVMe/TCP.
    NvmeTcp,
}

/// Something that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    #[default]
    Off,
}

/// What is wrong with a URL, and the mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// There is no `scheme://`.
    #[error("{text:?} has no scheme; write nvme+tcp://HOST[:PORT]/SUBNQN")]
    NoScheme {
        /// The text.
        text: String,
    },
    /// A scheme that is not known.
    #[error("scheme {scheme:?} is not supported; use nvme+tcp://")]
    UnknownScheme {
        /// The scheme.
        scheme: String,
    },
    /// There is no host.
    #[error("the URL has no host; write nvme+tcp://HOST[:PORT]/SUBNQN")]
    NoHost,
    /// An IPv6 address without its closing bracket, or something behind it that is no port.
    #[error(
        "{authority:?} is no HOST or HOST:PORT; an IPv6 address stands in brackets: [::1]:4420"
    )]
    Authority {
        /// What stands between `://` and the path.
        authority: String,
    },
    /// The port is not one.
    #[error("port {port:?} is not a number from 1 to 65535")]
    Port {
        /// The text.
        port: String,
    },
    /// The subsystem's name is too long.
    #[error("the subsystem's name has {len_bytes} bytes; at most {max_bytes} are possible")]
    NameTooLong {
        /// Its length.
        len_bytes: usize,
        /// The longest possible one.
        max_bytes: usize,
    },
    /// `%` without two hexadecimal digits, or bytes that are not UTF-8 or hold a zero.
    #[error("{text:?} is not well percent-encoded")]
    Encoding {
        /// The text.
        text: String,
    },
    /// An option that does not exist.
    #[error("option {option:?} does not exist; there are: ns, hdgst, ddgst, queues, hostnqn")]
    UnknownOption {
        /// The option.
        option: String,
    },
    /// An option's value is not possible.
    #[error("{option}={value} is not possible; {expected}")]
    OptionValue {
        /// The option.
        option: &'static str,
        /// The value.
        value: String,
        /// What would be.
        expected: &'static str,
    },
}

impl Url {
    /// The longest NQN in bytes.
    pub const NQN_BYTES_MAX: usize = 223;

    /// The protocol.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host's name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; 4420 where the URL has none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The subsystem's NQN, where the URL has a path.
    pub fn subsystem(&self) -> Option<&str> {
        self.subsystem.as_deref()
    }

    /// The namespace identifier (`ns=`); 1 where the URL has none.
    pub fn namespace(&self) -> u32 {
        self.namespace
    }

    /// Whether header digests are asked for (`hdgst=`).
    pub fn header_digest(&self) -> Switch {
        self.header_digest
    }

    /// Whether data digests are asked for (`ddgst=`).
    pub fn data_digest(&self) -> Switch {
        self.data_digest
    }

    /// How many I/O queues are asked for (`queues=`).
    pub fn queues(&self) -> Option<u16> {
        self.queues
    }

    /// The name by which the host calls itself (`hostnqn=`).
    pub fn host_nqn(&self) -> Option<&str> {
        self.host_nqn.as_deref()
    }

    /// The discovery service at the same host and port.
    #[must_use]
    pub fn service(&self) -> Self {
        Self {
            subsystem: None,
            ..self.clone()
        }
    }

    /// The same service, another subsystem.
    #[must_use]
    pub fn with_subsystem(&self, subnqn: &str) -> Self {
        Self {
            subsystem: Some(subnqn.to_owned()),
            ..self.clone()
        }
    }

    fn set_option(&mut self, option: &str, value: &str) -> Result<(), UrlError> {
        match option {
            "ns" => {
                self.namespace = number(
                    "ns",
                    value,
                    1..=u64::from(u32::MAX) - 1,
                    "it is a namespace identifier, from 1 on",
                )? as u32;
            }
            "hdgst" => self.header_digest = switch("hdgst", value)?,
            "ddgst" => self.data_digest = switch("ddgst", value)?,
            "queues" => {
                let range = 1..=u64::from(u16::MAX) - 1;
                let queues = number("queues", value, range, "it is a number from 1 to 65534")?;
                self.queues = Some(queues as u16);
            }
            "hostnqn" => self.host_nqn = Some(decode_name(value)?),
            _ => {
                return Err(UrlError::UnknownOption {
                    option: option.to_owned(),
                });
            }
        }
        Ok(())
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| UrlError::NoScheme {
            text: text.to_owned(),
        })?;
        let scheme = match scheme {
            "nvme+tcp" => Scheme::NvmeTcp,
            other => {
                return Err(UrlError::UnknownScheme {
                    scheme: other.to_owned(),
                });
            }
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = split_authority(authority)?;
        let mut url = Self {
            scheme,
            host: host.to_owned(),
            port: port.unwrap_or(scheme.default_port()),
            subsystem: None,
            namespace: 1,
            header_digest: Switch::Off,
            data_digest: Switch::Off,
            queues: None,
            host_nqn: None,
        };
        if !path.is_empty() {
            url.subsystem = Some(decode_name(path)?);
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (option, value) = pair.split_once('=').unwrap_or((pair, ""));
            url.set_option(option, value)?;
        }
        Ok(url)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)?;
        } else {
            write!(f, "{}:{}", self.host, self.port)?;
        }
        let Some(subsystem) = &self.subsystem else {
            return Ok(());
        };
        write!(f, "/{}?ns={}", encode_name(subsystem), self.namespace)?;
        if self.header_digest == Switch::On {
            f.write_str("&hdgst=on")?;
        }
        if self.data_digest == Switch::On {
            f.write_str("&ddgst=on")?;
        }
        if let Some(queues) = self.queues {
            write!(f, "&queues={queues}")?;
        }
        if let Some(host_nqn) = &self.host_nqn {
            write!(f, "&hostnqn={}", encode_name(host_nqn))?;
        }
        Ok(())
    }
}

impl Scheme {
    /// The port of a URL that has none.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::NvmeTcp => 4420,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NvmeTcp => "nvme+tcp",
        })
    }
}

fn split_authority(authority: &str) -> Result<(&str, Option<u16>), UrlError> {
    let bad = || UrlError::Authority {
        authority: authority.to_owned(),
    };
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(bad)?;
        let port = match rest {
            "" => None,
            _ => Some(rest.strip_prefix(':').ok_or_else(bad)?),
        };
        (host, port)
    } else {
        match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => return Err(bad()),
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    if host.is_empty() {
        return Err(UrlError::NoHost);
    }
    let port = port.map(parse_port).transpose()?;
    Ok((host, port))
}

fn parse_port(text: &str) -> Result<u16, UrlError> {
    match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(UrlError::Port {
            port: text.to_owned(),
        }),
    }
}

fn number(
    option: &'static str,
    value: &str,
    range: std::ops::RangeInclusive<u64>,
    expected: &'static str,
) -> Result<u64, UrlError> {
    match value.parse::<u64>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(UrlError::OptionValue {
            option,
            value: value.to_owned(),
            expected,
        }),
    }
}

fn switch(option: &'static str, value: &str) -> Result<Switch, UrlError> {
    match value {
        "on" => Ok(Switch::On),
        "off" => Ok(Switch::Off),
        _ => Err(UrlError::OptionValue {
            option,
            value: value.to_owned(),
            expected: "it is on or off",
        }),
    }
}

fn decode_name(text: &str) -> Result<String, UrlError> {
    let bad = || UrlError::Encoding {
        text: text.to_owned(),
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2).ok_or_else(bad)?;
        let digit = |d: u8| char::from(d).to_digit(16).ok_or_else(bad);
        bytes.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
        rest = tail;
    }
    if bytes.contains(&0) {
        return Err(bad());
    }
    if bytes.len() > Url::NQN_BYTES_MAX {
        return Err(UrlError::NameTooLong {
            len_bytes: bytes.len(),
            max_bytes: Url::NQN_BYTES_MAX,
        });
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

fn encode_name(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for &byte in name.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:@+,;=!*'()$".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let digit = |d: u8| char::from(b"0123456789ABCDEF"[usize::from(d)]);
            text.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Url, UrlError> {
        text.parse()
    }

    #[test]
    fn what_is_shown_parses_to_the_same_url() {
        for text in [
            "nvme+tcp://h/nqn.2014-08.org:x",
            "nvme+tcp://[::1]:4421/rd0?ns=7&hdgst=on&ddgst=on&queues=4&hostnqn=nqn.x:y",
            "nvme+tcp://h/a%20b%25?ns=2&hdgst=off",
            "nvme+tcp://10.0.0.1:8009",
        ] {
            let url = parse(text).unwrap();
            assert_eq!(parse(&url.to_string()).unwrap(), url, "{text}");
        }
    }

    #[test]
    fn defaults_are_port_4420_namespace_1_and_no_digests() {
        let url = parse("nvme+tcp://disk.example/rd0").unwrap();
        assert_eq!((url.port(), url.namespace()), (4420, 1));
        assert_eq!(url.header_digest(), Switch::Off);
        assert_eq!(url.data_digest(), Switch::Off);
        assert_eq!(url.subsystem(), Some("rd0"));
        assert_eq!(parse("nvme+tcp://disk.example/").unwrap().subsystem(), None);
    }

    #[test]
    fn a_mistake_is_named() {
        let name = "n".repeat(224);
        for (text, mend) in [
            ("disk/rd0", "no scheme"),
            ("nvme://h/rd0", "use nvme+tcp://"),
            ("nvme+tcp:///rd0", "no host"),
            ("nvme+tcp://::1/rd0", "brackets"),
            ("nvme+tcp://[::1/rd0", "brackets"),
            ("nvme+tcp://[::1]4420/rd0", "brackets"),
            ("nvme+tcp://h:0/rd0", "1 to 65535"),
            ("nvme+tcp://h:70000/rd0", "1 to 65535"),
            ("nvme+tcp://h/rd0?ns=0", "from 1 on"),
            ("nvme+tcp://h/rd0?ns=4294967295", "from 1 on"),
            ("nvme+tcp://h/rd0?hdgst=yes", "on or off"),
            ("nvme+tcp://h/rd0?nsid=1", "there are: ns"),
            ("nvme+tcp://h/rd0?queues=0", "1 to 65534"),
            ("nvme+tcp://h/rd%2", "percent-encoded"),
            ("nvme+tcp://h/rd%00", "percent-encoded"),
            ("nvme+tcp://h/rd%ff", "percent-encoded"),
            (&format!("nvme+tcp://h/{name}"), "at most 223"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(mend), "{text}: {message}");
        }
    }
}
