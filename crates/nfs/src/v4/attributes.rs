//! fattr4: attributes on the wire, and changes of them.
//!
//! Read first: RFC 8881 section 5, and section 3.2 for settime4 and nfstime4.

use file_tree::{
    AttributeChanges, Attributes, DeviceNumber, FileKind, FileTree, Mode, TimeChange, Timestamp,
    TreeLimits, TreeSpace,
};

use super::bitmap::Bitmap;
use super::place::{MinorVersion, Node};
use crate::clients::{LEASE, TRANSFER_BYTES_MAX};
use crate::status4::Status4;
use crate::xdr::{Malformed, Reader, Writer};

/// The numbers of attributes (section 5.6 and 5.7; RFC 7862 section 12.2 and RFC 8276 section 8.2).
mod number {
    pub(super) const SUPPORTED: u32 = 0;
    pub(super) const TYPE: u32 = 1;
    pub(super) const EXPIRE_TYPE: u32 = 2;
    pub(super) const CHANGE: u32 = 3;
    pub(super) const SIZE: u32 = 4;
    pub(super) const LINK_SUPPORT: u32 = 5;
    pub(super) const SYMLINK_SUPPORT: u32 = 6;
    pub(super) const NAMED_ATTRIBUTES: u32 = 7;
    pub(super) const FSID: u32 = 8;
    pub(super) const UNIQUE_HANDLES: u32 = 9;
    pub(super) const LEASE_TIME: u32 = 10;
    pub(super) const READ_ERROR: u32 = 11;
    pub(super) const ACL_SUPPORT: u32 = 13;
    pub(super) const CAN_SET_TIME: u32 = 15;
    pub(super) const CASE_INSENSITIVE: u32 = 16;
    pub(super) const CASE_PRESERVING: u32 = 17;
    pub(super) const CHOWN_RESTRICTED: u32 = 18;
    pub(super) const FILE_HANDLE: u32 = 19;
    pub(super) const FILE_ID: u32 = 20;
    pub(super) const FILES_AVAILABLE: u32 = 21;
    pub(super) const FILES_FREE: u32 = 22;
    pub(super) const FILES_TOTAL: u32 = 23;
    pub(super) const HOMOGENEOUS: u32 = 26;
    pub(super) const MAX_FILE_SIZE: u32 = 27;
    pub(super) const MAX_LINK: u32 = 28;
    pub(super) const MAX_NAME: u32 = 29;
    pub(super) const MAX_READ: u32 = 30;
    pub(super) const MAX_WRITE: u32 = 31;
    pub(super) const MODE: u32 = 33;
    pub(super) const NO_TRUNCATION: u32 = 34;
    pub(super) const LINKS: u32 = 35;
    pub(super) const OWNER: u32 = 36;
    pub(super) const OWNER_GROUP: u32 = 37;
    pub(super) const RAW_DEVICE: u32 = 41;
    pub(super) const SPACE_AVAILABLE: u32 = 42;
    pub(super) const SPACE_FREE: u32 = 43;
    pub(super) const SPACE_TOTAL: u32 = 44;
    pub(super) const SPACE_USED: u32 = 45;
    pub(super) const TIME_ACCESS: u32 = 47;
    pub(super) const TIME_ACCESS_SET: u32 = 48;
    pub(super) const TIME_DELTA: u32 = 51;
    pub(super) const TIME_METADATA: u32 = 52;
    pub(super) const TIME_MODIFY: u32 = 53;
    pub(super) const TIME_MODIFY_SET: u32 = 54;
    pub(super) const MOUNTED_ON: u32 = 55;
    pub(super) const EXCLUSIVE_SUPPORTED: u32 = 75;
    pub(super) const CLONE_BLOCK_BYTES: u32 = 77;
    pub(super) const XATTR_SUPPORT: u32 = 82;
}
#[allow(clippy::wildcard_imports, reason = "the names are for use here alone")]
use number::*;

