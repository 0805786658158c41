//! A queue pair of libibverbs.

use std::ffi::{c_int, c_uint};
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::checked::{checked, made};
use super::mapping::Mapping;
use super::sys::{
    QPT_RC, access, bind_mw, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_recv_wr,
    ibv_send_wr, ibv_sge, qp_attr_mask, qp_state, send_flags, wr,
};
use super::verbs::{Channel, Cq, Mr, Mw, Pd};
use crate::HwError;
use crate::verbs::{Gather, Inline, Remote};

/// How long the queues of a queue pair are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Depths {
    pub(super) sends: u32,
    pub(super) receives: u32,
}

impl Depths {
    pub(super) const fn plus(self, more: Self) -> Self {
        Self {
            sends: self.sends.saturating_add(more.sends),
            receives: self.receives.saturating_add(more.receives),
        }
    }
}

/// The bytes of a request.
pub(super) enum Source {
    /// Copied when it is posted.
    Bytes(Inline),
    /// In registered memory: the parts, and how many are used.
    Registered([ibv_sge; Gather::PARTS_MAX], usize),
}

/// A request to the send queue.
pub(super) struct Work {
    /// Its place in the queue: as many as the queue is long are outstanding at most.
    pub(super) slot: usize,
    /// The fields of its completion.
    pub(super) id: u64,
    /// A constant of `sys::wr`.
    pub(super) opcode: c_uint,
    pub(super) source: Source,
    /// Immediate data in the network's byte order, or a key to invalidate.
    pub(super) extra: u32,
    pub(super) remote: Option<Remote>,
    pub(super) is_signaled: bool,
}

/// Copies of requests' bytes, for adapters that take no inline data.
struct Bounce {
    mapping: Arc<Mapping>,
    mr: Mr,
    slots: usize,
}

/// A reliable-connected queue pair.
pub(super) struct Qp {
    raw: NonNull<ibv_qp>,
    pd: Arc<Pd>,
    bounce: Option<Bounce>,
    _cqs: Cqs,
}

/// The completion queues of a queue pair.
#[derive(Clone)]
pub(super) struct Cqs {
    pub(super) sends: Arc<Cq>,
    pub(super) receives: Arc<Cq>,
}

impl Cqs {
    /// The number of completions that queues have room for.
    pub(super) fn new(channel: &Arc<Channel>, completions: u32) -> Result<Self, HwError> {
        Ok(Self {
            sends: Arc::new(Cq::new(channel, completions)?),
            receives: Arc::new(Cq::new(channel, completions)?),
        })
    }
}

// SAFETY: as for `Context`.
unsafe impl Send for Qp {}

impl Qp {
    /// The most requests that one call posts.
    const CHAIN_MAX: usize = 16;

    pub(super) fn new(pd: &Arc<Pd>, cqs: &Cqs, depths: Depths) -> Result<Self, HwError> {
        let wanted = Inline::LEN_MAX_BYTES as u32;
        // Adapters differ in how many inline bytes they allow, and in the error code for too many.
        let (raw, granted) =
            create(pd, cqs, depths, wanted).or_else(|_| create(pd, cqs, depths, 0))?;
        let mut qp = Self {
            raw,
            pd: Arc::clone(pd),
            bounce: None,
            _cqs: cqs.clone(),
        };
        if granted < wanted {
            // A power of two, so that numbers which wrap go on with the next slot.
            let slots = depths.sends.next_power_of_two() as usize;
            let mapping = Arc::new(Mapping::new(slots * Inline::LEN_MAX_BYTES)?);
            let len_bytes = mapping.len_bytes();
            let mr = Mr::register(pd, &mapping, 0, len_bytes, 0, access::LOCAL_WRITE)?;
            qp.bounce = Some(Bounce { mapping, mr, slots });
        }
        Ok(qp)
    }

