//! Random operations on a tree and on a model of it. Shared by the tests of all kinds of trees.

use file_tree::{
    AttributeChanges, Attributes, Caller, Cookie, DeviceNumber, ExclusiveVerifier, FileError,
    FileId, FileKind, FileTree, Listing, Mode, Name, NewFile, TimeChange, Timestamp, XattrMode,
    XattrName,
};
use proptest::prelude::*;

use super::state::{Changes, Kind, Model, New, PAGE, may};

pub const CALLERS: [Caller<'static>; 4] = [
    Caller::ROOT,
    Caller {
        uid: 1000,
        gid: 100,
        groups: &[101],
    },
    Caller {
        uid: 2000,
        gid: 200,
        groups: &[100, 0],
    },
    Caller {
        uid: 3000,
        gid: 300,
        groups: &[],
    },
];
const NAMES: [&str; 6] = ["a", "b", "c", "some longer name", "e", "\u{e9}"];
const XATTRS: [&[u8]; 4] = [b"a", b"b/b", b"\xff", &[b'n'; XattrName::LEN_MAX]];
const IDS: [u32; 6] = [0, 1000, 2000, 100, 101, 200];
const BYTES_MAX: usize = 6 * PAGE;
const DEVICE: FileKind = FileKind::CharacterDevice(DeviceNumber { major: 1, minor: 3 });
const PATHS: [u8; 40] = [b'p'; 40];

/// Files and names are chosen by number, from those that exist or once did.
#[derive(Clone, Debug)]
pub enum Op {
    Create(usize, usize, New, Changes),
    Lookup(usize, usize),
    Parent(usize),
    List(usize),
    ReadLink(usize),
    Access(usize),
    Read(usize, usize, usize),
    Write(usize, usize, usize, u8),
    Punch(usize, usize, usize),
    Allocate(usize, usize, usize),
    /// Of a file from a page on to another from a page on, so many pages or the rest.
    Clone(usize, usize, usize, usize, Option<usize>),
    SetXattr(usize, usize, Vec<u8>, XattrMode),
    GetXattr(usize, usize),
    ListXattrs(usize),
    RemoveXattr(usize, usize),
    Commit(usize),
    Set(usize, Changes),
    Link(usize, usize, usize),
    Remove(usize, usize, bool),
    Rename(usize, usize, usize, usize),
}

/// A tree and a model of it.
pub struct Both<T> {
    pub tree: T,
    pub model: Model,
    pub ids: Vec<FileId>,
    /// Whether space may be used up.
    pub is_tight: bool,
    /// Whether the tree is in a directory of the host: then the number of changes, the space that
    /// files take, and the links of directories are not those of the model.
    pub is_of_host: bool,
}

impl<T: FileTree> Both<T> {
    /// Runs one operation on both. If it fails, nothing may have changed.
    pub fn run(&mut self, who: &Caller<'_>, op: &Op) {
        let before = self.attributes();
        let mut model = self.model.clone();
        let count = model.nodes.len();
        let expected = self.run_model(&mut model, who, op);
        let got = self.run_tree(who, op, &expected);
        let no_space = matches!(got, Err(FileError::NoSpace | FileError::QuotaExceeded));
        if self.is_tight && expected.is_ok() && no_space {
            assert_eq!(
                self.attributes(),
                before,
                "{op:?} has failed, but changed something"
            );
            return;
        }
        let (got, short) = match got {
            Ok((id, short)) => (Ok(id), short),
            Err(error) => (Err(error), None),
        };
        assert_eq!(got.map(|_| ()), expected.map(|_| ()), "{op:?} by {who:?}");
        if let (Some(len), Op::Write(file, offset, _, byte)) = (short, op) {
            assert!(self.is_tight);
            model = self.model.clone();
            let file = file % count;
            model
                .write(who, file, *offset, &vec![*byte; len])
                .expect("as before");
        }
        self.model = model;
        if let Ok(Some(id)) = got {
            if self.model.nodes.len() > count {
                self.ids.push(id);
            }
            assert_eq!(
                id,
                self.ids[expected.ok().flatten().expect("compared above")]
            );
        }
        if expected.is_err() {
            assert_eq!(
                self.attributes(),
                before,
                "{op:?} has failed, but changed something"
            );
        }
    }

