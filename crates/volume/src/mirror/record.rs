//! What a mirror records in a file, so that no stale member is read after a restart.
//!
//! The file names the members in sync, and the regions in which members may differ: those that are
//! missing somewhere, that are being written, or that were written and not flushed. A region is in
//! the file before it is written, and a member that is out of sync is not named any more before a
//! command is answered that it missed. See `docs/design/0019-mirrors.md`.

use std::io;
use std::path::{Path, PathBuf};

use image::{Files, ReadAt as _};

use super::regions::{Division, Regions};
use crate::mirror_info::RecordError;

/// The first line, with the version of the format.
const HEADER: &str = "ramport-mirror 1";
/// The longest file: names of members, and a bit for each region.
const LEN_BYTES_MAX: u64 = 256 << 10;
/// Bytes of the checksum at the end.
const SUM_BYTES: usize = 4;

/// Where a mirror records what it has to know after a restart.
#[derive(Clone, Debug)]
pub(super) struct RecordFile<F> {
    files: F,
    path: PathBuf,
}

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The names of all members.
    pub(super) members: Vec<String>,
    /// The names of those in sync.
    pub(super) in_sync: Vec<String>,
    /// Where members may differ from each other.
    pub(super) regions: Regions,
}

impl<F: Files> RecordFile<F> {
    pub(super) fn new(files: F, path: PathBuf) -> Self {
        Self { files, path }
    }

    /// Writes the file anew. It is the old or the new one, whatever happens.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn write(&self, record: &Record) -> Result<(), RecordError> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.files
            .remove_leftovers(folder, &format!("{name}."), ".new");
        let new = folder.join(format!("{name}.{}.new", uuid::Uuid::new_v4()));
        let mut file = self.files.create(&new).map_err(io_error("create", &new))?;
        self.files
            .append(&mut file, &record.encoded())
            .map_err(io_error("write", &new))?;
        self.files.sync(&mut file).map_err(io_error("sync", &new))?;
        self.files
            .rename(&new, &self.path)
            .map_err(io_error("replace", &self.path))?;
        self.files
            .sync_folder(folder)
            .map_err(io_error("sync", folder))
    }

    /// Reads the file.
    ///
    /// # Errors
    /// If it is missing, damaged, or that of a volume of another size.
    pub(super) fn read(&self, division: Division) -> Result<Record, RecordError> {
        let damaged = || RecordError::Damaged {
            path: self.path.clone(),
        };
        let io = |source| io_error("read", &self.path)(source);
        let file = self.files.open(&self.path).map_err(io)?;
        let file = file.ok_or_else(damaged)?;
        let len_bytes = file.len_bytes().map_err(io)?;
        if len_bytes > LEN_BYTES_MAX {
            return Err(damaged());
        }
        let mut bytes = vec![0; len_bytes as usize];
        file.read_at(0, &mut bytes).map_err(io)?;
        Record::decode(&bytes, division).ok_or_else(damaged)
    }

    /// Calls `create` with the folder of the file.
    ///
    /// # Errors
    /// That of `create`.
    pub(super) fn create_folder(
        &self,
        create: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), RecordError> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        create(folder).map_err(io_error("create", folder))
    }

    /// Removes the file, if it exists.
    pub(super) fn remove(&self) {
        // One that stays is replaced when a mirror of this name is created.
        let _stays = self.files.remove(&self.path);
    }
}

fn io_error<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> RecordError + 'a {
    move |source| RecordError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

impl Record {
    /// Lines, an empty one, the regions, and a checksum of all that. A line that begins with `+`
    /// names a member in sync, one with `-` another member.
    fn encoded(&self) -> Vec<u8> {
        let mut text = format!("{HEADER}\n{}\n", self.regions.division().len_bytes());
        for name in &self.members {
            let is_in_sync = self.in_sync.contains(name);
            text.push(if is_in_sync { '+' } else { '-' });
            text.push_str(name);
            text.push('\n');
        }
        text.push('\n');
        let mut bytes = text.into_bytes();
        let words = self.regions.words();
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let sum = crc32c::crc32c(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], division: Division) -> Option<Self> {
        let (bytes, sum) = bytes.split_at_checked(bytes.len().checked_sub(SUM_BYTES)?)?;
        if crc32c::crc32c(bytes).to_le_bytes() != sum {
            return None;
        }
        let end = bytes.windows(2).position(|two| two == b"\n\n")?;
        let mut lines = std::str::from_utf8(&bytes[..end]).ok()?.lines();
        let is_ours = lines.next()? == HEADER && lines.next()?.parse() == Ok(division.len_bytes());
        let members: Vec<_> = lines.collect();
        let named = |mark: &[char]| {
            let named = members.iter().filter_map(|line| line.strip_prefix(mark));
            named.map(str::to_owned).collect()
        };
        let words = bytes[end + 2..].chunks_exact(8);
        let words = words.map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        is_ours.then_some(Self {
            members: named(&['+', '-']),
            in_sync: named(&['+']),
            regions: Regions::from_words(division, words.collect())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use block::ByteRange;
    use block::testing::Folder;
    use image::HostFiles;
    use proptest::prelude::*;

    use super::*;

    fn record() -> (Record, Division) {
        let division = Division::new(100 << 20);
        let mut regions = Regions::none(division);
        regions.insert(ByteRange {
            offset: 70 << 20,
            len: 3 << 20,
        });
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let record = Record {
            members: names(&["a", "b", "c"]),
            in_sync: names(&["a", "c"]),
            regions,
        };
        (record, division)
    }

    #[test]
    fn a_record_is_read_as_it_was_written_or_not_at_all() {
        let folder = Folder::new();
        let file = RecordFile::new(HostFiles, folder.join("m0"));
        let (record, division) = record();
        let missing = file.read(division).expect_err("none was written");
        assert!(
            missing.to_string().contains("is missing or damaged"),
            "{missing}"
        );
        file.write(&record).expect("the folder exists");
        assert_eq!(file.read(division).expect("it is whole"), record);
        let other = file.read(Division::new(101 << 20));
        assert!(
            matches!(other, Err(RecordError::Damaged { .. })),
            "{other:?}"
        );
        let none = Record {
            members: Vec::new(),
            in_sync: Vec::new(),
            regions: Regions::none(division),
        };
        file.write(&none).expect("it is replaced");
        assert_eq!(file.read(division).expect("it is whole"), none);
        assert_eq!(
            std::fs::read_dir(folder.join(""))
                .expect("a folder")
                .count(),
            1
        );
        file.remove();
        assert!(file.read(division).is_err());
    }

    proptest! {
        #[test]
        fn no_damage_is_taken_for_a_record(at in any::<prop::sample::Index>(), bit in 0_u8..8, cut in any::<bool>()) {
            let (record, division) = record();
            let mut bytes = record.encoded();
            let at = at.index(bytes.len());
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 1 << bit;
            }
            prop_assert_eq!(Record::decode(&bytes, division), None);
        }
    }
}
