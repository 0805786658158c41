//! A file system that is as simple as possible: every file is a vector of bytes.

use std::collections::{BTreeMap, BTreeSet};

use file_tree::{Caller, FileError, XattrMode};

pub const PAGE: usize = 4096;
/// Files of the test are shorter.
const SIZE_MAX: u64 = 8 << 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    Link,
    Fifo,
    Device,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub kind: Kind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    pub changes: u64,
    pub data: Vec<u8>,
    /// Pages of `data` that take memory.
    pub pages: BTreeSet<usize>,
    pub entries: BTreeMap<String, usize>,
    /// Extended attributes, by the number of their name.
    pub xattrs: BTreeMap<usize, Vec<u8>>,
    parent: usize,
    verifier: Option<u8>,
}

/// What a creation asks for.
#[derive(Clone, Copy, Debug)]
pub enum New {
    Guarded,
    Unchecked,
    Exclusive(u8),
    Directory,
    Link(usize),
    Fifo,
    Device,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Changes {
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub modified_now: bool,
    pub accessed_to: bool,
}

impl Changes {
    fn is_nothing(&self) -> bool {
        let Self { mode, uid, gid, .. } = *self;
        mode.is_none()
            && uid.is_none()
            && gid.is_none()
            && self.size.is_none()
            && !self.modified_now
            && !self.accessed_to
    }
}

/// All files that ever were, by the order of their creation. File 0 is the root.
#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: Vec<Node>,
}

type Result<T> = std::result::Result<T, FileError>;

impl Model {
    pub fn new() -> Self {
        let mut root = node(Kind::Directory, 0o755, 0, 0, 0);
        root.links = 2;
        Self { nodes: vec![root] }
    }

    pub fn is_alive(&self, file: usize) -> bool {
        self.nodes[file].links > 0
    }

    pub fn alive(&self, file: usize) -> Result<&Node> {
        if !self.is_alive(file) {
            return Err(FileError::Stale);
        }
        Ok(&self.nodes[file])
    }

    fn directory(&self, file: usize) -> Result<&Node> {
        let node = self.alive(file)?;
        match node.kind {
            Kind::Directory => Ok(node),
            _ => Err(FileError::NotDirectory),
        }
    }

    fn searched(&self, who: &Caller<'_>, file: usize) -> Result<&Node> {
        let node = self.directory(file)?;
        allow(may(who, node, 'x')).map(|()| node)
    }

    fn changeable(&self, who: &Caller<'_>, file: usize) -> Result<&Node> {
        let node = self.directory(file)?;
        allow(may(who, node, 'x') && may(who, node, 'w')).map(|()| node)
    }

    pub fn lookup(&self, who: &Caller<'_>, directory: usize, name: &str) -> Result<usize> {
        let entries = &self.searched(who, directory)?.entries;
        entries.get(name).copied().ok_or(FileError::NotFound)
    }

    pub fn parent(&self, who: &Caller<'_>, directory: usize) -> Result<usize> {
        self.searched(who, directory).map(|node| node.parent)
    }

    pub fn list(&self, who: &Caller<'_>, directory: usize) -> Result<Vec<(String, usize)>> {
        let node = self.directory(directory)?;
        allow(may(who, node, 'r'))?;
        Ok(node.entries.clone().into_iter().collect())
    }

    pub fn read_link(&self, file: usize) -> Result<&[u8]> {
        let node = self.alive(file)?;
        match node.kind {
            Kind::Link => Ok(&node.data),
            _ => Err(FileError::Invalid),
        }
    }

    pub fn read(&self, who: &Caller<'_>, file: usize) -> Result<&[u8]> {
        let node = regular(self.alive(file)?)?;
        allow(may(who, node, 'r') || may(who, node, 'x') || owns(who, node))?;
        Ok(&node.data)
    }

    pub fn check_write(&self, who: &Caller<'_>, file: usize) -> Result<()> {
        let node = regular(self.alive(file)?)?;
        allow(may(who, node, 'w') || owns(who, node))
    }

