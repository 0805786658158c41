//! READDIR.
//!
//! Read first: RFC 8881 section 18.23.

use file_tree::{Cookie, Listing};

use super::attributes::{ATTRIBUTES_BYTES_MAX, Subject, read_asked};
use super::bitmap::Bitmap;
use super::compound::Compound;
use super::file::subject_of;
use super::place::Node;
use crate::Backend;
use crate::status4::Status4;
use crate::v3::Handle;
use crate::xdr::{Reader, Writer, padding};

/// What a list takes besides its entries: verifier, that no entry follows, and whether the list is
/// complete.
const FRAME_BYTES: usize = 8 + 4 + 4;
/// The longest list in bytes, whatever the client asks for.
const LIST_BYTES_MAX: usize = 64 << 10;
/// The cookies of a listing are above those that stand for `.` and `..`, which are not listed.
const COOKIE_MIN: u64 = 3;
/// cookieverf4 of an export's directories, whose cookies stay valid for as long as the directory
/// exists.
const VERIFIER: [u8; 8] = [0; 8];

/// A list that entries are added to.
struct Entries<'a, 'b> {
    asked: Bitmap,
    left_bytes: usize,
    has_any: bool,
    /// An entry did not fit, so none is added behind it.
    is_full: bool,
    out: &'a mut Writer<'b>,
}

/// The arguments.
struct Range {
    cookie: u64,
    verifier: [u8; 8],
    asked: Bitmap,
    list_bytes: usize,
}

impl<B: Backend> Compound<'_, B> {
    /// READDIR.
    pub(super) fn read_directory(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let (cookie, verifier) = (arguments.u64()?, arguments.array()?);
        let _information_bytes = arguments.u32()?;
        let list_bytes = arguments.u32()? as usize;
        let range = Range {
            cookie,
            verifier,
            asked: read_asked(arguments)?,
            list_bytes: list_bytes.min(LIST_BYTES_MAX).min(self.room(out)),
        };
        if matches!(cookie, 1..COOKIE_MIN) {
            return Err(Status4::BadCookie);
        }
        match self.node()? {
            Node::Root => self.list_exports(&range, out),
            Node::File(handle) => self.list_entries(handle, &range, out),
        }
    }

    fn list_entries(
        &mut self,
        handle: Handle,
        range: &Range,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let place = self.place(handle)?;
        let (tree, caller) = (place.tree(), place.caller());
        let mut entries = Entries::new(range, VERIFIER, out)?;
        let page = tree.list(&caller, place.file, Cookie(range.cookie), &mut |entry| {
            let subject = subject_of(&place, &entry.attributes);
            entries.add(entry.name.as_bytes(), entry.cookie.0, &subject);
            if entries.is_full {
                Listing::Full
            } else {
                Listing::More
            }
        })?;
        entries.finish(page.is_end)
    }

    /// The entries of the root are the exports that the client may use.
    fn list_exports(&mut self, range: &Range, out: &mut Writer<'_>) -> Result<(), Status4> {
        // Cookies are positions in the list, so they are of no use once an export was added or
        // removed.
        let verifier = self.root_attributes().change.to_be_bytes();
        let mut names = Vec::new();
        self.backend.each_export(&mut |path, _| {
            names.push(path.trim_start_matches('/').as_bytes().to_vec());
        });
        let mut entries = Entries::new(range, verifier, out)?;
        let begin = range.cookie.saturating_sub(COOKIE_MIN - 1);
        for (name, cookie) in names.iter().zip(COOKIE_MIN..).skip(begin as usize) {
            let Ok(Node::File(handle)) = self.look_up_export(name) else {
                continue;
            };
            let place = self.place(handle)?;
            let attributes = place.attributes()?;
            entries.add(name, cookie, &subject_of(&place, &attributes));
            if entries.is_full {
                break;
            }
        }
        entries.finish(true)
    }
}

impl<'a, 'b> Entries<'a, 'b> {
    /// Begins a list with its verifier, which that of the client must be from the second part on.
    fn new(range: &Range, verifier: [u8; 8], out: &'a mut Writer<'b>) -> Result<Self, Status4> {
        if range.cookie != 0 && range.verifier != verifier {
            return Err(Status4::NotSame);
        }
        let left_bytes = range
            .list_bytes
            .checked_sub(FRAME_BYTES)
            .ok_or(Status4::TooSmall)?;
        out.view(&verifier);
        Ok(Self {
            asked: range.asked,
            left_bytes,
            has_any: false,
            is_full: false,
            out,
        })
    }

    fn add(&mut self, name: &[u8], cookie: u64, subject: &Subject<'_>) {
        let begin = self.out.len();
        let head = 4 + 8 + 4 + name.len() + padding(name.len());
        // The attributes are written before it is known whether they fit, if they could.
        if self.is_full || head > self.left_bytes {
            self.is_full = true;
            return;
        }
        self.out.bool(true);
        self.out.u64(cookie);
        self.out.opaque(name);
        subject.write(self.asked, self.out);
        let used = self.out.len() - begin;
        debug_assert!(used - head <= ATTRIBUTES_BYTES_MAX);
        if let Some(left) = self.left_bytes.checked_sub(used) {
            self.left_bytes = left;
            self.has_any = true;
        } else {
            self.out.truncate(begin);
            self.is_full = true;
        }
    }

    fn finish(self, is_end: bool) -> Result<(), Status4> {
        if self.is_full && !self.has_any {
            return Err(Status4::TooSmall);
        }
        self.out.bool(false);
        self.out.bool(is_end && !self.is_full);
        Ok(())
    }
}
