//! A bare client of NFS version 3 and MOUNT version 3, which can send any bytes.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

pub const NFS: u32 = 100_003;
pub const MOUNT: u32 = 100_005;

// Procedures of NFS.
pub const NULL: u32 = 0;
pub const GETATTR: u32 = 1;
pub const LOOKUP: u32 = 3;
pub const READ: u32 = 6;
pub const WRITE: u32 = 7;
pub const CREATE: u32 = 8;
pub const REMOVE: u32 = 12;
pub const COMMIT: u32 = 21;
// Procedures of MOUNT.
pub const MNT: u32 = 1;
pub const DUMP: u32 = 2;
pub const UMNTALL: u32 = 4;
pub const EXPORT: u32 = 5;

// Status codes of both.
pub const OK: u32 = 0;
pub const NOENT: u32 = 2;
pub const ACCES: u32 = 13;
pub const NOTDIR: u32 = 20;
pub const INVAL: u32 = 22;
pub const ROFS: u32 = 30;
pub const STALE: u32 = 70;
/// NFS3ERR_JUKEBOX.
pub const TRY_LATER: u32 = 10_008;

/// A connection.
pub struct Client {
    pub stream: TcpStream,
    pub xid: u32,
    /// The user who calls.
    pub uid: u32,
}

/// Arguments of a call, in XDR.
#[derive(Default)]
pub struct Arguments(Vec<u8>);

/// The result of a call, in XDR.
pub struct Results {
    bytes: Vec<u8>,
    at: usize,
}

