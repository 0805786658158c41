//! rdma-core's two libraries, opened at run time: a machine without them needs neither to start
//! this program.
//!
//! Each function is looked up with the version whose interface `sys` describes; the libraries keep
//! old versions.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

use super::sys::{
    ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_mr,
    ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, rdma_cm_event, rdma_cm_id, rdma_conn_param,
    rdma_event_channel,
};
use crate::HwError;

const LIBIBVERBS: &CStr = c"libibverbs.so.1";
const LIBRDMACM: &CStr = c"librdmacm.so.1";

const VERBS_1_1: &CStr = c"IBVERBS_1.1";
/// Completion channels have not changed since the first version.
const VERBS_1_0: &CStr = c"IBVERBS_1.0";
/// Since rdma-core 25.
const VERBS_1_7: &CStr = c"IBVERBS_1.7";
const RDMACM_1_0: &CStr = c"RDMACM_1.0";
/// Since rdma-core 23.
const RDMACM_1_2: &CStr = c"RDMACM_1.2";

/// The functions of libibverbs that are exported. The others are in each context's table.
pub(super) struct Verbs {
    pub(super) get_device_name: unsafe extern "C" fn(*mut ibv_device) -> *const c_char,
    pub(super) open_device: unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context,
    pub(super) close_device: unsafe extern "C" fn(*mut ibv_context) -> c_int,
    pub(super) query_device: unsafe extern "C" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int,
    pub(super) get_async_event:
        unsafe extern "C" fn(*mut ibv_context, *mut ibv_async_event) -> c_int,
    pub(super) ack_async_event: unsafe extern "C" fn(*mut ibv_async_event),
    pub(super) alloc_pd: unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_pd,
    pub(super) dealloc_pd: unsafe extern "C" fn(*mut ibv_pd) -> c_int,
    /// Access rights are bits, whatever the signedness of the header's type.
    pub(super) reg_mr_iova:
        unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr,
    pub(super) dereg_mr: unsafe extern "C" fn(*mut ibv_mr) -> c_int,
    pub(super) create_comp_channel: unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_comp_channel,
    pub(super) destroy_comp_channel: unsafe extern "C" fn(*mut ibv_comp_channel) -> c_int,
    pub(super) create_cq: unsafe extern "C" fn(
        *mut ibv_context,
        c_int,
        *mut c_void,
        *mut ibv_comp_channel,
        c_int,
    ) -> *mut ibv_cq,
    pub(super) resize_cq: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int,
    pub(super) destroy_cq: unsafe extern "C" fn(*mut ibv_cq) -> c_int,
    pub(super) get_cq_event:
        unsafe extern "C" fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int,
    pub(super) ack_cq_events: unsafe extern "C" fn(*mut ibv_cq, c_uint),
    pub(super) create_qp: unsafe extern "C" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp,
    pub(super) query_qp:
        unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int,
    pub(super) modify_qp: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int,
    pub(super) destroy_qp: unsafe extern "C" fn(*mut ibv_qp) -> c_int,
}

