//! Compares the layouts with rdma-core's headers: a small C program prints the compiler's values.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use super::qp_attr_mask as qp_mask;
use super::*;

/// A C expression, and the value that we assume.
type Fact = (String, u64);

/// The size of a whole type.
fn size<T>(c_type: &str) -> Fact {
    (format!("sizeof({c_type})"), size_of::<T>() as u64)
}

/// Offsets of fields whose names, or paths inside, are `c_type`'s.
fn offsets<const N: usize>(c_type: &str, fields: [(&str, usize); N]) -> Vec<Fact> {
    let fact = |(name, offset)| (format!("offsetof({c_type}, {name})"), offset as u64);
    fields.into_iter().map(fact).collect()
}

/// Enumerators and macros.
fn constants<const N: usize>(values: [(&str, u64); N]) -> Vec<Fact> {
    let fact = |(name, value): (&str, u64)| (name.to_owned(), value);
    values.into_iter().map(fact).collect()
}

#[test]
fn layouts_are_those_of_the_headers() {
    let facts: Vec<Fact> = [
        whole_types(),
        devices(),
        objects(),
        work_requests(),
        completions(),
        queue_pair_attributes(),
        connections(),
        requests_and_states(),
        flags(),
        events(),
    ]
    .concat();
    let Some(printed) = print_in_c(&facts) else {
        return;
    };
    let mut wrong = String::new();
    for ((expression, ours), theirs) in facts.iter().zip(&printed) {
        if ours != theirs {
            let _ = writeln!(wrong, "{expression} is {theirs}, not {ours}");
        }
    }
    assert!(printed.len() == facts.len() && wrong.is_empty(), "{wrong}");
}

fn whole_types() -> Vec<Fact> {
    vec![
        size::<ibv_context_ops>("struct ibv_context_ops"),
        size::<ibv_device_attr>("struct ibv_device_attr"),
        size::<ibv_pd>("struct ibv_pd"),
        size::<ibv_mr>("struct ibv_mr"),
        size::<ibv_mw>("struct ibv_mw"),
        size::<ibv_comp_channel>("struct ibv_comp_channel"),
        size::<ibv_qp_cap>("struct ibv_qp_cap"),
        size::<ibv_qp_init_attr>("struct ibv_qp_init_attr"),
        size::<ibv_ah_attr>("struct ibv_ah_attr"),
        size::<ibv_qp_attr>("struct ibv_qp_attr"),
        size::<ibv_sge>("struct ibv_sge"),
        size::<ibv_send_wr>("struct ibv_send_wr"),
        size::<ibv_recv_wr>("struct ibv_recv_wr"),
        size::<ibv_wc>("struct ibv_wc"),
        size::<ibv_async_event>("struct ibv_async_event"),
        size::<rdma_event_channel>("struct rdma_event_channel"),
        size::<rdma_conn_param>("struct rdma_conn_param"),
    ]
}

fn devices() -> Vec<Fact> {
    [
        offsets(
            "struct ibv_context_ops",
            [
                ("alloc_mw", offset_of!(ibv_context_ops, alloc_mw)),
                ("dealloc_mw", offset_of!(ibv_context_ops, dealloc_mw)),
                ("poll_cq", offset_of!(ibv_context_ops, poll_cq)),
                ("req_notify_cq", offset_of!(ibv_context_ops, req_notify_cq)),
                ("post_send", offset_of!(ibv_context_ops, post_send)),
                ("post_recv", offset_of!(ibv_context_ops, post_recv)),
            ],
        ),
        offsets(
            "struct ibv_context",
            [
                ("device", offset_of!(ibv_context, device)),
                ("ops", offset_of!(ibv_context, ops)),
                ("async_fd", offset_of!(ibv_context, async_fd)),
            ],
        ),
        offsets(
            "struct ibv_device_attr",
            [
                ("max_qp_wr", offset_of!(ibv_device_attr, max_qp_wr)),
                (
                    "device_cap_flags",
                    offset_of!(ibv_device_attr, device_cap_flags),
                ),
                ("max_sge", offset_of!(ibv_device_attr, max_sge)),
                ("max_cqe", offset_of!(ibv_device_attr, max_cqe)),
                (
                    "max_qp_rd_atom",
                    offset_of!(ibv_device_attr, max_qp_rd_atom),
                ),
                (
                    "max_qp_init_rd_atom",
                    offset_of!(ibv_device_attr, max_qp_init_rd_atom),
                ),
                ("max_mw", offset_of!(ibv_device_attr, max_mw)),
                ("max_srq_sge", offset_of!(ibv_device_attr, max_srq_sge)),
                ("phys_port_cnt", offset_of!(ibv_device_attr, phys_port_cnt)),
            ],
        ),
    ]
    .concat()
}

