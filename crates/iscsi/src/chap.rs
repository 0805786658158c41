//! CHAP: one side proves to the other that it knows a secret.
//!
//! Read first: RFC 7143 §12.1.3; RFC 1994 §4.1. The response is a hash of identifier, secret and
//! challenge.

use zeroize::Zeroizing;

use crate::text::{encode_hex, parse_binary, parse_number};

/// Bytes of the challenges that the target sends.
pub const CHALLENGE_LEN: usize = 16;
/// The longest challenge that is answered (RFC 7143 §12.1.3: 1024 bytes).
const CHALLENGE_LEN_MAX: usize = 1024;

/// CHAP_A: the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// MD5, number 5.
    Md5,
    /// SHA-1, number 6.
    Sha1,
    /// SHA-256, number 7.
    Sha256,
    /// SHA3-256, number 8.
    Sha3,
}

impl Algorithm {
    /// Strongest first.
    const ALL: [(u32, Self); 4] = [
        (8, Self::Sha3),
        (7, Self::Sha256),
        (6, Self::Sha1),
        (5, Self::Md5),
    ];

    /// The first of an offered list (`CHAP_A=7,5`) that is known: the initiator orders by
    /// preference.
    pub fn choose(offer: &str) -> Option<Self> {
        offer.split(',').find_map(|number| {
            let number = parse_number(number)?;
            Self::ALL
                .iter()
                .find(|(known, _)| *known == number)
                .map(|(_, algorithm)| *algorithm)
        })
    }

    /// CHAP_A as an initiator offers it. SHA-256 is last, since tgt mistakes its number for that of
    /// SHA-1 and would compute a wrong response; targets that know SHA-256 know SHA3-256 too.
    pub const OFFER: &str = "8,6,5,7";

    /// The number in CHAP_A.
    pub fn number(self) -> u32 {
        let found = Self::ALL.iter().find(|(_, algorithm)| *algorithm == self);
        found.expect("every algorithm is in the table").0
    }

    fn response(self, identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        fn hash<D: sha1::Digest>(parts: [&[u8]; 3]) -> Vec<u8> {
            let mut hasher = D::new();
            for part in parts {
                hasher.update(part);
            }
            hasher.finalize().to_vec()
        }
        let parts = [&[identifier][..], secret, challenge];
        match self {
            Self::Md5 => hash::<md5::Md5>(parts),
            Self::Sha1 => hash::<sha1::Sha1>(parts),
            Self::Sha256 => hash::<sha2::Sha256>(parts),
            Self::Sha3 => hash::<sha3::Sha3_256>(parts),
        }
    }
}

/// A user name and its secret. Never printed; the secret is erased from memory when it drops.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// CHAP_N.
    pub name: String,
    /// The secret.
    pub secret: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The target's challenge to an initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    algorithm: Algorithm,
    identifier: u8,
    bytes: [u8; CHALLENGE_LEN],
}

/// Why the verification of an initiator fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChapError {
    /// A key is missing or malformed.
    #[error("a CHAP key is missing or malformed")]
    Malformed,
    /// Name or response is wrong.
    #[error("the CHAP name or response is wrong")]
    Wrong,
    /// The initiator sent our own challenge back.
    #[error("the initiator reflects the target's challenge")]
    Reflected,
}

impl Challenge {
    /// A challenge of random `bytes` and `identifier`, which the caller draws.
    pub fn new(algorithm: Algorithm, identifier: u8, bytes: [u8; CHALLENGE_LEN]) -> Self {
        Self {
            algorithm,
            identifier,
            bytes,
        }
    }

    /// CHAP_I.
    pub fn identifier(&self) -> String {
        self.identifier.to_string()
    }

    /// CHAP_C.
    pub fn challenge(&self) -> String {
        encode_hex(&self.bytes)
    }

    /// Whether `name` and `response` (CHAP_N, CHAP_R) prove `expected`.
    pub fn verify(
        &self,
        name: &str,
        response: &str,
        expected: &Credentials,
    ) -> Result<(), ChapError> {
        let want = self
            .algorithm
            .response(self.identifier, &expected.secret, &self.bytes);
        let have = parse_binary(response, want.len()).ok_or(ChapError::Malformed)?;
        let same_name = equal(name.as_bytes(), expected.name.as_bytes());
        if equal(&have, &want) & same_name {
            Ok(())
        } else {
            Err(ChapError::Wrong)
        }
    }

