//! The limit of the memory of all volumes and connections together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{HostMemory, MemoryError, Overcommit, PagePolicy};

/// How much memory volumes and connections may allocate in total, how much is allocated, and how it
/// is allocated from the host. Everything that allocates in proportion to requests of users or
/// peers shares one budget.
#[derive(Debug)]
pub struct Budget {
    total_bytes: AtomicU64,
    used_bytes: AtomicU64,
    /// How often the used bytes have crossed the soft threshold upwards.
    soft_crossings: AtomicU64,
    /// The number of writes that failed because too little was free.
    failed_writes: AtomicU64,
    pages: PagePolicy,
    overcommit: Overcommit,
}

impl Budget {
    /// The soft threshold: the used part in per cent from which users should be warned.
    pub const SOFT_THRESHOLD_PERCENT: u64 = 90;

    /// A budget of `total_bytes` with ordinary pages, on a host that overcommits.
    pub const fn new(total_bytes: u64) -> Self {
        Self::with_policy(total_bytes, PagePolicy::Ordinary, Overcommit::Allowed)
    }

    /// A budget of `total_bytes`, allocated as the settings of this host suggest.
    pub fn for_host(total_bytes: u64, host: &HostMemory) -> Self {
        Self::with_policy(total_bytes, host.pages, host.overcommit)
    }

    /// A budget of `total_bytes`, allocated in the given way.
    pub const fn with_policy(total_bytes: u64, pages: PagePolicy, overcommit: Overcommit) -> Self {
        Self {
            total_bytes: AtomicU64::new(total_bytes),
            used_bytes: AtomicU64::new(0),
            soft_crossings: AtomicU64::new(0),
            failed_writes: AtomicU64::new(0),
            pages,
            overcommit,
        }
    }

    /// The limit in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed)
    }

    /// The used bytes.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// The free bytes; 0 if the limit was lowered below the used bytes.
    pub fn free_bytes(&self) -> u64 {
        self.total_bytes().saturating_sub(self.used_bytes())
    }

    /// How often the used bytes have crossed
    /// [`SOFT_THRESHOLD_PERCENT`](Self::SOFT_THRESHOLD_PERCENT) upwards. A caller that remembers
    /// the number learns from a new one that users should be warned.
    pub fn soft_crossings(&self) -> u64 {
        self.soft_crossings.load(Ordering::Relaxed)
    }

    /// The number of writes to volumes that failed because too little of the budget was free.
    pub fn failed_writes(&self) -> u64 {
        self.failed_writes.load(Ordering::Relaxed)
    }

    /// Counts a write that failed because too little of the budget was free.
    pub(crate) fn note_failed_write(&self) {
        self.failed_writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Changes the limit. What is used stays used, even beyond a lower limit.
    pub fn set_total_bytes(&self, total_bytes: u64) {
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
    }

    /// Which pages volumes use.
    pub fn pages(&self) -> PagePolicy {
        self.pages
    }

    /// Whether the host promises more memory than it has.
    pub fn overcommit(&self) -> Overcommit {
        self.overcommit
    }

    /// Charges `len_bytes`.
    ///
    /// # Errors
    /// [`MemoryError::OverBudget`] if fewer are free. Nothing is charged then.
    pub fn try_charge(&self, len_bytes: u64) -> Result<(), MemoryError> {
        let total_bytes = self.total_bytes();
        let charged = |used: u64| {
            used.checked_add(len_bytes)
                .filter(|&sum| sum <= total_bytes)
        };
        match self
            .used_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, charged)
        {
            Ok(before) => {
                let soft = soft_threshold(total_bytes);
                if before < soft && before + len_bytes >= soft {
                    self.soft_crossings.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }
            Err(used_bytes) => Err(MemoryError::OverBudget {
                wanted_bytes: len_bytes,
                free_bytes: total_bytes.saturating_sub(used_bytes),
                total_bytes,
            }),
        }
    }

    /// Checks that at least `len_bytes` are free at this moment. Nothing is charged.
    pub(crate) fn check_free(&self, len_bytes: u64) -> Result<(), MemoryError> {
        let (free_bytes, total_bytes) = (self.free_bytes(), self.total_bytes());
        if free_bytes < len_bytes {
            return Err(MemoryError::OverBudget {
                wanted_bytes: len_bytes,
                free_bytes,
                total_bytes,
            });
        }
        Ok(())
    }

    /// Refunds what [`try_charge`](Self::try_charge) charged.
    pub fn refund(&self, len_bytes: u64) {
        let before = self.used_bytes.fetch_sub(len_bytes, Ordering::Relaxed);
        assert!(
            before >= len_bytes,
            "more was refunded than had been charged"
        );
    }

    /// Charges `len_bytes` until the [`Charge`] drops: for buffers and connections.
    pub fn reserve(self: &Arc<Self>, len_bytes: u64) -> Result<Charge, MemoryError> {
        self.try_charge(len_bytes)?;
        Ok(Charge {
            budget: Arc::clone(self),
            len_bytes,
        })
    }

    /// Charges `len_bytes` until the [`Charge`] drops, even if fewer are free: for memory that is
    /// already in use and is bounded by other means. While the used bytes exceed the limit, every
    /// other charge fails.
    pub fn overdraw(self: &Arc<Self>, len_bytes: u64) -> Charge {
        self.used_bytes.fetch_add(len_bytes, Ordering::Relaxed);
        Charge {
            budget: Arc::clone(self),
            len_bytes,
        }
    }
}

