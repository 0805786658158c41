//! Objects of libibverbs, each with one owner: contexts, protection domains, memory regions and
//! windows, completion queues.
//!
//! Every object holds those that it was created from, so it is destroyed before them.

use std::ffi::{CStr, c_int, c_uint};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::checked::{checked, made};
use super::library::Library;
use super::mapping::{Mapping, PAGE_BYTES};
use super::sys::{
    MW_TYPE_2, TRANSPORT_IB, access, device_cap, ibv_async_event, ibv_comp_channel, ibv_context,
    ibv_cq, ibv_device, ibv_device_attr, ibv_mr, ibv_mw, ibv_pd, ibv_wc,
};
use crate::HwError;

/// The capabilities of a device that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caps {
    /// The longest queue, in requests.
    pub(super) queue_depth_max: u32,
    /// The longest completion queue, in completions.
    pub(super) completions_max: u32,
    /// RDMA READs of the peer's that it answers at once, per queue pair.
    pub(super) responder_resources_max: u8,
    /// RDMA READs that may be outstanding at once, per queue pair.
    pub(super) initiator_depth_max: u8,
    /// Whether requests can bind memory windows, which peers may invalidate.
    pub(super) has_windows: bool,
}

/// A device, open for this provider alone: so its events are this provider's.
pub(super) struct Context {
    raw: NonNull<ibv_context>,
    pub(super) library: Arc<Library>,
    pub(super) name: String,
    pub(super) caps: Caps,
}

// SAFETY: libibverbs lets any thread call any function of a context; it does its own locking.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Opens a device.
    ///
    /// # Safety
    /// `device` is one of the library's, which remains until this returns.
    pub(super) unsafe fn open(
        library: &Arc<Library>,
        device: *mut ibv_device,
    ) -> Result<Self, HwError> {
        let verbs = &library.verbs;
        // SAFETY: the caller promises that the device is there; its name is a C string inside of
        // it.
        let (raw, name) = unsafe {
            let name = CStr::from_ptr((verbs.get_device_name)(device));
            let name = name.to_string_lossy().into_owned();
            // Both InfiniBand and RoCE are this transport.
            if (*device).transport_type != TRANSPORT_IB {
                return Err(HwError::Transport(name.into()));
            }
            (made("ibv_open_device", (verbs.open_device)(device))?, name)
        };
        let mut context = Self {
            raw,
            library: Arc::clone(library),
            name,
            caps: Caps {
                queue_depth_max: 0,
                completions_max: 0,
                responder_resources_max: 0,
                initiator_depth_max: 0,
                has_windows: false,
            },
        };
        context.caps = context.query()?;
        set_nonblocking(context.async_fd())?;
        Ok(context)
    }

    fn query(&self) -> Result<Caps, HwError> {
        // SAFETY: the structure has integers only, for which zeros are values.
        let mut attr: ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and the structure has the length that the library expects.
        let code = unsafe { (self.library.verbs.query_device)(self.raw.as_ptr(), &raw mut attr) };
        checked("ibv_query_device", code)?;
        let windows = device_cap::MEM_WINDOW_TYPE_2A | device_cap::MEM_WINDOW_TYPE_2B;
        let byte = |value: c_int| u8::try_from(value.clamp(0, 254)).unwrap_or(0);
        Ok(Caps {
            queue_depth_max: u32::try_from(attr.max_qp_wr).unwrap_or(0),
            completions_max: u32::try_from(attr.max_cqe).unwrap_or(0),
            responder_resources_max: byte(attr.max_qp_rd_atom),
            initiator_depth_max: byte(attr.max_qp_init_rd_atom),
            has_windows: attr.device_cap_flags & windows != 0 && attr.max_mw != 0,
        })
    }

    pub(super) fn async_fd(&self) -> RawFd {
        // SAFETY: the context is open.
        unsafe { (*self.raw.as_ptr()).async_fd }
    }

    /// The next event of the device, acknowledged: its type, and the address of its object.
    pub(super) fn next_event(&self) -> Option<(c_uint, usize)> {
        let mut event = ibv_async_event {
            element: null_mut(),
            event_type: 0,
        };
        let verbs = &self.library.verbs;
        // SAFETY: the context is open and its descriptor does not block. The event's object exists,
        // since destroying it waits for the acknowledgement, and only this thread destroys objects.
        unsafe {
            if (verbs.get_async_event)(self.raw.as_ptr(), &raw mut event) != 0 {
                return None;
            }
            let about = event.element.addr();
            let kind = event.event_type;
            (verbs.ack_async_event)(&raw mut event);
            Some((kind, about))
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is open, and everything that was made of it held it.
        unsafe {
            (self.library.verbs.close_device)(self.raw.as_ptr());
        }
    }
}

