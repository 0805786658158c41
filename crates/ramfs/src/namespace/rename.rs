//! Moving names.

use std::sync::Arc;

use file_tree::permission;
use file_tree::{Caller, Changed, FileError, FileId, Name, Timestamp};

use super::remove::{Removal, Removed};
use super::{Namespace, change_directory};
use crate::directory::HashedName;
use crate::inode::{Inode, Meta, unchanged, with_value};
use crate::usage::Usage;

/// What a rename is about, found and permitted.
struct Move<'a> {
    from: Arc<Inode>,
    from_name: HashedName<'a>,
    to: Arc<Inode>,
    to_name: HashedName<'a>,
    moved: Arc<Inode>,
    replaced: Option<Arc<Inode>>,
}

impl Namespace {
    pub(crate) fn rename(
        &mut self,
        usage: &Usage,
        caller: &Caller<'_>,
        from: (FileId, Name<'_>),
        to: (FileId, Name<'_>),
        now: Timestamp,
    ) -> Result<Removed<Changed>, FileError> {
        let plan = self.find_move(caller, from, to)?;
        let is_same = |replaced: &Arc<Inode>| Arc::ptr_eq(replaced, &plan.moved);
        if plan.replaced.as_ref().is_some_and(is_same) {
            let from = unchanged(&plan.from);
            return Ok((with_value(from, unchanged(&plan.to)), None));
        }
        self.check_move(caller, &plan)?;

        let old_bytes = plan.from_name.entry_bytes();
        let new_bytes = match plan.replaced {
            None => plan.to_name.entry_bytes(),
            Some(_) => 0,
        };
        match new_bytes.checked_sub(old_bytes) {
            Some(more) => usage.charge_metadata(more)?,
            None => usage.refund_metadata(old_bytes - new_bytes),
        }
        self.entries_mut(plan.from.id)?.remove(plan.from_name);
        let moved = plan.moved.id;
        let target = self.entries_mut(plan.to.id)?;
        match plan.replaced {
            None => target.insert(plan.to_name, moved.number),
            Some(_) => target.replace(plan.to_name, moved.number),
        }
        if plan.moved.is_directory() {
            self.entries_mut(moved)?.parent = plan.to.id.number;
        }
        plan.moved.meta().touch(now);
        let changed = change_directories(&plan, now, new_bytes);
        let removed = match &plan.replaced {
            Some(replaced) => self.unlink(usage, replaced, now),
            None => None,
        };
        Ok((changed, removed))
    }

    fn find_move<'a>(
        &self,
        caller: &Caller<'_>,
        from: (FileId, Name<'a>),
        to: (FileId, Name<'a>),
    ) -> Result<Move<'a>, FileError> {
        let (from_inode, from_entries) = self.directory(from.0)?;
        let (to_inode, to_entries) = self.directory(to.0)?;
        permission::check_entries(caller, &from_inode.meta().owner)?;
        permission::check_entries(caller, &to_inode.meta().owner)?;
        let from_name = self.hashed(from.1);
        let to_name = self.hashed(to.1);
        let moved = from_entries.find(from_name).ok_or(FileError::NotFound)?;
        let replaced = to_entries.find(to_name);
        if replaced.is_none() {
            to_entries.check_room(to_name)?;
        }
        let replaced = replaced.map(|number| self.numbered(number).map(Arc::clone));
        Ok(Move {
            from: Arc::clone(from_inode),
            from_name,
            to: Arc::clone(to_inode),
            to_name,
            moved: Arc::clone(self.numbered(moved)?),
            replaced: replaced.transpose()?,
        })
    }

    fn check_move(&self, caller: &Caller<'_>, plan: &Move<'_>) -> Result<(), FileError> {
        let from_meta = *plan.from.meta();
        let to_meta = *plan.to.meta();
        let moved_meta = *plan.moved.meta();
        permission::check_sticky(caller, &from_meta.owner, &moved_meta.owner)?;
        let is_directory = plan.moved.is_directory();
        let changes_parent = is_directory && plan.from.id != plan.to.id;
        if changes_parent && self.is_below(plan.to.id, plan.moved.id)? {
            return Err(FileError::Invalid);
        }
        if let Some(replaced) = &plan.replaced {
            permission::check_sticky(caller, &to_meta.owner, &replaced.meta().owner)?;
            let removal = if is_directory {
                Removal::EmptyDirectory
            } else {
                Removal::NotDirectory
            };
            self.check_removal(replaced, removal)?;
        }
        // The entry `..` of a directory that moves changes.
        let access = permission::access(caller, plan.moved.kind, &moved_meta.owner);
        if changes_parent && !access.write {
            return Err(FileError::AccessDenied);
        }
        if changes_parent && plan.replaced.is_none() && to_meta.links >= self.links_max {
            return Err(FileError::TooManyLinks);
        }
        Ok(())
    }

    /// Whether a directory is another or below it. The way up ends at the root, after at most as
    /// many steps as the quota permits files.
    fn is_below(&self, directory: FileId, other: FileId) -> Result<bool, FileError> {
        let mut at = directory;
        while at != other {
            let parent = self.directory(at)?.1.parent;
            if parent == at.number {
                return Ok(false);
            }
            at = self.numbered(parent)?.id;
        }
        Ok(true)
    }
}

fn change_directories(plan: &Move<'_>, now: Timestamp, new_bytes: u64) -> Changed<Changed> {
    let is_directory = plan.moved.is_directory();
    let loses = |meta: &mut Meta| {
        meta.links -= u32::from(is_directory);
        meta.size_bytes -= plan.from_name.entry_bytes();
    };
    let gains = |meta: &mut Meta| {
        // A replaced directory has had a link to its parent, too.
        meta.links += u32::from(is_directory && plan.replaced.is_none());
        meta.size_bytes += new_bytes;
    };
    if plan.from.id == plan.to.id {
        let changed = change_directory(&plan.from, now, |meta| {
            loses(meta);
            gains(meta);
        });
        return with_value(changed, changed);
    }
    let from = change_directory(&plan.from, now, loses);
    with_value(from, change_directory(&plan.to, now, gains))
}
