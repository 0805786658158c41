//! One connection of a reactor: its socket, its session, and what it could not send yet.
//!
//! ```text
//!            last words sent            peer closed, or time is up
//!  Open ──► Ending ──────► Lingering ─────────────────────────────► closed
//!    └─────────────────────────────────────────────────────────────►
//! ```

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use block::Completion;
use rustix::net::{RecvFlags, Shutdown};
use session::SendList;
use tls::{Output, Progress};

use crate::channel::{Channel, Outbox};
use crate::driven::{CloseReason, DrivenStream};
use crate::gate::{ConnectionPlace, Handshake};
use crate::gather::{Bounce, Gather, Sent};
use crate::poller::Readiness;
use crate::{ConnectionId, ListenerId};

/// A connection.
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) listener: ListenerId,
    socket: OwnedFd,
    channel: Channel,
    driven: Box<dyn DrivenStream>,
    /// The socket may have input; false after a call has found none.
    readable: bool,
    /// The end of the stream was reported, perhaps after bytes. No further event follows.
    has_ended: bool,
    /// The socket may accept output; false after a call has accepted none.
    writable: bool,
    /// It is in the reactor's queue of ready connections.
    pub(crate) is_queued: bool,
    /// When its timer fires, if one is armed.
    pub(crate) armed: Option<Instant>,
    /// What the socket did not take. While there is any, nothing is received: a peer that does not
    /// read is not read.
    undrained: Option<Undrained>,
    /// Encrypted bytes that are sent before anything else.
    outbox: Outbox,
    handshake: Handshake,
    phase: Phase,
    is_draining: bool,
    _place: ConnectionPlace,
}

struct Undrained {
    list: SendList,
    bounce: Bounce,
}

enum Phase {
    Open,
    /// What the session has said last is being sent.
    Ending(CloseReason),
    /// It was sent, and the peer is given time to read it before the socket is closed.
    Lingering(CloseReason, Instant),
}

/// How a turn left the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// There is more to do at once; others go first.
    Again,
    /// It did something and now waits for its socket or its timer.
    Done,
    /// It had nothing to do.
    Nothing,
}

/// Buffers that the connections of a reactor take turns in.
pub(crate) struct Scratch {
    receive: Box<[u8]>,
    list: SendList,
    spare_lists: Vec<SendList>,
    gather: Gather,
    output: Output,
}

/// The most bytes received in one turn.
const RECEIVE_BYTES: usize = 256 << 10;
/// The bytes of its own that a send list holds.
const LIST_BYTES: usize = 256 << 10;
/// Send lists kept for the next connection that does not drain.
const SPARE_LISTS_MAX: usize = 4;
/// The output of one turn after which other connections have their turn.
const SEND_TURN_BYTES: u64 = 2 << 20;
/// How long a peer may take to read the last output.
const LINGER: Duration = Duration::from_secs(1);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            receive: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            list: SendList::with_capacity(LIST_BYTES),
            spare_lists: Vec::new(),
            gather: Gather::default(),
            output: Output::default(),
        }
    }

    /// Forgets what a panic may have left.
    pub(crate) fn reset(&mut self) {
        *self = Self::new();
    }

    /// Gives the filled list away and takes another.
    fn take_list(&mut self) -> SendList {
        let next = self
            .spare_lists
            .pop()
            .unwrap_or_else(|| SendList::with_capacity(LIST_BYTES));
        std::mem::replace(&mut self.list, next)
    }

    fn give_back(&mut self, list: SendList) {
        if self.spare_lists.len() < SPARE_LISTS_MAX {
            self.spare_lists.push(list);
        }
    }
}

/// The most memory that a connection's output takes, in bytes.
pub(crate) const UNDRAINED_MAX_BYTES: usize = LIST_BYTES + 4096 + Outbox::MAX_BYTES;

impl Connection {
    pub(crate) fn new(
        (id, listener): (ConnectionId, ListenerId),
        socket: OwnedFd,
        channel: Channel,
        driven: Box<dyn DrivenStream>,
        handshake: Handshake,
        place: ConnectionPlace,
    ) -> Self {
        Self {
            id,
            listener,
            socket,
            channel,
            driven,
            readable: true,
            has_ended: false,
            writable: true,
            is_queued: false,
            armed: None,
            undrained: None,
            outbox: Outbox::default(),
            handshake,
            phase: Phase::Open,
            is_draining: false,
            _place: place,
        }
    }