    /// Answers an initiator's challenge (CHAP_I, CHAP_C) with the target's own secret: CHAP_R.
    pub fn answer(
        &self,
        identifier: &str,
        challenge: &str,
        own: &Credentials,
    ) -> Result<String, ChapError> {
        let identifier = parse_number(identifier).and_then(|number| u8::try_from(number).ok());
        let identifier = identifier.ok_or(ChapError::Malformed)?;
        let bytes = parse_binary(challenge, CHALLENGE_LEN_MAX).filter(|bytes| !bytes.is_empty());
        let bytes = bytes.ok_or(ChapError::Malformed)?;
        if bytes == self.bytes {
            return Err(ChapError::Reflected);
        }
        Ok(encode_hex(&self.algorithm.response(
            identifier,
            &own.secret,
            &bytes,
        )))
    }
}

/// Compares in constant time, so that the time does not reveal where the difference is.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alice() -> Credentials {
        Credentials {
            name: "alice".into(),
            secret: b"open sesame!".to_vec().into(),
        }
    }

    #[test]
    fn the_right_response_is_believed_and_any_other_is_not() {
        for (_, algorithm) in Algorithm::ALL {
            let challenge = Challenge::new(algorithm, 7, [0x42; CHALLENGE_LEN]);
            let right = encode_hex(&algorithm.response(7, b"open sesame!", &[0x42; CHALLENGE_LEN]));
            let wrong = encode_hex(&algorithm.response(8, b"open sesame!", &[0x42; CHALLENGE_LEN]));
            assert_eq!(challenge.verify("alice", &right, &alice()), Ok(()));
            assert_eq!(
                challenge.verify("bob", &right, &alice()),
                Err(ChapError::Wrong)
            );
            assert_eq!(
                challenge.verify("alice", &wrong, &alice()),
                Err(ChapError::Wrong)
            );
            assert_eq!(
                challenge.verify("alice", "0xzz", &alice()),
                Err(ChapError::Malformed)
            );
        }
    }

    #[test]
    fn an_md5_response_is_that_of_other_implementations() {
        // md5(01h "secret" 0102030405h), as computed by
        // `printf '\x01secret\x01\x02\x03\x04\x05' | md5sum`.
        let response = Algorithm::Md5.response(1, b"secret", &[1, 2, 3, 4, 5]);
        assert_eq!(encode_hex(&response), MD5_VECTOR);
    }

    const MD5_VECTOR: &str = "0xad554409dd428bd604dbd0241164a508";

    #[test]
    fn our_own_challenge_is_not_answered() {
        let challenge = Challenge::new(Algorithm::Md5, 1, [9; CHALLENGE_LEN]);
        let reflected = challenge.answer("1", &encode_hex(&[9; CHALLENGE_LEN]), &alice());
        assert_eq!(reflected, Err(ChapError::Reflected));
        assert!(challenge.answer("1", "0x0102", &alice()).is_ok());
        assert_eq!(
            challenge.answer("256", "0x01", &alice()),
            Err(ChapError::Malformed)
        );
    }

    #[test]
    fn the_initiators_order_of_algorithms_decides() {
        assert_eq!(Algorithm::choose("7,5"), Some(Algorithm::Sha256));
        assert_eq!(Algorithm::choose("5,7"), Some(Algorithm::Md5));
        assert_eq!(Algorithm::choose("99,0x8"), Some(Algorithm::Sha3));
        assert_eq!(Algorithm::choose("99"), None);
    }

    #[test]
    fn an_initiator_offers_every_algorithm_once() {
        let mut offered: Vec<u32> = Algorithm::OFFER
            .split(',')
            .filter_map(parse_number)
            .collect();
        offered.sort_unstable();
        let mut known = Algorithm::ALL.map(|(number, _)| number);
        known.sort_unstable();
        assert_eq!(offered, known);
    }

    #[test]
    fn secrets_are_not_printed() {
        assert!(!format!("{:?}", alice()).contains("sesame"));
    }
}
