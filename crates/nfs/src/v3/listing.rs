//! READDIR and READDIRPLUS.

use file_tree::{Attributes, Cookie, DirectoryPage, FileError, Listing};

use super::LISTING_BYTES_MAX;
use super::attributes::{PRESENT_BYTES, WireAttributes};
use super::handle::{HANDLE_WIRE_BYTES, Handle};
use super::place::{Context, Fault, Place};
use super::status::Status;
use crate::Backend;
use crate::xdr::{Reader, Writer, padding};

/// The cookies behind `.` and `..`.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
/// cookieverf3. Cookies stay valid for as long as the directory exists, so it is always zero (RFC
/// 1813 section 3.3.16).
const VERIFIER: [u8; 8] = [0; 8];
/// What a list takes besides its entries: attributes, verifier, that no entry follows, and whether
/// the list is complete.
const FRAME_BYTES: usize = PRESENT_BYTES + size_of_val(&VERIFIER) + 4 + 4;

/// What is listed from where on, and how much of it.
struct Range {
    cookie: u64,
    verifier: [u8; 8],
    /// The most bytes of file numbers, names and cookies: dircount.
    information_bytes: usize,
    /// The most bytes of the whole list: count or maxcount.
    list_bytes: usize,
    form: Form,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// entry3.
    Short,
    /// entryplus3: with attributes and handle.
    Plus,
}

/// READDIR (section 3.3.16).
pub(super) fn read_directory<B: Backend>(
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    let directory = Handle::read(&mut arguments)?;
    let range = Range {
        cookie: arguments.u64()?,
        verifier: arguments.array()?,
        information_bytes: usize::MAX,
        list_bytes: (arguments.u32()? as usize).min(context.backend.transfer_bytes_max()),
        form: Form::Short,
    };
    arguments.finish()?;
    Ok(list(&context.open(directory)?, &range, out))
}

/// READDIRPLUS (section 3.3.17).
pub(super) fn read_directory_plus<B: Backend>(
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    let directory = Handle::read(&mut arguments)?;
    let range = Range {
        cookie: arguments.u64()?,
        verifier: arguments.array()?,
        information_bytes: arguments.u32()? as usize,
        list_bytes: (arguments.u32()? as usize).min(context.backend.transfer_bytes_max()),
        form: Form::Plus,
    };
    arguments.finish()?;
    Ok(list(&context.open(directory)?, &range, out))
}

fn list(place: &Place<'_>, range: &Range, out: &mut Writer<'_>) -> Status {
    let begin = out.len();
    let status = match write_list(place, range, out) {
        Ok(()) => return Status::Ok,
        Err(status) => status,
    };
    out.truncate(begin);
    place.write_status(status, out);
    status
}

fn write_list(place: &Place<'_>, range: &Range, out: &mut Writer<'_>) -> Result<(), Status> {
    if range.cookie != 0 && range.verifier != VERIFIER {
        return Err(Status::BadCookie);
    }
    let list_bytes = range.list_bytes.min(LISTING_BYTES_MAX);
    let left_bytes = list_bytes
        .checked_sub(FRAME_BYTES)
        .ok_or(Status::TooSmall)?;
    out.u32(Status::Ok as u32);
    // The attributes precede the entries, and are known after them.
    let attributes_at = out.len();
    out.zeros(PRESENT_BYTES);
    out.view(&VERIFIER);
    let mut entries = Entries {
        place,
        form: range.form,
        left_bytes,
        information_bytes: range.information_bytes,
        has_any: false,
        is_full: false,
        out,
    };
    let page = fill(&mut entries, range.cookie)?;
    let Entries {
        has_any, is_full, ..
    } = entries;
    if is_full && !has_any {
        return Err(Status::TooSmall);
    }
    out.bool(false);
    out.bool(page.is_end && !is_full);
    out.patch(attributes_at, &1_u32.to_be_bytes());
    let attributes = WireAttributes::new(place.export_id(), &page.attributes);
    out.patch(attributes_at + 4, &attributes);
    Ok(())
}

/// Adds entries behind `cookie` until the list is full or the directory ends.
fn fill(entries: &mut Entries<'_, '_>, cookie: u64) -> Result<DirectoryPage, FileError> {
    let place = entries.place;
    let (tree, caller, directory) = (place.tree(), place.caller(), place.file);
    if cookie < DOT_DOT {
        let own = tree.attributes(directory)?;
        if cookie < DOT {
            entries.add(b".", DOT, own.id.number, Some(&own));
        }
        // A caller who may not search the directory may still list it.
        match tree.parent(&caller, directory) {
            Ok(parent) => entries.add(b"..", DOT_DOT, parent.id.number, Some(&parent)),
            Err(FileError::AccessDenied) => entries.add(b"..", DOT_DOT, own.id.number, None),
            Err(error) => return Err(error),
        }
    }
    let after = if cookie <= DOT_DOT {
        Cookie::START
    } else {
        Cookie(cookie)
    };
    tree.list(&caller, directory, after, &mut |entry| {
        let attributes = &entry.attributes;
        let number = attributes.id.number;
        entries.add(
            entry.name.as_bytes(),
            entry.cookie.0,
            number,
            Some(attributes),
        );
        if entries.is_full {
            Listing::Full
        } else {
            Listing::More
        }
    })
}

/// A list that entries are added to.
struct Entries<'a, 'b> {
    place: &'a Place<'a>,
    form: Form,
    left_bytes: usize,
    information_bytes: usize,
    has_any: bool,
    /// An entry did not fit, so none is added behind it.
    is_full: bool,
    out: &'a mut Writer<'b>,
}

impl Entries<'_, '_> {
    fn add(&mut self, name: &[u8], cookie: u64, number: u64, attributes: Option<&Attributes>) {
        let information = 8 + 4 + name.len() + padding(name.len()) + 8;
        let plus = match (self.form, attributes) {
            (Form::Short, _) => 0,
            (Form::Plus, None) => 4 + 4,
            (Form::Plus, Some(_)) => PRESENT_BYTES + 4 + HANDLE_WIRE_BYTES,
        };
        let left_bytes = self.left_bytes.checked_sub(4 + information + plus);
        // dircount bounds a list, but one entry is always returned, so that a client gets on.
        let information_bytes = match self.information_bytes.checked_sub(information) {
            None if !self.has_any => Some(0),
            left => left,
        };
        let (false, Some(left_bytes), Some(information_bytes)) =
            (self.is_full, left_bytes, information_bytes)
        else {
            self.is_full = true;
            return;
        };
        self.left_bytes = left_bytes;
        self.information_bytes = information_bytes;
        self.has_any = true;
        self.out.bool(true);
        self.out.u64(number);
        self.out.opaque(name);
        self.out.u64(cookie);
        if self.form == Form::Plus {
            self.place.write_after(attributes, self.out);
            self.out.bool(attributes.is_some());
            if let Some(attributes) = attributes {
                self.place.write_handle(attributes.id, self.out);
            }
        }
    }
}