fn objects() -> Vec<Fact> {
    [
        offsets(
            "struct ibv_mr",
            [
                ("lkey", offset_of!(ibv_mr, lkey)),
                ("rkey", offset_of!(ibv_mr, rkey)),
            ],
        ),
        offsets(
            "struct ibv_device",
            [("transport_type", offset_of!(ibv_device, transport_type))],
        ),
        offsets("struct ibv_mw", [("rkey", offset_of!(ibv_mw, rkey))]),
        offsets(
            "struct ibv_comp_channel",
            [("fd", offset_of!(ibv_comp_channel, fd))],
        ),
        offsets(
            "struct ibv_cq",
            [
                ("context", offset_of!(ibv_cq, context)),
                ("cqe", offset_of!(ibv_cq, cqe)),
            ],
        ),
        offsets(
            "struct ibv_qp",
            [
                ("context", offset_of!(ibv_qp, context)),
                ("qp_num", offset_of!(ibv_qp, qp_num)),
            ],
        ),
    ]
    .concat()
}

fn work_requests() -> Vec<Fact> {
    [
        offsets(
            "struct ibv_send_wr",
            [
                ("sg_list", offset_of!(ibv_send_wr, sg_list)),
                ("num_sge", offset_of!(ibv_send_wr, num_sge)),
                ("opcode", offset_of!(ibv_send_wr, opcode)),
                ("send_flags", offset_of!(ibv_send_wr, send_flags)),
                ("imm_data", offset_of!(ibv_send_wr, imm_data)),
                ("invalidate_rkey", offset_of!(ibv_send_wr, imm_data)),
                ("wr.rdma.remote_addr", offset_of!(ibv_send_wr, remote_addr)),
                ("wr.rdma.rkey", offset_of!(ibv_send_wr, rkey)),
                (
                    "qp_type.xrc.remote_srqn",
                    offset_of!(ibv_send_wr, remote_srqn),
                ),
                ("bind_mw.mw", offset_of!(ibv_send_wr, bind_mw.mw)),
                ("bind_mw.rkey", offset_of!(ibv_send_wr, bind_mw.rkey)),
                ("bind_mw.bind_info.mr", offset_of!(ibv_send_wr, bind_mw.mr)),
                (
                    "bind_mw.bind_info.addr",
                    offset_of!(ibv_send_wr, bind_mw.addr),
                ),
                (
                    "bind_mw.bind_info.length",
                    offset_of!(ibv_send_wr, bind_mw.length),
                ),
                (
                    "bind_mw.bind_info.mw_access_flags",
                    offset_of!(ibv_send_wr, bind_mw.mw_access_flags),
                ),
            ],
        ),
        offsets(
            "struct ibv_recv_wr",
            [
                ("sg_list", offset_of!(ibv_recv_wr, sg_list)),
                ("num_sge", offset_of!(ibv_recv_wr, num_sge)),
            ],
        ),
        offsets(
            "struct ibv_sge",
            [
                ("length", offset_of!(ibv_sge, length)),
                ("lkey", offset_of!(ibv_sge, lkey)),
            ],
        ),
    ]
    .concat()
}

fn completions() -> Vec<Fact> {
    [
        offsets(
            "struct ibv_wc",
            [
                ("status", offset_of!(ibv_wc, status)),
                ("byte_len", offset_of!(ibv_wc, byte_len)),
                ("imm_data", offset_of!(ibv_wc, imm_data)),
                ("invalidated_rkey", offset_of!(ibv_wc, imm_data)),
                ("qp_num", offset_of!(ibv_wc, qp_num)),
                ("wc_flags", offset_of!(ibv_wc, wc_flags)),
            ],
        ),
        offsets(
            "struct ibv_async_event",
            [("event_type", offset_of!(ibv_async_event, event_type))],
        ),
    ]
    .concat()
}

