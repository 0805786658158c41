//! Queues over TCP.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    os::fd::BorrowedFd,
    sync::{Arc, Weak},
    time::Duration,
};

use nvme::host::{Command, CommandKey, NoRoom, Outcome};
use nvme::tcp::wire::Dgst;
use nvme::tcp::{HostConfig, HostError, HostSession};
use session::{BufferRange, Buffers, SendList};

use super::transport::{NvmeConnection, QueueShape, Transport};
use crate::connection::{Connection, Core, Sizes};
use crate::error::QueueName;
use crate::queue_connection::ConnectionHandle;
use crate::socket::{self, Interest, wait};
use crate::{ConnectError, ConnectionError, DeviceOptions, Switch, Url};

/// NVMe/TCP.
#[derive(Debug)]
pub(crate) struct Tcp {
    digests: Dgst,
    connect_timeout: Duration,
}

impl Transport for Tcp {
    type Connection = Connection<HostSession>;

    const TRANSFER_MAX_BYTES: u64 = u64::MAX;

    fn new(url: &Url, options: &DeviceOptions) -> Result<Self, ConnectError> {
        let digest = |switch, digest| match switch {
            Switch::On => digest,
            Switch::Off => Dgst::NONE,
        };
        Ok(Self {
            digests: digest(url.header_digest(), Dgst::HEADER)
                | digest(url.data_digest(), Dgst::DATA),
            connect_timeout: options.connect_timeout,
        })
    }

    fn connect(
        &mut self,
        address: SocketAddr,
        shape: &QueueShape,
    ) -> Result<Self::Connection, ConnectError> {
        let stream = socket::connect(address, self.connect_timeout)?;
        let session = HostSession::new(HostConfig {
            dgst: self.digests,
            keys: shape.keys,
            in_flight_max: shape.in_flight_max,
            in_capsule_max_bytes: shape.in_capsule_max_bytes,
        });
        let sizes = match shape.queue {
            QueueName::ADMIN => Sizes::ADMIN,
            _ => Sizes::IO,
        };
        Ok(Connection::new(stream, session, sizes, shape.keys))
    }
}

impl NvmeConnection for Connection<HostSession> {
    fn submit(
        &mut self,
        key: CommandKey,
        command: &Command,
        buffers: &Buffers,
    ) -> Result<(), NoRoom> {
        self.session().submit(key, command, buffers)
    }

    fn room(&self) -> u16 {
        self.session_ref().room()
    }

    #[inline]
    fn turn(&mut self, buffers: &mut Buffers) -> Result<(), ConnectionError> {
        self.turn(buffers)
    }

    #[inline]
    fn outcomes(&mut self) -> &mut Vec<Outcome> {
        self.outcomes()
    }

    fn handle(&self) -> Weak<dyn ConnectionHandle> {
        let stream: Arc<dyn ConnectionHandle> = Arc::<TcpStream>::clone(self.stream());
        Arc::downgrade(&stream)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor()
    }

    fn interest(&self) -> Interest {
        self.interest()
    }

    fn signals(&self) -> bool {
        true
    }

    fn wait_input(&self, also: Option<BorrowedFd<'_>>, timeout: Duration) -> io::Result<()> {
        wait(self.descriptor(), self.interest(), also, timeout)
    }
}

impl Core for HostSession {
    type Outcome = Outcome;
    type Error = HostError;

    fn handle_bytes(
        &mut self,
        input: &[u8],
        buffers: &mut Buffers,
        done: &mut Vec<Outcome>,
    ) -> Result<(), HostError> {
        self.handle_bytes(input, buffers, done)
    }

    fn direct(&self) -> Option<BufferRange> {
        self.direct()
    }

    fn handle_placed(
        &mut self,
        len_bytes: u32,
        buffers: &Buffers,
        done: &mut Vec<Outcome>,
    ) -> Result<(), HostError> {
        self.handle_placed(len_bytes, buffers, done);
        Ok(())
    }

    fn expects_bulk(&self) -> bool {
        self.expects_bulk()
    }

    fn poll_transmit(&mut self, buffers: &Buffers, out: &mut SendList) {
        self.poll_transmit(buffers, out);
    }

    fn wants_transmit(&self) -> bool {
        self.wants_transmit()
    }

    fn handle_sent(&mut self, len_bytes: u64, done: &mut Vec<Outcome>) {
        self.handle_sent(len_bytes, done);
    }
}