    pub fn write(
        &mut self,
        who: &Caller<'_>,
        file: usize,
        offset: usize,
        data: &[u8],
    ) -> Result<()> {
        self.check_write(who, file)?;
        if data.is_empty() {
            return Ok(());
        }
        let node = &mut self.nodes[file];
        let end = offset + data.len();
        if node.data.len() < end {
            node.data.resize(end, 0);
        }
        node.data[offset..end].copy_from_slice(data);
        node.pages.extend(offset / PAGE..=(end - 1) / PAGE);
        node.changes += 1;
        drop_set_id(who, node);
        Ok(())
    }

    pub fn punch(&mut self, who: &Caller<'_>, file: usize, start: usize, len: usize) -> Result<()> {
        self.check_write(who, file)?;
        let node = &mut self.nodes[file];
        let size = node.data.len();
        let end = (start + len).min(size);
        if start < end {
            node.data[start..end].fill(0);
        }
        node.pages.retain(|page| {
            let first = page * PAGE;
            let last = (first + PAGE).min(size);
            !(start <= first && last <= end)
        });
        node.changes += 1;
        drop_set_id(who, node);
        Ok(())
    }

    pub fn allocate(
        &mut self,
        who: &Caller<'_>,
        file: usize,
        start: usize,
        len: usize,
    ) -> Result<()> {
        self.check_write(who, file)?;
        if len == 0 {
            return Err(FileError::Invalid);
        }
        let node = &mut self.nodes[file];
        let end = start + len;
        node.data.resize(node.data.len().max(end), 0);
        node.pages.extend(start / PAGE..end.div_ceil(PAGE));
        node.changes += 1;
        drop_set_id(who, node);
        Ok(())
    }

    pub fn clone_range(
        &mut self,
        who: &Caller<'_>,
        (source, from): (usize, usize),
        (target, to): (usize, usize),
        len: usize,
    ) -> Result<()> {
        self.alive(source)?;
        self.alive(target)?;
        let size = self.read(who, source)?.len();
        self.check_write(who, target)?;
        let is_rest = from + len == size && to + len >= self.nodes[target].data.len();
        let is_unit = |bytes: usize| bytes.is_multiple_of(PAGE);
        let fits = from + len <= size && is_unit(from) && is_unit(to) && (is_unit(len) || is_rest);
        if !fits || source == target && from.abs_diff(to) < len {
            return Err(FileError::Invalid);
        }
        if len == 0 {
            return Ok(());
        }
        let copied = self.nodes[source].data[from..from + len].to_vec();
        let pages = from / PAGE..(from + len).div_ceil(PAGE);
        let pages: Vec<_> = self.nodes[source].pages.range(pages).copied().collect();
        let node = &mut self.nodes[target];
        node.data.resize(node.data.len().max(to + len), 0);
        node.data[to..to + len].copy_from_slice(&copied);
        let replaced = to / PAGE..(to + len).div_ceil(PAGE);
        node.pages.retain(|page| !replaced.contains(page));
        let moved = |page| page - from / PAGE + to / PAGE;
        node.pages.extend(pages.into_iter().map(moved));
        node.changes += 1;
        drop_set_id(who, node);
        Ok(())
    }

    /// The extended attributes that the caller may read.
    pub fn xattrs(&self, who: &Caller<'_>, file: usize) -> Result<&BTreeMap<usize, Vec<u8>>> {
        let node = self.alive(file)?;
        if matches!(node.kind, Kind::File | Kind::Directory) {
            allow(may(who, node, 'r'))?;
        }
        Ok(&node.xattrs)
    }

    pub fn xattr(&self, who: &Caller<'_>, file: usize, name: usize) -> Result<&[u8]> {
        let value = self.xattrs(who, file)?.get(&name);
        value.map(|value| &value[..]).ok_or(FileError::NoXattr)
    }

