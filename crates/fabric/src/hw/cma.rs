//! Objects of librdmacm: the channel of events, and identifiers of listeners and connections.

use std::ffi::{c_int, c_uint, c_void};
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::checked::{checked, made};
use super::library::Library;
use super::sys::{
    PS_TCP, cm_event, ibv_qp_attr, qp_attr_mask, rdma_cm_event, rdma_cm_id, rdma_conn_param,
    rdma_event_channel,
};
use super::verbs::{Context, set_nonblocking};
use crate::HwError;

/// The key of an identifier. Its events carry the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// The identifier that holds the device.
    Anchor,
    /// The listener of a port.
    Listener(u16),
    /// A connection.
    Connection(u32),
}

impl Key {
    const LISTENER: usize = 1 << 32;
    const CONNECTION: usize = 2 << 32;

    /// As the number that an identifier carries.
    const fn to_context(self) -> usize {
        match self {
            Self::Anchor => 0,
            Self::Listener(port) => Self::LISTENER | port as usize,
            Self::Connection(id) => Self::CONNECTION | id as usize,
        }
    }

    const fn from_context(context: usize) -> Self {
        if context & Self::CONNECTION != 0 {
            Self::Connection(context as u32)
        } else if context & Self::LISTENER != 0 {
            Self::Listener(context as u16)
        } else {
            Self::Anchor
        }
    }
}

/// The most RDMA READs that each end answers, and has outstanding, at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Resources {
    pub(super) responder: u8,
    pub(super) initiator: u8,
}

/// An event, copied and acknowledged.
pub(super) struct CmEvent {
    /// The identifier of the event; for a request, the listener's.
    pub(super) key: Key,
    /// A constant of `sys::cm_event`.
    pub(super) kind: c_uint,
    /// 0, a negative error number, or a reason of rejection.
    pub(super) status: c_int,
    /// The resources requested of this end.
    pub(super) resources: Resources,
    pub(super) private_data: Box<[u8]>,
    /// Of a request: the connection that it would become.
    pub(super) request: Option<CmId>,
}

/// The channel that events arrive on.
pub(super) struct EventChannel {
    raw: NonNull<rdma_event_channel>,
    library: Arc<Library>,
}

// SAFETY: librdmacm lets any thread call any function; it does its own locking.
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}

impl EventChannel {
    pub(super) fn new(library: &Arc<Library>) -> Result<Self, HwError> {
        // SAFETY: the function has no arguments.
        let raw = unsafe { (library.cm.create_event_channel)() };
        let channel = Self {
            raw: NonNull::new(raw).ok_or_else(|| HwError::NoDevices(io::Error::last_os_error()))?,
            library: Arc::clone(library),
        };
        set_nonblocking(channel.fd())?;
        Ok(channel)
    }

    pub(super) fn fd(&self) -> RawFd {
        // SAFETY: the channel exists.
        unsafe { self.raw.as_ref().fd }
    }

    /// The next event.
    pub(super) fn next_event(self: &Arc<Self>) -> Option<CmEvent> {
        let mut raw: *mut rdma_cm_event = null_mut();
        // SAFETY: the channel exists and does not block. On success the event, and the identifiers
        // that it names, exist until it is acknowledged: destroying an identifier waits for that,
        // and everything is copied out before. A request's identifier is new, and nothing else
        // refers to it.
        unsafe {
            if (self.library.cm.get_cm_event)(self.raw.as_ptr(), &raw mut raw) != 0 {
                return None;
            }
            let event = &*raw;
            let is_request = event.event == cm_event::CONNECT_REQUEST;
            let about = if is_request {
                event.listen_id
            } else {
                event.id
            };
            let request = (is_request.then(|| NonNull::new(event.id)))
                .flatten()
                .map(|raw| CmId {
                    raw,
                    channel: Arc::clone(self),
                });
            let copied = CmEvent {
                key: Key::from_context((*about).context.addr()),
                kind: event.event,
                status: event.status,
                resources: Resources {
                    responder: event.conn.responder_resources,
                    initiator: event.conn.initiator_depth,
                },
                private_data: private_data(&event.conn),
                request,
            };
            (self.library.cm.ack_cm_event)(raw);
            Some(copied)
        }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: the channel was made once, and its identifiers held it.
        unsafe { (self.library.cm.destroy_event_channel)(self.raw.as_ptr()) }
    }
}