    fn run_model(
        &self,
        model: &mut Model,
        who: &Caller<'_>,
        op: &Op,
    ) -> Result<Option<usize>, FileError> {
        let file = |number: &usize| number % self.ids.len();
        let name = |number: &usize| NAMES[number % NAMES.len()];
        let nothing = |()| None;
        match op {
            Op::Create(at, text, new, changes) => model
                .create(who, file(at), name(text), *new, changes)
                .map(Some),
            Op::Lookup(at, text) => model.lookup(who, file(at), name(text)).map(Some),
            Op::Parent(at) => model.parent(who, file(at)).map(Some),
            Op::List(at) => model.list(who, file(at)).map(|_| None),
            Op::ReadLink(at) => model.read_link(file(at)).map(|_| None),
            Op::Access(at) => model.alive(file(at)).map(|_| None),
            Op::Read(at, ..) => model.read(who, file(at)).map(|_| None),
            Op::Write(at, offset, len, byte) => {
                let data = vec![*byte; *len];
                model.write(who, file(at), *offset, &data).map(nothing)
            }
            Op::Punch(at, start, len) => model.punch(who, file(at), *start, *len).map(nothing),
            Op::Allocate(at, start, len) => {
                model.allocate(who, file(at), *start, *len).map(nothing)
            }
            Op::Clone(from, first, to, first_to, _) => {
                let len = self.clone_len(op);
                let source = (file(from), first * PAGE);
                model
                    .clone_range(who, source, (file(to), first_to * PAGE), len)
                    .map(nothing)
            }
            Op::SetXattr(at, name, value, mode) => model
                .set_xattr(who, file(at), (*name, value.clone()), *mode)
                .map(nothing),
            Op::GetXattr(at, name) => model.xattr(who, file(at), *name).map(|_| None),
            Op::ListXattrs(at) => model.xattrs(who, file(at)).map(|_| None),
            Op::RemoveXattr(at, name) => model.remove_xattr(who, file(at), *name).map(nothing),
            Op::Commit(at) => model.check_write(who, file(at)).map(nothing),
            Op::Set(at, changes) => model.set(who, file(at), changes).map(nothing),
            Op::Link(at, to, text) => model.link(who, file(at), file(to), name(text)).map(nothing),
            Op::Remove(at, text, wants_directory) => model
                .remove(who, file(at), name(text), *wants_directory)
                .map(nothing),
            Op::Rename(from, text, to, new_text) => {
                let from = (file(from), name(text));
                model
                    .rename(who, from, (file(to), name(new_text)))
                    .map(nothing)
            }
        }
    }

