//! Reactors: a thread per core, sockets, mailboxes.

mod file_io;

pub use file_io::{
    Caching, FileAccess, FileCompletion, FileEngine, FileError, FileIo, FileIoOptions, FileOp,
};
