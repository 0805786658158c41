//! The interface of rdma-core's libraries, field by field: `infiniband/verbs.h` and
//! `rdma/rdma_cma.h`.
//!
//! Types that the libraries allocate are declared only as far as we read them; types that we
//! allocate are complete. The test beside this file compares sizes and offsets with the headers of
//! Debian's packages.

use std::ffi::{c_int, c_uint, c_void};

use libc::sockaddr_storage;

/// An entry of the function table that is no longer called through the table.
type Unused = Option<unsafe extern "C" fn()>;

/// A device, open or not.
#[repr(C)]
pub(super) struct ibv_device {
    pub(super) ops: [Unused; 2],
    pub(super) node_type: c_int,
    pub(super) transport_type: c_int,
}

/// Transport of a device (`ibv_transport_type`).
pub(super) const TRANSPORT_IB: c_int = 0;

/// The functions that headers call without the library's symbols.
#[repr(C)]
pub(super) struct ibv_context_ops {
    pub(super) before_alloc_mw: [Unused; 7],
    pub(super) alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, c_uint) -> *mut ibv_mw>,
    pub(super) bind_mw: Unused,
    pub(super) dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
    pub(super) create_cq: Unused,
    pub(super) poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
    pub(super) req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
    pub(super) before_post_send: [Unused; 12],
    pub(super) post_send:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
    pub(super) post_recv:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    pub(super) after_post_recv: [Unused; 5],
}

/// An open device.
#[repr(C)]
pub(super) struct ibv_context {
    pub(super) device: *mut ibv_device,
    pub(super) ops: ibv_context_ops,
    pub(super) cmd_fd: c_int,
    pub(super) async_fd: c_int,
    pub(super) num_comp_vectors: c_int,
}

/// Capabilities of a device.
#[repr(C)]
pub(super) struct ibv_device_attr {
    pub(super) fw_ver: [u8; 64],
    pub(super) node_guid: u64,
    pub(super) sys_image_guid: u64,
    pub(super) max_mr_size: u64,
    pub(super) page_size_cap: u64,
    pub(super) vendor_id: u32,
    pub(super) vendor_part_id: u32,
    pub(super) hw_ver: u32,
    pub(super) max_qp: c_int,
    pub(super) max_qp_wr: c_int,
    pub(super) device_cap_flags: c_uint,
    pub(super) max_sge: c_int,
    pub(super) max_sge_rd: c_int,
    pub(super) max_cq: c_int,
    pub(super) max_cqe: c_int,
    pub(super) max_mr: c_int,
    pub(super) max_pd: c_int,
    pub(super) max_qp_rd_atom: c_int,
    pub(super) max_ee_rd_atom: c_int,
    pub(super) max_res_rd_atom: c_int,
    pub(super) max_qp_init_rd_atom: c_int,
    pub(super) max_ee_init_rd_atom: c_int,
    pub(super) atomic_cap: c_uint,
    pub(super) max_ee: c_int,
    pub(super) max_rdd: c_int,
    pub(super) max_mw: c_int,
    pub(super) after_max_mw: [c_int; 10],
    pub(super) max_srq_sge: c_int,
    pub(super) max_pkeys: u16,
    pub(super) local_ca_ack_delay: u8,
    pub(super) phys_port_cnt: u8,
}

/// A protection domain.
#[repr(C)]
pub(super) struct ibv_pd {
    pub(super) context: *mut ibv_context,
    pub(super) handle: u32,
}

/// A memory region.
#[repr(C)]
pub(super) struct ibv_mr {
    pub(super) context: *mut ibv_context,
    pub(super) pd: *mut ibv_pd,
    pub(super) addr: *mut c_void,
    pub(super) length: usize,
    pub(super) handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// A memory window.
#[repr(C)]
pub(super) struct ibv_mw {
    pub(super) context: *mut ibv_context,
    pub(super) pd: *mut ibv_pd,
    pub(super) rkey: u32,
    pub(super) handle: u32,
    pub(super) kind: c_uint,
}

/// The channel of a completion queue's events.
#[repr(C)]
pub(super) struct ibv_comp_channel {
    pub(super) context: *mut ibv_context,
    pub(super) fd: c_int,
    pub(super) refcnt: c_int,
}

/// A completion queue.
#[repr(C)]
pub(super) struct ibv_cq {
    pub(super) context: *mut ibv_context,
    pub(super) channel: *mut ibv_comp_channel,
    pub(super) cq_context: *mut c_void,
    pub(super) handle: u32,
    pub(super) cqe: c_int,
}

/// A queue pair.
#[repr(C)]
pub(super) struct ibv_qp {
    pub(super) context: *mut ibv_context,
    pub(super) qp_context: *mut c_void,
    pub(super) pd: *mut ibv_pd,
    pub(super) send_cq: *mut ibv_cq,
    pub(super) recv_cq: *mut ibv_cq,
    pub(super) srq: *mut c_void,
    pub(super) handle: u32,
    pub(super) qp_num: u32,
    pub(super) state: c_uint,
    pub(super) qp_type: c_uint,
}

/// How much of everything a queue pair has.
#[expect(
    clippy::struct_field_names,
    reason = "the names are those of the header"
)]
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct ibv_qp_cap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

