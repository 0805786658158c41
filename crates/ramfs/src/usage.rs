//! What a tree uses, against its quota and the memory budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use file_tree::FileError;
use memory::Budget;

use crate::Quota;

/// Stands for a quota without a limit of bytes.
const UNLIMITED: u64 = u64::MAX;

/// The counters of a tree. Metadata are charged to the quota and the budget; pages of data only to
/// the quota, since the store charges its slabs to the budget.
#[derive(Debug)]
pub(crate) struct Usage {
    budget: Arc<Budget>,
    quota_bytes: AtomicU64,
    quota_files: AtomicU64,
    used_bytes: AtomicU64,
    files: AtomicU64,
}

impl Usage {
    pub(crate) fn new(budget: Arc<Budget>, quota: Quota) -> Self {
        let usage = Self {
            budget,
            quota_bytes: AtomicU64::new(0),
            quota_files: AtomicU64::new(0),
            used_bytes: AtomicU64::new(0),
            files: AtomicU64::new(0),
        };
        usage.set_quota(quota);
        usage
    }

    pub(crate) fn set_quota(&self, quota: Quota) {
        let bytes = quota.bytes.unwrap_or(UNLIMITED);
        self.quota_bytes.store(bytes, Ordering::Relaxed);
        self.quota_files.store(quota.files, Ordering::Relaxed);
    }

    pub(crate) fn quota(&self) -> Quota {
        let bytes = self.quota_bytes.load(Ordering::Relaxed);
        Quota {
            bytes: (bytes != UNLIMITED).then_some(bytes),
            files: self.quota_files.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// The bytes that the quota leaves free.
    pub(crate) fn quota_free_bytes(&self) -> u64 {
        let quota = self.quota_bytes.load(Ordering::Relaxed);
        quota.saturating_sub(self.used_bytes())
    }

    /// Counts a new file.
    pub(crate) fn add_file(&self) -> Result<(), FileError> {
        let max = self.quota_files.load(Ordering::Relaxed);
        add_within(&self.files, 1, max)
    }

    pub(crate) fn remove_file(&self) {
        let before = self.files.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "more files were removed than created");
    }

    /// Charges metadata to the quota and the budget, or nothing to either.
    pub(crate) fn charge_metadata(&self, len_bytes: u64) -> Result<(), FileError> {
        self.charge_quota(len_bytes)?;
        self.budget.try_charge(len_bytes).map_err(|_over_budget| {
            self.refund_quota(len_bytes);
            FileError::NoSpace
        })
    }

    pub(crate) fn refund_metadata(&self, len_bytes: u64) {
        self.refund_quota(len_bytes);
        self.budget.refund(len_bytes);
    }

    /// Charges up to `count` units of `unit_bytes` to the quota, and at least one. Returns how
    /// many.
    pub(crate) fn charge_units(&self, count: u64, unit_bytes: u64) -> Result<u64, FileError> {
        let count = count.min(self.quota_free_bytes() / unit_bytes).max(1);
        self.charge_quota(count * unit_bytes)?;
        Ok(count)
    }

    pub(crate) fn refund_quota(&self, len_bytes: u64) {
        let before = self.used_bytes.fetch_sub(len_bytes, Ordering::Relaxed);
        assert!(before >= len_bytes, "more was refunded than charged");
    }

    fn charge_quota(&self, len_bytes: u64) -> Result<(), FileError> {
        let max = self.quota_bytes.load(Ordering::Relaxed);
        add_within(&self.used_bytes, len_bytes, max)
    }
}

fn add_within(counter: &AtomicU64, more: u64, max: u64) -> Result<(), FileError> {
    let add = |now: u64| now.checked_add(more).filter(|&sum| sum <= max);
    match counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
        Ok(_before) => Ok(()),
        Err(_full) => Err(FileError::QuotaExceeded),
    }
}