    /// The socket's state has changed.
    pub(crate) fn handle_readiness(&mut self, readiness: Readiness) {
        self.readable |= readiness.readable;
        self.writable |= readiness.writable;
        self.has_ended |= readiness.ended;
    }

    /// One turn: sends what was left, receives once, runs the session, sends its output.
    pub(crate) fn turn(
        &mut self,
        now: Instant,
        scratch: &mut Scratch,
    ) -> Result<Turn, CloseReason> {
        if self.handshake.is_evicted() {
            return Err(CloseReason::Evicted);
        }
        if let Phase::Lingering(..) = self.phase {
            return self.linger(scratch);
        }
        let mut sent_bytes = self.flush(scratch)?;
        if self.has_unsent() {
            return Ok(self.turn_of(sent_bytes));
        }
        let received_bytes = self.receive(now, scratch)?;
        sent_bytes += self.transmit(now, scratch)?;
        if received_bytes > 0 || sent_bytes > 0 {
            self.driven.attachment_mut().handle_sent(Instant::now());
        }
        if self.handshake.is_open() {
            self.handshake
                .advance(self.driven.attachment().login_progress());
        }
        self.close_if_done(now)?;
        Ok(self.turn_of(sent_bytes + received_bytes as u64))
    }

    /// The session's shared state has changed.
    pub(crate) fn wake(&mut self, now: Instant) {
        if let Phase::Open = self.phase
            && let Err(reason) = self.driven.handle_wake(now)
        {
            self.phase = Phase::Ending(reason);
        }
    }

    /// A volume is done with a command that it made wait.
    pub(crate) fn complete(&mut self, now: Instant, completion: Completion) {
        if let Phase::Open = self.phase
            && let Err(reason) = self.driven.handle_completion(now, completion)
        {
            self.phase = Phase::Ending(reason);
        }
    }

    /// The armed timer has fired.
    pub(crate) fn handle_timer(&mut self, now: Instant) -> Result<(), CloseReason> {
        if let Phase::Lingering(_, until) = &self.phase
            && now >= *until
        {
            return Err(self.take_reason());
        }
        if self.handshake.is_late(now) {
            return Err(CloseReason::HandshakeTimeout);
        }
        if self.driven.poll_timeout().is_some_and(|at| now >= at)
            && let Phase::Open = self.phase
            && let Err(reason) = self.driven.handle_timeout(now)
        {
            self.phase = Phase::Ending(reason);
        }
        Ok(())
    }