/// The parameters of a queue pair.
#[repr(C)]
pub(super) struct ibv_qp_init_attr {
    pub(super) qp_context: *mut c_void,
    pub(super) send_cq: *mut ibv_cq,
    pub(super) recv_cq: *mut ibv_cq,
    pub(super) srq: *mut c_void,
    pub(super) cap: ibv_qp_cap,
    pub(super) qp_type: c_uint,
    pub(super) sq_sig_all: c_int,
}

/// The way to a peer.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct ibv_ah_attr {
    /// A GID, a number in the network's byte order; 8-aligned as in C.
    pub(super) dgid: [u64; 2],
    pub(super) flow_label: u32,
    pub(super) sgid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) dlid: u16,
    pub(super) sl: u8,
    pub(super) src_path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port_num: u8,
}

/// The state of a queue pair and its attributes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct ibv_qp_attr {
    pub(super) qp_state: c_uint,
    pub(super) cur_qp_state: c_uint,
    pub(super) path_mtu: c_uint,
    pub(super) path_mig_state: c_uint,
    pub(super) qkey: u32,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) dest_qp_num: u32,
    pub(super) qp_access_flags: c_uint,
    pub(super) cap: ibv_qp_cap,
    pub(super) ah_attr: ibv_ah_attr,
    pub(super) alt_ah_attr: ibv_ah_attr,
    pub(super) pkey_index: u16,
    pub(super) alt_pkey_index: u16,
    pub(super) en_sqd_async_notify: u8,
    pub(super) sq_draining: u8,
    pub(super) max_rd_atomic: u8,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) port_num: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) alt_port_num: u8,
    pub(super) alt_timeout: u8,
    pub(super) rate_limit: u32,
}

/// Some local memory.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct ibv_sge {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

/// The memory that a window is bound to.
#[repr(C)]
pub(super) struct bind_mw {
    pub(super) mw: *mut ibv_mw,
    pub(super) rkey: u32,
    pub(super) mr: *mut ibv_mr,
    pub(super) addr: u64,
    pub(super) length: u64,
    pub(super) mw_access_flags: c_uint,
}

/// A request to a send queue.
#[repr(C)]
pub(super) struct ibv_send_wr {
    pub(super) wr_id: u64,
    pub(super) next: *mut ibv_send_wr,
    pub(super) sg_list: *mut ibv_sge,
    pub(super) num_sge: c_int,
    pub(super) opcode: c_uint,
    pub(super) send_flags: c_uint,
    /// Immediate data in the network's byte order, or the key to invalidate.
    pub(super) imm_data: u32,
    pub(super) remote_addr: u64,
    pub(super) rkey: u32,
    /// The rest of the union, which atomics use.
    pub(super) atomic_rest: [u64; 2],
    pub(super) remote_srqn: u32,
    pub(super) bind_mw: bind_mw,
}

/// A receive.
#[repr(C)]
pub(super) struct ibv_recv_wr {
    pub(super) wr_id: u64,
    pub(super) next: *mut ibv_recv_wr,
    pub(super) sg_list: *mut ibv_sge,
    pub(super) num_sge: c_int,
}

/// A completion.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct ibv_wc {
    pub(super) wr_id: u64,
    pub(super) status: c_uint,
    pub(super) opcode: c_uint,
    pub(super) vendor_err: u32,
    pub(super) byte_len: u32,
    /// Immediate data in the network's byte order, or the key that was invalidated.
    pub(super) imm_data: u32,
    pub(super) qp_num: u32,
    pub(super) src_qp: u32,
    pub(super) wc_flags: c_uint,
    pub(super) pkey_index: u16,
    pub(super) slid: u16,
    pub(super) sl: u8,
    pub(super) dlid_path_bits: u8,
}