/// Attributes that can only be set.
const WRITE_ONLY: Bitmap = Bitmap::of(&[TIME_ACCESS_SET, TIME_MODIFY_SET]);
/// Attributes that can be set.
const WRITABLE: Bitmap = Bitmap::of(&[
    SIZE,
    MODE,
    OWNER,
    OWNER_GROUP,
    TIME_ACCESS_SET,
    TIME_MODIFY_SET,
]);
/// Attributes that an exclusive creation sets (suppattr_exclcreat).
pub(super) const EXCLUSIVE: Bitmap = WRITABLE;
/// All attributes.
const ALL: Bitmap = Bitmap::of(&[
    SUPPORTED,
    TYPE,
    EXPIRE_TYPE,
    CHANGE,
    SIZE,
    LINK_SUPPORT,
    SYMLINK_SUPPORT,
    NAMED_ATTRIBUTES,
    FSID,
    UNIQUE_HANDLES,
    LEASE_TIME,
    READ_ERROR,
    ACL_SUPPORT,
    CAN_SET_TIME,
    CASE_INSENSITIVE,
    CASE_PRESERVING,
    CHOWN_RESTRICTED,
    FILE_HANDLE,
    FILE_ID,
    FILES_AVAILABLE,
    FILES_FREE,
    FILES_TOTAL,
    HOMOGENEOUS,
    MAX_FILE_SIZE,
    MAX_LINK,
    MAX_NAME,
    MAX_READ,
    MAX_WRITE,
    MODE,
    NO_TRUNCATION,
    LINKS,
    OWNER,
    OWNER_GROUP,
    RAW_DEVICE,
    SPACE_AVAILABLE,
    SPACE_FREE,
    SPACE_TOTAL,
    SPACE_USED,
    TIME_ACCESS,
    TIME_ACCESS_SET,
    TIME_DELTA,
    TIME_METADATA,
    TIME_MODIFY,
    TIME_MODIFY_SET,
    MOUNTED_ON,
    EXCLUSIVE_SUPPORTED,
    CLONE_BLOCK_BYTES,
    XATTR_SUPPORT,
]);
/// Attributes that only minor version 2 has.
const OF_2: Bitmap = Bitmap::of(&[CLONE_BLOCK_BYTES, XATTR_SUPPORT]);
/// Those of minor version 0 (RFC 7530 section 5.6 and 5.7).
const ALL_OF_0: Bitmap = ALL.up_to(MOUNTED_ON);
/// The most bytes that fattr4 takes: less than what all attributes take together.
pub(super) const ATTRIBUTES_BYTES_MAX: usize = 488;
/// The longest fattr4 that a client sends, in bytes.
const VALUES_BYTES_MAX: usize = 4096;
/// The longest name of an owner in bytes.
const OWNER_BYTES_MAX: usize = 1024;

/// What attributes are of.
pub(super) struct Subject<'a> {
    pub(super) minor: MinorVersion,
    pub(super) node: Node,
    pub(super) attributes: Attributes,
    /// The number of the entry that an export hides; of other files their own number.
    pub(super) mounted_on: u64,
    /// The export's tree; the root above all exports has none.
    pub(super) tree: Option<&'a dyn FileTree>,
}

