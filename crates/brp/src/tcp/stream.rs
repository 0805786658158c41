//! From bytes to messages, in any chunking.

use zerocopy::FromBytes;

use crate::wire::{Kind, Violation};

/// The message that is arriving: its header as far as it was put together.
#[derive(Debug)]
pub(super) struct Header {
    bytes: [u8; Kind::HEADER_BYTES_MAX],
    len: usize,
}

/// What was taken off the input.
#[expect(
    clippy::large_enum_variant,
    reason = "it is returned by value, and split headers are rare"
)]
pub(super) enum Taken<'a> {
    /// A part of a header.
    Cut,
    /// A whole header.
    InPlace(Kind, &'a [u8]),
    /// A header that was split; bytes behind it are of no meaning.
    Joined(Kind, [u8; Kind::HEADER_BYTES_MAX]),
}

impl Default for Header {
    fn default() -> Self {
        Self {
            bytes: [0; Kind::HEADER_BYTES_MAX],
            len: 0,
        }
    }
}

impl Header {
    /// Takes the next header off `input`, which is not empty. A header that is complete in the
    /// input stays there; a header that is split is put together first.
    pub(super) fn take<'a>(
        &mut self,
        input: &mut &'a [u8],
        is_allowed: impl FnOnce(Kind) -> bool,
    ) -> Result<Taken<'a>, Violation> {
        let first = if self.len > 0 {
            self.bytes[0]
        } else {
            input[0]
        };
        let kind = Kind::from_byte(first).filter(|&kind| is_allowed(kind));
        let kind = kind.ok_or(Violation::Kind)?;
        let len = kind.header_bytes();
        if self.len == 0
            && let Some((header, rest)) = input.split_at_checked(len)
        {
            *input = rest;
            return Ok(Taken::InPlace(kind, header));
        }
        let now = take(input, len - self.len);
        self.bytes[self.len..self.len + now.len()].copy_from_slice(now);
        self.len += now.len();
        if self.len < len {
            return Ok(Taken::Cut);
        }
        self.len = 0;
        Ok(Taken::Joined(kind, self.bytes))
    }

    /// Whether a header has begun that is not whole.
    pub(super) fn is_cut(&self) -> bool {
        self.len > 0
    }
}

/// A header whose kind was found, as its structure.
pub(super) fn parse<T: FromBytes>(header: &[u8]) -> T {
    T::read_from_bytes(header)
        .unwrap_or_else(|_| unreachable!("the kind fixes the header's length"))
}

/// Takes up to `len` bytes off the front.
pub(super) fn take<'a>(input: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(len.min(input.len()));
    *input = rest;
    taken
}