/// An event of a device or of one of its objects.
#[repr(C)]
pub(super) struct ibv_async_event {
    /// A queue pair, completion queue, or port number.
    pub(super) element: *mut c_void,
    pub(super) event_type: c_uint,
}

/// The channel of connections' events.
#[repr(C)]
pub(super) struct rdma_event_channel {
    pub(super) fd: c_int,
}

/// A connection, established or not, or a listener.
#[repr(C)]
pub(super) struct rdma_cm_id {
    pub(super) verbs: *mut ibv_context,
    pub(super) channel: *mut rdma_event_channel,
    pub(super) context: *mut c_void,
    pub(super) qp: *mut ibv_qp,
    pub(super) src_addr: sockaddr_storage,
    pub(super) dst_addr: sockaddr_storage,
    pub(super) ib_addr: [u64; 5],
    pub(super) path_rec: *mut c_void,
    pub(super) num_paths: c_int,
    pub(super) end_of_route: u32,
    pub(super) ps: c_uint,
    pub(super) port_num: u8,
}

/// The parameters of a connection request, or of its acceptance.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct rdma_conn_param {
    pub(super) private_data: *const c_void,
    pub(super) private_data_len: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) srq: u8,
    pub(super) qp_num: u32,
}

/// An event of a connection.
#[repr(C)]
pub(super) struct rdma_cm_event {
    pub(super) id: *mut rdma_cm_id,
    pub(super) listen_id: *mut rdma_cm_id,
    pub(super) event: c_uint,
    pub(super) status: c_int,
    pub(super) conn: rdma_conn_param,
}

/// Rights to memory, and of peers through a queue pair (`ibv_access_flags`).
pub(super) mod access {
    use std::ffi::c_uint;

    pub(in super::super) const LOCAL_WRITE: c_uint = 1;
    pub(in super::super) const REMOTE_WRITE: c_uint = 1 << 1;
    pub(in super::super) const REMOTE_READ: c_uint = 1 << 2;
    pub(in super::super) const REMOTE_ATOMIC: c_uint = 1 << 3;
    pub(in super::super) const MW_BIND: c_uint = 1 << 4;
}

/// Which attributes of a queue pair change (`ibv_qp_attr_mask`).
pub(super) mod qp_attr_mask {
    use std::ffi::c_int;

    pub(in super::super) const STATE: c_int = 1;
    pub(in super::super) const ACCESS_FLAGS: c_int = 1 << 3;
    pub(in super::super) const PKEY_INDEX: c_int = 1 << 4;
    pub(in super::super) const PORT: c_int = 1 << 5;
    pub(in super::super) const AV: c_int = 1 << 7;
    pub(in super::super) const PATH_MTU: c_int = 1 << 8;
    pub(in super::super) const TIMEOUT: c_int = 1 << 9;
    pub(in super::super) const RETRY_CNT: c_int = 1 << 10;
    pub(in super::super) const RNR_RETRY: c_int = 1 << 11;
    pub(in super::super) const RQ_PSN: c_int = 1 << 12;
    pub(in super::super) const MAX_QP_RD_ATOMIC: c_int = 1 << 13;
    pub(in super::super) const MIN_RNR_TIMER: c_int = 1 << 15;
    pub(in super::super) const SQ_PSN: c_int = 1 << 16;
    pub(in super::super) const MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
    pub(in super::super) const DEST_QPN: c_int = 1 << 20;
    /// The kernel names Ethernet addresses by these, which the library does not know.
    pub(in super::super) const OF_KERNEL_ONLY: c_int = 0x01E0_0000;
}

/// States of a queue pair (`ibv_qp_state`).
pub(super) mod qp_state {
    use std::ffi::c_uint;

    pub(in super::super) const INIT: c_uint = 1;
    pub(in super::super) const RTR: c_uint = 2;
    pub(in super::super) const RTS: c_uint = 3;
    pub(in super::super) const ERR: c_uint = 6;
}

/// The reliable-connected type (`ibv_qp_type`).
pub(super) const QPT_RC: c_uint = 2;

/// Requests (`ibv_wr_opcode`).
pub(super) mod wr {
    use std::ffi::c_uint;