    pub fn set_xattr(
        &mut self,
        who: &Caller<'_>,
        file: usize,
        (name, value): (usize, Vec<u8>),
        mode: XattrMode,
    ) -> Result<()> {
        let xattrs = &mut self.xattrs_mut(who, file)?.xattrs;
        match (mode, xattrs.contains_key(&name)) {
            (XattrMode::Create, true) => return Err(FileError::Exists),
            (XattrMode::Replace, false) => return Err(FileError::NoXattr),
            _ => {}
        }
        xattrs.insert(name, value);
        self.nodes[file].changes += 1;
        Ok(())
    }

    pub fn remove_xattr(&mut self, who: &Caller<'_>, file: usize, name: usize) -> Result<()> {
        let removed = self.xattrs_mut(who, file)?.xattrs.remove(&name);
        removed.ok_or(FileError::NoXattr)?;
        self.nodes[file].changes += 1;
        Ok(())
    }

    fn xattrs_mut(&mut self, who: &Caller<'_>, file: usize) -> Result<&mut Node> {
        let node = self.alive(file)?;
        let is_sticky = node.kind == Kind::Directory && node.mode & 0o1000 != 0;
        match node.kind {
            Kind::File | Kind::Directory if !is_sticky || owns(who, node) => {
                allow(may(who, node, 'w'))?;
            }
            _ => return Err(FileError::NotOwner),
        }
        Ok(&mut self.nodes[file])
    }

    pub fn set(&mut self, who: &Caller<'_>, file: usize, changes: &Changes) -> Result<()> {
        self.alive(file)?;
        check_changes(who, &self.nodes[file], changes)?;
        if changes.is_nothing() {
            return Ok(());
        }
        let node = &mut self.nodes[file];
        if let Some(size) = changes.size {
            node.data.resize(size as usize, 0);
            node.pages.retain(|page| page * PAGE < size as usize);
            drop_set_id(who, node);
        }
        node.uid = changes.uid.unwrap_or(node.uid);
        node.gid = changes.gid.unwrap_or(node.gid);
        if let Some(mode) = changes.mode {
            node.mode = mode;
            if who.uid != 0 && !belongs(who, node.gid) {
                node.mode &= !0o2000;
            }
        }
        if changes.uid.is_some() || changes.gid.is_some() {
            drop_set_id(who, node);
        }
        node.changes += 1;
        Ok(())
    }

    fn use_existing(
        &mut self,
        who: &Caller<'_>,
        existing: usize,
        new: New,
        changes: &Changes,
    ) -> Result<usize> {
        let node = &self.nodes[existing];
        match (node.kind, new) {
            (Kind::File, New::Unchecked) => {
                let size_alone = Changes {
                    size: changes.size,
                    ..Changes::default()
                };
                self.set(who, existing, &size_alone).map(|()| existing)
            }
            (Kind::File, New::Exclusive(verifier)) if node.verifier == Some(verifier) => {
                Ok(existing)
            }
            _ => Err(FileError::Exists),
        }
    }

    /// The created file, or an existing one.
    pub fn create(
        &mut self,
        who: &Caller<'_>,
        directory: usize,
        name: &str,
        new: New,
        changes: &Changes,
    ) -> Result<usize> {
        if let Some(&existing) = self.searched(who, directory)?.entries.get(name) {
            return self.use_existing(who, existing, new, changes);
        }
        let parent = self.changeable(who, directory)?;
        if matches!(new, New::Device) && who.uid != 0 {
            return Err(FileError::NotOwner);
        }
        let (kind, mode) = match new {
            New::Guarded | New::Unchecked | New::Exclusive(_) => (Kind::File, 0o600),
            New::Directory => (Kind::Directory, 0o700),
            New::Link(_) => (Kind::Link, 0o777),
            New::Fifo => (Kind::Fifo, 0o600),
            New::Device => (Kind::Device, 0o600),
        };
        let inherits = parent.mode & 0o2000 != 0;
        let gid = if inherits { parent.gid } else { who.gid };
        let mut made = node(kind, mode, who.uid, gid, directory);
        let mut changes = *changes;
        if kind != Kind::File {
            changes.size = None;
        }
        check_changes(who, &made, &changes)?;
        made.uid = changes.uid.unwrap_or(made.uid);
        made.gid = changes.gid.unwrap_or(made.gid);
        made.mode = changes.mode.unwrap_or(mode);
        if kind == Kind::Directory {
            made.links = 2;
            made.mode |= if inherits { 0o2000 } else { 0 };
        } else if who.uid != 0 && !belongs(who, made.gid) {
            made.mode &= !0o2000;
        }
        made.data = match new {
            New::Link(len) => vec![b'p'; len],
            _ => vec![0; changes.size.unwrap_or(0) as usize],
        };
        if let New::Exclusive(verifier) = new {
            made.verifier = Some(verifier);
        }
        self.nodes.push(made);
        let file = self.nodes.len() - 1;
        let parent = &mut self.nodes[directory];
        parent.entries.insert(name.to_owned(), file);
        parent.links += u32::from(kind == Kind::Directory);
        parent.changes += 1;
        Ok(file)
    }

