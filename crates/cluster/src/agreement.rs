//! What nodes agree on for each replicated volume, in etcd: a key for each configuration, which is
//! replaced if its revision is the one that was read.

use std::sync::Arc;

use node_link::{Agreement, Answer, VolumeId};
use replica::wire::{decode_config, encode_config};
use replica::{Config, StoreOp};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::etcd::{Entry, Etcd, EtcdError, Txn, TxnOutcome};
use crate::fault::Fault;
use crate::keys::Keys;
use crate::name::Name;

/// Requests in flight. Volumes repeat what was dropped.
const REQUESTS_MAX: usize = 256;

/// The agreement of a cluster's nodes.
pub(crate) struct EtcdAgreement {
    etcd: Etcd,
    cluster: Name,
    runtime: Handle,
    room: Arc<Semaphore>,
}

impl EtcdAgreement {
    /// Requests are executed by `runtime`.
    pub(crate) fn new(etcd: Etcd, cluster: Name, runtime: Handle) -> Self {
        Self {
            etcd,
            cluster,
            runtime,
            room: Arc::new(Semaphore::new(REQUESTS_MAX)),
        }
    }
}

impl Agreement for EtcdAgreement {
    fn request(&self, volume: VolumeId, op: StoreOp, answer: Answer) {
        let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else {
            return;
        };
        let etcd = self.etcd.clone();
        let key = Keys::of(&self.cluster).config(volume);
        self.runtime.spawn(async move {
            let _permit = permit;
            match execute(&etcd, &key, op).await {
                Ok(Some(config)) => answer(config),
                Ok(None) => {}
                Err(error) => tracing::debug!(key, %error, "a configuration was not answered"),
            }
        });
    }
}

/// Executes a request. Returns the configuration after it; nothing if there is none, or if it is
/// not known whether the request was executed.
async fn execute(etcd: &Etcd, key: &str, op: StoreOp) -> Result<Option<Config>, Fault> {
    let Some(entry) = etcd.get(key).await? else {
        return Ok(None);
    };
    let current = config(&entry)?;
    let next = match op {
        StoreOp::Swap(next) if next.epoch == current.epoch.next() => next,
        StoreOp::Swap(_) | StoreOp::Read => return Ok(Some(current)),
    };
    let txn = Txn::new().if_revision(key, entry.revision);
    match etcd.commit(txn.put(key, encode_config(&next))).await {
        Ok(TxnOutcome::Made { .. }) => return Ok(Some(next)),
        Ok(TxnOutcome::ConditionFailed) | Err(EtcdError::OutcomeUnknown { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let Some(entry) = etcd.get(key).await? else {
        return Ok(None);
    };
    // An older one says that the request was not executed, but it may still be.
    let current = config(&entry)?;
    Ok((current.epoch >= next.epoch).then_some(current))
}

/// The configuration that an entry holds.
pub(crate) fn config(entry: &Entry) -> Result<Config, Fault> {
    decode_config(&entry.value).map_err(|_| Fault::Damaged {
        key: entry.key.clone(),
    })
}
