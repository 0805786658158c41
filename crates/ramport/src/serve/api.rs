//! Where the daemon offers REST.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use control::{ApiConfig, CertificateFiles, ServerTls, SocketOwner, TcpConfig, Token};

use super::group_number;
use crate::cli::{Connection, ServeArgs, Switch};
use crate::failure::Failure;
use crate::mistake::Mistake;

/// The configuration of the REST interface. Its own files are beside the state file.
pub(super) fn config(
    connection: &Connection,
    args: &ServeArgs,
    socket: PathBuf,
    state: &Path,
) -> Result<ApiConfig, Failure> {
    let owner = match &args.socket_group {
        None => SocketOwner::User,
        Some(group) => SocketOwner::Group(group_number(group)?),
    };
    let tcp = args.api_listen.map(|address| {
        let file = connection.api_token_file.as_deref();
        let token = file
            .map(Token::read)
            .transpose()
            .map_err(Failure::mistake)?;
        let tls = tls(args, address, state)?;
        Ok::<_, Failure>(TcpConfig {
            address,
            token,
            tls,
        })
    });
    Ok(ApiConfig {
        socket,
        owner,
        tokens: state.with_file_name("api-tokens"),
        tcp: tcp.transpose()?,
    })
}

/// TLS, unless the address is loopback's or it is switched off.
fn tls(args: &ServeArgs, address: SocketAddr, state: &Path) -> Result<Option<ServerTls>, Failure> {
    let is_local = address.ip().to_canonical().is_loopback();
    let default = if is_local && args.api_cert.is_none() && args.api_client_ca.is_none() {
        Switch::Off
    } else {
        Switch::On
    };
    if args.api_tls.unwrap_or(default) == Switch::Off {
        if args.api_client_ca.is_some() {
            return Err(Mistake::ClientIssuersWithoutTls.into());
        }
        if !is_local {
            tracing::warn!(
                %address,
                "REST on TCP without TLS: tokens and secrets cross the network as they are; leave --api-tls off out, or use a tunnel"
            );
        }
        return Ok(None);
    }
    let issuers = args.api_client_ca.as_deref();
    let given = args.api_cert.clone().zip(args.api_key.clone());
    let tls = if let Some((certificate, key)) = given {
        ServerTls::read(&CertificateFiles { certificate, key }, issuers)
    } else {
        let files = CertificateFiles {
            certificate: state.with_file_name("api-cert.pem"),
            key: state.with_file_name("api-key.pem"),
        };
        ServerTls::read_or_generate(&files, issuers, address.ip())
    };
    let tls = tls.map_err(Failure::mistake)?;
    tracing::info!(sha256 = tls.fingerprint(), "the certificate of REST on TCP");
    Ok(Some(tls))
}