    pub fn link(
        &mut self,
        who: &Caller<'_>,
        file: usize,
        directory: usize,
        name: &str,
    ) -> Result<()> {
        let kind = self.alive(file)?.kind;
        let exists = self.searched(who, directory)?.entries.contains_key(name);
        if kind == Kind::Directory {
            return Err(FileError::IsDirectory);
        }
        if exists {
            return Err(FileError::Exists);
        }
        self.changeable(who, directory)?;
        self.nodes[file].links += 1;
        self.nodes[file].changes += 1;
        self.nodes[directory].entries.insert(name.to_owned(), file);
        self.nodes[directory].changes += 1;
        Ok(())
    }

    pub fn remove(
        &mut self,
        who: &Caller<'_>,
        directory: usize,
        name: &str,
        wants_directory: bool,
    ) -> Result<()> {
        let parent = self.changeable(who, directory)?;
        let file = *parent.entries.get(name).ok_or(FileError::NotFound)?;
        self.check_victim(who, directory, file)?;
        self.check_kind(file, wants_directory)?;
        self.nodes[directory].entries.remove(name);
        self.nodes[directory].changes += 1;
        if wants_directory {
            self.nodes[directory].links -= 1;
        }
        self.unlink(file);
        Ok(())
    }

    pub fn rename(
        &mut self,
        who: &Caller<'_>,
        (from, name): (usize, &str),
        (to, new_name): (usize, &str),
    ) -> Result<()> {
        self.directory(from)?;
        self.directory(to)?;
        self.changeable(who, from)?;
        self.changeable(who, to)?;
        let moved = *self.nodes[from]
            .entries
            .get(name)
            .ok_or(FileError::NotFound)?;
        let victim = self.nodes[to].entries.get(new_name).copied();
        if victim == Some(moved) {
            return Ok(());
        }
        self.check_victim(who, from, moved)?;
        let is_directory = self.nodes[moved].kind == Kind::Directory;
        if is_directory && self.path_up(to).contains(&moved) {
            return Err(FileError::Invalid);
        }
        if let Some(victim) = victim {
            self.check_victim(who, to, victim)?;
            self.check_kind(victim, is_directory)?;
        }
        if is_directory && from != to {
            allow(may(who, &self.nodes[moved], 'w'))?;
        }
        self.nodes[from].entries.remove(name);
        self.nodes[to].entries.insert(new_name.to_owned(), moved);
        if is_directory {
            self.nodes[from].links -= 1;
            self.nodes[to].links += 1;
            self.nodes[moved].parent = to;
        }
        for touched in BTreeSet::from([from, to, moved]) {
            self.nodes[touched].changes += 1;
        }
        if let Some(victim) = victim {
            self.nodes[to].links -= u32::from(is_directory);
            self.unlink(victim);
        }
        Ok(())
    }

    fn path_up(&self, directory: usize) -> Vec<usize> {
        let mut path = vec![directory];
        while path[path.len() - 1] != 0 {
            path.push(self.nodes[path[path.len() - 1]].parent);
        }
        path
    }