    /// Compares what an operation that changes nothing returns.
    fn compare_answer(&self, who: &Caller<'_>, op: &Op) -> Result<(), FileError> {
        let number = |number: &usize| number % self.ids.len();
        let file = |at: &usize| self.ids[number(at)];
        let tree = &self.tree;
        match op {
            Op::List(at) => {
                let listed = self.list(who, file(at))?;
                let model = self.model.list(who, number(at));
                let model = model.expect("the tree has listed it").into_iter();
                let model: Vec<_> = model.map(|(name, file)| (name, self.ids[file])).collect();
                assert_eq!(listed, model);
            }
            Op::ReadLink(at) => {
                let model = self.model.read_link(number(at));
                let same = &mut |path: &[u8]| assert_eq!(Ok(path), model);
                tree.read_link(who, file(at), same)?;
            }
            Op::Access(at) => {
                let access = tree.access(who, file(at))?;
                let node = &self.model.nodes[number(at)];
                let model = ['r', 'w', 'x'].map(|what| may(who, node, what));
                assert_eq!([access.read, access.write, access.execute], model);
            }
            Op::Read(at, offset, len) => {
                let mut bytes = vec![0xee; *len];
                let read = tree.read(who, file(at), *offset as u64, &mut bytes)?;
                let data = self
                    .model
                    .read(who, number(at))
                    .expect("the tree has read it");
                let start = (*offset).min(data.len());
                let end = (offset + len).min(data.len()).max(start);
                assert_eq!(&bytes[..read.len_bytes], &data[start..end]);
                assert_eq!(read.is_end, end == data.len());
            }
            Op::GetXattr(at, name) => {
                let model = self.model.xattr(who, number(at), *name);
                let same = &mut |value: &[u8]| assert_eq!(Ok(value), model);
                tree.read_xattr(who, file(at), xattr(*name), same)?;
            }
            Op::ListXattrs(at) => {
                let model = self.model.xattrs(who, number(at));
                let listed = self.list_xattrs(who, file(at))?;
                let model = model.expect("the tree has listed them").keys().copied();
                assert_eq!(listed, model.collect::<Vec<_>>());
            }
            _ => unreachable!("it changes the tree"),
        }
        Ok(())
    }

    /// Runs the operation on the tree, and compares what it shows. Returns the file that it is
    /// about, and the length of a write that was cut short.
    fn run_tree(
        &self,
        who: &Caller<'_>,
        op: &Op,
        expected: &Result<Option<usize>, FileError>,
    ) -> Result<(Option<FileId>, Option<usize>), FileError> {
        let number = |number: &usize| number % self.ids.len();
        let file = |at: &usize| self.ids[number(at)];
        let name = |text: &usize| Name::new(NAMES[text % NAMES.len()].as_bytes()).expect("a name");
        let found = |attributes: Attributes| (Some(attributes.id), None);
        let nothing = (None, None);
        let tree = &self.tree;
        match op {
            Op::Create(at, text, new, changes) => tree
                .create(
                    who,
                    file(at),
                    name(text),
                    new_file(*new),
                    &attributes(changes),
                )
                .map(|changed| found(changed.value.attributes)),
            Op::Lookup(at, text) => tree.lookup(who, file(at), name(text)).map(found),
            Op::Parent(at) => tree.parent(who, file(at)).map(found),
            Op::List(_)
            | Op::ReadLink(_)
            | Op::Access(_)
            | Op::Read(..)
            | Op::GetXattr(..)
            | Op::ListXattrs(_) => self.compare_answer(who, op).map(|()| nothing),
            Op::Write(at, offset, len, byte) => {
                let data = vec![*byte; *len];
                let is_stable = !self.is_of_host;
                let done = tree.write(who, file(at), *offset as u64, &data, is_stable)?;
                let done = done.value.len_bytes;
                Ok((None, (done < *len).then_some(done)))
            }
            Op::Punch(..)
            | Op::Allocate(..)
            | Op::Clone(..)
            | Op::SetXattr(..)
            | Op::RemoveXattr(..) => self.run_extended(who, op).map(|()| nothing),
            Op::Commit(at) => tree.commit(who, file(at)).map(|_| nothing),
            Op::Set(at, changes) => tree
                .set_attributes(who, file(at), &attributes(changes), None)
                .map(|_| nothing),
            Op::Link(at, to, text) => {
                let linked = tree.link(who, file(at), file(to), name(text))?;
                assert!(expected.is_err() || linked.value.id == file(at));
                Ok(nothing)
            }
            Op::Remove(at, text, true) => tree
                .remove_directory(who, file(at), name(text))
                .map(|_| nothing),
            Op::Remove(at, text, false) => tree.remove(who, file(at), name(text)).map(|_| nothing),
            Op::Rename(from, text, to, new_text) => tree
                .rename(who, (file(from), name(text)), (file(to), name(new_text)))
                .map(|_| nothing),
        }
    }

