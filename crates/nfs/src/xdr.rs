//! XDR: external data representation, reading and writing.
//!
//! Read first: RFC 4506 sections 3 and 4.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes are not what the specification describes: too few, too many, or a value out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Reads data from the front of a slice. Every length is checked against what is left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

/// The unit of XDR in bytes: everything is padded to a multiple of it.
pub(crate) const UNIT_BYTES: usize = 4;

/// How many bytes follow `len_bytes` bytes of opaque data.
pub(crate) const fn padding(len_bytes: usize) -> usize {
    len_bytes.wrapping_neg() % UNIT_BYTES
}

impl<'a> Reader<'a> {
    /// Reads from `bytes`.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What was not read yet.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// A structure of fixed size.
    pub(crate) fn view<T>(&mut self) -> Result<&'a T, Malformed>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let (view, rest) = T::ref_from_prefix(self.rest).map_err(|_| Malformed)?;
        self.rest = rest;
        Ok(view)
    }

    /// An unsigned integer (section 4.2).
    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*bytes))
    }

    /// An unsigned hyper integer (section 4.5).
    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(u64::from_be_bytes(*bytes))
    }

    /// A boolean: 0 or 1 (section 4.4).
    pub(crate) fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    /// Fixed-length opaque data whose length needs no padding (section 4.9).
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        const { assert!(padding(N) == 0) };
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// Variable-length opaque data or a string of at most `max_bytes` bytes (sections 4.10 and
    /// 4.11). The padding's value is not checked, since some clients do not clear it.
    pub(crate) fn opaque(&mut self, max_bytes: usize) -> Result<&'a [u8], Malformed> {
        let len = self.u32()? as usize;
        if len > max_bytes {
            return Err(Malformed);
        }
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(Malformed)?;
        self.rest = rest.get(padding(len)..).ok_or(Malformed)?;
        Ok(bytes)
    }

    /// Checks that everything was read.
    pub(crate) fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed)
        }
    }
}

/// Appends data to a buffer, which the caller has bounded.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Appends to `bytes`.
    pub(crate) const fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes }
    }

    /// How long the buffer is.
    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes back what was written behind `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// A structure of fixed size.
    pub(crate) fn view<T: IntoBytes + Immutable>(&mut self, view: &T) {
        self.bytes.extend_from_slice(view.as_bytes());
    }

    /// An unsigned integer, an enumeration or a boolean.
    pub(crate) fn u32(&mut self, value: u32) {
        self.view(&value.to_be_bytes());
    }

    /// An unsigned hyper integer.
    pub(crate) fn u64(&mut self, value: u64) {
        self.view(&value.to_be_bytes());
    }

    /// A boolean, or whether an optional follows.
    pub(crate) fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// Variable-length opaque data or a string. Panics if it has 4 GiB, which no caller's bound
    /// allows.
    pub(crate) fn opaque(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).expect("callers bound it"));
        self.bytes.extend_from_slice(bytes);
        self.zeros(padding(bytes.len()));
    }

    /// Bytes that are XDR already.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// `len` bytes of zeros.
    pub(crate) fn zeros(&mut self, len: usize) {
        self.bytes.resize(self.bytes.len() + len, 0);
    }

    /// What was written from `at` on.
    pub(crate) fn tail(&self, at: usize) -> &[u8] {
        &self.bytes[at..]
    }

    /// The same, to be overwritten.
    pub(crate) fn tail_mut(&mut self, at: usize) -> &mut [u8] {
        &mut self.bytes[at..]
    }

    /// Overwrites what was written at `at`.
    pub(crate) fn patch<T: IntoBytes + Immutable>(&mut self, at: usize, view: &T) {
        let bytes = view.as_bytes();
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_are_written_and_read_as_rfc_4506_lays_them_out() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.u32(0x0102_0304);
        writer.u64(0x0506_0708_090a_0b0c);
        writer.bool(true);
        // The example of section 7: the name of the file "sillyprog".
        writer.opaque(b"sillyprog");
        let golden = [
            0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x00, 0x00,
            0x00, 0x01, 0x00, 0x00, 0x00, 0x09, 0x73, 0x69, 0x6c, 0x6c, 0x79, 0x70, 0x72, 0x6f,
            0x67, 0x00, 0x00, 0x00,
        ];
        assert_eq!(bytes, golden);
        let mut reader = Reader::new(&golden);
        assert_eq!(reader.u32(), Ok(0x0102_0304));
        assert_eq!(reader.u64(), Ok(0x0506_0708_090a_0b0c));
        assert_eq!(reader.bool(), Ok(true));
        assert_eq!(reader.opaque(9), Ok(&b"sillyprog"[..]));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn invalid_data_are_malformed() {
        assert_eq!(Reader::new(&[0, 0, 0]).u32(), Err(Malformed));
        assert_eq!(Reader::new(&[0; 7]).u64(), Err(Malformed));
        assert_eq!(Reader::new(&[0, 0, 0, 2]).bool(), Err(Malformed));
        assert_eq!(Reader::new(&[0; 4]).array::<8>(), Err(Malformed));
        // Longer than allowed, than what is left, and without its padding.
        assert_eq!(
            Reader::new(&[0, 0, 0, 2, 1, 2, 0, 0]).opaque(1),
            Err(Malformed)
        );
        assert_eq!(
            Reader::new(&[0, 0, 0, 5, 1, 2, 3, 4]).opaque(9),
            Err(Malformed)
        );
        assert_eq!(
            Reader::new(&[0, 0, 0, 2, 1, 2, 0]).opaque(9),
            Err(Malformed)
        );
        assert_eq!(Reader::new(&[0xff; 8]).opaque(usize::MAX), Err(Malformed));
        assert_eq!(Reader::new(&[0]).finish(), Err(Malformed));
    }
}