fn queue_pair_attributes() -> Vec<Fact> {
    [
        offsets(
            "struct ibv_qp_init_attr",
            [
                ("send_cq", offset_of!(ibv_qp_init_attr, send_cq)),
                ("recv_cq", offset_of!(ibv_qp_init_attr, recv_cq)),
                ("cap", offset_of!(ibv_qp_init_attr, cap)),
                ("qp_type", offset_of!(ibv_qp_init_attr, qp_type)),
                ("sq_sig_all", offset_of!(ibv_qp_init_attr, sq_sig_all)),
            ],
        ),
        offsets(
            "struct ibv_qp_cap",
            [("max_inline_data", offset_of!(ibv_qp_cap, max_inline_data))],
        ),
        offsets(
            "struct ibv_qp_attr",
            [
                ("qp_state", offset_of!(ibv_qp_attr, qp_state)),
                ("path_mtu", offset_of!(ibv_qp_attr, path_mtu)),
                ("qp_access_flags", offset_of!(ibv_qp_attr, qp_access_flags)),
                ("ah_attr", offset_of!(ibv_qp_attr, ah_attr)),
                ("ah_attr.dlid", offset_of!(ibv_qp_attr, ah_attr.dlid)),
                ("pkey_index", offset_of!(ibv_qp_attr, pkey_index)),
                ("max_rd_atomic", offset_of!(ibv_qp_attr, max_rd_atomic)),
                (
                    "max_dest_rd_atomic",
                    offset_of!(ibv_qp_attr, max_dest_rd_atomic),
                ),
                ("min_rnr_timer", offset_of!(ibv_qp_attr, min_rnr_timer)),
                ("port_num", offset_of!(ibv_qp_attr, port_num)),
                ("rate_limit", offset_of!(ibv_qp_attr, rate_limit)),
            ],
        ),
    ]
    .concat()
}

fn connections() -> Vec<Fact> {
    [
        offsets(
            "struct rdma_cm_id",
            [
                ("verbs", offset_of!(rdma_cm_id, verbs)),
                ("context", offset_of!(rdma_cm_id, context)),
                ("qp", offset_of!(rdma_cm_id, qp)),
                ("route.addr.src_storage", offset_of!(rdma_cm_id, src_addr)),
                ("route.addr.dst_storage", offset_of!(rdma_cm_id, dst_addr)),
                ("route.addr.addr.ibaddr", offset_of!(rdma_cm_id, ib_addr)),
                ("route.path_rec", offset_of!(rdma_cm_id, path_rec)),
                ("ps", offset_of!(rdma_cm_id, ps)),
                ("port_num", offset_of!(rdma_cm_id, port_num)),
            ],
        ),
        offsets(
            "struct rdma_conn_param",
            [
                (
                    "private_data_len",
                    offset_of!(rdma_conn_param, private_data_len),
                ),
                (
                    "responder_resources",
                    offset_of!(rdma_conn_param, responder_resources),
                ),
                (
                    "initiator_depth",
                    offset_of!(rdma_conn_param, initiator_depth),
                ),
                ("retry_count", offset_of!(rdma_conn_param, retry_count)),
                (
                    "rnr_retry_count",
                    offset_of!(rdma_conn_param, rnr_retry_count),
                ),
                ("srq", offset_of!(rdma_conn_param, srq)),
                ("qp_num", offset_of!(rdma_conn_param, qp_num)),
            ],
        ),
        offsets(
            "struct rdma_cm_event",
            [
                ("id", offset_of!(rdma_cm_event, id)),
                ("listen_id", offset_of!(rdma_cm_event, listen_id)),
                ("event", offset_of!(rdma_cm_event, event)),
                ("status", offset_of!(rdma_cm_event, status)),
                ("param.conn", offset_of!(rdma_cm_event, conn)),
            ],
        ),
    ]
    .concat()
}