    /// Its number.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: the queue pair exists.
        unsafe { self.raw.as_ref().qp_num }
    }

    /// The address by which events name it.
    pub(super) fn address(&self) -> usize {
        self.raw.as_ptr().addr()
    }

    pub(super) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Sets the attributes that `mask` names.
    pub(super) fn modify(&self, attr: &ibv_qp_attr, mask: c_int) -> Result<(), HwError> {
        let mut attr = *attr;
        let verbs = &self.pd.context.library.verbs;
        // SAFETY: the queue pair exists, and the structure is whole.
        let code = unsafe { (verbs.modify_qp)(self.raw.as_ptr(), &raw mut attr, mask) };
        checked("ibv_modify_qp", code)
    }

    /// Fails the queue pair, which flushes everything outstanding. If the device is gone, so is
    /// everything outstanding.
    pub(super) fn fail(&self) {
        let attr = ibv_qp_attr {
            qp_state: qp_state::ERR,
            ..ibv_qp_attr::default()
        };
        let _ = self.modify(&attr, qp_attr_mask::STATE);
    }

    /// Whether the adapter has ended its work.
    pub(super) fn has_failed(&self) -> bool {
        let mut attr = ibv_qp_attr::default();
        let mut init = empty_init();
        let verbs = &self.pd.context.library.verbs;
        // SAFETY: the queue pair exists, and both structures are whole.
        let code = unsafe {
            let state = qp_attr_mask::STATE;
            (verbs.query_qp)(self.raw.as_ptr(), &raw mut attr, state, &raw mut init)
        };
        code == 0 && attr.qp_state == qp_state::ERR
    }

    /// Posts requests, in order. If the adapter refuses one, it has taken those before it and none
    /// after it.
    pub(super) fn post_sends(&self, works: &mut [Work]) -> io::Result<()> {
        let mut chains = works.chunks_mut(Self::CHAIN_MAX);
        chains.try_for_each(|chain| self.post_chain(chain))
    }

    /// Posts at most [`CHAIN_MAX`](Self::CHAIN_MAX) requests with one call.
    fn post_chain(&self, works: &mut [Work]) -> io::Result<()> {
        let mut requests = [const { empty_send() }; Self::CHAIN_MAX];
        let mut inlines = [ibv_sge::default(); Self::CHAIN_MAX];
        let requests = &mut requests[..works.len()];
        for ((request, inline), work) in requests.iter_mut().zip(&mut inlines).zip(works) {
            self.prepare(request, inline, work);
        }
        let mut first = null_mut();
        for request in requests.iter_mut().rev() {
            request.next = first;
            first = request;
        }
        if first.is_null() {
            return Ok(());
        }
        // SAFETY: the requests and their parts outlive the call; parts that are inline lie in
        // `works`, others in memory that keys name.
        unsafe { self.post(first) }
    }

    /// Fills in a request. Its part is `inline` if the request carries its own bytes.
    fn prepare(&self, request: &mut ibv_send_wr, inline: &mut ibv_sge, work: &mut Work) {
        request.wr_id = work.id;
        request.opcode = work.opcode;
        request.imm_data = work.extra;
        if let Some(remote) = work.remote {
            request.remote_addr = remote.va;
            request.rkey = remote.rkey.0;
        }
        if work.is_signaled {
            request.send_flags |= send_flags::SIGNALED;
        }
        let parts = match &mut work.source {
            Source::Registered(parts, count) => &mut parts[..*count],
            Source::Bytes(bytes) if bytes.bytes().is_empty() => &mut [],
            Source::Bytes(bytes) => {
                *inline = if let Some(bounce) = &self.bounce {
                    bounce.copy(bytes.bytes(), work.slot)
                } else {
                    request.send_flags |= send_flags::INLINE;
                    ibv_sge {
                        addr: bytes.bytes().as_ptr().expose_provenance() as u64,
                        length: bytes.bytes().len() as u32,
                        lkey: 0,
                    }
                };
                std::slice::from_mut(inline)
            }
        };
        request.sg_list = parts.as_mut_ptr();
        request.num_sge = c_int::try_from(parts.len()).unwrap_or(c_int::MAX);
    }

    /// Binds a window. From then on, peers reach the bound memory by the window's next key.
    /// Requests that are posted later wait for the binding.
    pub(super) fn post_bind(
        &self,
        id: u64,
        window: &Mw,
        range: (u64, u64),
        access: c_uint,
        is_signaled: bool,
    ) -> io::Result<()> {
        let mut request = empty_send();
        request.wr_id = id;
        request.opcode = wr::BIND_MW;
        if is_signaled {
            request.send_flags |= send_flags::SIGNALED;
        }
        request.bind_mw = bind_mw {
            mw: window.as_ptr(),
            rkey: window.next_rkey(),
            mr: window.mr().as_ptr(),
            addr: range.0,
            length: range.1,
            mw_access_flags: access,
        };
        // SAFETY: the request names a window and a region that exist; the library reads both
        // during the call only.
        unsafe { self.post(&raw mut request) }
    }

    /// # Safety
    /// The request, those that follow it, and the memory they point to exist during the call.
    unsafe fn post(&self, request: *mut ibv_send_wr) -> io::Result<()> {
        let mut bad = null_mut();
        // SAFETY: the queue pair and its context's table exist; the caller vouches for the rest.
        // The adapter itself reaches memory by keys only, which it checks against the queue pair's
        // protection domain.
        let code = unsafe {
            match (*self.raw.as_ref().context).ops.post_send {
                Some(post) => post(self.raw.as_ptr(), request, &raw mut bad),
                None => libc::EOPNOTSUPP,
            }
        };
        posted(code)
    }

    /// Posts a receive of at most one part.
    pub(super) fn post_recv(&self, id: u64, part: Option<ibv_sge>) -> io::Result<()> {
        let mut parts = [part.unwrap_or_default()];
        let mut request = ibv_recv_wr {
            wr_id: id,
            next: null_mut(),
            sg_list: parts.as_mut_ptr(),
            num_sge: c_int::from(part.is_some()),
        };
        let mut bad = null_mut();
        // SAFETY: the queue pair and its context's table exist, and the request's part is there
        // while the call lasts.
        let code = unsafe {
            match (*self.raw.as_ref().context).ops.post_recv {
                Some(post) => post(self.raw.as_ptr(), &raw mut request, &raw mut bad),
                None => libc::EOPNOTSUPP,
            }
        };
        posted(code)
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: the queue pair was made once; windows bound through it are gone, and events about
        // it were acknowledged.
        unsafe {
            (self.pd.context.library.verbs.destroy_qp)(self.raw.as_ptr());
        }
    }
}