    /// Runs an operation on the tree that only NFS version 4.2 has.
    fn run_extended(&self, who: &Caller<'_>, op: &Op) -> Result<(), FileError> {
        let file = |number: &usize| self.ids[number % self.ids.len()];
        let tree = &self.tree;
        match op {
            Op::Punch(at, start, len) => tree
                .punch_hole(who, file(at), *start as u64, *len as u64)
                .map(drop),
            Op::Allocate(at, start, len) => tree
                .allocate(who, file(at), *start as u64, *len as u64)
                .map(drop),
            Op::Clone(from, first, to, first_to, _) => {
                let [from_at, to_at] = [first, first_to].map(|page| (page * PAGE) as u64);
                let (from, to) = ((file(from), from_at), (file(to), to_at));
                tree.clone_range(who, from, to, self.clone_len(op) as u64)
                    .map(drop)
            }
            Op::SetXattr(at, name, value, mode) => tree
                .set_xattr(who, file(at), xattr(*name), value, *mode)
                .map(drop),
            Op::RemoveXattr(at, name) => tree.remove_xattr(who, file(at), xattr(*name)).map(drop),
            _ => unreachable!("others have it too"),
        }
    }

    fn list(
        &self,
        who: &Caller<'_>,
        directory: FileId,
    ) -> Result<Vec<(String, FileId)>, FileError> {
        let mut listed = Vec::new();
        let mut after = Cookie::START;
        loop {
            let mut room = 2;
            let page = self.tree.list(who, directory, after, &mut |entry| {
                if room == 0 {
                    return Listing::Full;
                }
                room -= 1;
                after = entry.cookie;
                let name = String::from_utf8_lossy(entry.name.as_bytes()).into_owned();
                listed.push((name, entry.attributes.id));
                Listing::More
            })?;
            if page.is_end {
                listed.sort();
                return Ok(listed);
            }
        }
    }

    /// How many bytes a clone is asked for.
    fn clone_len(&self, op: &Op) -> usize {
        let Op::Clone(from, first, .., pages) = op else {
            unreachable!("it is a clone");
        };
        let size = self.model.nodes[from % self.ids.len()].data.len();
        let rest = size.saturating_sub(first * PAGE);
        pages.map_or(rest, |pages| pages * PAGE)
    }

    /// The numbers of the names of a file's extended attributes.
    fn list_xattrs(&self, who: &Caller<'_>, file: FileId) -> Result<Vec<usize>, FileError> {
        let mut listed = Vec::new();
        self.tree.list_xattrs(who, file, &mut |name| {
            let number = XATTRS.iter().position(|known| *known == name.as_bytes());
            listed.push(number.expect("it was set"));
        })?;
        listed.sort_unstable();
        Ok(listed)
    }

    /// The attributes of all files that ever were, without the times of reads.
    fn attributes(&self) -> Vec<Result<Attributes, FileError>> {
        let unread = |attributes: Attributes| Attributes {
            accessed: Timestamp::default(),
            ..attributes
        };
        let ids = self.ids.iter();
        ids.map(|&id| self.tree.attributes(id).map(unread))
            .collect()
    }

