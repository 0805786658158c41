//! Requests for the file of a FUSE file system, by `/dev/fuse`.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use zerocopy::IntoBytes as _;

use crate::requests::{Asked, Disk, Requests};
use messages::Operation;

mod messages;
mod wire;

pub(crate) use messages::{MODE, PAGE_BYTES};

/// The requests of one mounted file.
#[derive(Debug)]
pub(crate) struct FuseRequests {
    fuse: OwnedFd,
    /// The most bytes of a read or write: a multiple of a page.
    transfer_bytes_max: u32,
    /// The request that was read last.
    input: Vec<u8>,
    /// Where the data of the write that was taken last are in it.
    data: Range<usize>,
}

impl FuseRequests {
    /// `fuse` is an open `/dev/fuse` that does not block.
    pub(crate) fn new(fuse: OwnedFd, transfer_bytes_max: u32) -> Self {
        Self {
            fuse,
            transfer_bytes_max,
            // The kernel demands room for the heads of a write besides its data.
            input: vec![0; (transfer_bytes_max + PAGE_BYTES) as usize],
            data: 0..0,
        }
    }

    fn handle(&mut self, len: usize, disk: &Disk) -> Asked {
        let Some(call) = messages::parse(&self.input[..len]) else {
            return Asked::Handled;
        };
        let unique = call.unique;
        let reply = match call.operation {
            Operation::Disk { ask, data } => {
                self.data = len - data.len()..len;
                return Asked::Request { id: unique, ask };
            }
            Operation::Init {
                flags,
                max_readahead,
            } => {
                let most = self.transfer_bytes_max;
                let init = messages::init(flags, max_readahead, most, disk.depth);
                messages::reply(unique, &init)
            }
            Operation::Attributes => messages::reply(unique, &messages::attributes(disk.geometry)),
            Operation::Open => messages::reply(unique, &messages::opened()),
            Operation::Statistics => messages::reply(unique, &messages::statistics(disk.geometry)),
            Operation::Nothing => messages::head(unique, 0).as_bytes().to_vec(),
            Operation::Silent => return Asked::Handled,
            Operation::Refused(error) => messages::failed(unique, error).as_bytes().to_vec(),
        };
        self.reply(&reply);
        Asked::Handled
    }

    fn reply(&self, message: &[u8]) {
        // It fails only if the request was aborted or the file system is gone.
        let _ = rustix::io::write(&self.fuse, message);
    }
}

impl Requests for FuseRequests {
    const PASSES_SIZE_ON: bool = true;

    fn next(&mut self, disk: &Disk) -> io::Result<Asked> {
        match rustix::io::read(&self.fuse, &mut self.input[..]) {
            Ok(len) => Ok(self.handle(len, disk)),
            // ENOENT: the request was interrupted before it was read.
            Err(Errno::INTR | Errno::NOENT) => Ok(Asked::Handled),
            Err(Errno::AGAIN) => Ok(Asked::Nothing),
            Err(Errno::NODEV) => Ok(Asked::End),
            Err(error) => Err(error.into()),
        }
    }

    /// From the kernel's message, whose head and data are one read, into registered memory.
    fn take_data(&mut self, _: u64, dest: &mut [u8]) -> Result<(), Errno> {
        let data = &self.input[self.data.clone()];
        if data.len() != dest.len() {
            return Err(Errno::INVAL);
        }
        dest.copy_from_slice(data);
        Ok(())
    }

    fn succeed_read(&mut self, id: u64, data: &[u8]) {
        let head = messages::head(id, data.len());
        // As for other replies.
        let parts = [IoSlice::new(head.as_bytes()), IoSlice::new(data)];
        let _ = rustix::io::writev(&self.fuse, &parts);
    }

    fn succeed_write(&mut self, id: u64, len_bytes: u32) {
        self.reply(&messages::reply(id, &messages::written(len_bytes)));
    }

    fn succeed(&mut self, id: u64) {
        self.reply(messages::head(id, 0).as_bytes());
    }

    fn fail(&mut self, id: u64, error: Errno) {
        self.reply(messages::failed(id, error).as_bytes());
    }

    fn send(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.fuse.as_fd()
    }
}
