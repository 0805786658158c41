//! Nodes that prove who they are.

use std::time::Duration;

use node_link::{Credentials, Security, node_name};
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};

use crate::cluster::{Cluster, PATIENCE};

/// The issuer of a cluster.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub certificate: Certificate,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("signed");
        Self {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    /// A certificate of `node`, and its key.
    pub fn sign(&self, node: u32) -> (Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![node_name(node)]).expect("a name");
        let own = params.signed_by(&key, &self.issuer).expect("signed");
        (own, key)
    }

    /// Credentials for `node`, which trust this authority.
    pub fn credentials(&self, node: u32) -> Security {
        let (own, key) = self.sign(node);
        let issuers = self.certificate.pem();
        let credentials = Credentials::from_pem(&own.pem(), &key.serialize_pem(), &issuers);
        Security::Mutual(credentials.expect("they fit"))
    }
}

#[test]
fn nodes_with_certificates_of_the_cluster_replicate() {
    let authority = Authority::new();
    let security = (0..3).map(|node| authority.credentials(node)).collect();
    let cluster = Cluster::with_security(security, None);
    cluster.await_copies(0, 3);
    let data = vec![7; 200 * 4096];
    assert_eq!(cluster.host(2).write(5, &data, PATIENCE), Ok(()));
    assert_eq!(cluster.host(1).read(5, 200, PATIENCE), Ok(data));
}

#[test]
fn a_node_with_the_certificate_of_another_cluster_or_node_is_not_let_in() {
    let (authority, other) = (Authority::new(), Authority::new());
    for stranger in [other.credentials(2), authority.credentials(1)] {
        let security = vec![authority.credentials(0), authority.credentials(1), stranger];
        let cluster = Cluster::with_security(security, Some(2));
        // The members that know each other go on without it.
        cluster.await_copies(0, 2);
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(cluster.status(0).in_sync.len(), 2);
        let node = cluster.machines[0].node.as_ref().expect("it runs");
        assert!(node.is_connected(1));
    }
}