    pub(in super::super) const RDMA_WRITE: c_uint = 0;
    pub(in super::super) const RDMA_WRITE_WITH_IMM: c_uint = 1;
    pub(in super::super) const SEND: c_uint = 2;
    pub(in super::super) const SEND_WITH_IMM: c_uint = 3;
    pub(in super::super) const RDMA_READ: c_uint = 4;
    pub(in super::super) const BIND_MW: c_uint = 8;
    pub(in super::super) const SEND_WITH_INV: c_uint = 9;
}

/// Flags of requests (`ibv_send_flags`).
pub(super) mod send_flags {
    use std::ffi::c_uint;

    pub(in super::super) const SIGNALED: c_uint = 1 << 1;
    pub(in super::super) const INLINE: c_uint = 1 << 3;
}

/// How a request ended (`ibv_wc_status`).
pub(super) mod wc_status {
    use std::ffi::c_uint;

    pub(in super::super) const SUCCESS: c_uint = 0;
    pub(in super::super) const LOC_LEN_ERR: c_uint = 1;
    pub(in super::super) const WR_FLUSH_ERR: c_uint = 5;
    pub(in super::super) const BAD_RESP_ERR: c_uint = 7;
    pub(in super::super) const REM_INV_REQ_ERR: c_uint = 9;
    pub(in super::super) const REM_ACCESS_ERR: c_uint = 10;
    pub(in super::super) const REM_OP_ERR: c_uint = 11;
    pub(in super::super) const RETRY_EXC_ERR: c_uint = 12;
    pub(in super::super) const RNR_RETRY_EXC_ERR: c_uint = 13;
}

/// Flags of completions (`ibv_wc_flags`).
pub(super) mod wc_flags {
    use std::ffi::c_uint;

    pub(in super::super) const WITH_IMM: c_uint = 1 << 1;
    pub(in super::super) const WITH_INV: c_uint = 1 << 3;
    /// The kernel's own number for the same, which rdma_rxe hands to programs as it is. To the
    /// library it means a checksum that reliable connections do not have (`IBV_WC_IP_CSUM_OK`).
    pub(in super::super) const WITH_INV_OF_RXE: c_uint = 1 << 2;
}

/// Capabilities of a device (`ibv_device_cap_flags`).
pub(super) mod device_cap {
    use std::ffi::c_uint;

    pub(in super::super) const MEM_WINDOW_TYPE_2A: c_uint = 1 << 23;
    pub(in super::super) const MEM_WINDOW_TYPE_2B: c_uint = 1 << 24;
}

/// Windows that a request binds, and peers may invalidate (`ibv_mw_type`).
pub(super) const MW_TYPE_2: c_uint = 2;

/// Events of devices (`ibv_event_type`).
pub(super) mod async_event {
    use std::ffi::c_uint;

    pub(in super::super) const CQ_ERR: c_uint = 0;
    pub(in super::super) const QP_FATAL: c_uint = 1;
    pub(in super::super) const QP_REQ_ERR: c_uint = 2;
    pub(in super::super) const QP_ACCESS_ERR: c_uint = 3;
    pub(in super::super) const COMM_EST: c_uint = 4;
    pub(in super::super) const DEVICE_FATAL: c_uint = 8;
    pub(in super::super) const GID_CHANGE: c_uint = 18;
}

/// Events of connections (`rdma_cm_event_type`).
pub(super) mod cm_event {
    use std::ffi::c_uint;

    pub(in super::super) const ADDR_RESOLVED: c_uint = 0;
    pub(in super::super) const ADDR_ERROR: c_uint = 1;
    pub(in super::super) const ROUTE_RESOLVED: c_uint = 2;
    pub(in super::super) const ROUTE_ERROR: c_uint = 3;
    pub(in super::super) const CONNECT_REQUEST: c_uint = 4;
    pub(in super::super) const CONNECT_RESPONSE: c_uint = 5;
    pub(in super::super) const CONNECT_ERROR: c_uint = 6;
    pub(in super::super) const UNREACHABLE: c_uint = 7;
    pub(in super::super) const REJECTED: c_uint = 8;
    pub(in super::super) const ESTABLISHED: c_uint = 9;
    pub(in super::super) const DISCONNECTED: c_uint = 10;
    pub(in super::super) const DEVICE_REMOVAL: c_uint = 11;
    pub(in super::super) const ADDR_CHANGE: c_uint = 14;
}

/// The TCP port space (`rdma_port_space`).
pub(super) const PS_TCP: c_uint = 0x0106;

#[cfg(test)]
mod tests;
