//! TLS at NVMe/TCP portals: whose keys are accepted.

use std::sync::Arc;
use std::time::Instant;

use tls::{Identity, Key, KeySource, Provider, Server, Source};

use super::super::Core;
use crate::{DhChapDefinition, HostName, PortalDefinition, ServerError, TlsPolicy, ToldBy};

impl Core {
    /// What connections of a portal need that may use TLS; `None` if they may not.
    pub(in super::super) fn tls_of(
        self: &Arc<Self>,
        portal: &PortalDefinition,
    ) -> Result<Option<(TlsPolicy, Server)>, ServerError> {
        if portal.tls == TlsPolicy::Off {
            return Ok(None);
        }
        let provider = Provider::load().map_err(|source| ServerError::Tls {
            portal: *portal,
            source,
        })?;
        let keys: Arc<dyn KeySource> = Arc::<Self>::clone(self);
        Ok(Some((portal.tls, Server { provider, keys })))
    }

    /// What a host that is defined by its name has to prove in band.
    pub(super) fn dhchap_of(&self, host: &HostName) -> Option<Arc<DhChapDefinition>> {
        let state = self.state();
        let host = state.hosts.get(host);
        let host = host.filter(|host| host.told_by == ToldBy::Name);
        host.and_then(|host| host.dhchap.clone())
    }
}

/// Which targets a host may use is checked at Connect, which must name the host and the target of
/// the identity.
impl KeySource for Core {
    fn keys(&self, identity: &Identity) -> Vec<Arc<Key>> {
        let Ok(name) = identity.host_nqn.parse::<HostName>() else {
            return Vec::new();
        };
        if identity.source == Source::Generated {
            let current = self.dhchap_of(&name);
            let of = |current: Arc<_>| self.generated_keys.of(identity, &current, Instant::now());
            return current.map_or(Vec::new(), of);
        }
        let state = self.state();
        let host = state.hosts.get(&name);
        let host = host.filter(|host| host.told_by == ToldBy::Name);
        let Some(keys) = host.and_then(|host| host.tls.as_ref()) else {
            return Vec::new();
        };
        let both = std::iter::once(&keys.key).chain(&keys.other);
        both.map(Arc::clone).collect()
    }
}