    /// Compares everything. Returns how many files there are.
    pub fn compare(&self) -> u64 {
        let mut alive = 0;
        for (number, (node, &id)) in self.model.nodes.iter().zip(&self.ids).enumerate() {
            let attributes = self.tree.attributes(id);
            if !self.model.is_alive(number) {
                assert_eq!(attributes, Err(FileError::Stale));
                continue;
            }
            alive += 1;
            let attributes = attributes.expect("the model has it");
            let kind = match node.kind {
                Kind::File => FileKind::Regular,
                Kind::Directory => FileKind::Directory,
                Kind::Link => FileKind::SymbolicLink,
                Kind::Fifo => FileKind::Fifo,
                Kind::Device => DEVICE,
            };
            assert_eq!((attributes.id, attributes.kind), (id, kind));
            let got = (attributes.mode.bits(), attributes.uid, attributes.gid);
            assert_eq!(got, (node.mode, node.uid, node.gid));
            let is_full = !self.is_of_host;
            if is_full || node.kind != Kind::Directory {
                assert_eq!(attributes.links, node.links);
            }
            if is_full {
                assert_eq!(attributes.change, node.changes);
            }
            self.compare_xattrs(number);
            if node.kind == Kind::Directory {
                let model = self.model.list(&CALLERS[0], number).expect("root may");
                let model: Vec<_> = model
                    .into_iter()
                    .map(|(name, n)| (name, self.ids[n]))
                    .collect();
                assert_eq!(self.list(&CALLERS[0], id), Ok(model));
                continue;
            }
            assert_eq!(attributes.size_bytes, node.data.len() as u64);
            if is_full {
                assert_eq!(attributes.used_bytes, (node.pages.len() * PAGE) as u64);
            }
            if node.kind == Kind::File {
                let mut bytes = vec![0xee; node.data.len() + 1];
                let read = self
                    .tree
                    .read(&CALLERS[0], id, 0, &mut bytes)
                    .expect("root may");
                assert_eq!(&bytes[..read.len_bytes], node.data);
            }
        }
        alive
    }

    fn compare_xattrs(&self, file: usize) {
        let xattrs = &self.model.nodes[file].xattrs;
        let names: Vec<_> = xattrs.keys().copied().collect();
        let id = self.ids[file];
        assert_eq!(self.list_xattrs(&CALLERS[0], id), Ok(names));
        for (&name, model) in xattrs {
            let same = &mut |value: &[u8]| assert_eq!(value, model);
            let read = self.tree.read_xattr(&CALLERS[0], id, xattr(name), same);
            assert_eq!(read, Ok(()));
        }
    }

    pub fn remove_all(&mut self, directory: usize) {
        for name in self.model.nodes[directory].xattrs.clone().into_keys() {
            self.run(&CALLERS[0], &Op::RemoveXattr(directory, name));
        }
        for (name, file) in self.model.nodes[directory].entries.clone() {
            let is_directory = self.model.nodes[file].kind == Kind::Directory;
            if is_directory {
                self.remove_all(file);
            }
            let text = NAMES
                .iter()
                .position(|&text| text == name)
                .expect("one of these");
            self.run(&CALLERS[0], &Op::Remove(directory, text, is_directory));
        }
    }
}

fn xattr(number: usize) -> XattrName<'static> {
    XattrName::new(XATTRS[number]).expect("a name")
}

fn new_file(new: New) -> NewFile<'static> {
    match new {
        New::Guarded => NewFile::Guarded,
        New::Unchecked => NewFile::Unchecked,
        New::Exclusive(byte) => NewFile::Exclusive(ExclusiveVerifier([byte; 8])),
        New::Directory => NewFile::Directory,
        New::Link(len) => NewFile::SymbolicLink(&PATHS[..len]),
        New::Fifo => NewFile::Special(FileKind::Fifo),
        New::Device => NewFile::Special(DEVICE),
    }
}

fn attributes(changes: &Changes) -> AttributeChanges {
    let past = TimeChange::To(Timestamp {
        seconds: -1,
        nanoseconds: 5,
    });
    AttributeChanges {
        mode: changes.mode.map(|bits| Mode::new(u32::from(bits))),
        uid: changes.uid,
        gid: changes.gid,
        size_bytes: changes.size,
        modified: changes.modified_now.then_some(TimeChange::Now),
        accessed: changes.accessed_to.then_some(past),
    }
}

pub fn history() -> impl Strategy<Value = Vec<(usize, Op)>> {
    // Root is rarer, since nothing is refused to it.
    let caller = prop_oneof![1 => Just(0_usize), 2 => Just(1), 1 => Just(2), 1 => Just(3)];
    prop::collection::vec((caller, op()), 1..120)
}