impl Subject<'_> {
    /// All attributes that its minor version has here.
    const fn all(&self) -> Bitmap {
        match self.minor {
            MinorVersion::Zero => ALL_OF_0,
            MinorVersion::One => ALL.without(OF_2),
            MinorVersion::Two => ALL,
        }
    }

    /// Writes fattr4 with those of the attributes asked for that there are.
    pub(super) fn write(&self, asked: Bitmap, out: &mut Writer<'_>) {
        let given = asked.and(self.all());
        given.write(out);
        let len_at = out.len();
        out.u32(0);
        for number in given.numbers() {
            self.write_value(number, out);
        }
        let len = (out.len() - len_at - 4) as u32;
        out.patch(len_at, &len.to_be_bytes());
    }

    fn write_value(&self, number: u32, out: &mut Writer<'_>) {
        let Attributes {
            kind,
            mode,
            links,
            uid,
            gid,
            size_bytes,
            used_bytes,
            change,
            ..
        } = self.attributes;
        match number {
            SUPPORTED => self.all().write(out),
            TYPE => out.u32(kind_number(kind)),
            // FH4_PERSISTENT, no ACLs, and no error of an entry.
            EXPIRE_TYPE | ACL_SUPPORT | READ_ERROR => out.u32(0),
            CHANGE => out.u64(change),
            SIZE => out.u64(size_bytes),
            FSID => self.write_fsid(out),
            LEASE_TIME => out.u32(LEASE.as_secs() as u32),
            NAMED_ATTRIBUTES | CASE_INSENSITIVE => out.bool(false),
            LINK_SUPPORT | SYMLINK_SUPPORT | UNIQUE_HANDLES | CAN_SET_TIME | CASE_PRESERVING
            | CHOWN_RESTRICTED | HOMOGENEOUS | NO_TRUNCATION => out.bool(true),
            FILE_HANDLE => self.node.write(out),
            FILE_ID => out.u64(self.attributes.id.number),
            MAX_NAME => out.u32(file_tree::Name::LEN_MAX as u32),
            MAX_READ | MAX_WRITE => out.u64(TRANSFER_BYTES_MAX as u64),
            MODE => out.u32(mode.bits().into()),
            LINKS => out.u32(links),
            OWNER => write_owner(uid, out),
            OWNER_GROUP => write_owner(gid, out),
            RAW_DEVICE => {
                let device = device_of(kind);
                out.u32(device.major);
                out.u32(device.minor);
            }
            SPACE_USED => out.u64(used_bytes),
            TIME_ACCESS => write_time(self.attributes.accessed, out),
            TIME_METADATA => write_time(self.attributes.changed, out),
            TIME_MODIFY => write_time(self.attributes.modified, out),
            MOUNTED_ON => out.u64(self.mounted_on),
            EXCLUSIVE_SUPPORTED => EXCLUSIVE.write(out),
            _ => self.write_tree_value(number, out),
        }
    }

    /// Attributes of the whole file system.
    fn write_tree_value(&self, number: u32, out: &mut Writer<'_>) {
        let space = || self.tree.map_or(NO_SPACE, FileTree::space);
        let limits = || self.tree.map_or(NO_LIMITS, FileTree::limits);
        match number {
            FILES_AVAILABLE | FILES_FREE => out.u64(space().free_files),
            FILES_TOTAL => out.u64(space().total_files),
            MAX_FILE_SIZE => out.u64(limits().file_bytes_max),
            MAX_LINK => out.u32(limits().links_max),
            CLONE_BLOCK_BYTES => out.u32(limits().clone_unit_bytes),
            XATTR_SUPPORT => out.bool(limits().has_xattrs),
            SPACE_AVAILABLE | SPACE_FREE => out.u64(space().free_bytes),
            SPACE_TOTAL => out.u64(space().total_bytes),
            _ => write_time(limits().time_step, out),
        }
    }

    /// fsid4: the two halves of the export's UUID.
    fn write_fsid(&self, out: &mut Writer<'_>) {
        out.raw(&self.node.handle().export.0);
    }

    /// Compares with the attributes that VERIFY and NVERIFY have. Returns whether all are the same.
    pub(super) fn is_same(&self, reader: &mut Reader<'_>) -> Result<bool, Status4> {
        let asked = Bitmap::read(reader)?;
        let values = reader.opaque(VALUES_BYTES_MAX)?;
        if !asked.without(self.all()).is_empty() {
            return Err(Status4::AttributeNotSupported);
        }
        if !asked.and(WRITE_ONLY).is_empty() || asked.contains(READ_ERROR) {
            return Err(Status4::Invalid);
        }
        let mut own = Vec::new();
        let mut out = Writer::new(&mut own);
        for number in asked.numbers() {
            self.write_value(number, &mut out);
        }
        Ok(own == values)
    }
}

