//! The Diffie-Hellman groups of DH-HMAC-CHAP and the powers of the key exchange.
//!
//! Read first: RFC 7919.

mod primes;

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use zeroize::{Zeroize as _, Zeroizing};

/// The longest exponent in bytes.
pub(super) const EXPONENT_MAX_BYTES: usize = 64;

/// A Diffie-Hellman group. All have generator 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DhGroup {
    /// ffdhe2048.
    Ffdhe2048,
    /// ffdhe3072.
    Ffdhe3072,
    /// ffdhe4096.
    Ffdhe4096,
    /// ffdhe6144.
    Ffdhe6144,
    /// ffdhe8192.
    Ffdhe8192,
}

impl DhGroup {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Ffdhe2048,
        Self::Ffdhe3072,
        Self::Ffdhe4096,
        Self::Ffdhe6144,
        Self::Ffdhe8192,
    ];

    /// DHgID of no group.
    pub const NONE_ID: u8 = 0;
    /// How the absence of a group is named.
    pub const NONE_NAME: &'static str = "none";

    /// Its identifier (DHgID).
    pub const fn id(self) -> u8 {
        match self {
            Self::Ffdhe2048 => 1,
            Self::Ffdhe3072 => 2,
            Self::Ffdhe4096 => 3,
            Self::Ffdhe6144 => 4,
            Self::Ffdhe8192 => 5,
        }
    }

    /// The group with this identifier.
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.id() == id)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ffdhe2048 => "ffdhe2048",
            Self::Ffdhe3072 => "ffdhe3072",
            Self::Ffdhe4096 => "ffdhe4096",
            Self::Ffdhe6144 => "ffdhe6144",
            Self::Ffdhe8192 => "ffdhe8192",
        }
    }

    /// The length of a value in bytes.
    pub const fn value_bytes(self) -> usize {
        (self.bits() / 8) as usize
    }

    const fn bits(self) -> u32 {
        match self {
            Self::Ffdhe2048 => 2048,
            Self::Ffdhe3072 => 3072,
            Self::Ffdhe4096 => 4096,
            Self::Ffdhe6144 => 6144,
            Self::Ffdhe8192 => 8192,
        }
    }

    /// The length of exponents in bits: more than RFC 7919 §5.2 requires (225 to 400), and far less
    /// than the group has, since the time of a power is proportional to it.
    const fn exponent_bits(self) -> u32 {
        match self {
            Self::Ffdhe2048 => 256,
            Self::Ffdhe3072 => 320,
            Self::Ffdhe4096 => 384,
            Self::Ffdhe6144 => 448,
            Self::Ffdhe8192 => 512,
        }
    }

    fn params(self) -> &'static BoxedMontyParams {
        static PARAMS: [OnceLock<BoxedMontyParams>; 5] = [const { OnceLock::new() }; 5];
        PARAMS[self as usize].get_or_init(|| {
            let digits = match self {
                Self::Ffdhe2048 => primes::FFDHE2048,
                Self::Ffdhe3072 => primes::FFDHE3072,
                Self::Ffdhe4096 => primes::FFDHE4096,
                Self::Ffdhe6144 => primes::FFDHE6144,
                Self::Ffdhe8192 => primes::FFDHE8192,
            };
            let prime = BoxedUint::from_be_hex(digits, self.bits()).expect("hexadecimal digits");
            BoxedMontyParams::new(Odd::new(prime).expect("a prime is odd"))
        })
    }

    /// The peer's value, if it is one: of the length of the group, and from 2 to the prime less 2
    /// (RFC 7919 §5.1).
    pub(super) fn check_value(self, value: &[u8]) -> Option<Vec<u8>> {
        if value.len() != self.value_bytes() {
            return None;
        }
        let number = BoxedUint::from_be_slice(value, self.bits()).ok()?;
        let one = BoxedUint::one_with_precision(self.bits());
        let last = self.params().modulus().wrapping_sub(&one);
        (number > one && number < last).then(|| value.to_vec())
    }
}

impl fmt::Display for DhGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no group has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not supported; use any, none, ffdhe2048, ffdhe3072, ffdhe4096, ffdhe6144 or ffdhe8192")]
pub struct UnknownGroup;

impl FromStr for DhGroup {
    type Err = UnknownGroup;

    fn from_str(text: &str) -> Result<Self, UnknownGroup> {
        let named = Self::ALL.into_iter().find(|group| group.name() == text);
        named.ok_or(UnknownGroup)
    }
}

/// The secret exponent of one side.
#[derive(Clone)]
pub(super) struct PrivateKey {
    group: DhGroup,
    exponent: Zeroizing<Vec<u8>>,
}

impl PrivateKey {
    /// The exponent in these random bytes, of which there are [`EXPONENT_MAX_BYTES`].
    pub(super) fn new(group: DhGroup, random: &[u8]) -> Self {
        let mut exponent = Zeroizing::new(random[..group.exponent_bits() as usize / 8].to_vec());
        // Of full length, so that it is never 0 or 1.
        exponent[0] |= 0x80;
        Self { group, exponent }
    }

    /// What computes the value to send.
    pub(super) fn public(&self) -> Exponentiation {
        let mut generator = vec![0; self.group.value_bytes()];
        generator[self.group.value_bytes() - 1] = 2;
        self.shared(generator)
    }

    /// What computes the secret that both sides share. `value` is the checked one of the peer.
    pub(super) fn shared(&self, value: Vec<u8>) -> Exponentiation {
        Exponentiation {
            key: self.clone(),
            base: value,
        }
    }
}

/// A power that is to be computed. That takes 1 ms in ffdhe2048 and 30 ms in ffdhe8192
/// (`docs/design/0025-dh-hmac-chap.md`), so programs do it where no I/O waits for it.
pub struct Exponentiation {
    key: PrivateKey,
    base: Vec<u8>,
}

impl Exponentiation {
    /// Computes it, in a time that does not depend on the exponent.
    pub fn compute(&self) -> Power {
        let group = self.key.group;
        let base = BoxedUint::from_be_slice(&self.base, group.bits());
        let exponent = BoxedUint::from_be_slice(&self.key.exponent, group.exponent_bits());
        let (Ok(base), Ok(mut exponent)) = (base, exponent) else {
            unreachable!("both have the length of their group");
        };
        let base = BoxedMontyForm::new(base, group.params().clone());
        let mut power = base
            .pow_bounded_exp(&exponent, group.exponent_bits())
            .retrieve();
        exponent.zeroize();
        let bytes = Zeroizing::new(power.to_be_bytes().into_vec());
        power.zeroize();
        Power(bytes)
    }
}

impl fmt::Debug for Exponentiation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exponentiation({})", self.key.group)
    }
}

/// The result of an [`Exponentiation`].
pub struct Power(Zeroizing<Vec<u8>>);

impl Power {
    /// The number, as long as the group's prime, most significant byte first.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Power")
    }
}
