//! Makes commands fail: every n-th, or by chance from a seed.

use std::num::NonZeroU64;

use block::{OpKind, Status};

/// The most rules of one volume.
const RULES_MAX: usize = 16;

const MILLION: u32 = 1_000_000;

/// Which commands fail, and how. The same seed and commands give the same failures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    seed: u64,
    rules: Vec<FaultRule>,
}

/// Some commands that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// The kind of command; every kind if absent.
    pub kind: Option<OpKind>,
    /// How they fail.
    pub status: FaultStatus,
    /// Which of them fail.
    pub when: FaultWhen,
}

/// How a command fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultStatus {
    /// [`Status::ReadError`].
    ReadError,
    /// [`Status::WriteError`].
    WriteError,
    /// [`Status::CapacityExceeded`].
    CapacityExceeded,
    /// [`Status::WriteProtected`].
    WriteProtected,
    /// [`Status::Busy`].
    Busy,
}

/// Which commands of a rule's kind fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultWhen {
    /// The n-th, the 2n-th, …
    EveryNth(NonZeroU64),
    /// Each with this probability.
    ByChance(Chance),
}

/// A probability in parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance(u32);

/// What is wrong with the description of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// More rules than a volume can have.
    #[error("{given} fault rules are too many; a volume has at most {RULES_MAX}")]
    TooManyRules {
        /// How many there were.
        given: usize,
    },
    /// A probability above 1.
    #[error("probability {per_million} per million is out of range; use at most 1000000")]
    AboveCertain {
        /// What was given.
        per_million: u32,
    },
}

impl Fault {
    /// Faults by these rules. The first rule that applies to a command decides.
    pub fn new(seed: u64, rules: Vec<FaultRule>) -> Result<Self, FaultError> {
        if rules.len() > RULES_MAX {
            return Err(FaultError::TooManyRules { given: rules.len() });
        }
        Ok(Self { seed, rules })
    }

    /// The seed of the generator.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[FaultRule] {
        &self.rules
    }
}

impl Chance {
    /// `per_million` in a million.
    pub fn per_million(per_million: u32) -> Result<Self, FaultError> {
        if per_million > MILLION {
            return Err(FaultError::AboveCertain { per_million });
        }
        Ok(Self(per_million))
    }

    /// The parts per million.
    pub fn as_per_million(self) -> u32 {
        self.0
    }
}

impl From<FaultStatus> for Status {
    fn from(fault: FaultStatus) -> Self {
        match fault {
            FaultStatus::ReadError => Self::ReadError,
            FaultStatus::WriteError => Self::WriteError,
            FaultStatus::CapacityExceeded => Self::CapacityExceeded,
            FaultStatus::WriteProtected => Self::WriteProtected,
            FaultStatus::Busy => Self::Busy,
        }
    }
}

#[derive(Debug)]
pub(super) struct FaultState {
    random: u64,
    /// Each rule with the number of commands of its kind so far.
    rules: Vec<(FaultRule, u64)>,
}

impl FaultState {
    pub(super) fn new(fault: Fault) -> Self {
        Self {
            random: fault.seed,
            rules: fault.rules.into_iter().map(|rule| (rule, 0)).collect(),
        }
    }

    /// How a command of this kind fails, if it fails.
    pub(super) fn admit(&mut self, kind: OpKind) -> Option<FaultStatus> {
        let mut failure = None;
        // Every rule counts every command of its kind, whatever the other rules decide.
        for (rule, count) in &mut self.rules {
            if rule.kind.is_some_and(|own| own != kind) {
                continue;
            }
            *count += 1;
            let hit = match rule.when {
                FaultWhen::EveryNth(n) => *count % n == 0,
                FaultWhen::ByChance(chance) => next_random(&mut self.random) < u64::from(chance.0),
            };
            if hit && failure.is_none() {
                failure = Some(rule.status);
            }
        }
        failure
    }
}

/// The next number below a million: SplitMix64 (Steele, Lea, Flood 2014), scaled.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    ((u128::from(z) * u128::from(MILLION)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(kind: Option<OpKind>, status: FaultStatus, when: FaultWhen) -> FaultRule {
        FaultRule { kind, status, when }
    }

    fn by_chance(per_million: u32) -> FaultWhen {
        FaultWhen::ByChance(Chance::per_million(per_million).expect("a probability"))
    }

    #[test]
    fn every_nth_of_its_kind_fails() {
        let every_third = FaultWhen::EveryNth(NonZeroU64::new(3).expect("not 0"));
        let rules = vec![rule(
            Some(OpKind::Read),
            FaultStatus::ReadError,
            every_third,
        )];
        let mut state = FaultState::new(Fault::new(0, rules).expect("one rule"));
        let failed: Vec<_> = (1..=9)
            .filter(|_| {
                assert_eq!(state.admit(OpKind::Write), None);
                state.admit(OpKind::Read).is_some()
            })
            .collect();
        assert_eq!(failed, [3, 6, 9]);
    }

    #[test]
    fn chance_keeps_to_its_rate_and_a_seed_replays_it() {
        let rules = vec![rule(None, FaultStatus::Busy, by_chance(10_000))];
        let run = |seed| {
            let mut state = FaultState::new(Fault::new(seed, rules.clone()).expect("one rule"));
            (0..100_000)
                .filter(|_| state.admit(OpKind::Flush).is_some())
                .collect::<Vec<u32>>()
        };
        let first = run(7);
        assert!((900..1100).contains(&first.len()), "{}", first.len());
        assert_eq!(first, run(7));
        assert_ne!(first, run(8));
    }

    #[test]
    fn none_and_all_are_exact() {
        for (per_million, fails) in [(0, false), (MILLION, true)] {
            let rules = vec![rule(None, FaultStatus::WriteError, by_chance(per_million))];
            let mut state = FaultState::new(Fault::new(1, rules).expect("one rule"));
            assert!((0..10_000).all(|_| state.admit(OpKind::Write).is_some() == fails));
        }
    }

    #[test]
    fn the_first_rule_that_applies_counts() {
        let always = FaultWhen::EveryNth(NonZeroU64::MIN);
        let rules = vec![
            rule(Some(OpKind::Write), FaultStatus::WriteProtected, always),
            rule(None, FaultStatus::Busy, always),
        ];
        let mut state = FaultState::new(Fault::new(0, rules).expect("two rules"));
        assert_eq!(
            state.admit(OpKind::Write),
            Some(FaultStatus::WriteProtected)
        );
        assert_eq!(state.admit(OpKind::Read), Some(FaultStatus::Busy));
    }

    #[test]
    fn mistakes_are_refused() {
        let some = rule(None, FaultStatus::Busy, by_chance(1));
        assert_eq!(
            Fault::new(0, vec![some; 17]),
            Err(FaultError::TooManyRules { given: 17 })
        );
        assert_eq!(
            Chance::per_million(MILLION + 1),
            Err(FaultError::AboveCertain {
                per_million: MILLION + 1
            })
        );
    }
}
