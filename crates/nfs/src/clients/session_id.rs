//! Session IDs.

use crate::xdr::{Malformed, Reader, Writer};

/// sessionid4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionId {
    client: u64,
    number: u32,
    start: u32,
}

impl SessionId {
    pub(super) const fn new(client: u64, number: u32, start: u32) -> Self {
        Self {
            client,
            number,
            start,
        }
    }

    /// The client that has created it.
    pub(super) const fn client(self) -> u64 {
        self.client
    }

    /// The start of the program that has created it.
    pub(super) const fn start(self) -> u32 {
        self.start
    }

    /// The client's number of it.
    pub(super) const fn number(self) -> u32 {
        self.number
    }

    /// Reads it.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            client: reader.u64()?,
            number: reader.u32()?,
            start: reader.u32()?,
        })
    }

    /// Writes it.
    pub(crate) fn write(self, out: &mut Writer<'_>) {
        out.u64(self.client);
        out.u32(self.number);
        out.u32(self.start);
    }
}