/// The space and limits of the root above all exports.
const NO_SPACE: TreeSpace = TreeSpace {
    total_bytes: 0,
    free_bytes: 0,
    total_files: 0,
    free_files: 0,
};
const NO_LIMITS: TreeLimits = TreeLimits {
    file_bytes_max: i64::MAX as u64,
    links_max: 1,
    link_bytes_max: 0,
    time_step: Timestamp {
        seconds: 0,
        nanoseconds: 1,
    },
    clone_unit_bytes: 1,
    has_xattrs: false,
};

/// Reads which attributes GETATTR and READDIR ask for. Those that can only be set are invalid (RFC
/// 8881 section 5.5).
pub(super) fn read_asked(reader: &mut Reader<'_>) -> Result<Bitmap, Status4> {
    let asked = Bitmap::read(reader)?;
    if asked.and(WRITE_ONLY).is_empty() {
        Ok(asked)
    } else {
        Err(Status4::Invalid)
    }
}

/// Reads fattr4 that a creation or SETATTR sets. Returns the changes and which attributes these
/// are.
pub(super) fn read_changes(reader: &mut Reader<'_>) -> Result<(AttributeChanges, Bitmap), Status4> {
    let asked = Bitmap::read(reader)?;
    let mut values = Reader::new(reader.opaque(VALUES_BYTES_MAX)?);
    if !asked.without(ALL).is_empty() {
        return Err(Status4::AttributeNotSupported);
    }
    if !asked.without(WRITABLE).is_empty() {
        return Err(Status4::Invalid);
    }
    let mut changes = AttributeChanges::default();
    for number in asked.numbers() {
        match number {
            SIZE => changes.size_bytes = Some(values.u64()?),
            MODE => {
                let mode = values.u32()?;
                if mode & !u32::from(Mode::ALL) != 0 {
                    return Err(Status4::Invalid);
                }
                changes.mode = Some(Mode::new(mode));
            }
            OWNER => changes.uid = Some(read_owner(&mut values)?),
            OWNER_GROUP => changes.gid = Some(read_owner(&mut values)?),
            TIME_ACCESS_SET => changes.accessed = Some(read_time_change(&mut values)?),
            _ => changes.modified = Some(read_time_change(&mut values)?),
        }
    }
    values.finish()?;
    Ok((changes, asked))
}

/// settime4.
fn read_time_change(reader: &mut Reader<'_>) -> Result<TimeChange, Status4> {
    match reader.u32()? {
        0 => Ok(TimeChange::Now),
        1 => {
            let seconds = reader.u64()?.cast_signed();
            let nanoseconds = reader.u32()?;
            if nanoseconds >= 1_000_000_000 {
                return Err(Status4::Invalid);
            }
            Ok(TimeChange::To(Timestamp {
                seconds,
                nanoseconds,
            }))
        }
        _ => Err(Malformed.into()),
    }
}

/// The number of a user or group, which is its name (RFC 8881 section 5.9).
fn read_owner(reader: &mut Reader<'_>) -> Result<u32, Status4> {
    let name = reader.opaque(OWNER_BYTES_MAX)?;
    if name.is_empty() {
        return Err(Status4::Invalid);
    }
    let digits = std::str::from_utf8(name).ok();
    let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or(Status4::BadOwner)
}

/// The name of a user or group: its number in decimal.
fn write_owner(id: u32, out: &mut Writer<'_>) {
    let (mut digits, mut at, mut left) = ([0; 10], 10, id);
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            return out.opaque(&digits[at..]);
        }
    }
}

fn write_time(time: Timestamp, out: &mut Writer<'_>) {
    out.u64(time.seconds.cast_unsigned());
    out.u32(time.nanoseconds);
}

/// nfs_ftype4.
const fn kind_number(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::BlockDevice(_) => 3,
        FileKind::CharacterDevice(_) => 4,
        FileKind::SymbolicLink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    }
}

const fn device_of(kind: FileKind) -> DeviceNumber {
    match kind {
        FileKind::BlockDevice(device) | FileKind::CharacterDevice(device) => device,
        _ => DeviceNumber { major: 0, minor: 0 },
    }
}

#[cfg(test)]
mod tests;
