//! A complete file and the increments beside it, which together hold what a volume was at the
//! moment of the last increment.
//!
//! ```text
//!  rd0.save ◄── rd0.save.inc1 ◄── rd0.save.inc2      each names the one before by its checksum
//! ```
//!
//! An increment of another complete file is left from a save that was replaced, and ignored.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{FileStep, ImageError, LinkFault};
use crate::files::{Files, ReadAt};
use crate::format::{FileId, INCREMENT_VERSION, INCREMENTS_MAX, IndexEntry, Label, Link};
use crate::reader::{Chunk, ChunkBuffers, Image, read_header, read_unchecked_header};

/// What becomes of increments that do not follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfBroken {
    /// Nothing is read.
    #[default]
    Refuse,
    /// What is before the gap is read: an earlier save, as a whole.
    EndBefore,
}

/// A complete file and its increments, whose headers, indexes and trailers agree with their
/// checksums.
#[derive(Debug)]
pub struct Chain<R> {
    /// The complete file, then its increments.
    images: Vec<Image<R>>,
    /// The chunks that are not zeros, in ascending order of numbers.
    chunks: Vec<Held>,
    broken: Option<ImageError>,
}

/// Where a chain ends: what the next increment follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    pub(crate) base: FileId,
    pub(crate) last: FileId,
    /// How many increments there are.
    pub increments: u32,
}

/// A chunk, and which file holds it.
#[derive(Clone, Copy, Debug)]
struct Held {
    number: u32,
    image: u32,
}

/// What is at the name of an increment.
enum Found<R> {
    /// Nothing, or an increment of another complete file.
    Nothing,
    Increment(Image<R>, Link),
    Fault(LinkFault),
}

impl Tail {
    pub(crate) fn of_complete(id: FileId) -> Self {
        Self {
            base: id,
            last: id,
            increments: 0,
        }
    }

    /// The link of the next increment.
    pub(crate) fn next_link(&self) -> Link {
        Link {
            base: self.base,
            previous: self.last,
            place: self.increments + 1,
        }
    }

    /// Whether there may be another increment.
    pub fn has_room(&self) -> bool {
        self.increments < INCREMENTS_MAX
    }
}

/// The name of an increment of `path`.
pub(crate) fn increment_path(path: &Path, place: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".inc{place}"));
    name.into()
}

/// Whether a file is an increment, of whatever file; it may be damaged.
pub(crate) fn is_increment(file: &impl ReadAt) -> Result<bool, ImageError> {
    match read_unchecked_header(file) {
        Ok(header) => Ok(header.version.get() == INCREMENT_VERSION),
        Err(error @ ImageError::File { .. }) => Err(error),
        Err(_) => Ok(false),
    }
}

impl<R: ReadAt> Chain<R> {
    /// Reads header, index and trailer of a complete file and of its increments. `accept` decides
    /// by the label of the complete file whether to go on.
    ///
    /// # Errors
    /// As [`Image::open`], or [`ImageError::Broken`] if increments do not follow each other, unless
    /// `if_broken` permits that.
    pub fn open<F: Files<Old = R>, E: From<ImageError>>(
        files: &F,
        path: &Path,
        accept: impl FnOnce(&Label) -> Result<(), E>,
        if_broken: IfBroken,
    ) -> Result<Self, E> {
        let file = files.open(path).map_err(open_failed)?;
        let file = file.ok_or_else(|| open_failed(io::ErrorKind::NotFound.into()))?;
        let base = Image::open(file, accept)?;
        let held = |number| Held { number, image: 0 };
        let mut chain = Self {
            chunks: base.numbers().map(held).collect(),
            images: vec![base],
            broken: None,
        };
        if let Err(broken) = chain.open_increments(files, path) {
            if if_broken == IfBroken::Refuse {
                return Err(broken.into());
            }
            chain.broken = Some(broken);
        }
        Ok(chain)
    }

    fn open_increments<F: Files<Old = R>>(
        &mut self,
        files: &F,
        path: &Path,
    ) -> Result<(), ImageError> {
        let mut gap = None;
        for place in 1..=INCREMENTS_MAX {
            let (place, fault) = match self.find(files, path, place) {
                Found::Nothing => {
                    gap = gap.or(Some(place));
                    continue;
                }
                Found::Increment(image, link) => match gap {
                    Some(gap) => (gap, LinkFault::Missing),
                    None if link.previous == self.last().id() => {
                        self.push(image);
                        continue;
                    }
                    None => (place, LinkFault::Foreign),
                },
                Found::Fault(fault) => (place, fault),
            };
            return Err(ImageError::Broken {
                path: increment_path(path, place),
                fault,
                sequence: self.label().sequence,
            });
        }
        Ok(())
    }