impl Bounce {
    /// Copies a request's bytes to its slot.
    fn copy(&self, bytes: &[u8], slot: usize) -> ibv_sge {
        let start = slot % self.slots * Inline::LEN_MAX_BYTES;
        // SAFETY: this is the only slice of the mapping. The adapter only reads it, and not this
        // slot: as many requests as there are slots are outstanding at most.
        let memory = unsafe { self.mapping.bytes_mut() };
        memory[start..start + bytes.len()].copy_from_slice(bytes);
        ibv_sge {
            addr: start as u64,
            length: bytes.len() as u32,
            lkey: self.mr.lkey(),
        }
    }
}

/// Creates a queue pair. Also returns how many inline bytes it supports.
fn create(
    pd: &Arc<Pd>,
    cqs: &Cqs,
    depths: Depths,
    inline_bytes: u32,
) -> Result<(NonNull<ibv_qp>, u32), HwError> {
    let mut init = ibv_qp_init_attr {
        send_cq: cqs.sends.as_ptr(),
        recv_cq: cqs.receives.as_ptr(),
        cap: ibv_qp_cap {
            max_send_wr: depths.sends,
            max_recv_wr: depths.receives,
            max_send_sge: Gather::PARTS_MAX as u32,
            max_recv_sge: 1,
            max_inline_data: inline_bytes,
        },
        ..empty_init()
    };
    // SAFETY: the domain and the queues exist, and the structure is whole.
    let raw = unsafe { (pd.context.library.verbs.create_qp)(pd.as_ptr(), &raw mut init) };
    Ok((made("ibv_create_qp", raw)?, init.cap.max_inline_data))
}

const fn empty_init() -> ibv_qp_init_attr {
    ibv_qp_init_attr {
        qp_context: null_mut(),
        send_cq: null_mut(),
        recv_cq: null_mut(),
        srq: null_mut(),
        cap: ibv_qp_cap {
            max_send_wr: 0,
            max_recv_wr: 0,
            max_send_sge: 0,
            max_recv_sge: 0,
            max_inline_data: 0,
        },
        qp_type: QPT_RC,
        sq_sig_all: 0,
    }
}

const fn empty_send() -> ibv_send_wr {
    ibv_send_wr {
        wr_id: 0,
        next: null_mut(),
        sg_list: null_mut(),
        num_sge: 0,
        opcode: 0,
        send_flags: 0,
        imm_data: 0,
        remote_addr: 0,
        rkey: 0,
        atomic_rest: [0; 2],
        remote_srqn: 0,
        bind_mw: bind_mw {
            mw: null_mut(),
            rkey: 0,
            mr: null_mut(),
            addr: 0,
            length: 0,
            mw_access_flags: 0,
        },
    }
}

/// Drivers answer with an error number, some with its negative.
fn posted(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.abs())),
    }
}