fn op() -> impl Strategy<Value = Op> {
    let file = || prop_oneof![3 => Just(0_usize), 5 => 0_usize..60];
    let name = || 0..NAMES.len();
    let offset = || prop_oneof![0..BYTES_MAX, (0..6_usize).prop_map(|page| page * PAGE)];
    let len = || prop_oneof![0..BYTES_MAX, (0..4_usize).prop_map(|page| page * PAGE)];
    prop_oneof![
        6 => (file(), name(), new(), changes()).prop_map(|(a, b, c, d)| Op::Create(a, b, c, d)),
        1 => (file(), name()).prop_map(|(a, b)| Op::Lookup(a, b)),
        1 => file().prop_map(Op::Parent),
        1 => file().prop_map(Op::List),
        1 => file().prop_map(Op::ReadLink),
        1 => file().prop_map(Op::Access),
        3 => (file(), offset(), len()).prop_map(|(a, b, c)| Op::Read(a, b, c)),
        6 => (file(), offset(), len(), 1_u8..).prop_map(|(a, b, c, d)| Op::Write(a, b, c, d)),
        3 => (file(), offset(), len()).prop_map(|(a, b, c)| Op::Punch(a, b, c)),
        2 => (file(), offset(), len()).prop_map(|(a, b, c)| Op::Allocate(a, b, c)),
        4 => (file(), 0..6_usize, file(), 0..6_usize, prop::option::of(0..4_usize))
            .prop_map(|(a, b, c, d, e)| Op::Clone(a, b, c, d, e)),
        4 => set_xattr(file()),
        1 => (file(), 0..XATTRS.len()).prop_map(|(a, b)| Op::GetXattr(a, b)),
        1 => file().prop_map(Op::ListXattrs),
        2 => (file(), 0..XATTRS.len()).prop_map(|(a, b)| Op::RemoveXattr(a, b)),
        1 => file().prop_map(Op::Commit),
        4 => (file(), changes()).prop_map(|(a, b)| Op::Set(a, b)),
        2 => (file(), file(), name()).prop_map(|(a, b, c)| Op::Link(a, b, c)),
        2 => (file(), name(), any::<bool>()).prop_map(|(a, b, c)| Op::Remove(a, b, c)),
        4 => (file(), name(), file(), name()).prop_map(|(a, b, c, d)| Op::Rename(a, b, c, d)),
    ]
}

fn set_xattr(file: impl Strategy<Value = usize>) -> impl Strategy<Value = Op> {
    let mode = prop_oneof![
        2 => Just(XattrMode::Either),
        1 => Just(XattrMode::Create),
        1 => Just(XattrMode::Replace),
    ];
    let value = prop::collection::vec(any::<u8>(), 0..200);
    (file, 0..XATTRS.len(), value, mode).prop_map(|(a, b, c, d)| Op::SetXattr(a, b, c, d))
}

fn new() -> impl Strategy<Value = New> {
    prop_oneof![
        4 => Just(New::Guarded),
        2 => Just(New::Unchecked),
        1 => (0..3_u8).prop_map(New::Exclusive),
        4 => Just(New::Directory),
        1 => (1..PATHS.len()).prop_map(New::Link),
        1 => Just(New::Fifo),
        1 => Just(New::Device),
    ]
}

fn changes() -> impl Strategy<Value = Changes> {
    let mode = prop_oneof![2 => 0o600_u16..0o777, 1 => 0..0o7777_u16, 2 => Just(0o777)];
    let id = || prop::option::weighted(0.1, prop::sample::select(&IDS[..]));
    let size = prop::option::weighted(0.2, 0..BYTES_MAX as u64);
    let rare = || prop::bool::weighted(0.1);
    let mode = prop::option::weighted(0.8, mode);
    (mode, id(), id(), size, rare(), rare()).prop_map(
        |(mode, uid, gid, size, modified_now, accessed_to)| Changes {
            mode,
            uid,
            gid,
            size,
            modified_now,
            accessed_to,
        },
    )
}
