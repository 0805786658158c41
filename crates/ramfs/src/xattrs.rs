//! The extended attributes of one file.

use std::collections::BTreeMap;

use file_tree::{FileError, XATTR_BYTES_MAX, XattrMode, XattrName};

use crate::limits::XATTRS_MAX;
use crate::usage::Usage;

/// What the first attribute of a file is charged beside its bytes: the map and its first node.
const FIRST_BYTES: u64 = 480;
/// What each attribute is charged beside its bytes: its part of nodes that are at least five
/// elevenths full, and two allocations.
const ENTRY_BYTES: u64 = 128;
/// Names and values are charged in units of this.
const STEP_BYTES: usize = 16;

/// Names and values.
type Values = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// The attributes of a file. Few files have any.
#[derive(Debug, Default)]
pub(crate) struct Xattrs {
    values: Option<Box<Values>>,
    is_removed: bool,
}

impl Xattrs {
    /// Refuses a file whose last link was removed meanwhile.
    pub(crate) fn check(&self) -> Result<(), FileError> {
        if self.is_removed {
            return Err(FileError::Stale);
        }
        Ok(())
    }

    pub(crate) fn get(&self, name: XattrName<'_>) -> Option<&[u8]> {
        let values = self.values.as_ref()?;
        values.get(name.as_bytes()).map(|value| &**value)
    }

    /// The names, in ascending order.
    pub(crate) fn names(&self) -> impl Iterator<Item = XattrName<'_>> {
        let names = self.values.iter().flat_map(|values| values.keys());
        // All were names when they were set.
        names.filter_map(|name| XattrName::new(name).ok())
    }

    /// Sets a value.
    ///
    /// # Errors
    /// See [`XattrMode`]; and if the value is too long, the file has the most attributes, or space
    /// is used up. Nothing was changed then.
    pub(crate) fn set(
        &mut self,
        usage: &Usage,
        (name, value): (XattrName<'_>, &[u8]),
        mode: XattrMode,
    ) -> Result<(), FileError> {
        if value.len() > XATTR_BYTES_MAX {
            return Err(FileError::XattrTooLong);
        }
        let old = self.get(name).map(|old| charge(name, old));
        mode.check(old.is_some())?;
        let count = self.values.as_ref().map_or(0, |values| values.len());
        if old.is_none() && count == XATTRS_MAX {
            return Err(FileError::NoSpace);
        }
        let first = if count == 0 { FIRST_BYTES } else { 0 };
        usage.charge_metadata(first + charge(name, value))?;
        let values = self.values.get_or_insert_default();
        values.insert(name.as_bytes().into(), value.into());
        usage.refund_metadata(old.unwrap_or(0));
        Ok(())
    }

    /// Removes a value.
    pub(crate) fn remove(&mut self, usage: &Usage, name: XattrName<'_>) -> Result<(), FileError> {
        let values = self.values.as_mut().ok_or(FileError::NoXattr)?;
        let value = values.remove(name.as_bytes()).ok_or(FileError::NoXattr)?;
        usage.refund_metadata(charge(name, &value));
        if values.is_empty() {
            self.values = None;
            usage.refund_metadata(FIRST_BYTES);
        }
        Ok(())
    }

    /// Frees everything, when the last link was removed.
    pub(crate) fn remove_all(&mut self, usage: &Usage) {
        self.is_removed = true;
        let Some(values) = self.values.take() else {
            return;
        };
        let entries = values.iter().map(|(name, value)| bytes(name, value));
        usage.refund_metadata(FIRST_BYTES + entries.sum::<u64>());
    }
}

fn charge(name: XattrName<'_>, value: &[u8]) -> u64 {
    bytes(name.as_bytes(), value)
}

fn bytes(name: &[u8], value: &[u8]) -> u64 {
    let part = |bytes: &[u8]| bytes.len().next_multiple_of(STEP_BYTES) as u64;
    ENTRY_BYTES + part(name) + part(value)
}