impl Arguments {
    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn opaque(mut self, bytes: &[u8]) -> Self {
        self = self.u32(bytes.len() as u32);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}

impl Results {
    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().expect("4 bytes"))
    }

    pub fn opaque(&mut self) -> Vec<u8> {
        let len = self.u32() as usize;
        self.take(len.next_multiple_of(4))[..len].to_vec()
    }

    /// post_op_attr.
    pub fn attributes(&mut self) {
        if self.u32() == 1 {
            self.take(84);
        }
    }

    /// wcc_data.
    pub fn change(&mut self) {
        if self.u32() == 1 {
            self.take(24);
        }
        self.attributes();
    }

    fn take(&mut self, len: usize) -> &[u8] {
        let bytes = &self.bytes[self.at..self.at + len];
        self.at += len;
        bytes
    }
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self::of(TcpStream::connect(address).expect("the portal listens"))
    }

    pub fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        Self {
            stream,
            xid: 0x1000,
            uid: 0,
        }
    }

    /// The bytes of a call.
    pub fn encode(&mut self, program: u32, procedure: u32, arguments: &Arguments) -> Vec<u8> {
        self.xid += 1;
        let credential = Arguments::default()
            .u32(0)
            .opaque(b"test")
            .u32(self.uid)
            .u32(self.uid)
            .u32(0);
        let call = Arguments::default()
            .u32(self.xid)
            .u32(0) // CALL
            .u32(2)
            .u32(program)
            .u32(3)
            .u32(procedure)
            .u32(1) // AUTH_SYS
            .opaque(&credential.0)
            .u32(0) // AUTH_NONE
            .u32(0);
        let len = (call.0.len() + arguments.0.len()) as u32;
        let mut bytes = (len | 1 << 31).to_be_bytes().to_vec();
        bytes.extend(&call.0);
        bytes.extend(&arguments.0);
        bytes
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The results of the call that was sent last.
    pub fn receive(&mut self) -> io::Result<Results> {
        let mut bytes = Vec::new();
        loop {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark)?;
            let mark = u32::from_be_bytes(mark);
            let at = bytes.len();
            bytes.resize(at + (mark & !(1 << 31)) as usize, 0);
            self.stream.read_exact(&mut bytes[at..])?;
            if mark >> 31 == 1 {
                break;
            }
        }
        let mut results = Results { bytes, at: 0 };
        assert_eq!(results.u32(), self.xid, "xid");
        assert_eq!(results.u32(), 1, "REPLY");
        assert_eq!(results.u32(), 0, "MSG_ACCEPTED");
        results.u32();
        results.opaque();
        assert_eq!(results.u32(), 0, "SUCCESS");
        Ok(results)
    }

    pub fn try_call(
        &mut self,
        program: u32,
        procedure: u32,
        arguments: &Arguments,
    ) -> io::Result<Results> {
        let bytes = self.encode(program, procedure, arguments);
        self.send(&bytes)?;
        self.receive()
    }

    pub fn call(&mut self, program: u32, procedure: u32, arguments: &Arguments) -> Results {
        let results = self.try_call(program, procedure, arguments);
        results.expect("the connection is there")
    }

    /// The root handle of a share, or why it cannot be mounted.
    pub fn mount(&mut self, path: &str) -> Result<Vec<u8>, u32> {
        let arguments = Arguments::default().opaque(path.as_bytes());
        let mut results = self.call(MOUNT, MNT, &arguments);
        match results.u32() {
            OK => Ok(results.opaque()),
            status => Err(status),
        }
    }

    /// The exported paths, each with its clients.
    pub fn exports(&mut self) -> Vec<(String, Vec<String>)> {
        let mut results = self.call(MOUNT, EXPORT, &Arguments::default());
        let text = |results: &mut Results| String::from_utf8(results.opaque()).expect("UTF-8");
        let mut exports = Vec::new();
        while results.u32() == 1 {
            let path = text(&mut results);
            let mut clients = Vec::new();
            while results.u32() == 1 {
                clients.push(text(&mut results));
            }
            exports.push((path, clients));
        }
        exports
    }

    /// The mounts that the server remembers: client and path.
    pub fn mounts(&mut self) -> Vec<(String, String)> {
        let mut results = self.call(MOUNT, DUMP, &Arguments::default());
        let text = |results: &mut Results| String::from_utf8(results.opaque()).expect("UTF-8");
        let mut mounts = Vec::new();
        while results.u32() == 1 {
            mounts.push((text(&mut results), text(&mut results)));
        }
        mounts
    }

    /// The status of a call that begins with a handle.
    pub fn status(&mut self, procedure: u32, arguments: &Arguments) -> u32 {
        self.call(NFS, procedure, arguments).u32()
    }

    pub fn getattr(&mut self, handle: &[u8]) -> u32 {
        self.status(GETATTR, &Arguments::default().opaque(handle))
    }

    pub fn create(&mut self, directory: &[u8], name: &str) -> Result<Vec<u8>, u32> {
        let mut results = self.call(NFS, CREATE, &create(directory, name));
        match results.u32() {
            OK => {
                assert_eq!(results.u32(), 1, "a handle follows");
                Ok(results.opaque())
            }
            status => Err(status),
        }
    }

    pub fn lookup(&mut self, directory: &[u8], name: &str) -> Result<Vec<u8>, u32> {
        let arguments = Arguments::default()
            .opaque(directory)
            .opaque(name.as_bytes());
        let mut results = self.call(NFS, LOOKUP, &arguments);
        match results.u32() {
            OK => Ok(results.opaque()),
            status => Err(status),
        }
    }

    /// Writes all of `data`, to be stable at once. Returns the write verifier. A call of which only
    /// a part was written is followed by another one.
    pub fn write(&mut self, file: &[u8], offset: u64, data: &[u8]) -> Result<Vec<u8>, u32> {
        let len = data.len() as u32;
        let arguments = Arguments::default()
            .opaque(file)
            .u64(offset)
            .u32(len)
            .u32(2) // FILE_SYNC
            .opaque(data);
        let mut results = self.call(NFS, WRITE, &arguments);
        match results.u32() {
            OK => {
                results.change();
                let written = results.u32();
                assert!((1..=len).contains(&written), "{written} of {len} bytes");
                if written < len {
                    let rest = &data[written as usize..];
                    return self.write(file, offset + u64::from(written), rest);
                }
                results.u32();
                Ok(results.take(8).to_vec())
            }
            status => Err(status),
        }
    }

    pub fn read(&mut self, file: &[u8], offset: u64, len: u32) -> Result<Vec<u8>, u32> {
        let mut results = self.call(NFS, READ, &read(file, offset, len));
        match results.u32() {
            OK => {
                results.attributes();
                results.u32();
                results.u32();
                Ok(results.opaque())
            }
            status => Err(status),
        }
    }
}

/// Arguments of READ.
pub fn read(file: &[u8], offset: u64, len: u32) -> Arguments {
    Arguments::default().opaque(file).u64(offset).u32(len)
}

/// Arguments of an unguarded CREATE of a file that everyone may use.
pub fn create(directory: &[u8], name: &str) -> Arguments {
    let mode = 0o666;
    let unset = [0; 5];
    let arguments = Arguments::default()
        .opaque(directory)
        .opaque(name.as_bytes())
        .u32(0) // UNCHECKED
        .u32(1)
        .u32(mode);
    unset.into_iter().fold(arguments, Arguments::u32)
}

/// Arguments of REMOVE.
pub fn remove(directory: &[u8], name: &str) -> Arguments {
    Arguments::default()
        .opaque(directory)
        .opaque(name.as_bytes())
}