    fn find<F: Files<Old = R>>(&self, files: &F, path: &Path, place: u32) -> Found<R> {
        let unreadable = |error| Found::Fault(LinkFault::Unreadable(Box::new(error)));
        let file = match files.open(&increment_path(path, place)) {
            Ok(Some(file)) => file,
            Ok(None) => return Found::Nothing,
            Err(error) => return unreadable(open_failed(error)),
        };
        let (header, label) = match read_header(&file) {
            Ok(read) => read,
            Err(error) => return unreadable(error),
        };
        let Some(link) = header.link() else {
            return Found::Fault(LinkFault::Foreign);
        };
        let (base, of_base) = (&self.images[0], &self.images[0].label());
        let belongs = link.base == base.id()
            && link.place == place
            && label.lineage == of_base.lineage
            && label.size_bytes == of_base.size_bytes
            && label.block_bytes == of_base.block_bytes;
        if !belongs {
            return Found::Nothing;
        }
        match Image::open_rest(file, &header, label) {
            Ok(image) => Found::Increment(image, link),
            Err(error) => unreadable(error),
        }
    }

    /// Adds an increment: what it has entries for replaces what was before.
    fn push(&mut self, image: Image<R>) {
        let index = self.images.len() as u32;
        let mut merged = Vec::with_capacity(self.chunks.len());
        let mut older = self.chunks.iter().copied().peekable();
        for (number, is_held) in image.entries() {
            while let Some(held) = older.next_if(|held| held.number < number) {
                merged.push(held);
            }
            older.next_if(|held| held.number == number);
            if is_held {
                let image = index;
                merged.push(Held { number, image });
            }
        }
        merged.extend(older);
        self.chunks = merged;
        self.images.push(image);
    }

    fn last(&self) -> &Image<R> {
        self.images.last().expect("the complete file is there")
    }

    /// What the last file says about itself: the moment that all together show.
    pub fn label(&self) -> &Label {
        self.last().label()
    }

    /// Where it ends.
    pub fn tail(&self) -> Tail {
        Tail {
            base: self.images[0].id(),
            last: self.last().id(),
            increments: (self.images.len() - 1) as u32,
        }
    }

    /// Why it ends before increments that exist, if [`IfBroken::EndBefore`] was given.
    pub fn broken(&self) -> Option<&ImageError> {
        self.broken.as_ref()
    }

    /// The same, when the files are not needed any more.
    pub fn into_broken(self) -> Option<ImageError> {
        self.broken
    }

    /// The length of the complete file in bytes.
    pub fn base_bytes(&self) -> u64 {
        self.images[0].file_bytes()
    }

    /// The length of all files in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.images.iter().map(Image::file_bytes).sum()
    }

    /// Bytes of the volume that the files hold: all others are zeros.
    pub fn held_bytes(&self) -> u64 {
        let size_bytes = self.label().size_bytes;
        let held = |held: &Held| IndexEntry::chunk_len(held.number, size_bytes);
        self.chunks.iter().map(held).sum()
    }

    /// The same without the chunks of these numbers, which ascend.
    pub fn held_bytes_without(&self, numbers: &[u32]) -> u64 {
        let size_bytes = self.label().size_bytes;
        let others = self
            .numbers()
            .filter(|number| numbers.binary_search(number).is_err());
        others
            .map(|number| IndexEntry::chunk_len(number, size_bytes))
            .sum()
    }

    /// Reads every chunk, in the order of the volume, until `each` ends it with an error.
    ///
    /// # Errors
    /// Those of `each`, or if a file cannot be read, for a reason other than damage.
    pub fn read<E: From<ImageError>>(
        &self,
        each: &mut dyn FnMut(Chunk<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut buffers = ChunkBuffers::default();
        for position in 0..self.chunks.len() {
            each(self.chunk(position, &mut buffers)?)?;
        }
        Ok(())
    }

    /// The numbers of the chunks that the files hold, in ascending order: offsets in the volume,
    /// divided by [`CHUNK_BYTES`](crate::CHUNK_BYTES).
    pub fn numbers(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.chunks.iter().map(|held| held.number)
    }

    /// The number at a position among the [`numbers`](Self::numbers).
    pub fn number(&self, position: usize) -> Option<u32> {
        self.chunks.get(position).map(|held| held.number)
    }

    /// Where chunk `number` stands among the [`numbers`](Self::numbers), if a file holds it.
    pub fn position(&self, number: u32) -> Option<usize> {
        let found = self
            .chunks
            .binary_search_by_key(&number, |held| held.number);
        found.ok()
    }

    /// Reads the chunk at a position among the [`numbers`](Self::numbers).
    ///
    /// # Errors
    /// If its file cannot be read, for a reason other than damage.
    ///
    /// # Panics
    /// If the files hold fewer chunks.
    pub fn chunk<'a>(
        &self,
        position: usize,
        buffers: &'a mut ChunkBuffers,
    ) -> Result<Chunk<'a>, ImageError> {
        let held = self.chunks[position];
        let image = &self.images[held.image as usize];
        let position = image.position(held.number);
        image.chunk(position.expect("its index has the chunk"), buffers)
    }
}

fn open_failed(source: io::Error) -> ImageError {
    let step = FileStep::Open;
    ImageError::File { step, source }
}

#[cfg(test)]
mod tests;
