//! The operations of [`FileTree`]: each takes the locks that it needs.

use file_tree::permission;
use file_tree::{
    Access, AttributeChanges, Attributes, Caller, Changed, Cookie, Created, DirectoryEntry,
    DirectoryPage, FileError, FileId, FileKind, FileTree, Listing, Name, NewFile, ReadDone,
    SeekDone, SeekTarget, Timestamp, TreeLimits, TreeSpace, WriteDone, XattrMode, XattrName,
};

use super::RamTree;
use crate::limits::{FILE_BYTES_MAX, LINK_BYTES_MAX, LINKS_MAX, TIME_STEP};
use crate::namespace::{CreateOutcome, Creation, Removal, Removed};
use crate::pages::PAGE_BYTES;

impl FileTree for RamTree {
    fn root(&self) -> FileId {
        self.root
    }

    fn space(&self) -> TreeSpace {
        self.tree_space()
    }

    fn limits(&self) -> TreeLimits {
        TreeLimits {
            file_bytes_max: FILE_BYTES_MAX,
            links_max: LINKS_MAX,
            link_bytes_max: LINK_BYTES_MAX,
            time_step: TIME_STEP,
            clone_unit_bytes: PAGE_BYTES as u32,
            has_xattrs: true,
        }
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn attributes(&self, file: FileId) -> Result<Attributes, FileError> {
        let namespace = self.namespace();
        let inode = namespace.inode(file)?;
        Ok(inode.attributes(&inode.meta()))
    }

    fn access(&self, caller: &Caller<'_>, file: FileId) -> Result<Access, FileError> {
        let namespace = self.namespace();
        let inode = namespace.inode(file)?;
        let meta = inode.meta();
        Ok(permission::access(caller, inode.kind, &meta.owner))
    }

    fn set_attributes(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        changes: &AttributeChanges,
        guard: Option<Timestamp>,
    ) -> Result<Changed, FileError> {
        self.change_attributes(caller, file, changes, guard)
    }

    fn lookup(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        name: Name<'_>,
    ) -> Result<Attributes, FileError> {
        self.namespace().lookup(caller, directory, name)
    }

    fn parent(&self, caller: &Caller<'_>, directory: FileId) -> Result<Attributes, FileError> {
        self.namespace().parent(caller, directory)
    }

    fn read_link(
        &self,
        _caller: &Caller<'_>,
        link: FileId,
        use_path: &mut dyn FnMut(&[u8]),
    ) -> Result<Attributes, FileError> {
        let inode = self.inode(link)?;
        if inode.kind != FileKind::SymbolicLink {
            return Err(FileError::Invalid);
        }
        inode.note_read(self.now());
        use_path(&inode.link_path);
        Ok(inode.attributes(&inode.meta()))
    }

    fn read(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        dest: &mut [u8],
    ) -> Result<ReadDone, FileError> {
        self.read_data(caller, file, offset, dest)
    }

    fn write(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        data: &[u8],
        _must_be_stable: bool,
    ) -> Result<Changed<WriteDone>, FileError> {
        self.write_data(caller, file, offset, data)
    }

    fn punch_hole(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        len_bytes: u64,
    ) -> Result<Changed, FileError> {
        self.make_hole(caller, file, offset, len_bytes)
    }

    fn allocate(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        len_bytes: u64,
    ) -> Result<Changed, FileError> {
        self.reserve_range(caller, file, offset, len_bytes)
    }

    fn clone_range(
        &self,
        caller: &Caller<'_>,
        from: (FileId, u64),
        to: (FileId, u64),
        len_bytes: u64,
    ) -> Result<Changed, FileError> {
        self.clone_data(caller, from, to, len_bytes)
    }

    fn seek(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        target: SeekTarget,
    ) -> Result<SeekDone, FileError> {
        self.seek_data(caller, file, offset, target)
    }

    fn commit(&self, caller: &Caller<'_>, file: FileId) -> Result<Changed, FileError> {
        self.commit_data(caller, file)
    }

    fn create(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        name: Name<'_>,
        new: NewFile<'_>,
        attributes: &AttributeChanges,
    ) -> Result<Changed<Created>, FileError> {
        let creation = Creation {
            caller,
            directory,
            name,
            new,
            attributes,
            now: self.now(),
        };
        let outcome = self.namespace_mut().create(&self.space.usage, &creation)?;
        let (directory, inode) = match outcome {
            CreateOutcome::Done(changed) => return Ok(changed),
            CreateOutcome::Existing(directory, inode) => (directory, inode),
        };
        let size_alone = AttributeChanges {
            size_bytes: attributes.size_bytes,
            ..AttributeChanges::default()
        };
        let changed = self.change_inode(caller, &inode, &size_alone, None)?;
        Ok(Changed {
            before: directory.before,
            after: directory.after,
            value: Created {
                attributes: changed.after,
            },
        })
    }

    fn link(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        directory: FileId,
        name: Name<'_>,
    ) -> Result<Changed<Attributes>, FileError> {
        let now = self.now();
        let mut namespace = self.namespace_mut();
        namespace.link(&self.space.usage, caller, file, (directory, name), now)
    }

    fn remove(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        name: Name<'_>,
    ) -> Result<Changed, FileError> {
        self.remove_entry(caller, (directory, name), Removal::NotDirectory)
    }

    fn remove_directory(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        name: Name<'_>,
    ) -> Result<Changed, FileError> {
        self.remove_entry(caller, (directory, name), Removal::EmptyDirectory)
    }

    fn rename(
        &self,
        caller: &Caller<'_>,
        from: (FileId, Name<'_>),
        to: (FileId, Name<'_>),
    ) -> Result<Changed<Changed>, FileError> {
        let now = self.now();
        let renamed = self
            .namespace_mut()
            .rename(&self.space.usage, caller, from, to, now);
        Ok(self.free_removed(renamed?))
    }

    fn list(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        after: Cookie,
        take: &mut dyn FnMut(&DirectoryEntry<'_>) -> Listing,
    ) -> Result<DirectoryPage, FileError> {
        let now = self.now();
        self.namespace().list(caller, directory, after, now, take)
    }

    fn read_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        name: XattrName<'_>,
        use_value: &mut dyn FnMut(&[u8]),
    ) -> Result<(), FileError> {
        self.get_xattr(caller, file, name, use_value)
    }

    fn set_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        name: XattrName<'_>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<Changed, FileError> {
        self.put_xattr(caller, file, (name, value), mode)
    }

    fn remove_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        name: XattrName<'_>,
    ) -> Result<Changed, FileError> {
        self.drop_xattr(caller, file, name)
    }

    fn list_xattrs(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        take: &mut dyn FnMut(XattrName<'_>),
    ) -> Result<(), FileError> {
        self.each_xattr(caller, file, take)
    }
}

impl RamTree {
    fn remove_entry(
        &self,
        caller: &Caller<'_>,
        entry: (FileId, Name<'_>),
        removal: Removal,
    ) -> Result<Changed, FileError> {
        let now = self.now();
        let removed = self
            .namespace_mut()
            .remove(&self.space.usage, caller, entry, removal, now);
        Ok(self.free_removed(removed?))
    }

    /// Frees the data of a file without names, when the namespace is not locked any more.
    fn free_removed<T>(&self, (changed, removed): Removed<T>) -> Changed<T> {
        if let Some(inode) = removed {
            self.free_data(&inode);
        }
        changed
    }
}