/// The functions of librdmacm.
pub(super) struct RdmaCm {
    pub(super) create_event_channel: unsafe extern "C" fn() -> *mut rdma_event_channel,
    pub(super) destroy_event_channel: unsafe extern "C" fn(*mut rdma_event_channel),
    pub(super) create_id: unsafe extern "C" fn(
        *mut rdma_event_channel,
        *mut *mut rdma_cm_id,
        *mut c_void,
        c_uint,
    ) -> c_int,
    pub(super) destroy_id: unsafe extern "C" fn(*mut rdma_cm_id) -> c_int,
    pub(super) bind_addr: unsafe extern "C" fn(*mut rdma_cm_id, *mut libc::sockaddr) -> c_int,
    pub(super) resolve_addr: unsafe extern "C" fn(
        *mut rdma_cm_id,
        *mut libc::sockaddr,
        *mut libc::sockaddr,
        c_int,
    ) -> c_int,
    pub(super) resolve_route: unsafe extern "C" fn(*mut rdma_cm_id, c_int) -> c_int,
    pub(super) connect: unsafe extern "C" fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int,
    pub(super) establish: unsafe extern "C" fn(*mut rdma_cm_id) -> c_int,
    pub(super) listen: unsafe extern "C" fn(*mut rdma_cm_id, c_int) -> c_int,
    pub(super) accept: unsafe extern "C" fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int,
    pub(super) reject: unsafe extern "C" fn(*mut rdma_cm_id, *const c_void, u8) -> c_int,
    pub(super) notify: unsafe extern "C" fn(*mut rdma_cm_id, c_uint) -> c_int,
    pub(super) disconnect: unsafe extern "C" fn(*mut rdma_cm_id) -> c_int,
    pub(super) get_cm_event:
        unsafe extern "C" fn(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int,
    pub(super) ack_cm_event: unsafe extern "C" fn(*mut rdma_cm_event) -> c_int,
    pub(super) init_qp_attr:
        unsafe extern "C" fn(*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int,
}

/// Both libraries. They stay loaded as long as the process lives, since they keep threads' and
/// forks' handlers.
pub(super) struct Library {
    pub(super) verbs: Verbs,
    pub(super) cm: RdmaCm,
}

impl Library {
    /// Loads the libraries; the error names the missing part.
    pub(super) fn load() -> Result<Self, HwError> {
        if cfg!(target_feature = "crt-static") {
            return Err(HwError::Static);
        }
        let verbs = Object::open(LIBIBVERBS)?;
        let cm = Object::open(LIBRDMACM)?;
        Ok(Self {
            verbs: load_verbs(&verbs)?,
            cm: load_cm(&cm)?,
        })
    }
}

fn load_verbs(object: &Object) -> Result<Verbs, HwError> {
    // SAFETY: each type is that of `infiniband/verbs.h` for the function and version beside it.
    unsafe {
        Ok(Verbs {
            get_device_name: object.symbol(c"ibv_get_device_name", VERBS_1_1)?,
            open_device: object.symbol(c"ibv_open_device", VERBS_1_1)?,
            close_device: object.symbol(c"ibv_close_device", VERBS_1_1)?,
            query_device: object.symbol(c"ibv_query_device", VERBS_1_1)?,
            get_async_event: object.symbol(c"ibv_get_async_event", VERBS_1_1)?,
            ack_async_event: object.symbol(c"ibv_ack_async_event", VERBS_1_1)?,
            alloc_pd: object.symbol(c"ibv_alloc_pd", VERBS_1_1)?,
            dealloc_pd: object.symbol(c"ibv_dealloc_pd", VERBS_1_1)?,
            reg_mr_iova: object.symbol(c"ibv_reg_mr_iova", VERBS_1_7)?,
            dereg_mr: object.symbol(c"ibv_dereg_mr", VERBS_1_1)?,
            create_comp_channel: object.symbol(c"ibv_create_comp_channel", VERBS_1_0)?,
            destroy_comp_channel: object.symbol(c"ibv_destroy_comp_channel", VERBS_1_0)?,
            create_cq: object.symbol(c"ibv_create_cq", VERBS_1_1)?,
            resize_cq: object.symbol(c"ibv_resize_cq", VERBS_1_1)?,
            destroy_cq: object.symbol(c"ibv_destroy_cq", VERBS_1_1)?,
            get_cq_event: object.symbol(c"ibv_get_cq_event", VERBS_1_1)?,
            ack_cq_events: object.symbol(c"ibv_ack_cq_events", VERBS_1_1)?,
            create_qp: object.symbol(c"ibv_create_qp", VERBS_1_1)?,
            query_qp: object.symbol(c"ibv_query_qp", VERBS_1_1)?,
            modify_qp: object.symbol(c"ibv_modify_qp", VERBS_1_1)?,
            destroy_qp: object.symbol(c"ibv_destroy_qp", VERBS_1_1)?,
        })
    }
}

fn load_cm(object: &Object) -> Result<RdmaCm, HwError> {
    // SAFETY: each type is that of `rdma/rdma_cma.h` for the function and version beside it.
    unsafe {
        Ok(RdmaCm {
            create_event_channel: object.symbol(c"rdma_create_event_channel", RDMACM_1_0)?,
            destroy_event_channel: object.symbol(c"rdma_destroy_event_channel", RDMACM_1_0)?,
            create_id: object.symbol(c"rdma_create_id", RDMACM_1_0)?,
            destroy_id: object.symbol(c"rdma_destroy_id", RDMACM_1_0)?,
            bind_addr: object.symbol(c"rdma_bind_addr", RDMACM_1_0)?,
            resolve_addr: object.symbol(c"rdma_resolve_addr", RDMACM_1_0)?,
            resolve_route: object.symbol(c"rdma_resolve_route", RDMACM_1_0)?,
            connect: object.symbol(c"rdma_connect", RDMACM_1_0)?,
            establish: object.symbol(c"rdma_establish", RDMACM_1_2)?,
            listen: object.symbol(c"rdma_listen", RDMACM_1_0)?,
            accept: object.symbol(c"rdma_accept", RDMACM_1_0)?,
            reject: object.symbol(c"rdma_reject", RDMACM_1_0)?,
            notify: object.symbol(c"rdma_notify", RDMACM_1_0)?,
            disconnect: object.symbol(c"rdma_disconnect", RDMACM_1_0)?,
            get_cm_event: object.symbol(c"rdma_get_cm_event", RDMACM_1_0)?,
            ack_cm_event: object.symbol(c"rdma_ack_cm_event", RDMACM_1_0)?,
            init_qp_attr: object.symbol(c"rdma_init_qp_attr", RDMACM_1_2)?,
        })
    }
}

/// A shared object that is never unloaded.
struct Object {
    name: &'static CStr,
    handle: NonNull<c_void>,
}

impl Object {
    fn open(name: &'static CStr) -> Result<Self, HwError> {
        // SAFETY: the name is a C string. The library's code on loading is trusted as much as its
        // other code.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NODELETE) };
        let handle = NonNull::new(handle).ok_or_else(|| HwError::Library {
            name: name.to_str().unwrap_or("a library"),
            reason: last_error(),
        })?;
        Ok(Self { name, handle })
    }

    /// A function of the object.
    ///
    /// # Safety
    /// `F` is a pointer to a function of the type that this version of the function has.
    unsafe fn symbol<F: Copy>(&self, name: &CStr, version: &CStr) -> Result<F, HwError> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the handle is never closed, and the names are C strings.
        #[cfg(target_env = "gnu")]
        let found = unsafe { libc::dlvsym(self.handle.as_ptr(), name.as_ptr(), version.as_ptr()) };
        // musl's loader has only the default version of each function.
        #[cfg(not(target_env = "gnu"))]
        let found = unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) };
        if found.is_null() {
            let parts = [name, version, self.name].map(CStr::to_string_lossy);
            let [name, version, library] = parts;
            return Err(HwError::Symbol(
                format!("{name}@{version} in {library}").into(),
            ));
        }
        // SAFETY: the pointer is not null, of the same size, and points to a function of that type,
        // as the caller promises.
        Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found) })
    }
}

/// The loader's last error in this thread.
fn last_error() -> Box<str> {
    // SAFETY: dlerror returns null or a C string that stays until the thread's next call of the
    // loader.
    unsafe {
        let message = libc::dlerror();
        if message.is_null() {
            return "the loader does not say why".into();
        }
        CStr::from_ptr(message).to_string_lossy().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let Err(error) = Object::open(c"libramport-is-not-here.so.1") else {
            panic!("there is no such library");
        };
        let text = error.to_string();
        assert!(text.contains("libramport-is-not-here.so.1"), "{text}");
        assert!(text.contains("rdma-core"), "{text}");
        let libc = Object::open(c"libc.so.6").expect("every program has it");
        // SAFETY: the function is not called.
        let missing = unsafe { libc.symbol::<unsafe extern "C" fn()>(c"getpid", c"GLIBC_9.9") };
        let Err(error) = missing else {
            panic!("there is no such version");
        };
        assert!(error.to_string().contains("getpid@GLIBC_9.9"), "{error}");
    }
}
