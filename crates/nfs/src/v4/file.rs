//! Operations on file handles and attributes.

use file_tree::{Access, AttributeChanges, Attributes, FileError, FileKind, Mode, Timestamp};

use super::attributes::{Subject, read_asked, read_changes};
use super::compound::Compound;
use super::place::{MinorVersion, Node, Place, ROOT_FILE, key_of, with_clients};
use crate::Backend;
use crate::clients::{StateId, StateUse};
use crate::status4::Status4;
use crate::v3::{Handle, access_bits};
use crate::xdr::{Reader, Writer};

/// The bits of ACCESS in all minor versions.
const ACCESS_BITS: u32 = 0x3f;
/// ACCESS4_XAREAD, ACCESS4_XAWRITE and ACCESS4_XALIST of minor version 2.
const XATTR_READ: u32 = 0x40;
const XATTR_WRITE: u32 = 0x80;
const XATTR_LIST: u32 = 0x100;

impl<B: Backend> Compound<'_, B> {
    /// PUTFH (RFC 8881 section 18.19).
    pub(super) fn put_handle(&mut self, arguments: &mut Reader<'_>) -> Result<(), Status4> {
        let node = Node::read(arguments)?;
        if let Node::File(handle) = node {
            let found = self.place(handle)?.attributes();
            match found {
                // A file that was removed while it was open can still be closed and unlocked.
                Err(Status4::Stale) if self.has_open(handle)? => {}
                found => {
                    found?;
                }
            }
        }
        self.put(node)
    }

    /// Whether the client has a file open. Without a session, any client at its address may be the
    /// one.
    fn has_open(&mut self, handle: Handle) -> Result<bool, Status4> {
        if self.at.minor == MinorVersion::Zero {
            let address = self.backend.client();
            return with_clients(self.backend, |clients| {
                clients.has_open_at(address, &key_of(handle))
            });
        }
        let client = self.client()?;
        with_clients(self.backend, |clients| {
            clients.has_open(client, &key_of(handle))
        })
    }

    /// GETFH (section 18.8).
    pub(super) fn get_handle(&mut self, out: &mut Writer<'_>) -> Result<(), Status4> {
        self.node()?.write(out);
        Ok(())
    }

    /// SAVEFH (section 18.28).
    pub(super) fn save(&mut self) -> Result<(), Status4> {
        self.node()?;
        self.at.saved = self.at.current;
        Ok(())
    }

    /// RESTOREFH (section 18.27).
    pub(super) fn restore(&mut self) -> Result<(), Status4> {
        self.at.saved.node.ok_or(match self.at.minor {
            MinorVersion::Zero => Status4::NoSavedHandle,
            _ => Status4::NoFileHandle,
        })?;
        self.at.current = self.at.saved;
        Ok(())
    }

    /// GETATTR (section 18.7).
    pub(super) fn get_attributes(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let asked = read_asked(arguments)?;
        self.with_subject(|subject| {
            subject.write(asked, out);
            Ok(())
        })?;
        self.check_reply(out.len())
    }

    /// VERIFY and NVERIFY (sections 18.31 and 18.15). VERIFY fails with `failure` unless the
    /// attributes are the same, NVERIFY if they are.
    pub(super) fn verify(
        &mut self,
        arguments: &mut Reader<'_>,
        failure: Status4,
    ) -> Result<(), Status4> {
        let is_same = self.with_subject(|subject| subject.is_same(arguments))?;
        if is_same == (failure == Status4::Same) {
            return Err(failure);
        }
        Ok(())
    }

    /// Calls `use_subject` with the current file.
    fn with_subject<R>(
        &mut self,
        use_subject: impl FnOnce(&Subject<'_>) -> Result<R, Status4>,
    ) -> Result<R, Status4> {
        let node = self.node()?;
        let Node::File(handle) = node else {
            return use_subject(&Subject {
                minor: self.at.minor,
                node,
                attributes: self.root_attributes(),
                mounted_on: ROOT_FILE.number,
                tree: None,
            });
        };
        let place = self.place(handle)?;
        let attributes = place.attributes()?;
        use_subject(&subject_of(&place, &attributes))
    }

    /// The attributes of the root above all exports. They change with the exports.
    pub(super) fn root_attributes(&mut self) -> Attributes {
        let (mut checksum, mut count) = (0, 0);
        self.backend.each_export(&mut |path, _| {
            checksum = crc32c::crc32c_append(checksum, path.as_bytes());
            count += 1;
        });
        Attributes {
            id: ROOT_FILE,
            kind: FileKind::Directory,
            mode: Mode::new(0o555),
            links: count + 2,
            uid: 0,
            gid: 0,
            size_bytes: count.into(),
            used_bytes: 0,
            accessed: Timestamp::default(),
            modified: Timestamp::default(),
            changed: Timestamp::default(),
            change: checksum.into(),
        }
    }

    /// ACCESS (section 18.1).
    pub(super) fn access(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        const LOOKUP: u32 = 0x02;
        const DELETE: u32 = 0x10;
        const EXECUTE: u32 = 0x20;
        let asked = arguments.u32()?;
        let (kind, access, is_read_only, has_xattrs) = match self.node()? {
            Node::Root => {
                let access = Access {
                    read: true,
                    write: false,
                    execute: true,
                };
                (FileKind::Directory, access, true, false)
            }
            Node::File(handle) => {
                let place = self.place(handle)?;
                let kind = place.attributes()?.kind;
                let access = place.tree().access(&place.caller(), place.file)?;
                let is_read_only = place.export.options.read_only || place.tree().is_read_only();
                let has_xattrs =
                    place.minor == MinorVersion::Two && place.tree().limits().has_xattrs;
                (kind, access, is_read_only, has_xattrs)
            }
        };
        let meaningful = match kind {
            FileKind::Directory => ACCESS_BITS & !EXECUTE,
            _ => ACCESS_BITS & !(LOOKUP | DELETE),
        };
        let (mut known, mut granted) = (meaningful, access_bits(kind, access, is_read_only));
        if has_xattrs {
            known |= XATTR_READ | XATTR_WRITE | XATTR_LIST;
            granted |= xattr_bits(access, is_read_only);
        }
        out.u32(asked & known);
        out.u32(granted & asked);
        Ok(())
    }

    /// SETATTR (section 18.30).
    pub(super) fn set_attributes(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let id = StateId::read(arguments)?;
        let (changes, set) = read_changes(arguments)?;
        let (handle, key) = self.current_file(Status4::ReadOnly)?;
        if changes.size_bytes.is_some() {
            self.check_state(id, &key, StateUse::Write)?;
        }
        if changes != AttributeChanges::default() {
            self.recall(handle)?;
        }
        let place = self.place(handle)?;
        if changes.size_bytes.is_some() && place.attributes()?.kind == FileKind::Directory {
            return Err(Status4::IsDirectory);
        }
        if changes != AttributeChanges::default() {
            place.change(|tree, caller| tree.set_attributes(caller, place.file, &changes, None))?;
            self.recall_after(Some(handle));
        }
        set.write(out);
        Ok(())
    }

    /// READLINK (section 18.24).
    pub(super) fn read_link(&mut self, out: &mut Writer<'_>) -> Result<(), Status4> {
        let (handle, _) = self.current_file(Status4::WrongType)?;
        let room = self.room(out);
        let place = self.place(handle)?;
        let (mut fits, begin) = (true, out.len() + 4);
        let mut len = 0;
        let read = place
            .tree()
            .read_link(&place.caller(), place.file, &mut |path| {
                fits = path.len() + 8 <= room;
                if fits {
                    len = path.len();
                    out.opaque(path);
                }
            });
        match read {
            Ok(_) if fits => {
                self.at.results.push(begin..begin + len);
                Ok(())
            }
            Ok(_) => Err(Status4::ReplyTooBig),
            Err(FileError::Invalid | FileError::IsDirectory) => Err(Status4::WrongType),
            Err(error) => Err(error.into()),
        }
    }

    /// SECINFO (section 18.29). The current file handle is used up; minor version 0 keeps it (RFC
    /// 7530 section 16.31).
    pub(super) fn security_info(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let before = self.at.current;
        self.look_up(arguments)?;
        self.write_flavors(out);
        if self.at.minor == MinorVersion::Zero {
            self.at.current = before;
        }
        Ok(())
    }

    /// SECINFO_NO_NAME (section 18.45).
    pub(super) fn security_info_no_name(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        match arguments.u32()? {
            0 => drop(self.node()?),
            1 => self.look_up_parent()?,
            _ => return Err(Status4::BadXdr),
        }
        self.write_flavors(out);
        Ok(())
    }

    /// Every export takes AUTH_SYS, and nothing else.
    fn write_flavors(&mut self, out: &mut Writer<'_>) {
        out.u32(1);
        out.u32(crate::rpc::AUTH_SYS);
        self.at.current.node = None;
        self.at.current.state = None;
    }
}

/// What ACCESS tells of the permission to read, change and list extended attributes (RFC 8276
/// section 8.3).
fn xattr_bits(access: Access, is_read_only: bool) -> u32 {
    let bits = |granted: bool, bits| if granted { bits } else { 0 };
    bits(access.read, XATTR_READ | XATTR_LIST) | bits(access.write && !is_read_only, XATTR_WRITE)
}

/// A file of an export as attributes show it.
pub(super) fn subject_of<'a>(place: &Place<'a>, attributes: &Attributes) -> Subject<'a> {
    let is_root = attributes.id == place.tree().root();
    Subject {
        minor: place.minor,
        node: place.node(attributes.id),
        attributes: *attributes,
        mounted_on: if is_root {
            mount_point(place)
        } else {
            attributes.id.number
        },
        tree: Some(place.tree()),
    }
}

/// The number of the entry below the root above all exports that an export hides.
fn mount_point(place: &Place<'_>) -> u64 {
    let [high, low] = [0, 8].map(|at| {
        let bytes = place.export.id.0[at..at + 8].try_into();
        u64::from_be_bytes(bytes.expect("it is 8 bytes"))
    });
    // The root itself has the number 1.
    (high ^ low).max(ROOT_FILE.number + 1)
}