    fn check_victim(&self, who: &Caller<'_>, directory: usize, file: usize) -> Result<()> {
        let (directory, file) = (&self.nodes[directory], &self.nodes[file]);
        if directory.mode & 0o1000 != 0 && !owns(who, directory) && !owns(who, file) {
            return Err(FileError::NotOwner);
        }
        Ok(())
    }

    fn check_kind(&self, file: usize, wants_directory: bool) -> Result<()> {
        let node = &self.nodes[file];
        match (node.kind == Kind::Directory, wants_directory) {
            (true, false) => Err(FileError::IsDirectory),
            (false, true) => Err(FileError::NotDirectory),
            (true, true) if !node.entries.is_empty() => Err(FileError::NotEmpty),
            _ => Ok(()),
        }
    }

    fn unlink(&mut self, file: usize) {
        let node = &mut self.nodes[file];
        node.links -= if node.kind == Kind::Directory { 2 } else { 1 };
        node.changes += 1;
    }
}

fn node(kind: Kind, mode: u16, uid: u32, gid: u32, parent: usize) -> Node {
    Node {
        kind,
        mode,
        uid,
        gid,
        links: 1,
        changes: 1,
        data: Vec::new(),
        pages: BTreeSet::new(),
        entries: BTreeMap::new(),
        xattrs: BTreeMap::new(),
        parent,
        verifier: None,
    }
}

pub fn belongs(who: &Caller<'_>, gid: u32) -> bool {
    who.gid == gid || who.groups.contains(&gid)
}

fn owns(who: &Caller<'_>, node: &Node) -> bool {
    who.uid == 0 || who.uid == node.uid
}

/// Whether `r`, `w` or `x` of the mode are for the caller.
pub fn may(who: &Caller<'_>, node: &Node, what: char) -> bool {
    let text: Vec<char> = (0..9)
        .map(|bit| match node.mode >> (8 - bit) & 1 {
            0 => '-',
            _ => ['r', 'w', 'x'][bit % 3],
        })
        .collect();
    if who.uid == 0 {
        return what != 'x' || node.kind == Kind::Directory || text.contains(&'x');
    }
    let class = if who.uid == node.uid {
        0
    } else if belongs(who, node.gid) {
        1
    } else {
        2
    };
    text[class * 3..class * 3 + 3].contains(&what)
}

fn allow(is_allowed: bool) -> Result<()> {
    is_allowed.then_some(()).ok_or(FileError::AccessDenied)
}

fn regular(node: &Node) -> Result<&Node> {
    match node.kind {
        Kind::File => Ok(node),
        Kind::Directory => Err(FileError::IsDirectory),
        _ => Err(FileError::Invalid),
    }
}

fn check_changes(who: &Caller<'_>, node: &Node, changes: &Changes) -> Result<()> {
    if changes.size.is_some() {
        regular(node)?;
        allow(may(who, node, 'w') || owns(who, node))?;
    }
    let own = owns(who, node);
    let gives_away = changes.uid.is_some_and(|uid| uid != node.uid || !own);
    let wrong_group = changes
        .gid
        .is_some_and(|gid| !own || (gid != node.gid && !belongs(who, gid)));
    if who.uid != 0 && (gives_away || wrong_group) || changes.mode.is_some() && !own {
        return Err(FileError::NotOwner);
    }
    if changes.accessed_to && !own {
        return Err(FileError::NotOwner);
    }
    if changes.modified_now {
        allow(own || may(who, node, 'w'))?;
    }
    match changes.size {
        Some(size) if size > SIZE_MAX => Err(FileError::TooLarge),
        _ => Ok(()),
    }
}

fn drop_set_id(who: &Caller<'_>, node: &mut Node) {
    if who.uid != 0 && node.kind != Kind::Directory {
        node.mode &= !0o4000;
        if node.mode & 0o010 != 0 {
            node.mode &= !0o2000;
        }
    }
}
