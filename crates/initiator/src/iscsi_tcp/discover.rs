//! Discovery of a portal's targets (SendTargets).

use std::time::Duration;

use iscsi::initiator::{DiscoveredTarget, Event, PortalAddress};
use session::Buffers;

use super::login::Plan;
use crate::scsi_sessions::ScsiPlan as _;
use crate::session_connection::wait_until;
use crate::{ConnectError, DeviceOptions, Scheme, Url};

/// A target at one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// TargetName.
    pub target: String,
    /// TargetAddress: a name or an address.
    pub address: String,
    /// Its TCP port.
    pub port: u16,
    /// TargetPortalGroupTag.
    pub portal_group: Option<u16>,
}

/// Asks the portal at the URL's host and port for its targets. `timeout` limits each step.
pub fn discover_targets(url: &Url, timeout: Duration) -> Result<Vec<TargetRecord>, ConnectError> {
    if url.scheme() != Scheme::Iscsi {
        return Err(ConnectError::Scheme {
            scheme: url.scheme(),
            expected: "iscsi://",
        });
    }
    let options = DeviceOptions {
        depth: 1,
        connect_timeout: timeout,
        ..DeviceOptions::default()
    };
    let (address, mut connection) = Plan::new(&url.service(), &options)?.log_in(0)?;
    let lost = |source| ConnectError::Session { address, source };
    let mut buffers = Buffers::new(1, 0);
    connection.session().send_targets();
    let targets = wait_until(
        &mut connection,
        &mut buffers,
        timeout,
        |connection| match connection.session().poll_event()? {
            Event::Targets(targets) => Some(targets),
            _ => None,
        },
    )
    .map_err(lost)?;
    connection.session().logout();
    // What was requested is there; a target that only hangs up instead of answering has logged out,
    // too.
    let _ = wait_until(&mut connection, &mut buffers, timeout, |connection| {
        (connection.session().poll_event()? == Event::LoggedOut).then_some(())
    });
    let here = PortalAddress {
        host: address.ip().to_string(),
        port: address.port(),
        group: None,
    };
    Ok(targets
        .iter()
        .flat_map(|target| records(target, &here))
        .collect())
}

/// One record per address; a target without any is where the question went to.
fn records(target: &DiscoveredTarget, here: &PortalAddress) -> Vec<TargetRecord> {
    let portals = match &target.portals[..] {
        [] => std::slice::from_ref(here),
        portals => portals,
    };
    let record = |portal: &PortalAddress| TargetRecord {
        target: target.name.clone(),
        address: portal.host.clone(),
        port: portal.port,
        portal_group: portal.group,
    };
    portals.iter().map(record).collect()
}