fn requests_and_states() -> Vec<Fact> {
    constants([
        ("IBV_WR_RDMA_WRITE", wr::RDMA_WRITE.into()),
        ("IBV_WR_RDMA_WRITE_WITH_IMM", wr::RDMA_WRITE_WITH_IMM.into()),
        ("IBV_WR_SEND", wr::SEND.into()),
        ("IBV_WR_SEND_WITH_IMM", wr::SEND_WITH_IMM.into()),
        ("IBV_WR_RDMA_READ", wr::RDMA_READ.into()),
        ("IBV_WR_BIND_MW", wr::BIND_MW.into()),
        ("IBV_WR_SEND_WITH_INV", wr::SEND_WITH_INV.into()),
        ("IBV_WC_SUCCESS", wc_status::SUCCESS.into()),
        ("IBV_WC_LOC_LEN_ERR", wc_status::LOC_LEN_ERR.into()),
        ("IBV_WC_WR_FLUSH_ERR", wc_status::WR_FLUSH_ERR.into()),
        ("IBV_WC_BAD_RESP_ERR", wc_status::BAD_RESP_ERR.into()),
        ("IBV_WC_REM_INV_REQ_ERR", wc_status::REM_INV_REQ_ERR.into()),
        ("IBV_WC_REM_ACCESS_ERR", wc_status::REM_ACCESS_ERR.into()),
        ("IBV_WC_REM_OP_ERR", wc_status::REM_OP_ERR.into()),
        ("IBV_WC_RETRY_EXC_ERR", wc_status::RETRY_EXC_ERR.into()),
        (
            "IBV_WC_RNR_RETRY_EXC_ERR",
            wc_status::RNR_RETRY_EXC_ERR.into(),
        ),
        ("IBV_QPS_INIT", qp_state::INIT.into()),
        ("IBV_QPS_RTR", qp_state::RTR.into()),
        ("IBV_QPS_RTS", qp_state::RTS.into()),
        ("IBV_QPS_ERR", qp_state::ERR.into()),
        ("IBV_TRANSPORT_IB", u64::from(TRANSPORT_IB.unsigned_abs())),
        ("IBV_QPT_RC", QPT_RC.into()),
        ("IBV_MW_TYPE_2", MW_TYPE_2.into()),
        ("RDMA_PS_TCP", PS_TCP.into()),
    ])
}

fn flags() -> Vec<Fact> {
    let mask = |value: c_int| u64::from(value.unsigned_abs());
    constants([
        ("IBV_ACCESS_LOCAL_WRITE", access::LOCAL_WRITE.into()),
        ("IBV_ACCESS_REMOTE_WRITE", access::REMOTE_WRITE.into()),
        ("IBV_ACCESS_REMOTE_READ", access::REMOTE_READ.into()),
        ("IBV_ACCESS_REMOTE_ATOMIC", access::REMOTE_ATOMIC.into()),
        ("IBV_ACCESS_MW_BIND", access::MW_BIND.into()),
        ("IBV_QP_STATE", mask(qp_mask::STATE)),
        ("IBV_QP_ACCESS_FLAGS", mask(qp_mask::ACCESS_FLAGS)),
        ("IBV_QP_PKEY_INDEX", mask(qp_mask::PKEY_INDEX)),
        ("IBV_QP_PORT", mask(qp_mask::PORT)),
        ("IBV_QP_AV", mask(qp_mask::AV)),
        ("IBV_QP_PATH_MTU", mask(qp_mask::PATH_MTU)),
        ("IBV_QP_TIMEOUT", mask(qp_mask::TIMEOUT)),
        ("IBV_QP_RETRY_CNT", mask(qp_mask::RETRY_CNT)),
        ("IBV_QP_RNR_RETRY", mask(qp_mask::RNR_RETRY)),
        ("IBV_QP_RQ_PSN", mask(qp_mask::RQ_PSN)),
        ("IBV_QP_SQ_PSN", mask(qp_mask::SQ_PSN)),
        ("IBV_QP_DEST_QPN", mask(qp_mask::DEST_QPN)),
        ("IBV_QP_MAX_QP_RD_ATOMIC", mask(qp_mask::MAX_QP_RD_ATOMIC)),
        ("IBV_QP_MIN_RNR_TIMER", mask(qp_mask::MIN_RNR_TIMER)),
        (
            "IBV_QP_MAX_DEST_RD_ATOMIC",
            mask(qp_mask::MAX_DEST_RD_ATOMIC),
        ),
        ("IBV_SEND_SIGNALED", send_flags::SIGNALED.into()),
        ("IBV_SEND_INLINE", send_flags::INLINE.into()),
        ("IBV_WC_WITH_IMM", wc_flags::WITH_IMM.into()),
        ("IBV_WC_WITH_INV", wc_flags::WITH_INV.into()),
        ("IBV_WC_IP_CSUM_OK", wc_flags::WITH_INV_OF_RXE.into()),
        (
            "IBV_DEVICE_MEM_WINDOW_TYPE_2A",
            device_cap::MEM_WINDOW_TYPE_2A.into(),
        ),
        (
            "IBV_DEVICE_MEM_WINDOW_TYPE_2B",
            device_cap::MEM_WINDOW_TYPE_2B.into(),
        ),
    ])
}

