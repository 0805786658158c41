//! Releases devices that are removed, which librdmacm does not.
//!
//! librdmacm opens a device once for all identifiers, and keeps it open after the last of them. If
//! a driver cannot revoke a device, as rdma_rxe's cannot, Linux removes it only after every process
//! has closed it. So removal would wait for this process to end, even if its last portal on the
//! device is long closed. Therefore each device that has been used has a thread that sleeps until
//! the device is removed.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::cma::{CmId, EventChannel, Key};
use super::library::Library;
use super::sys::cm_event;
use crate::HwError;

/// Devices that have their thread, by librdmacm's contexts.
static WATCHED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Starts the thread that releases the device of `of`, which is bound to `address`, when that is
/// removed.
pub(super) fn watch(library: &Arc<Library>, address: IpAddr, of: &CmId) -> Result<(), HwError> {
    let mut watched = watched();
    if watched.contains(&of.library_context()) {
        return Ok(());
    }
    let channel = Arc::new(EventChannel::new(library)?);
    let anchor = CmId::bound_to(&channel, Key::Anchor, address, 0)?;
    let device = anchor.library_context();
    let until_removal = move || {
        let released = wait_for_removal(&channel).and_then(|()| anchor.release_removed_device());
        if let Err(error) = released {
            tracing::warn!(%error, "an adapter that is removed may stay until this program ends");
        }
        self::watched().remove(&device);
    };
    let thread = thread::Builder::new().name("rdma-removal".into());
    thread.spawn(until_removal).map_err(|error| HwError::Call {
        call: "pthread_create",
        error,
    })?;
    watched.insert(device);
    Ok(())
}

/// Sleeps until the device is being removed that the channel's identifier is bound to.
fn wait_for_removal(channel: &Arc<EventChannel>) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is the channel's, and open during the call.
        let fd = unsafe { BorrowedFd::borrow_raw(channel.fd()) };
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if fds[0]
            .revents()
            .intersects(PollFlags::ERR | PollFlags::NVAL)
        {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        while let Some(event) = channel.next_event() {
            if event.kind == cm_event::DEVICE_REMOVAL {
                return Ok(());
            }
        }
    }
}

fn watched() -> MutexGuard<'static, BTreeSet<usize>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}
