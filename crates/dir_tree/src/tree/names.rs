//! Names of files that exist: links, removal, renames.

use std::os::fd::OwnedFd;

use file_tree::{Attributes, Caller, Changed, FileError, FileId, FileKind, Name, permission};
use rustix::fs::AtFlags;

use super::DirTree;
use super::content::changed;
use crate::errors::of_host;
use crate::identity::ownership;
use crate::resolve::Found;

/// Which kind of file may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    NotDirectory,
    Directory,
}

/// A rename that is permitted.
struct Move {
    from: Found,
    to: Found,
    moved: Found,
    replaced: Option<Found>,
}

impl DirTree {
    pub(super) fn link_entry(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        (directory, name): (FileId, Name<'_>),
    ) -> Result<Changed<Attributes>, FileError> {
        let locked = self.lock_names();
        let found = self.resolver.find(file)?;
        let parent = self.resolver.directory(directory)?;
        let before = parent.attributes;
        permission::check_search(caller, &ownership(&before))?;
        if found.attributes.kind == FileKind::Directory {
            return Err(FileError::IsDirectory);
        }
        match self.resolver.entry(&parent, name) {
            Err(FileError::NotFound) => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(FileError::Exists),
        }
        permission::check_entries(caller, &ownership(&before))?;
        let (old_parent, old_name) = self.holder(&found)?;
        let (new_parent, new_name) = (&parent.handle, name.as_bytes());
        rustix::fs::linkat(
            &old_parent,
            old_name,
            new_parent,
            new_name,
            AtFlags::empty(),
        )
        .map_err(of_host)?;
        let linked = self.resolver.entry(&parent, name)?.attributes;
        if linked.id != file {
            // Others have put another file in its place meanwhile.
            rustix::fs::unlinkat(new_parent, new_name, AtFlags::empty()).map_err(of_host)?;
            return Err(FileError::Stale);
        }
        let after = self.look(&parent.handle)?;
        drop(locked);
        self.make_file_durable(&parent)?;
        let Changed { before, after, .. } = changed(&before, after);
        Ok(Changed {
            before,
            after,
            value: linked,
        })
    }

    pub(super) fn remove_entry(
        &self,
        caller: &Caller<'_>,
        (directory, name): (FileId, Name<'_>),
        removal: Removal,
    ) -> Result<Changed, FileError> {
        let locked = self.lock_names();
        let parent = self.resolver.directory(directory)?;
        let before = parent.attributes;
        permission::check_entries(caller, &ownership(&before))?;
        let victim = self.resolver.entry(&parent, name)?.attributes;
        permission::check_sticky(caller, &ownership(&before), &ownership(&victim))?;
        check_removal(&victim, removal)?;
        let flags = match removal {
            Removal::NotDirectory => AtFlags::empty(),
            Removal::Directory => AtFlags::REMOVEDIR,
        };
        rustix::fs::unlinkat(&parent.handle, name.as_bytes(), flags).map_err(of_host)?;
        self.note_unlinked(&victim);
        let after = self.look(&parent.handle)?;
        drop(locked);
        self.make_file_durable(&parent)?;
        Ok(changed(&before, after))
    }

    pub(super) fn rename_entry(
        &self,
        caller: &Caller<'_>,
        (from, from_name): (FileId, Name<'_>),
        (to, to_name): (FileId, Name<'_>),
    ) -> Result<Changed<Changed>, FileError> {
        let locked = self.lock_names();
        let plan = self.find_move(caller, (from, from_name), (to, to_name))?;
        let (from_before, to_before) = (plan.from.attributes, plan.to.attributes);
        let moved = plan.moved.attributes.id;
        if plan
            .replaced
            .as_ref()
            .is_some_and(|it| it.attributes.id == moved)
        {
            return Ok(both(&from_before, from_before, &to_before, to_before));
        }
        check_move(caller, &plan)?;
        let (from_handle, to_handle) = (&plan.from.handle, &plan.to.handle);
        rustix::fs::renameat(
            from_handle,
            from_name.as_bytes(),
            to_handle,
            to_name.as_bytes(),
        )
        .map_err(of_host)?;
        if let Some(replaced) = &plan.replaced {
            self.note_unlinked(&replaced.attributes);
        }
        let mut places = self.resolver.places();
        places.learn(to.number, to_name.as_bytes(), moved.number);
        drop(places);
        let from_after = self.look(from_handle)?;
        let to_after = self.look(to_handle)?;
        drop(locked);
        self.make_file_durable(&plan.from)?;
        if from != to {
            self.make_file_durable(&plan.to)?;
        }
        Ok(both(&from_before, from_after, &to_before, to_after))
    }

    fn find_move(
        &self,
        caller: &Caller<'_>,
        (from, from_name): (FileId, Name<'_>),
        (to, to_name): (FileId, Name<'_>),
    ) -> Result<Move, FileError> {
        let from = self.resolver.directory(from)?;
        let to = self.resolver.directory(to)?;
        permission::check_entries(caller, &ownership(&from.attributes))?;
        permission::check_entries(caller, &ownership(&to.attributes))?;
        let moved = self.resolver.entry(&from, from_name)?;
        let replaced = match self.resolver.entry(&to, to_name) {
            Ok(replaced) => Some(replaced),
            Err(FileError::NotFound) => None,
            Err(error) => return Err(error),
        };
        Ok(Move {
            from,
            to,
            moved,
            replaced,
        })
    }

    /// A name of a file was removed. If that was its last, or a directory's only one, its handle is
    /// stale from now on.
    fn note_unlinked(&self, file: &Attributes) {
        let mut places = self.resolver.places();
        if file.kind == FileKind::Directory || file.links <= 1 {
            places.note_removed(file.id);
        } else {
            places.forget(file.id.number);
        }
    }

    /// The directory that has a file, and the file's name in it.
    fn holder<'a>(&self, found: &'a Found) -> Result<(OwnedFd, &'a [u8]), FileError> {
        let name = found.path.rsplit(|byte| *byte == b'/').next();
        let name = name.ok_or(FileError::Io)?;
        Ok((self.resolver.parent(found)?.handle, name))
    }
}

fn check_move(caller: &Caller<'_>, plan: &Move) -> Result<(), FileError> {
    let (from, to) = (&plan.from.attributes, &plan.to.attributes);
    let moved = &plan.moved.attributes;
    permission::check_sticky(caller, &ownership(from), &ownership(moved))?;
    let is_directory = moved.kind == FileKind::Directory;
    let changes_parent = is_directory && from.id != to.id;
    let number = moved.id.number;
    if changes_parent && (to.id.number == number || plan.to.above.contains(&number)) {
        return Err(FileError::Invalid);
    }
    if let Some(replaced) = &plan.replaced {
        permission::check_sticky(caller, &ownership(to), &ownership(&replaced.attributes))?;
        let removal = if is_directory {
            Removal::Directory
        } else {
            Removal::NotDirectory
        };
        check_removal(&replaced.attributes, removal)?;
    }
    // The entry `..` of a directory that moves changes.
    let access = permission::access(caller, moved.kind, &ownership(moved));
    if changes_parent && !access.write {
        return Err(FileError::AccessDenied);
    }
    Ok(())
}

/// Whether a file is of the kind that may be removed.
fn check_removal(file: &Attributes, removal: Removal) -> Result<(), FileError> {
    match (removal, file.kind) {
        (Removal::NotDirectory, FileKind::Directory) => Err(FileError::IsDirectory),
        (Removal::Directory, kind) if kind != FileKind::Directory => Err(FileError::NotDirectory),
        _ => Ok(()),
    }
}

fn both(
    from_before: &Attributes,
    from_after: Attributes,
    to_before: &Attributes,
    to_after: Attributes,
) -> Changed<Changed> {
    let Changed { before, after, .. } = changed(from_before, from_after);
    Changed {
        before,
        after,
        value: changed(to_before, to_after),
    }
}
