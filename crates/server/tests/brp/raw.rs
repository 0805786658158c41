//! A host that sends any bytes, without a session.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use block::{Blocks, Extent, Lba};
use brp::wire::{
    Command, Features, Flags, Kind, Login, LoginReply, LoginStatus, Operation, Short, Status,
    Violation,
};
use zerocopy::{FromBytes, IntoBytes};

use super::{HOST, NQN, PATIENCE};

/// A connection.
pub struct Raw(TcpStream);

/// A login that is granted.
pub fn login() -> Login {
    let mut login = Login::new(HOST, NQN, 1).expect("names");
    login.tags.set(4);
    login.features.set(Features::ANY_ORDER.0);
    login.hold_ms.set(60_000);
    login.transfer_max_bytes.set(1 << 20);
    login
}

/// A command of one block.
pub fn command(operation: Operation, tag: u16, sequence: u32, lba: u64) -> Command {
    let extent = Extent::new(Lba(lba), Blocks(1));
    let mut command = Command::new(operation, Flags::default(), extent);
    command.tag.set(tag);
    command.sequence.set(sequence);
    command
}

impl Raw {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        Self(stream)
    }

    /// A connection that has logged in.
    pub fn logged_in(address: SocketAddr, login: &Login) -> (Self, LoginReply) {
        let mut raw = Self::connect(address);
        raw.send(login.as_bytes());
        let reply = raw.login_reply();
        assert_eq!(reply.status.get(), LoginStatus::Ok as u16);
        (raw, reply)
    }

    /// Whatever the server makes of it: it may have closed the connection.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }

    /// Writes one block with the data inside the command.
    pub fn write(&mut self, tag: u16, sequence: u32, lba: u64, byte: u8) {
        let mut command = command(Operation::Write, tag, sequence, lba);
        command.data_bytes.set(512);
        self.send(command.as_bytes());
        self.send(&[byte; 512]);
    }

    /// Reads one block.
    pub fn read(&mut self, tag: u16, sequence: u32, lba: u64) -> Vec<u8> {
        self.send(command(Operation::Read, tag, sequence, lba).as_bytes());
        let reply = self.short();
        assert_eq!((reply.tag.get(), reply.status()), (tag, 0));
        let mut data = vec![0; reply.data_bytes.get() as usize];
        self.0.read_exact(&mut data).expect("the data");
        data
    }

    pub fn login_reply(&mut self) -> LoginReply {
        let mut bytes = [0; size_of::<LoginReply>()];
        self.0.read_exact(&mut bytes).expect("a reply to the login");
        LoginReply::read_from_bytes(&bytes).expect("its length")
    }

    pub fn short(&mut self) -> Short {
        let mut bytes = [0; size_of::<Short>()];
        self.0.read_exact(&mut bytes).expect("a message");
        Short::read_from_bytes(&bytes).expect("its length")
    }

    pub fn expect_reply(&mut self, tag: u16, status: Status) {
        let reply = self.short();
        let expected = (Kind::Reply as u8, tag, status as u16);
        assert_eq!((reply.kind, reply.tag.get(), reply.status()), expected);
    }

    /// The last message is a FAULT, and the connection is closed.
    pub fn expect_fault(&mut self, violation: Violation) {
        let fault = self.short();
        let expected = (Kind::Fault as u8, violation as u8);
        assert_eq!((fault.kind, fault.code), expected);
        self.expect_closed();
    }

    pub fn expect_closed(&mut self) {
        let read = self.0.read(&mut [0; 1]);
        assert!(matches!(read, Ok(0) | Err(_)), "nothing more comes");
    }

    /// Whether nothing comes for this long.
    pub fn is_silent(&mut self, time: Duration) -> bool {
        self.0.set_read_timeout(Some(time)).expect("set");
        let read = self.0.peek(&mut [0; 1]);
        self.0.set_read_timeout(Some(PATIENCE)).expect("set");
        read.is_err()
    }
}
