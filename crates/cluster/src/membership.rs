//! What a node keeps in its folder: which cluster it belongs to, and what it proves that with.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use control::{NodeRole, PemIdentity, replace_private};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::name::Name;
use crate::url::EtcdUrl;

/// The file in the folder.
const FILE: &str = "membership.json";
/// The version of its form.
const FORM: u32 = 1;

/// That a node belongs to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Membership {
    form: u32,
    pub(crate) cluster: Name,
    pub(crate) id: Uuid,
    pub(crate) node: NodeRecord,
    pub(crate) etcd: EtcdUse,
    /// The private key of the cluster's issuer.
    pub(crate) authority_key: Secret,
    pub(crate) identity: PemIdentity,
    /// Whether the node has seen its cluster in etcd. Before that it can be asked to forget the
    /// cluster.
    pub(crate) is_established: bool,
}

/// A node, as etcd has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeRecord {
    pub(crate) name: Name,
    /// No other node of the cluster ever has it.
    pub(crate) number: u32,
    pub(crate) address: SocketAddr,
    pub(crate) role: NodeRole,
    pub(crate) zone: Name,
    pub(crate) memory_bytes: u64,
    /// Whether copies and primaries are to be elsewhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_drained: bool,
}

/// The etcd of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EtcdUse {
    /// Nodes run it.
    Own {
        /// Where clients reach it, as far as it is known.
        endpoints: Vec<EtcdUrl>,
        /// How this node runs one, if it does.
        runs: Option<EtcdRun>,
    },
    /// It was there.
    External {
        urls: Vec<EtcdUrl>,
        tls: Option<PemIdentity>,
    },
}

/// How a node begins to run etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EtcdRun {
    /// All members: `NAME=PEER-URL`, separated by commas.
    pub(crate) initial_cluster: String,
    /// Whether the members begin together; otherwise this one is added to others.
    pub(crate) is_new: bool,
}

/// A text that `Debug` hides.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(pub(crate) String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("secret")
    }
}

/// Why the folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file or folder cannot be read or written.
    #[error("cannot use {path}: {source}; make it readable and writable for the daemon", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is damaged.
    #[error("{path} is not understood: {source}; restore it, or remove the folder to make this machine forget its cluster", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A later version wrote the file.
    #[error("{path} has form {form}, and this version knows {FORM}; use the version that wrote it", path = path.display())]
    Later {
        /// The file.
        path: PathBuf,
        /// Its form.
        form: u32,
    },
}

/// The folder of a node's membership and of its etcd.
#[derive(Clone, Debug)]
pub(crate) struct NodeFolder(PathBuf);

impl NodeFolder {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// What was stored, if the node belongs to a cluster.
    pub(crate) fn load(&self) -> Result<Option<Membership>, FolderError> {
        let path = self.join(FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(FolderError::Io { path, source }),
        };
        match serde_json::from_slice::<Membership>(&text) {
            Ok(found) if found.form == FORM => Ok(Some(found)),
            Ok(Membership { form, .. }) => Err(FolderError::Later { path, form }),
            Err(source) => Err(FolderError::Damaged { path, source }),
        }
    }

    /// Stores the membership, and its certificates as files, which etcd reads.
    pub(crate) fn store(&self, membership: &Membership) -> Result<(), FolderError> {
        let io = |path: &Path, source| FolderError::Io {
            path: path.to_owned(),
            source,
        };
        fs::create_dir_all(&self.0).map_err(|source| io(&self.0, source))?;
        let text = serde_json::to_vec_pretty(membership);
        let text = text.expect("a membership is a struct that serialises");
        let PemIdentity {
            issuers,
            certificate,
            key,
        } = &membership.identity;
        for (name, bytes) in [
            (ISSUERS, issuers.as_bytes()),
            (CERTIFICATE, certificate.as_bytes()),
            (KEY, key.as_bytes()),
            // Last: what is there with it is complete.
            (FILE, text.as_slice()),
        ] {
            let path = self.join(name);
            replace_private(&path, bytes).map_err(|source| io(&path, source))?;
        }
        Ok(())
    }

    /// Removes everything.
    pub(crate) fn clear(&self) -> Result<(), FolderError> {
        // First, so that an interruption leaves no membership without its etcd.
        let file = fs::remove_file(self.join(FILE));
        for removed in [file, fs::remove_dir_all(&self.0)] {
            match removed {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    let path = self.0.clone();
                    return Err(FolderError::Io { path, source });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The files for etcd.
pub(crate) const ISSUERS: &str = "issuer.pem";
pub(crate) const CERTIFICATE: &str = "node.pem";
pub(crate) const KEY: &str = "node-key.pem";

impl Membership {
    /// One that is not established.
    pub(crate) fn new(
        (cluster, id): (Name, Uuid),
        node: NodeRecord,
        etcd: EtcdUse,
        authority_key: String,
        identity: PemIdentity,
    ) -> Self {
        Self {
            form: FORM,
            cluster,
            id,
            node,
            etcd,
            authority_key: Secret(authority_key),
            identity,
            is_established: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use block::testing::Folder;

    use super::*;

    fn membership() -> Membership {
        let name = |text: &str| text.parse::<Name>().expect("a name");
        let node = NodeRecord {
            name: name("n1"),
            number: 1,
            address: "192.0.2.1:7450".parse().expect("an address"),
            role: NodeRole::Storage,
            zone: name("z"),
            memory_bytes: 1 << 30,
            is_drained: false,
        };
        let etcd = EtcdUse::Own {
            endpoints: vec![EtcdUrl::https("192.0.2.1", 7451)],
            runs: None,
        };
        let identity = PemIdentity {
            issuers: "i".to_owned(),
            certificate: "c".to_owned(),
            key: "k".to_owned(),
        };
        let cluster = (name("a"), Uuid::from_u128(7));
        Membership::new(cluster, node, etcd, "secret key".to_owned(), identity)
    }

    #[test]
    fn a_membership_is_private_and_is_read_again_or_is_an_error() {
        let folder = Folder::new();
        let own = NodeFolder::new(folder.join("cluster"));
        assert_eq!(own.load().expect("nothing"), None);
        own.clear().expect("nothing to remove");
        let membership = membership();
        own.store(&membership).expect("stored");
        assert_eq!(own.load().expect("read"), Some(membership.clone()));
        for name in [FILE, KEY] {
            let found = fs::metadata(own.join(name)).expect("there");
            assert_eq!(found.permissions().mode() & 0o777, 0o600, "{name}");
        }
        assert!(!format!("{membership:?}").contains("secret key"));
        let later = Membership {
            form: FORM + 1,
            ..membership
        };
        own.store(&later).expect("stored");
        assert!(matches!(own.load(), Err(FolderError::Later { .. })));
        fs::write(own.join(FILE), "{").expect("written");
        assert!(matches!(own.load(), Err(FolderError::Damaged { .. })));
        own.clear().expect("removed");
        assert!(!folder.join("cluster").exists());
    }
}