    /// When the timer is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        let of_phase = match &self.phase {
            Phase::Open => self.driven.poll_timeout(),
            Phase::Ending(_) => None,
            Phase::Lingering(_, until) => Some(*until),
        };
        of_phase.into_iter().chain(self.handshake.due()).min()
    }

    /// From now on it closes as soon as no command is in progress.
    pub(crate) fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Tells the session that it is over.
    pub(crate) fn close(&mut self, now: Instant, reason: &CloseReason) {
        self.driven.handle_close(now, reason);
    }

    fn turn_of(&self, moved_bytes: u64) -> Turn {
        let can_send = self.writable && (self.has_unsent() || self.session_wants_transmit());
        let takes_input = !self.has_unsent() && self.turn_bytes() > 0;
        let can_receive = self.readable && takes_input;
        if can_send || can_receive {
            Turn::Again
        } else if moved_bytes > 0 {
            Turn::Done
        } else {
            Turn::Nothing
        }
    }

    /// The socket has not taken all that was to be sent.
    fn has_unsent(&self) -> bool {
        self.undrained.is_some() || !self.outbox.is_empty()
    }

    fn session_wants_transmit(&self) -> bool {
        self.channel.is_open() && self.driven.wants_transmit()
    }

    fn turn_bytes(&self) -> usize {
        self.channel.turn_bytes(self.driven.turn_bytes())
    }

    /// Receives once and passes the bytes to the session. Returns their number.
    fn receive(&mut self, now: Instant, scratch: &mut Scratch) -> Result<usize, CloseReason> {
        if !self.readable || !matches!(self.phase, Phase::Open) {
            return Ok(0);
        }
        let room = scratch.receive.len().min(self.turn_bytes());
        if room == 0 {
            return Ok(0);
        }
        let len = match self.receive_into(&mut scratch.receive[..room])? {
            Some(0) => return Err(CloseReason::PeerClosed),
            Some(len) => len,
            None => return Ok(0),
        };
        let (input, output) = (&mut scratch.receive[..len], &mut scratch.output);
        if let Err(reason) = self.handle_bytes(now, input, output) {
            self.phase = Phase::Ending(reason);
        }
        Ok(len)
    }

    /// Passes what was received to the session, decrypted if need be.
    fn handle_bytes(
        &mut self,
        now: Instant,
        input: &mut [u8],
        output: &mut Output,
    ) -> Result<(), CloseReason> {
        match &mut self.channel {
            Channel::Plain => self.driven.handle_bytes(now, input),
            Channel::Secured(records) => {
                records.handle_bytes(input, |bytes| self.driven.handle_bytes(now, bytes))?;
                if records.wants_transmit() {
                    self.outbox.put(records.seal(output)?);
                }
                Ok(())
            }
            Channel::Entering(entry) => {
                match entry.handle_bytes(input, self.outbox.messages_mut())? {
                    Progress::Pending => return Ok(()),
                    Progress::Plain => self.channel = Channel::Plain,
                    Progress::Secured(secured) => {
                        let attachment = self.driven.attachment_mut();
                        attachment.handle_secured(&secured.proven);
                        self.channel = Channel::Secured(Box::new(secured.records));
                        return Ok(());
                    }
                }
                self.driven.handle_bytes(now, input)
            }
        }
    }

    /// `None` if there is no input.
    fn receive_into(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, CloseReason> {
        let room = buffer.len();
        match rustix::net::recv(&self.socket, buffer, RecvFlags::DONTWAIT) {
            Ok((len, _)) => {
                // A stream that did not fill the buffer has no more input; later input raises
                // another event.
                self.readable = len == room || self.has_ended;
                Ok(Some(len))
            }
            Err(rustix::io::Errno::AGAIN) => {
                self.readable = false;
                Ok(None)
            }
            Err(rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(CloseReason::Io(error.into())),
        }
    }

    /// Sends output of the session until there is no more, the socket accepts no more, or the
    /// turn's limit is reached. Returns the number of bytes sent.
    fn transmit(&mut self, now: Instant, scratch: &mut Scratch) -> Result<u64, CloseReason> {
        let mut sent_bytes = self.send_outbox(&mut scratch.output)?;
        while sent_bytes < SEND_TURN_BYTES
            && self.outbox.is_empty()
            && self.session_wants_transmit()
        {
            self.driven.poll_transmit(now, &mut scratch.list);
            if scratch.list.is_empty() {
                break;
            }
            let mut bounce = Bounce::default();
            let result = self.send(
                (&mut scratch.gather, &mut scratch.output),
                &mut scratch.list,
                &mut bounce,
            );
            sent_bytes +=
                result.inspect_err(|_| scratch.list = SendList::with_capacity(LIST_BYTES))?;
            if !scratch.list.is_empty() || !bounce.is_empty() || !self.outbox.is_empty() {
                let list = scratch.take_list();
                self.undrained = Some(Undrained { list, bounce });
                self.driven.attachment_mut().handle_stalled();
                return Ok(sent_bytes);
            }
            self.driven.attachment_mut().handle_drained();
        }
        Ok(sent_bytes)
    }

    /// Sends what was left from earlier turns.
    fn flush(&mut self, scratch: &mut Scratch) -> Result<u64, CloseReason> {
        if !self.writable {
            return Ok(0);
        }
        let before_bytes = self.send_outbox(&mut scratch.output)?;
        let Some(mut undrained) = self.undrained.take() else {
            return Ok(before_bytes);
        };
        let sent_bytes = self.send(
            (&mut scratch.gather, &mut scratch.output),
            &mut undrained.list,
            &mut undrained.bounce,
        )?;
        let sent_bytes = before_bytes + sent_bytes;
        let is_drained = undrained.list.is_empty() && undrained.bounce.is_empty();
        if is_drained && self.outbox.is_empty() {
            scratch.give_back(undrained.list);
            self.driven.attachment_mut().handle_drained();
        } else {
            self.undrained = Some(undrained);
        }
        Ok(sent_bytes)
    }

    /// Sends until nothing is left, the socket accepts no more, or the turn's limit is reached.
    fn send(
        &mut self,
        (gather, output): (&mut Gather, &mut Output),
        list: &mut SendList,
        bounce: &mut Bounce,
    ) -> Result<u64, CloseReason> {
        let mut total_bytes = 0;
        while total_bytes < SEND_TURN_BYTES
            && self.outbox.is_empty()
            && !(list.is_empty() && bounce.is_empty())
        {
            let attachment = self.driven.attachment();
            if let Channel::Secured(records) = &mut self.channel {
                let copied = gather.copy(output, list, attachment);
                copied.inspect_err(|_| *output = Output::default())?;
                self.outbox.put(records.seal(output)?);
                total_bytes += self.send_outbox(output)?;
                continue;
            }
            match gather.send(self.socket.as_fd(), bounce, list, attachment)? {
                Sent::Bytes(bytes) => total_bytes += bytes,
                Sent::Blocked(bytes) => {
                    self.writable = false;
                    return Ok(total_bytes + bytes);
                }
            }
        }
        Ok(total_bytes)
    }

    /// Sends what is encrypted already. Returns the number of bytes, and the memory to `output`.
    fn send_outbox(&mut self, output: &mut Output) -> io::Result<u64> {
        let (sent_bytes, is_blocked) = self.outbox.send(self.socket.as_fd())?;
        self.writable &= !is_blocked;
        if self.outbox.is_empty() {
            output.reuse(self.outbox.take_records());
        }
        Ok(sent_bytes)
    }

    /// Continues closing if the session has ended or the reactor drains.
    fn close_if_done(&mut self, now: Instant) -> Result<(), CloseReason> {
        if self.has_unsent() {
            return Ok(());
        }
        if let Phase::Open = self.phase {
            if self.is_draining && !self.readable && self.driven.may_close() {
                return Err(CloseReason::Stopping);
            }
            if self.driven.is_closing() {
                self.phase = Phase::Ending(CloseReason::SessionEnded);
            }
        }
        if matches!(self.phase, Phase::Ending(_)) && !self.session_wants_transmit() {
            let reason = self.take_reason();
            if let Channel::Secured(records) = &mut self.channel
                && let Ok(farewell) = records.close()
            {
                // A peer that does not take it detects the end all the same.
                self.outbox.messages_mut().extend_from_slice(&farewell);
                let _ = self.outbox.send(self.socket.as_fd());
                self.outbox = Outbox::default();
            }
            if rustix::net::shutdown(&self.socket, Shutdown::Write).is_err() {
                return Err(reason);
            }
            self.phase = Phase::Lingering(reason, now + LINGER);
            self.readable = true;
        }
        Ok(())
    }

    /// Throws away what still comes, so that closing does not make the system drop our last words.
    fn linger(&mut self, scratch: &mut Scratch) -> Result<Turn, CloseReason> {
        if !self.readable {
            return Ok(Turn::Nothing);
        }
        match self.receive_into(&mut scratch.receive) {
            Ok(Some(0)) | Err(_) => Err(self.take_reason()),
            Ok(_) if self.readable => Ok(Turn::Again),
            Ok(_) => Ok(Turn::Nothing),
        }
    }

    fn take_reason(&mut self) -> CloseReason {
        match std::mem::replace(&mut self.phase, Phase::Open) {
            Phase::Ending(reason) | Phase::Lingering(reason, _) => reason,
            Phase::Open => CloseReason::SessionEnded,
        }
    }
}

/// Configures a new socket: no delay, and keep-alives that detect a lost peer.
pub(crate) fn configure(socket: &OwnedFd) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(socket, UNACKNOWLEDGED_MS)?;
    Ok(())
}

/// The silence after which a peer is probed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// The interval between probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// The number of probes.
const KEEPALIVE_PROBES: u32 = 4;
/// A peer that acknowledges nothing for this time counts as lost.
const UNACKNOWLEDGED_MS: u32 = 60_000;
