//! Header and data digests: CRC32C, sent little-endian.

/// The length of a digest on the wire.
pub const DIGEST_LEN_BYTES: usize = 4;

/// A CRC32C over bytes that are added in pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(u32);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(crc32c::crc32c(bytes))
    }

    /// Adds the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    /// The digest as it is sent.
    pub const fn to_wire(self) -> [u8; DIGEST_LEN_BYTES] {
        self.0.to_le_bytes()
    }

    /// The digest in received bytes.
    pub const fn from_wire(bytes: [u8; DIGEST_LEN_BYTES]) -> Self {
        Self(u32::from_le_bytes(bytes))
    }

    /// The digest as a number, as fatal error information carries it.
    pub const fn get(self) -> u32 {
        self.0
    }
}
