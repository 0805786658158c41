//! Options of `ramport token`, and the address of a daemon's REST interface over TCP.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use clap::{Args, Subcommand};
use control::{Role, RoleFault};

use super::{NameArgs, examples};

#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Create a token for REST over TCP and print it; it is not shown again. Or give a role to the
    /// holder of a certificate
    #[command(after_help = examples::TOKEN_CREATE)]
    Create(TokenCreateArgs),
    /// List tokens with their roles
    #[command(visible_alias = "ls", after_help = examples::TOKEN_LIST)]
    List,
    /// Remove a token, which is invalid from then on
    #[command(visible_alias = "rm", after_help = examples::TOKEN_REMOVE)]
    Remove(NameArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TokenCreateArgs {
    /// Its name, which the log shows; with --certificate, the DNS name in the client's certificate
    pub(crate) name: String,
    /// What its holder may do: read-only (everything except secrets and tokens), operator (volumes,
    /// snapshots, copies and sessions too, without naming files or other machines) or administrator
    #[arg(long, value_name = "ROLE", value_parser = parse_role)]
    pub(crate) role: Role,
    /// Print no token: a client certificate of that name, signed by an issuer of `serve
    /// --api-client-ca`, is the proof
    #[arg(long)]
    pub(crate) certificate: bool,
}

/// The address of a daemon's REST interface over TCP: `https://HOST:PORT`, `http://HOST:PORT` or
/// `HOST:PORT`, which is plain HTTP on loopback and HTTPS elsewhere, as the daemon's default is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiAddress {
    pub(crate) is_tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Why a text is no such address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write https://HOST:PORT, or http://HOST:PORT for a daemon without TLS")]
pub(crate) struct ApiAddressFault;

impl FromStr for ApiAddress {
    type Err = ApiAddressFault;

    fn from_str(text: &str) -> Result<Self, ApiAddressFault> {
        let (is_tls, place) = match text.split_once("://") {
            Some(("https", place)) => (Some(true), place),
            Some(("http", place)) => (Some(false), place),
            Some(_) => return Err(ApiAddressFault),
            None => (None, text),
        };
        let place = place.trim_end_matches('/');
        let (host, port) = place.rsplit_once(':').ok_or(ApiAddressFault)?;
        let port = port.parse().map_err(|_| ApiAddressFault)?;
        let inner = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = inner.unwrap_or(host);
        let is_host = !host.is_empty() && !host.contains(['/', '[', ']']);
        if !is_host || (inner.is_none() && host.contains(':')) {
            return Err(ApiAddressFault);
        }
        let address = host.parse::<IpAddr>();
        let is_local = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
        Ok(Self {
            is_tls: is_tls.unwrap_or(!is_local),
            host: host.to_owned(),
            port,
        })
    }
}

impl ApiAddress {
    /// What sockets are connected to.
    pub(crate) fn place(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }
}

impl fmt::Display for ApiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.place())
    }
}

fn parse_role(text: &str) -> Result<Role, RoleFault> {
    text.parse()
}

pub(super) fn parse_api(text: &str) -> Result<ApiAddress, ApiAddressFault> {
    text.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_scheme_is_plain_on_loopback_alone() {
        let shown = |text: &str| text.parse::<ApiAddress>().map(|found| found.to_string());
        for (text, read) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("localhost:8080", "http://localhost:8080"),
            ("[::1]:8080", "http://[::1]:8080"),
            ("192.0.2.1:8080", "https://192.0.2.1:8080"),
            ("[2001:db8::1]:8080", "https://[2001:db8::1]:8080"),
            ("http://disks.example:8080/", "http://disks.example:8080"),
            ("https://localhost:8080", "https://localhost:8080"),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(read), "{text}");
            assert_eq!(shown(read).as_deref(), Ok(read));
        }
        for text in [
            "",
            "192.0.2.1",
            "ftp://a:1",
            "a:70000",
            ":80",
            "::1:80",
            "https://a/b:80",
        ] {
            assert_eq!(shown(text), Err(ApiAddressFault), "{text}");
        }
    }
}
