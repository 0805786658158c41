//! How PDUs lie in a send list over TCP: headers, data segments, padding and digests. Both ends use
//! it.
//!
//! Read first: RFC 7143 §11.2 (PDU template), §13.1 (digests).

use session::SendList;

use crate::params::Digest;
use crate::wire::{BHS_LEN, DIGEST_LEN};

/// Room that a PDU needs beside its data: header, both digests, padding.
pub(crate) const OVERHEAD_MAX: usize = BHS_LEN + 2 * DIGEST_LEN + 3;

/// Bytes of a digest.
pub(crate) fn digest_len(digest: Digest) -> usize {
    match digest {
        Digest::None => 0,
        Digest::Crc32c => DIGEST_LEN,
    }
}

/// Appends a header and its digest. The caller has checked for room.
pub(crate) fn push_header(header: &[u8], digest: Digest, out: &mut SendList) {
    let pushed = out.push(header);
    assert!(pushed, "room for the header was checked");
    if digest == Digest::Crc32c {
        let pushed = out.push(&crc32c::crc32c(header).to_le_bytes());
        assert!(pushed, "room for the digest was checked");
    }
}

/// Appends a data segment, padding and digest. The caller has checked for room.
pub(crate) fn push_segment(segment: &[u8], digest: Digest, out: &mut SendList) {
    if segment.is_empty() {
        return;
    }
    let pushed = out.push(segment);
    assert!(pushed, "room for the segment was checked");
    push_end_of_segment(segment, digest, out);
}

/// Appends what follows a data segment that is in the list: padding and digest. The caller has
/// checked for room.
pub(crate) fn push_end_of_segment(segment: &[u8], digest: Digest, out: &mut SendList) {
    if digest == Digest::Crc32c {
        push_padding_and_digest(segment.len(), crc32c::crc32c(segment), out);
    } else {
        push_padding(segment.len(), out);
    }
}

/// Appends the padding of a data segment of `len` bytes.
pub(crate) fn push_padding(len: usize, out: &mut SendList) {
    let padding = len.next_multiple_of(4) - len;
    if padding > 0 {
        let pushed = out.push(&[0; 3][..padding]);
        assert!(pushed, "room for padding was checked");
    }
}

/// Appends padding, and the digest over the data (whose own CRC is `crc`) and the padding.
pub(crate) fn push_padding_and_digest(len: usize, crc: u32, out: &mut SendList) {
    let padding = len.next_multiple_of(4) - len;
    push_padding(len, out);
    let crc = crc32c::crc32c_append(crc, &[0; 3][..padding]);
    let pushed = out.push(&crc.to_le_bytes());
    assert!(pushed, "room for the digest was checked");
}