/// # Safety
/// The event's pointer and length of private data are valid.
unsafe fn private_data(conn: &rdma_conn_param) -> Box<[u8]> {
    if conn.private_data.is_null() {
        return Box::default();
    }
    let (start, len_bytes) = (conn.private_data.cast::<u8>(), conn.private_data_len.into());
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(start, len_bytes) }.into()
}

/// An identifier.
pub(super) struct CmId {
    raw: NonNull<rdma_cm_id>,
    channel: Arc<EventChannel>,
}

// SAFETY: as for `EventChannel`.
unsafe impl Send for CmId {}

impl CmId {
    /// Timeout of address resolution, and of route resolution.
    const RESOLVE_TIMEOUT_MS: c_int = 2000;

    /// An identifier bound to an address of an adapter. Returns `NoSuchAddress` if no adapter has
    /// the address.
    pub(super) fn bound_to(
        channel: &Arc<EventChannel>,
        key: Key,
        address: IpAddr,
        port: u16,
    ) -> Result<Self, HwError> {
        let id = Self::new(channel, key)?;
        id.bind(SocketAddr::new(address, port)).map_err(|error| {
            let is_no_device = matches!(&error, HwError::Call { error, .. }
                if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EADDRNOTAVAIL)));
            if is_no_device {
                HwError::NoSuchAddress(address)
            } else {
                error
            }
        })?;
        if id.has_device() {
            Ok(id)
        } else {
            Err(HwError::NoSuchAddress(address))
        }
    }

    pub(super) fn new(channel: &Arc<EventChannel>, key: Key) -> Result<Self, HwError> {
        let mut raw = null_mut();
        let context = std::ptr::without_provenance_mut::<c_void>(key.to_context());
        // SAFETY: the channel exists. The context is a number to the library.
        let code = unsafe {
            let create = channel.library.cm.create_id;
            create(channel.raw.as_ptr(), &raw mut raw, context, PS_TCP)
        };
        checked("rdma_create_id", code)?;
        Ok(Self {
            raw: made("rdma_create_id", raw)?,
            channel: Arc::clone(channel),
        })
    }

    /// From now on, events of this identifier carry `key`.
    pub(super) fn set_key(&mut self, key: Key) {
        // SAFETY: the identifier exists and is ours; the library only passes its context on.
        unsafe {
            self.raw.as_mut().context = std::ptr::without_provenance_mut(key.to_context());
        }
    }

    /// Binds it to an address, and so to the device that has the address.
    pub(super) fn bind(&self, address: SocketAddr) -> Result<(), HwError> {
        let mut storage = to_storage(address);
        // SAFETY: the identifier exists, and the address is whole.
        let code = unsafe {
            (self.channel.library.cm.bind_addr)(self.as_ptr(), (&raw mut storage).cast())
        };
        checked("rdma_bind_addr", code)
    }

    /// Whether a device has its address.
    pub(super) fn has_device(&self) -> bool {
        // SAFETY: the identifier exists.
        unsafe { !self.raw.as_ref().verbs.is_null() }
    }

    /// Opens its device again, for this provider alone.
    pub(super) fn open_device(&self) -> Result<Context, HwError> {
        assert!(self.has_device(), "only bound identifiers have a device");
        // SAFETY: the identifier holds the device.
        unsafe {
            let verbs = self.raw.as_ref().verbs;
            Context::open(&self.channel.library, (*verbs).device)
        }
    }

    /// The library's context of its device, as a number: each device has one, and 0 is none.
    pub(super) fn library_context(&self) -> usize {
        // SAFETY: the identifier exists.
        unsafe { self.raw.as_ref().verbs }.addr()
    }

    /// Closes its device, which is being removed, because librdmacm does not.
    pub(super) fn release_removed_device(&self) -> io::Result<()> {
        if !self.has_device() {
            return Ok(());
        }
        // The library still makes calls on its descriptors, so they stay open and refer to nothing.
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        // SAFETY: the identifier holds the library's context, and so its descriptors.
        let own = unsafe {
            let context = self.raw.as_ref().verbs;
            [(*context).cmd_fd, (*context).async_fd]
        };
        for fd in own {
            // SAFETY: the descriptor is open and stays the library's. Code uses it only as the
            // device's, which is removed.
            let code = unsafe { libc::dup3(nothing.as_raw_fd(), fd, libc::O_CLOEXEC) };
            if code == -1 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// The port of its device, from 1.
    pub(super) fn device_port(&self) -> u8 {
        // SAFETY: the identifier exists.
        unsafe { self.raw.as_ref().port_num }
    }

    /// Our address and the peer's; `None` if either is no IP address.
    pub(super) fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        // SAFETY: the identifier exists.
        let id = unsafe { self.raw.as_ref() };
        Some((from_storage(&id.src_addr)?, from_storage(&id.dst_addr)?))
    }

    pub(super) fn listen(&self, backlog: c_int) -> Result<(), HwError> {
        // SAFETY: the identifier exists.
        let code = unsafe { (self.channel.library.cm.listen)(self.as_ptr(), backlog) };
        checked("rdma_listen", code)
    }

    /// Resolves the peer's address. An event reports the result.
    pub(super) fn resolve_address(&self, peer: SocketAddr) -> Result<(), HwError> {
        let mut storage = to_storage(peer);
        // SAFETY: the identifier exists, and the address is whole.
        let code = unsafe {
            let (to, timeout_ms) = ((&raw mut storage).cast(), Self::RESOLVE_TIMEOUT_MS);
            (self.channel.library.cm.resolve_addr)(self.as_ptr(), null_mut(), to, timeout_ms)
        };
        checked("rdma_resolve_addr", code)
    }

    /// Resolves the route to the peer. An event reports the result.
    pub(super) fn resolve_route(&self) -> Result<(), HwError> {
        // SAFETY: the identifier exists.
        let code = unsafe {
            (self.channel.library.cm.resolve_route)(self.as_ptr(), Self::RESOLVE_TIMEOUT_MS)
        };
        checked("rdma_resolve_route", code)
    }

    pub(super) fn connect(&self, parameters: &Parameters<'_>) -> Result<(), HwError> {
        let mut raw = parameters.to_raw();
        // SAFETY: the identifier exists, and the parameters are whole.
        let code = unsafe { (self.channel.library.cm.connect)(self.as_ptr(), &raw mut raw) };
        checked("rdma_connect", code)
    }

    /// Answers the peer's response.
    pub(super) fn establish(&self) -> Result<(), HwError> {
        // SAFETY: the identifier exists.
        let code = unsafe { (self.channel.library.cm.establish)(self.as_ptr()) };
        checked("rdma_establish", code)
    }

    pub(super) fn accept(&self, parameters: &Parameters<'_>) -> Result<(), HwError> {
        let mut raw = parameters.to_raw();
        // SAFETY: the identifier exists, and the parameters are whole.
        let code = unsafe { (self.channel.library.cm.accept)(self.as_ptr(), &raw mut raw) };
        checked("rdma_accept", code)
    }

    pub(super) fn reject(&self, private_data: &[u8]) -> Result<(), HwError> {
        let len_bytes = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
        // SAFETY: the identifier exists, and so do that many bytes.
        let code = unsafe {
            let data = private_data.as_ptr().cast();
            (self.channel.library.cm.reject)(self.as_ptr(), data, len_bytes)
        };
        checked("rdma_reject", code)
    }

    /// Disconnects, or answers the peer's disconnect. Does nothing if the connection has ended
    /// already.
    pub(super) fn disconnect(&self) {
        // SAFETY: the identifier exists.
        unsafe {
            (self.channel.library.cm.disconnect)(self.as_ptr());
        }
    }

    /// Reports an event of the device about the connection's queue pair to the connection manager.
    pub(super) fn notify(&self, event: c_uint) {
        // SAFETY: the identifier exists.
        unsafe {
            (self.channel.library.cm.notify)(self.as_ptr(), event);
        }
    }

    /// The attributes, and which they are, that bring a queue pair to `state` for this connection.
    pub(super) fn attributes(&self, state: c_uint) -> Result<(ibv_qp_attr, c_int), HwError> {
        let mut attr = ibv_qp_attr {
            qp_state: state,
            ..ibv_qp_attr::default()
        };
        let mut mask = 0;
        // SAFETY: the identifier exists, and the structure is whole.
        let code = unsafe {
            let init = self.channel.library.cm.init_qp_attr;
            init(self.as_ptr(), &raw mut attr, &raw mut mask)
        };
        checked("rdma_init_qp_attr", code)?;
        Ok((attr, mask & !qp_attr_mask::OF_KERNEL_ONLY))
    }

    const fn as_ptr(&self) -> *mut rdma_cm_id {
        self.raw.as_ptr()
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: the identifier is ours alone, its events are acknowledged, and no queue pair was
        // made through it.
        unsafe {
            (self.channel.library.cm.destroy_id)(self.as_ptr());
        }
    }
}