/// A protection domain.
pub(super) struct Pd {
    raw: NonNull<ibv_pd>,
    pub(super) context: Arc<Context>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Pd {}
// SAFETY: as for `Context`.
unsafe impl Sync for Pd {}

impl Pd {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, HwError> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.library.verbs.alloc_pd)(context.raw.as_ptr()) };
        Ok(Self {
            raw: made("ibv_alloc_pd", raw)?,
            context: Arc::clone(context),
        })
    }

    pub(super) const fn as_ptr(&self) -> *mut ibv_pd {
        self.raw.as_ptr()
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: the domain was made once; regions, windows and queue pairs of it held it.
        unsafe {
            (self.context.library.verbs.dealloc_pd)(self.raw.as_ptr());
        }
    }
}

/// A registered part of a mapping.
pub(super) struct Mr {
    raw: NonNull<ibv_mr>,
    /// The adapter may reach it until the region is deregistered.
    mapping: ManuallyDrop<Arc<Mapping>>,
    pd: ManuallyDrop<Arc<Pd>>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Mr {}
// SAFETY: as for `Context`.
unsafe impl Sync for Mr {}

impl Mr {
    /// Registers `len_bytes` bytes of `mapping` from `start` on, which requests name from `iova`
    /// on.
    pub(super) fn register(
        pd: &Arc<Pd>,
        mapping: &Arc<Mapping>,
        start: usize,
        len_bytes: usize,
        iova: u64,
        rights: c_uint,
    ) -> Result<Self, HwError> {
        let is_inside = start
            .checked_add(len_bytes)
            .is_some_and(|end| end <= mapping.len_bytes());
        assert!(is_inside, "regions lie inside of their mapping");
        // An empty region is registered as a byte of the mapping's first page, which no peer has a
        // right to.
        let (start, len_bytes, rights) = match len_bytes {
            0 => (
                start % PAGE_BYTES as usize,
                1,
                rights & (access::LOCAL_WRITE | access::MW_BIND),
            ),
            _ => (start, len_bytes, rights),
        };
        // SAFETY: the part is inside of the mapping, which has a page at least and stays as long
        // as the region does.
        let raw = unsafe {
            let first = mapping.address().byte_add(start);
            let verbs = &pd.context.library.verbs;
            (verbs.reg_mr_iova)(pd.raw.as_ptr(), first, len_bytes, iova, rights)
        };
        let raw = NonNull::new(raw).ok_or_else(|| HwError::Pin {
            len_bytes: len_bytes as u64,
            error: io::Error::last_os_error(),
        })?;
        Ok(Self {
            raw,
            mapping: ManuallyDrop::new(Arc::clone(mapping)),
            pd: ManuallyDrop::new(Arc::clone(pd)),
        })
    }

    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: the region exists.
        unsafe { self.raw.as_ref().lkey }
    }

    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: the region exists.
        unsafe { self.raw.as_ref().rkey }
    }

    pub(super) const fn as_ptr(&self) -> *mut ibv_mr {
        self.raw.as_ptr()
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: the region was made once; windows bound to it held it.
        let code = unsafe { (self.pd.context.library.verbs.dereg_mr)(self.raw.as_ptr()) };
        if code == 0 {
            // SAFETY: neither is used afterwards.
            unsafe {
                ManuallyDrop::drop(&mut self.mapping);
                ManuallyDrop::drop(&mut self.pd);
            }
        }
        // Otherwise the adapter may still reach the memory, so it is never unmapped.
    }
}

/// A memory window that a request binds and a peer may invalidate, and the region below it.
pub(super) struct Mw {
    raw: NonNull<ibv_mw>,
    mr: Mr,
}

// SAFETY: as for `Context`.
unsafe impl Send for Mw {}

impl Mw {
    /// A window that is going to be bound to `mr`.
    pub(super) fn new(mr: Mr) -> Result<Self, HwError> {
        // SAFETY: the domain exists, and so does its context's table.
        let raw = unsafe {
            let pd = mr.pd.as_ptr();
            match (*(*pd).context).ops.alloc_mw {
                Some(alloc) => alloc(pd, MW_TYPE_2),
                None => return Err(HwError::Windows),
            }
        };
        Ok(Self {
            raw: made("ibv_alloc_mw", raw)?,
            mr,
        })
    }

    /// The key after the next binding: the last byte counts bindings.
    pub(super) fn next_rkey(&self) -> u32 {
        // SAFETY: the window exists.
        let rkey = unsafe { self.raw.as_ref().rkey };
        (rkey & !0xFF) | (rkey.wrapping_add(1) & 0xFF)
    }

    pub(super) const fn as_ptr(&self) -> *mut ibv_mw {
        self.raw.as_ptr()
    }

    pub(super) const fn mr(&self) -> &Mr {
        &self.mr
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        // SAFETY: the window was made once, by a context whose function table frees what it
        // allocates.
        unsafe {
            if let Some(dealloc) = (*(*self.mr.pd.as_ptr()).context).ops.dealloc_mw {
                dealloc(self.raw.as_ptr());
            }
        }
    }
}

