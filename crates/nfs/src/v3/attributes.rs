//! Attributes on the wire: fattr3, wcc_data and sattr3 (RFC 1813 section 2.6).

use file_tree::{
    AttributeChanges, Attributes, BeforeChange, DeviceNumber, FileKind, Mode, TimeChange, Timestamp,
};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::status::Status;
use crate::ExportId;
use crate::xdr::{Malformed, Reader, Writer};

/// nfstime3.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct WireTime {
    /// Seconds since 1970.
    seconds: U32,
    /// Nanoseconds, below 1,000,000,000.
    nanoseconds: U32,
}

/// fattr3.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct WireAttributes {
    /// ftype3.
    kind: U32,
    /// Permission bits.
    mode: U32,
    /// Hard links.
    links: U32,
    /// The owner.
    uid: U32,
    /// The group.
    gid: U32,
    /// The length in bytes.
    size_bytes: U64,
    /// The space it takes, in bytes.
    used_bytes: U64,
    /// Of a device: its major and minor numbers.
    device: [U32; 2],
    /// FSID: file system identifier, the same for all files of an export.
    fsid: U64,
    /// The file's number.
    fileid: U64,
    /// When data were last read.
    accessed: WireTime,
    /// When data were last changed.
    modified: WireTime,
    /// When data or attributes were last changed.
    changed: WireTime,
}

const _: () = assert!(size_of::<WireAttributes>() == 84);

/// wcc_attr.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireBefore {
    /// The length in bytes.
    size_bytes: U64,
    /// When data were last changed.
    modified: WireTime,
    /// When data or attributes were last changed.
    changed: WireTime,
}

const _: () = assert!(size_of::<WireBefore>() == 24);

/// How long post_op_attr is if attributes are present.
pub(super) const PRESENT_BYTES: usize = 4 + size_of::<WireAttributes>();

impl WireTime {
    pub(super) fn new(time: Timestamp) -> Self {
        Self {
            // Times before 1970 and after 2106 cannot be expressed.
            seconds: U32::new(u32::try_from(time.seconds.max(0)).unwrap_or(u32::MAX)),
            nanoseconds: time.nanoseconds.into(),
        }
    }

    /// The instant; the inner error is that of one that does not exist.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Result<Timestamp, Status>, Malformed> {
        let time: &Self = reader.view()?;
        let nanoseconds = time.nanoseconds.get();
        if nanoseconds >= 1_000_000_000 {
            return Ok(Err(Status::Invalid));
        }
        Ok(Ok(Timestamp {
            seconds: time.seconds.get().into(),
            nanoseconds,
        }))
    }
}

impl WireAttributes {
    pub(super) fn new(export: ExportId, attributes: &Attributes) -> Self {
        let (kind, device) = match attributes.kind {
            FileKind::Regular => (KIND_REGULAR, None),
            FileKind::Directory => (KIND_DIRECTORY, None),
            FileKind::BlockDevice(device) => (KIND_BLOCK, Some(device)),
            FileKind::CharacterDevice(device) => (KIND_CHARACTER, Some(device)),
            FileKind::SymbolicLink => (KIND_LINK, None),
            FileKind::Socket => (KIND_SOCKET, None),
            FileKind::Fifo => (KIND_FIFO, None),
        };
        let device = device.unwrap_or(DeviceNumber { major: 0, minor: 0 });
        let (high, low) = (
            u128::from_be_bytes(export.0) >> 64,
            u128::from_be_bytes(export.0),
        );
        Self {
            kind: kind.into(),
            mode: u32::from(attributes.mode.bits()).into(),
            links: attributes.links.into(),
            uid: attributes.uid.into(),
            gid: attributes.gid.into(),
            size_bytes: attributes.size_bytes.into(),
            used_bytes: attributes.used_bytes.into(),
            device: [device.major.into(), device.minor.into()],
            fsid: U64::new(high as u64 ^ low as u64),
            fileid: attributes.id.number.into(),
            accessed: WireTime::new(attributes.accessed),
            modified: WireTime::new(attributes.modified),
            changed: WireTime::new(attributes.changed),
        }
    }
}

/// Writes post_op_attr.
pub(super) fn write_after(export: ExportId, attributes: Option<&Attributes>, out: &mut Writer<'_>) {
    out.bool(attributes.is_some());
    if let Some(attributes) = attributes {
        out.view(&WireAttributes::new(export, attributes));
    }
}

/// Writes wcc_data.
pub(super) fn write_change(
    export: ExportId,
    before: Option<&BeforeChange>,
    after: Option<&Attributes>,
    out: &mut Writer<'_>,
) {
    out.bool(before.is_some());
    if let Some(before) = before {
        out.view(&WireBefore {
            size_bytes: before.size_bytes.into(),
            modified: WireTime::new(before.modified),
            changed: WireTime::new(before.changed),
        });
    }
    write_after(export, after, out);
}

