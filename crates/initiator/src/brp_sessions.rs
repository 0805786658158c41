//! BRP over TCP or RDMA: a session per queue, which goes on after a lost connection.

mod link;
mod login;
mod queue_connection;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use block::{BlockSize, Geometry, WriteCache};
use brp::host::{Resumption, Terms};
use brp::wire::TAGS_MAX;

use self::login::{Plan, Restored};
use crate::attached::{Attached, DeviceInfo};
use crate::device_state::DeviceState;
use crate::mailbox::{Mailbox, Update};
use crate::queue::{BlocksMax, QueueLimits};
use crate::session_supervisor::SessionSupervisor;
use crate::{ConnectError, DeviceOptions, Url};

/// What a lost connection leaves for the next one of its session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Legacy(Arc<Mutex<Option<Resumption>>>);

impl Legacy {
    fn put(&self, resumption: Option<Resumption>) {
        *self.lock() = resumption;
    }

    fn take(&self) -> Option<Resumption> {
        self.lock().take()
    }

    /// The value is complete between any two statements, so a poisoned lock is used.
    fn lock(&self) -> MutexGuard<'_, Option<Resumption>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Attaches to the unit that `url` names.
pub(crate) fn attach(url: &Url, options: &DeviceOptions) -> Result<Attached, ConnectError> {
    let resources = |source| ConnectError::Resources { source };
    let plan = Plan::new(url, options)?;
    let queues = url.queues().unwrap_or(options.queues);
    let mailboxes = Mailbox::several(queues).map_err(resources)?;
    let (address, first) = plan.log_in(0, None)?;
    let terms = *first.common().terms().expect("the login was granted");
    let depth = options.depth.min(terms.tags);
    let geometry = geometry(&terms);
    let shared = Arc::new(DeviceState::new(geometry).map_err(resources)?);
    let restored = Restored {
        plan,
        terms,
        depth,
        legacies: (0..queues).map(|_| Legacy::default()).collect(),
    };
    // All sessions log in before any queue gets a connection.
    let mut connections = vec![restored.connection(0, first, &[])];
    for index in 1..queues {
        let (address, connection) = restored.plan.log_in(index, None)?;
        restored.check(address, connection.as_ref())?;
        connections.push(restored.connection(index, connection, &[]));
    }
    for (mailbox, connection) in mailboxes.iter().zip(connections) {
        mailbox.deliver(Update::Connection {
            connection,
            generation: SessionSupervisor::<Restored>::FIRST_GENERATION,
        });
    }
    let supervisor = SessionSupervisor::new(restored, Arc::clone(&shared), mailboxes.clone());
    let supervisor = thread::Builder::new()
        .name("keep sessions".to_owned())
        .spawn(move || supervisor.run())
        .map_err(resources)?;
    Ok(Attached {
        info: device_info(url, options, address, &terms),
        shared,
        mailboxes,
        limits: queue_limits(&terms, options, depth),
        supervisor,
    })
}

fn device_info(
    url: &Url,
    options: &DeviceOptions,
    address: SocketAddr,
    terms: &Terms,
) -> DeviceInfo {
    DeviceInfo {
        model: String::new(),
        serial: String::new(),
        identifier: terms.volume.to_vec(),
        uuid: None,
        write_cache: if terms.has_write_cache {
            WriteCache::Volatile
        } else {
            WriteCache::Absent
        },
        is_write_protected: !terms.is_writable,
        firmware: String::new(),
        target: url.target().unwrap_or_default().to_owned(),
        address,
        controller_id: None,
        unit: url.namespace(),
        queue_depth_max: if terms.tags < options.depth {
            terms.tags
        } else {
            TAGS_MAX
        },
    }
}

fn geometry(terms: &Terms) -> Geometry {
    let size = match terms.block_shift {
        9 => BlockSize::B512,
        _ => BlockSize::B4096,
    };
    Geometry::new(size, terms.blocks)
}

/// The limits of a queue of `depth` slots.
fn queue_limits(terms: &Terms, options: &DeviceOptions, depth: u16) -> QueueLimits {
    let blocks = |len_bytes: u32| u64::from(len_bytes >> terms.block_shift);
    let transfer = blocks(terms.transfer_max_bytes);
    QueueLimits {
        depth,
        transfer_max_bytes: options.buffer_bytes.min(terms.transfer_max_bytes as usize),
        spare_slots: 0,
        tail_bytes: 0,
        blocks_max: BlocksMax {
            data: transfer,
            durable: transfer,
            // Operations that BRP does not have.
            verify: 0,
            compare: 0,
            zeroes: u32::MAX.into(),
            deallocate: u32::MAX.into(),
            compare_and_write: blocks(terms.compare_max_bytes),
        },
    }
}
