//! The function of the fuzz target of NVMe/RDMA.

use std::sync::Arc;
use std::time::{Duration, Instant};

use block::BlockSize;
use session::Session;
use zerocopy::IntoBytes;

use super::{BLOCKS, ENTRIES, odd_command, take};
use crate::rdma::{ControllerConfig, ControllerSession};
use crate::testing::{RdmaHost, TestBackend, VecVolume, rdma_host};
use crate::wire::{Invalidate, Sgl, Sqe};

/// Private data of a connection request from the first 33 bytes; a connected I/O queue driven
/// by a script from the rest: commands with odd fields and descriptors, answers to RDMA READs, bare
/// messages, time, and few free entries to post requests.
pub fn rdma_session(input: &[u8]) {
    let mut script = input;
    let Some(private_data) = take::<33>(&mut script) else {
        return;
    };
    accept(&private_data);
    let Some([depth, piece]) = take(&mut script) else {
        return;
    };
    let volume = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
    let (mut host, _admin) = rdma_host(&[volume], ENTRIES);
    host.out.depth_max = 1 + usize::from(depth % 8);
    host.out.piece_max_bytes = 4096 << (piece % 3);
    // The memory that descriptors of the script may name.
    host.expose(0..MEMORY_BYTES);
    while let Some(step) = take(&mut script) {
        if do_step(&mut host, step, &mut script).is_none() || host.session.is_closing() {
            break;
        }
    }
    let outstanding = host.responses().len();
    assert!(outstanding <= input.len(), "a response answers a command");
    host.session.handle_close(host.now, &mut host.backend);
}

/// Bytes of the host's memory that descriptors name.
const MEMORY_BYTES: usize = 1 << 20;

fn accept(private_data: &[u8; 33]) {
    let [record @ .., reads_max] = private_data;
    let config = ControllerConfig::default();
    let accepted =
        ControllerSession::<TestBackend>::accept(Instant::now(), &config, record, *reads_max);
    if let Ok(accepted) = accepted {
        assert!(accepted.receives >= 2 && u32::from(accepted.receives) <= 1024);
        assert!(accepted.sends > accepted.receives || accepted.sends == 1024);
        assert!(accepted.reads >= 1);
    }
}

fn do_step(host: &mut RdmaHost, step: [u8; 4], script: &mut &[u8]) -> Option<()> {
    let [kind, a, b, c] = step;
    match kind % 6 {
        0 | 1 => {
            let mut sqe = odd_command([kind, a, b, c], take(script)?);
            let in_capsule = odd_places(&mut sqe, step);
            host.send(&sqe, &in_capsule).ok()
        }
        2 | 3 => host.answer_read().ok().map(|_| ()),
        4 => {
            let (bytes, rest) = script.split_at(usize::from(a).min(script.len()));
            *script = rest;
            // A message may name any memory: the session must not access it.
            let exposed = std::mem::take(&mut host.exposed);
            let mut message = vec![0; usize::from(b) % 65];
            message
                .iter_mut()
                .zip(bytes)
                .for_each(|(to, from)| *to = *from);
            if let Some(kind) = message.get_mut(39) {
                // Not a keyed descriptor: the session would access its memory rightly.
                *kind &= 0x3F;
            }
            let result = host.send_bytes(&message);
            host.exposed = exposed;
            result.ok()
        }
        _ => {
            host.now += Duration::from_micros(u64::from(a));
            let result = host.session.handle_timeout(host.now, &mut host.backend);
            host.poll();
            result.ok()
        }
    }
}

/// Puts descriptors into a command, mostly of the right lengths; returns the capsule's data.
fn odd_places(sqe: &mut Sqe, [_, a, b, c]: [u8; 4]) -> Vec<u8> {
    let len = sqe.sgl1.len_bytes.get().min(MEMORY_BYTES as u32 / 2);
    let start = usize::from(b) * 256;
    let keyed = |start: usize, len: u32| {
        let invalidate = if c & 1 == 0 {
            Invalidate::No
        } else {
            Invalidate::Yes
        };
        let address = RdmaHost::ADDRESS + start as u64;
        Sgl::keyed(address, len, RdmaHost::KEY, invalidate)
    };
    match a % 8 {
        0..=2 => {
            sqe.sgl1 = keyed(start, len);
            Vec::new()
        }
        3..=5 => {
            let count = 1 + u32::from(c % 20);
            let each = len / count;
            let mut list = Vec::new();
            for index in 0..count {
                let part = if index + 1 == count {
                    len - each * index
                } else {
                    each
                };
                list.extend_from_slice(keyed(start + (each * index) as usize, part).as_bytes());
            }
            let lie = if c > 250 { 8 } else { 0 };
            sqe.sgl1 = Sgl::last_segment(lie, list.len() as u32);
            list
        }
        6 => {
            sqe.sgl1 = Sgl::in_capsule(u64::from(c & 3), len);
            vec![b; len.min(8192) as usize]
        }
        // The descriptor of the input, which is mostly invalid over RDMA.
        _ => vec![c; usize::from(b)],
    }
}
