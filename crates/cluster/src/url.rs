//! URLs of etcd's client interface.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use serde::{Deserialize, Serialize};

/// The port of etcd's clients.
const PORT_DEFAULT: u16 = 2379;

/// `http://HOST[:PORT]` or `https://HOST[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EtcdUrl {
    is_tls: bool,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
}

/// A text that is no such URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a URL of etcd; write https://HOST:2379 or http://HOST:2379")]
pub struct EtcdUrlFault {
    text: String,
}

impl EtcdUrl {
    /// The URL of an etcd with TLS.
    pub fn https(host: impl Into<String>, port: u16) -> Self {
        Self {
            is_tls: true,
            host: host.into(),
            port,
        }
    }

    /// Whether the interface speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// The name or address by which the server's certificate is checked.
    pub(crate) fn server_name(&self) -> Result<ServerName<'static>, InvalidDnsNameError> {
        ServerName::try_from(self.host.clone())
    }

    /// What sockets are connected to, and the `Host` of requests.
    pub(crate) fn place(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }
}

impl FromStr for EtcdUrl {
    type Err = EtcdUrlFault;

    fn from_str(text: &str) -> Result<Self, EtcdUrlFault> {
        let fault = || EtcdUrlFault {
            text: text.to_owned(),
        };
        let uri: Uri = text.parse().map_err(|_| fault())?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(fault()),
        };
        let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        let authority = uri.authority().ok_or_else(fault)?;
        let host = authority.host();
        if !is_bare || host.is_empty() || authority.as_str().contains('@') {
            return Err(fault());
        }
        // A port that is no number is no port to `authority`.
        let has_port = authority.as_str().len() > host.len();
        let port = match authority.port_u16() {
            Some(port) => port,
            None if has_port => return Err(fault()),
            None => PORT_DEFAULT,
        };
        let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        Ok(Self {
            is_tls,
            host: inner.unwrap_or(host).to_owned(),
            port,
        })
    }
}

impl fmt::Display for EtcdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.place())
    }
}

impl TryFrom<String> for EtcdUrl {
    type Error = EtcdUrlFault;

    fn try_from(text: String) -> Result<Self, EtcdUrlFault> {
        text.parse()
    }
}

impl From<EtcdUrl> for String {
    fn from(url: EtcdUrl) -> Self {
        url.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_scheme_a_host_and_perhaps_a_port() {
        let shown = |text: &str| text.parse::<EtcdUrl>().map(|url| url.to_string());
        for (text, read) in [
            ("http://127.0.0.1", "http://127.0.0.1:2379"),
            ("https://a.example:80/", "https://a.example:80"),
            ("https://[2001:db8::1]:1", "https://[2001:db8::1]:1"),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(read), "{text}");
        }
        for text in [
            "",
            "127.0.0.1:2379",
            "ftp://a:1",
            "http://",
            "http://a:70000",
            "http://a/v3",
            "http://a?b",
            "http://user@a:1",
            "http://a b",
        ] {
            assert!(shown(text).is_err(), "{text}");
        }
    }
}
