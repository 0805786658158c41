//! Reactors: a thread per core, sockets, mailboxes.
