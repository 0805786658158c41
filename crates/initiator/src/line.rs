//! A queue's connection, whatever protocol it speaks.

use std::{
    collections::VecDeque,
    io,
    os::fd::BorrowedFd,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use session::Buffers;

use crate::iscsi_tcp::IscsiLine;
use crate::mailbox::{Sever, Shared};
use crate::nvmf::{NvmeConnection as _, NvmeRdmaLine, NvmeTcpLine};
use crate::slots::Slots;
use crate::socket::{Interest, sleep};
use crate::{Completion, ConnectionError, Request};

/// A connection and what a protocol needs to carry a queue's requests over it.
#[derive(Debug)]
pub(crate) enum Line {
    Nvme(NvmeTcpLine),
    NvmeRdma(NvmeRdmaLine),
    Iscsi(IscsiLine),
}

/// What outcomes say of their connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Good,
    /// The other side has ended it, in order.
    Ended,
}

/// What is done about a command that takes too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rescue {
    /// The other side was asked to abort it, which takes time.
    Aborting,
    /// Nothing helps: the connection counts as lost.
    None,
}

/// What a queue lends its line to book outcomes.
pub(crate) struct Books<'a> {
    pub(crate) slots: &'a mut Slots,
    /// Slots whose command has to be sent again.
    pub(crate) waiting: &'a mut VecDeque<u16>,
    pub(crate) done: &'a mut Vec<Completion>,
    pub(crate) shared: &'a Shared,
    pub(crate) buffers: &'a Buffers,
    /// The time of the turn.
    pub(crate) now: Instant,
    /// Slots whose command has to be sent again, but not before then.
    pub(crate) postponed: &'a mut Vec<(Instant, u16)>,
}

impl Line {
    /// The way to end the connection from another thread.
    pub(crate) fn handle(&self) -> Weak<dyn Sever> {
        match self {
            Self::Nvme(line) => line.connection.handle(),
            Self::NvmeRdma(line) => line.connection.handle(),
            Self::Iscsi(line) => {
                let stream: Arc<dyn Sever> =
                    Arc::<std::net::TcpStream>::clone(line.connection.stream());
                Arc::downgrade(&stream)
            }
        }
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Nvme(line) => line.connection.descriptor(),
            Self::NvmeRdma(line) => line.connection.descriptor(),
            Self::Iscsi(line) => line.connection.descriptor(),
        }
    }

    pub(crate) fn interest(&self) -> Interest {
        match self {
            Self::Nvme(line) => line.connection.interest(),
            Self::NvmeRdma(_) => Interest::Read,
            Self::Iscsi(line) => line.connection.interest(),
        }
    }

    /// Whether something that arrives makes [`descriptor`](Self::descriptor) readable.
    pub(crate) fn signals(&self) -> bool {
        !matches!(self, Self::NvmeRdma(_))
    }

    /// Sleeps until something arrives, or `timeout` is over.
    pub(crate) fn doze(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::NvmeRdma(line) => line.connection.doze(None, timeout),
            Self::Nvme(_) | Self::Iscsi(_) => {
                sleep(&[(self.descriptor(), self.interest())], Some(timeout))
            }
        }
    }

    /// Hands a request to the session; `false` where it has to wait. `shift` is the block size's.
    #[inline]
    pub(crate) fn start(&mut self, request: &Request, shift: u32, buffers: &mut Buffers) -> bool {
        match self {
            Self::Nvme(line) => line.start(request, shift, buffers),
            Self::NvmeRdma(line) => line.start(request, shift, buffers),
            Self::Iscsi(line) => line.start(request, shift, buffers),
        }
    }

    /// Sends what is to be sent and takes what has arrived, without waiting.
    #[inline]
    pub(crate) fn turn(&mut self, buffers: &mut Buffers) -> Result<(), ConnectionError> {
        match self {
            Self::Nvme(line) => line.connection.turn(buffers),
            Self::NvmeRdma(line) => line.connection.turn(buffers),
            Self::Iscsi(line) => line.connection.turn(buffers),
        }
    }

    /// Books what has ended.
    #[inline]
    pub(crate) fn settle(&mut self, books: &mut Books<'_>) -> Standing {
        match self {
            Self::Nvme(line) => line.settle(books),
            Self::NvmeRdma(line) => line.settle(books),
            Self::Iscsi(line) => line.settle(books),
        }
    }

    /// The connection is lost: what it has of the queue's buffers goes back.
    pub(crate) fn abandon(&mut self, buffers: &mut Buffers) {
        if let Self::NvmeRdma(line) = self {
            line.connection.end(buffers);
        }
    }

    /// The queue is no longer needed.
    pub(crate) fn take_leave(&mut self, buffers: &mut Buffers) {
        match self {
            // An association ends as a whole, by its admin queue.
            Self::Nvme(_) | Self::NvmeRdma(_) => {}
            Self::Iscsi(line) => line.take_leave(buffers),
        }
    }

    /// Looks, now and then, whether the other side is still there; `patience` is how long its silence may last.
    pub(crate) fn keep_alive(&mut self, now: Instant, patience: Duration) -> Standing {
        match self {
            // An association keeps itself alive, by its admin queue.
            Self::Nvme(_) | Self::NvmeRdma(_) => Standing::Good,
            Self::Iscsi(line) => line.keep_alive(now, patience),
        }
    }

    /// The command of `slot` takes too long.
    pub(crate) fn rescue(&mut self, slot: u16) -> Rescue {
        match self {
            // An abort needs the admin queue, and the fabric's answer to a stuck command is a new association.
            Self::Nvme(_) | Self::NvmeRdma(_) => Rescue::None,
            Self::Iscsi(line) => line.rescue(slot),
        }
    }
}