fn events() -> Vec<Fact> {
    constants([
        ("IBV_EVENT_CQ_ERR", async_event::CQ_ERR.into()),
        ("IBV_EVENT_QP_FATAL", async_event::QP_FATAL.into()),
        ("IBV_EVENT_QP_REQ_ERR", async_event::QP_REQ_ERR.into()),
        ("IBV_EVENT_QP_ACCESS_ERR", async_event::QP_ACCESS_ERR.into()),
        ("IBV_EVENT_COMM_EST", async_event::COMM_EST.into()),
        ("IBV_EVENT_GID_CHANGE", async_event::GID_CHANGE.into()),
        ("IBV_EVENT_DEVICE_FATAL", async_event::DEVICE_FATAL.into()),
        (
            "RDMA_CM_EVENT_ADDR_RESOLVED",
            cm_event::ADDR_RESOLVED.into(),
        ),
        ("RDMA_CM_EVENT_ADDR_ERROR", cm_event::ADDR_ERROR.into()),
        (
            "RDMA_CM_EVENT_ROUTE_RESOLVED",
            cm_event::ROUTE_RESOLVED.into(),
        ),
        ("RDMA_CM_EVENT_ROUTE_ERROR", cm_event::ROUTE_ERROR.into()),
        (
            "RDMA_CM_EVENT_CONNECT_REQUEST",
            cm_event::CONNECT_REQUEST.into(),
        ),
        (
            "RDMA_CM_EVENT_CONNECT_RESPONSE",
            cm_event::CONNECT_RESPONSE.into(),
        ),
        (
            "RDMA_CM_EVENT_CONNECT_ERROR",
            cm_event::CONNECT_ERROR.into(),
        ),
        ("RDMA_CM_EVENT_UNREACHABLE", cm_event::UNREACHABLE.into()),
        ("RDMA_CM_EVENT_REJECTED", cm_event::REJECTED.into()),
        ("RDMA_CM_EVENT_ESTABLISHED", cm_event::ESTABLISHED.into()),
        ("RDMA_CM_EVENT_DISCONNECTED", cm_event::DISCONNECTED.into()),
        (
            "RDMA_CM_EVENT_DEVICE_REMOVAL",
            cm_event::DEVICE_REMOVAL.into(),
        ),
        ("RDMA_CM_EVENT_ADDR_CHANGE", cm_event::ADDR_CHANGE.into()),
    ])
}

/// The values of the expressions by the C compiler. Skips the test and returns `None` if the
/// compiler or the headers are not installed.
fn print_in_c(facts: &[Fact]) -> Option<Vec<u64>> {
    let headers = ["infiniband/verbs.h", "rdma/rdma_cma.h"];
    let has_headers = headers
        .iter()
        .all(|header| Path::new("/usr/include").join(header).exists());
    let has_compiler = Command::new("cc").arg("--version").output().is_ok();
    if !has_headers || !has_compiler {
        block::testing::skip(
            "cc, libibverbs-dev or librdmacm-dev is not installed; layouts of rdma-core's structures are not checked",
        );
        return None;
    }
    let mut source = String::from("#include <stddef.h>\n#include <stdio.h>\n");
    for header in headers {
        let _ = writeln!(source, "#include <{header}>");
    }
    source.push_str("int main(void) {\n");
    for (expression, _) in facts {
        let _ = writeln!(
            source,
            "  printf(\"%llu\\n\", (unsigned long long)({expression}));"
        );
    }
    source.push_str("}\n");
    let folder = std::env::temp_dir().join(format!("ramport-layouts-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("temporary files can be made");
    let (file, program) = (folder.join("layouts.c"), folder.join("layouts"));
    std::fs::write(&file, source).expect("temporary files can be written");
    let compiled = Command::new("cc")
        .arg("-o")
        .args([&program, &file])
        .output();
    let compiled = compiled.expect("cc runs");
    let complaint = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{complaint}");
    let printed = Command::new(&program).output().expect("it was compiled");
    std::fs::remove_dir_all(&folder).expect("temporary files can be removed");
    let text = String::from_utf8(printed.stdout).expect("it prints digits");
    Some(
        text.lines()
            .map(|line| line.parse().expect("it prints digits"))
            .collect(),
    )
}
