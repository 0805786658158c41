//! Opening a file, with or without the page cache.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::Path,
};

use rustix::fs::{AtFlags, StatxFlags};

use crate::{Caching, FileAccess, FileIoOptions};

/// Opens the file. Returns the alignment of transfers and whether they bypass the page cache.
pub(crate) fn open_file(path: &Path, options: &FileIoOptions) -> io::Result<(File, u32, bool)> {
    let mut open = OpenOptions::new();
    open.read(true)
        .write(options.access == FileAccess::ReadWrite);
    if options.caching == Caching::DirectWherePossible {
        let direct = open.clone().custom_flags(libc::O_DIRECT).open(path);
        match direct {
            Ok(file) => {
                let alignment_bytes = direct_alignment_bytes(&file)?;
                if options
                    .buffer_bytes
                    .is_multiple_of(alignment_bytes as usize)
                {
                    return Ok((file, alignment_bytes, true));
                }
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((open.open(path)?, 1, false))
}

/// How offsets, lengths and buffers of direct transfers must be aligned.
pub(crate) fn direct_alignment_bytes(file: &File) -> io::Result<u32> {
    /// The alignment that every disk accepts, for file systems that report none.
    const SAFE: u32 = 4096;
    if file.metadata()?.file_type().is_block_device() {
        return Ok(rustix::fs::ioctl_blksszget(file)?);
    }
    let wanted = StatxFlags::from_bits_retain(libc::STATX_DIOALIGN);
    let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted)?;
    let said = stat.stx_mask & libc::STATX_DIOALIGN != 0 && stat.stx_dio_offset_align > 0;
    Ok(if said {
        stat.stx_dio_offset_align
    } else {
        SAFE
    })
}