/// The channel on which armed completion queues raise events: a descriptor.
pub(super) struct Channel {
    raw: NonNull<ibv_comp_channel>,
    context: Arc<Context>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Channel {}
// SAFETY: as for `Context`.
unsafe impl Sync for Channel {}

impl Channel {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, HwError> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.library.verbs.create_comp_channel)(context.raw.as_ptr()) };
        let channel = Self {
            raw: made("ibv_create_comp_channel", raw)?,
            context: Arc::clone(context),
        };
        set_nonblocking(channel.fd())?;
        Ok(channel)
    }

    pub(super) fn fd(&self) -> RawFd {
        // SAFETY: the channel exists.
        unsafe { self.raw.as_ref().fd }
    }

    /// Takes and acknowledges a notification. Returns the [address](Cq::address) of its queue.
    pub(super) fn take_notification(&self) -> Option<usize> {
        let verbs = &self.context.library.verbs;
        let (mut queue, mut data) = (null_mut(), null_mut());
        // SAFETY: the channel exists and does not block. The queue exists, since destroying it
        // waits for the acknowledgement.
        unsafe {
            if (verbs.get_cq_event)(self.raw.as_ptr(), &raw mut queue, &raw mut data) != 0 {
                return None;
            }
            (verbs.ack_cq_events)(queue, 1);
        }
        Some(queue.addr())
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: the channel was made once; the queues that used it held it.
        unsafe {
            (self.context.library.verbs.destroy_comp_channel)(self.raw.as_ptr());
        }
    }
}

/// A completion queue.
pub(super) struct Cq {
    raw: NonNull<ibv_cq>,
    channel: Arc<Channel>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Cq {}
// SAFETY: as for `Context`.
unsafe impl Sync for Cq {}

impl Cq {
    /// A queue with room for `completions` completions.
    pub(super) fn new(channel: &Arc<Channel>, completions: u32) -> Result<Self, HwError> {
        let context = &channel.context;
        let count = c_int::try_from(completions).unwrap_or(c_int::MAX);
        // SAFETY: the context is open and the channel exists.
        let raw = unsafe {
            let create = context.library.verbs.create_cq;
            create(
                context.raw.as_ptr(),
                count,
                null_mut(),
                channel.raw.as_ptr(),
                0,
            )
        };
        Ok(Self {
            raw: made("ibv_create_cq", raw)?,
            channel: Arc::clone(channel),
        })
    }

    pub(super) fn library(&self) -> &Library {
        &self.channel.context.library
    }

    /// The address by which notifications name it.
    pub(super) fn address(&self) -> usize {
        self.raw.as_ptr().addr()
    }

    pub(super) const fn as_ptr(&self) -> *mut ibv_cq {
        self.raw.as_ptr()
    }

    /// Completions that it has room for.
    pub(super) fn depth(&self) -> u32 {
        // SAFETY: the queue exists.
        u32::try_from(unsafe { self.raw.as_ref().cqe }).unwrap_or(0)
    }

    /// Makes room for `completions`.
    pub(super) fn resize(&self, completions: u32) -> Result<(), HwError> {
        let count = c_int::try_from(completions).unwrap_or(c_int::MAX);
        // SAFETY: the queue exists.
        let code = unsafe { (self.library().verbs.resize_cq)(self.raw.as_ptr(), count) };
        checked("ibv_resize_cq", code)
    }

    /// Takes completions. Returns how many.
    pub(super) fn poll(&self, into: &mut [ibv_wc]) -> io::Result<usize> {
        let room = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
        // SAFETY: the queue and its context's table exist, and there is room for that many
        // completions.
        let count = unsafe {
            match (*self.raw.as_ref().context).ops.poll_cq {
                Some(poll) => poll(self.raw.as_ptr(), room, into.as_mut_ptr()),
                None => -1,
            }
        };
        usize::try_from(count).map_err(|_| io::Error::other("the completion queue has failed"))
    }

    /// Arms the queue: its next completion raises an event on the channel, once. Poll the queue
    /// afterwards for completions that arrived before.
    pub(super) fn arm(&self) -> io::Result<()> {
        // SAFETY: the queue and its context's table exist.
        let code = unsafe {
            match (*self.raw.as_ref().context).ops.req_notify_cq {
                Some(notify) => notify(self.raw.as_ptr(), 0),
                None => libc::EOPNOTSUPP,
            }
        };
        match code {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: the queue was made once; queue pairs held it, and all notifications that were
        // taken were acknowledged.
        unsafe {
            (self.library().verbs.destroy_cq)(self.raw.as_ptr());
        }
    }
}

/// Makes reads of a descriptor of the library nonblocking.
pub(super) fn set_nonblocking(fd: RawFd) -> Result<(), HwError> {
    // SAFETY: the library keeps the descriptor open as long as its owner exists, which the caller
    // holds.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::ioctl_fionbio(fd, true).map_err(|error| HwError::Call {
        call: "ioctl(FIONBIO)",
        error: error.into(),
    })
}