const fn soft_threshold(total_bytes: u64) -> u64 {
    total_bytes / 100 * Budget::SOFT_THRESHOLD_PERCENT
}

/// A part of the budget, refunded when this drops.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    len_bytes: u64,
}

impl Charge {
    /// The charged bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Changes the charge to `len_bytes`. Nothing changes if it fails.
    pub fn resize(&mut self, len_bytes: u64) -> Result<(), MemoryError> {
        match len_bytes.checked_sub(self.len_bytes) {
            Some(more) => self.budget.try_charge(more)?,
            None => self.budget.refund(self.len_bytes - len_bytes),
        }
        self.len_bytes = len_bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.refund(self.len_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_beyond_the_bound_takes_nothing() {
        let budget = Arc::new(Budget::new(100));
        let held = budget.reserve(60).expect("fits");
        assert!(matches!(
            budget.try_charge(41),
            Err(MemoryError::OverBudget {
                wanted_bytes: 41,
                free_bytes: 40,
                total_bytes: 100
            })
        ));
        assert!(budget.try_charge(u64::MAX).is_err());
        assert_eq!(budget.used_bytes(), 60);
        budget.try_charge(40).expect("exactly what is left");
        budget.refund(40);
        drop(held);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn growing_beyond_the_soft_threshold_counts_each_time() {
        let budget = Budget::new(1000);
        budget.try_charge(899).expect("fits");
        assert_eq!(budget.soft_crossings(), 0);
        budget.try_charge(1).expect("fits");
        budget.try_charge(50).expect("fits");
        assert_eq!(budget.soft_crossings(), 1, "it is beyond already");
        budget.refund(51);
        budget.try_charge(1).expect("fits");
        assert_eq!(budget.soft_crossings(), 2);
    }

    #[test]
    fn a_charge_grows_only_into_what_is_left() {
        let budget = Arc::new(Budget::new(100));
        let mut charge = budget.reserve(60).expect("fits");
        assert!(charge.resize(101).is_err());
        assert_eq!((charge.len_bytes(), budget.used_bytes()), (60, 60));
        charge.resize(100).expect("exactly what is left");
        charge.resize(10).expect("less is always there");
        assert_eq!(budget.used_bytes(), 10);
        drop(charge);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn lowering_the_bound_below_use_leaves_nothing_free() {
        let budget = Budget::new(100);
        budget.try_charge(60).expect("fits");
        budget.set_total_bytes(50);
        assert_eq!(budget.free_bytes(), 0);
        assert!(budget.try_charge(1).is_err());
        budget.refund(20);
        budget.try_charge(10).expect("10 are left again");
    }
}
