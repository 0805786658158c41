//! Record marking: fragments of a stream, and which bytes end a record.
//!
//! Read first: RFC 5531 section 11.
//!
//! ```text
//!           4 bytes, longer than 0             last byte, not the last fragment
//!  Marking ───────────────────────► Fragment ──────────────────────────────────► Marking
//!    └── last fragment of 0 bytes ──► end ◄──── last byte, last fragment ────────────┘
//! ```

use crate::SessionError;

/// Cuts a stream into fragments of records, in any chunking. It keeps no bytes except those of a
/// fragment's header.
#[derive(Debug, Default)]
pub(crate) struct RecordReader {
    header: [u8; 4],
    header_len: usize,
    /// Bytes of the present fragment that have not arrived.
    left: usize,
    is_last: bool,
    /// Bytes of the record's fragments so far, the present one included.
    record_len: usize,
}

/// What the next bytes of the input are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment<'a> {
    /// Bytes of the record.
    pub(crate) bytes: &'a [u8],
    /// How many follow in the same fragment.
    pub(crate) left: usize,
    /// Whether the fragment is the record's last. With nothing left the record ends here.
    pub(crate) is_last: bool,
}

impl Fragment<'_> {
    /// Whether the record ends with these bytes.
    pub(crate) const fn ends_record(&self) -> bool {
        self.is_last && self.left == 0
    }
}

/// The bit of a fragment's header that marks the last one of a record.
const LAST: u32 = 1 << 31;

impl RecordReader {
    /// Takes what belongs together from the front of the input. `None` if the input is used up
    /// before that.
    pub(crate) fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        max_bytes: usize,
    ) -> Result<Option<Fragment<'a>>, SessionError> {
        while self.left == 0 {
            let missing = &mut self.header[self.header_len..];
            let take = missing.len().min(input.len());
            missing[..take].copy_from_slice(&input[..take]);
            *input = &input[take..];
            self.header_len += take;
            if self.header_len < self.header.len() {
                return Ok(None);
            }
            self.begin_fragment(max_bytes)?;
            if self.left == 0 && self.is_last {
                self.record_len = 0;
                return Ok(Some(Fragment {
                    bytes: &[],
                    left: 0,
                    is_last: true,
                }));
            }
        }
        if input.is_empty() {
            return Ok(None);
        }
        let (bytes, rest) = input.split_at(self.left.min(input.len()));
        *input = rest;
        self.left -= bytes.len();
        let fragment = Fragment {
            bytes,
            left: self.left,
            is_last: self.is_last,
        };
        if fragment.ends_record() {
            self.record_len = 0;
        }
        Ok(Some(fragment))
    }

    fn begin_fragment(&mut self, max_bytes: usize) -> Result<(), SessionError> {
        let header = u32::from_be_bytes(self.header);
        self.header_len = 0;
        self.is_last = header & LAST != 0;
        self.left = (header & !LAST) as usize;
        self.record_len += self.left;
        if self.record_len > max_bytes {
            return Err(SessionError::RecordTooLong {
                len_bytes: self.record_len as u64,
                max_bytes: max_bytes as u64,
            });
        }
        Ok(())
    }
}

/// The header of a record that is one fragment. Panics for records of 2 GiB, which no bound allows.
pub(crate) fn record_mark(len_bytes: usize) -> [u8; 4] {
    let len = u32::try_from(len_bytes).expect("replies are bounded");
    assert!(len & LAST == 0, "replies are bounded");
    (len | LAST).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All records of a stream that arrives in these pieces.
    fn records(pieces: &[&[u8]], max_bytes: usize) -> Result<Vec<Vec<u8>>, SessionError> {
        let (mut reader, mut records, mut record) =
            (RecordReader::default(), Vec::new(), Vec::new());
        for mut piece in pieces.iter().copied() {
            while let Some(fragment) = reader.next(&mut piece, max_bytes)? {
                record.extend_from_slice(fragment.bytes);
                if fragment.ends_record() {
                    records.push(std::mem::take(&mut record));
                }
            }
            assert!(piece.is_empty());
        }
        Ok(records)
    }

    #[test]
    fn a_record_is_its_fragments() {
        let stream = [
            0, 0, 0, 2, 1, 2, 0, 0, 0, 0, 0x80, 0, 0, 1, 3, 0x80, 0, 0, 0, 0x80, 0, 0, 1, 4,
        ];
        assert_eq!(
            records(&[&stream], 3),
            Ok(vec![vec![1, 2, 3], vec![], vec![4]])
        );
        assert_eq!(record_mark(5), [0x80, 0, 0, 5]);
    }

    #[test]
    fn a_record_longer_than_the_longest_is_an_error() {
        let too_long = SessionError::RecordTooLong {
            len_bytes: 3,
            max_bytes: 2,
        };
        assert_eq!(
            records(&[&[0, 0, 0, 2, 1, 2, 0x80, 0, 0, 1]], 2),
            Err(too_long)
        );
        assert!(records(&[&[0xff; 4]], 1 << 20).is_err());
    }

    proptest! {
        #[test]
        fn chunking_does_not_matter(
            fragments in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..20), any::<bool>()), 0..20),
            cuts in prop::collection::vec(1_usize..9, 1..9),
        ) {
            let (mut stream, mut expected, mut record) = (Vec::new(), Vec::new(), Vec::new());
            for (bytes, is_last) in &fragments {
                let mark = bytes.len() as u32 | if *is_last { LAST } else { 0 };
                stream.extend(mark.to_be_bytes());
                stream.extend(bytes);
                record.extend(bytes);
                if *is_last {
                    expected.push(std::mem::take(&mut record));
                }
            }
            let mut pieces = Vec::new();
            let (mut rest, mut lengths) = (&stream[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.len().min(*lengths.next().expect("endless")));
                pieces.push(piece);
                rest = behind;
            }
            prop_assert_eq!(records(&pieces, 1 << 20), Ok(expected));
        }
    }
}