/// The parameters of a connection request, or of its acceptance.
pub(super) struct Parameters<'a> {
    pub(super) private_data: &'a [u8],
    pub(super) resources: Resources,
    pub(super) qp_number: u32,
}

impl Parameters<'_> {
    /// How often packets are sent again; of receivers that are not ready: 7 means without end.
    const RETRIES: u8 = 7;

    fn to_raw(&self) -> rdma_conn_param {
        rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len: u8::try_from(self.private_data.len()).unwrap_or(u8::MAX),
            responder_resources: self.resources.responder,
            initiator_depth: self.resources.initiator,
            flow_control: 1,
            retry_count: Self::RETRIES,
            rnr_retry_count: Self::RETRIES,
            srq: 0,
            qp_num: self.qp_number,
        }
    }
}

/// An address in the system's form.
fn to_storage(address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: the structure has integers only, for which zeros are values.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let start = &raw mut storage;
    match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is longer than any address, and aligned for each.
            unsafe { start.cast::<libc::sockaddr_in>().write(raw) };
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { start.cast::<libc::sockaddr_in6>().write(raw) };
        }
    }
    storage
}

/// The address in `storage`; `None` if it is of another family.
fn from_storage(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let start = &raw const *storage;
    match c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the storage is longer than any address, aligned for each, and has integers
            // only.
            let raw = unsafe { start.cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let raw = unsafe { start.cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            let port = u16::from_be(raw.sin6_port);
            Some(SocketAddrV6::new(ip, port, 0, raw.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_library() {
        for key in [
            Key::Anchor,
            Key::Listener(0),
            Key::Listener(u16::MAX),
            Key::Connection(0),
            Key::Connection(u32::MAX),
        ] {
            assert_eq!(Key::from_context(key.to_context()), key);
        }
    }

    #[test]
    fn addresses_survive_the_system_s_form() {
        for text in ["192.0.2.1:4420", "[2001:db8::1]:1", "[fe80::1%3]:4420"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(from_storage(&to_storage(address)), Some(address));
        }
        // SAFETY: the structure has integers only, for which zeros are values.
        let none: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        assert_eq!(from_storage(&none), None);
    }
}