/// Reads sattr3. The inner error is that of a value that cannot be set.
pub(super) fn read_changes(
    reader: &mut Reader<'_>,
) -> Result<Result<AttributeChanges, Status>, Malformed> {
    let mut changes = AttributeChanges::default();
    if reader.bool()? {
        changes.mode = Some(Mode::new(reader.u32()?));
    }
    if reader.bool()? {
        changes.uid = Some(reader.u32()?);
    }
    if reader.bool()? {
        changes.gid = Some(reader.u32()?);
    }
    if reader.bool()? {
        changes.size_bytes = Some(reader.u64()?);
    }
    let accessed = read_time_change(reader)?;
    let modified = read_time_change(reader)?;
    let (Ok(accessed), Ok(modified)) = (accessed, modified) else {
        return Ok(Err(Status::Invalid));
    };
    changes.accessed = accessed;
    changes.modified = modified;
    Ok(Ok(changes))
}

/// Reads set_atime or set_mtime.
fn read_time_change(
    reader: &mut Reader<'_>,
) -> Result<Result<Option<TimeChange>, Status>, Malformed> {
    Ok(match reader.u32()? {
        0 => Ok(None),
        1 => Ok(Some(TimeChange::Now)),
        2 => WireTime::read(reader)?.map(|time| Some(TimeChange::To(time))),
        _ => return Err(Malformed),
    })
}

/// ftype3.
const KIND_REGULAR: u32 = 1;
const KIND_DIRECTORY: u32 = 2;
/// A block device.
pub(super) const KIND_BLOCK: u32 = 3;
/// A character device.
pub(super) const KIND_CHARACTER: u32 = 4;
const KIND_LINK: u32 = 5;
/// A socket.
pub(super) const KIND_SOCKET: u32 = 6;
/// A named pipe, the last of the kinds.
pub(super) const KIND_FIFO: u32 = 7;

#[cfg(test)]
mod tests {
    use super::*;
    use file_tree::FileId;

    const fn at(seconds: i64, nanoseconds: u32) -> Timestamp {
        Timestamp {
            seconds,
            nanoseconds,
        }
    }

    const ATTRIBUTES: Attributes = Attributes {
        id: FileId {
            number: 0x11,
            generation: 9,
        },
        kind: FileKind::CharacterDevice(DeviceNumber { major: 1, minor: 3 }),
        mode: Mode::new(0o640),
        links: 2,
        uid: 1000,
        gid: 100,
        size_bytes: 0x1_0000_0002,
        used_bytes: 0x2000,
        accessed: at(-1, 5),
        modified: at(3, 4),
        changed: at(i64::MAX, 6),
        change: 77,
    };

    #[test]
    fn attributes_are_laid_out_as_fattr3_and_wcc_data() {
        let mut export = [0; 16];
        (export[0], export[15]) = (0xa0, 0x0b);
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        let before = ATTRIBUTES.before_change();
        write_change(
            ExportId(export),
            Some(&before),
            Some(&ATTRIBUTES),
            &mut Writer::new(&mut bytes),
        );
        for word in [
            // pre_op_attr: present, size, mtime, ctime
            1,
            1,
            2,
            3,
            4,
            0xffff_ffff,
            6,
            // post_op_attr: present, type, mode, nlink, uid, gid, size, used, rdev
            1,
            4,
            0o640,
            2,
            1000,
            100,
            1,
            2,
            0,
            0x2000,
            1,
            3,
            // fsid, fileid, atime, mtime, ctime
            0xa000_0000,
            0x0b,
            0,
            0x11,
            0,
            5,
            3,
            4,
            0xffff_ffff,
            6_u32,
        ] {
            expected.extend(word.to_be_bytes());
        }
        assert_eq!(bytes, expected);
        bytes.clear();
        write_change(ExportId(export), None, None, &mut Writer::new(&mut bytes));
        assert_eq!(bytes, [0; 8]);
    }

    fn changes(words: &[u32]) -> Result<Result<AttributeChanges, Status>, Malformed> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let mut reader = Reader::new(&bytes);
        let changes = read_changes(&mut reader)?;
        reader.finish()?;
        Ok(changes)
    }

    #[test]
    fn changes_are_read_as_sattr3() {
        assert_eq!(changes(&[0; 6]), Ok(Ok(AttributeChanges::default())));
        let all = AttributeChanges {
            mode: Some(Mode::new(0o4755)),
            uid: Some(7),
            gid: Some(8),
            size_bytes: Some(1 << 32),
            accessed: Some(TimeChange::Now),
            modified: Some(TimeChange::To(at(5, 999_999_999))),
        };
        let words = [1, 0o104_755, 1, 7, 1, 8, 1, 1, 0, 1, 2, 5, 999_999_999];
        assert_eq!(changes(&words), Ok(Ok(all)));
        assert_eq!(
            changes(&[0, 0, 0, 0, 0, 2, 5, 1_000_000_000]),
            Ok(Err(Status::Invalid))
        );
        assert_eq!(changes(&[0, 0, 0, 0, 3, 0]), Err(Malformed));
        assert_eq!(changes(&[2, 0, 0, 0, 0, 0]), Err(Malformed));
        assert_eq!(changes(&words[..12]), Err(Malformed));
    }
}
