//! Which operations of a compound have to wait for storage.

use super::super::operation::Operation;
use super::super::place::{MinorVersion, Node};
use super::Compound;
use crate::xdr::Reader;
use crate::{Backend, ExportId};

impl<B: Backend> Compound<'_, B> {
    /// The export whose tree the next operation has to wait for, if there is one.
    pub(super) fn waits_for(&mut self, mut arguments: Reader<'_>) -> Option<ExportId> {
        // A repeated request whose reply was not kept is refused.
        if self.at.minor != MinorVersion::Zero {
            self.at.sequenced?.slot?;
        }
        let operation = Operation::new(arguments.u32().ok()?, self.at.minor);
        match (operation, self.at.current.node) {
            (Operation::PutFh, _) => {
                let node = Node::read(&mut arguments).ok();
                self.waits_at(node)
            }
            (Operation::ReadDir, Some(Node::Root)) => self.waiting_export(),
            (_, current) => self
                .waits_at(current)
                .or_else(|| self.waits_at(self.at.saved.node)),
        }
    }

    fn waits_at(&mut self, node: Option<Node>) -> Option<ExportId> {
        let Some(Node::File(handle)) = node else {
            return None;
        };
        let export = self.backend.by_id(handle.export).ok()?;
        export.tree.may_wait().then_some(export.id)
    }

    /// An export of those that the client may use whose tree waits.
    fn waiting_export(&mut self) -> Option<ExportId> {
        let mut paths = Vec::new();
        self.backend
            .each_export(&mut |path, _| paths.push(path.as_bytes().to_vec()));
        paths.iter().find_map(|path| {
            let export = self.backend.by_path(path).ok()?;
            export.tree.may_wait().then_some(export.id)
        })
    }
}
