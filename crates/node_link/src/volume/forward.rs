//! Commands that are passed on to the primary, at both ends.

use block::{Extent, Status, Ticket};
use replica::wire::{Answer, AnswerCode, Command, CommandKind, Packet};
use replica::{Contents, LocalTime};

use super::ReplicatedVolume;
use super::lease::Forward;
use super::state::{Origin, State};
use crate::committed::read_committed;

impl ReplicatedVolume {
    /// The node that commands are passed on to.
    pub(super) fn forwards_to(&self, state: &State) -> Option<u32> {
        let primary = state.primary().filter(|node| *node != self.links.node)?;
        let peer = self.links.peer(primary)?;
        (peer.is_connected() && peer.heard_clock().is_some()).then_some(primary)
    }

    /// Passes a command on as soon as there is a primary. Returns its number.
    pub(super) fn forward(
        &self,
        state: &mut State,
        now: LocalTime,
        extent: Extent,
        kind: CommandKind,
        read: Option<(Ticket, usize)>,
    ) -> u64 {
        let id = state.next_id();
        let mut forward = Forward {
            extent,
            kind,
            read,
            since: now,
            sent: None,
        };
        self.send_forward(state, now, id, &mut forward);
        state.forwards.insert(id, forward);
        id
    }

    fn send_forward(&self, state: &State, now: LocalTime, id: u64, forward: &mut Forward) {
        let Some(node) = self.forwards_to(state) else {
            return;
        };
        let Some(heard_at) = self.links.peer(node).and_then(|peer| peer.heard_clock()) else {
            return;
        };
        let command = Command {
            id,
            volume: self.id.0,
            heard_at,
            block_size: self.geometry.block_size,
            extent: forward.extent,
            kind: forward.kind.clone(),
        };
        self.links.send(node, &Packet::Command(command));
        forward.sent = Some((node, now));
    }

    /// The primary answers.
    pub(crate) fn handle_answer(&self, from: u32, answer: Answer) {
        self.drive(|volume, state, _| {
            let Some(mut forward) = state.forwards.remove(answer.id) else {
                return;
            };
            if forward.sent.is_none_or(|(node, _)| node != from) {
                state.forwards.insert(answer.id, forward);
                return;
            }
            forward.sent = None;
            volume.take_answer(state, forward, answer);
        });
    }

    fn take_answer(&self, state: &mut State, forward: Forward, answer: Answer) {
        let id = answer.id;
        let result = match answer.code {
            AnswerCode::Done => Ok(()),
            AnswerCode::Invalid => Err(Status::Invalid),
            AnswerCode::Full => Err(Status::CapacityExceeded),
            AnswerCode::Unknown if forward.read.is_none() => Err(Status::Busy),
            AnswerCode::NotExecuted | AnswerCode::Unknown => {
                state.forwards.insert(id, forward);
                return;
            }
        };
        let Some((ticket, part)) = forward.read else {
            state.finish(id, forward.written(), result);
            return;
        };
        let is_whole = |contents: &Contents| {
            let is_long = contents.blocks() == forward.extent.blocks.0;
            is_long && contents.block_size() == self.geometry.block_size
        };
        match (result, answer.contents.filter(is_whole)) {
            (Ok(()), Some(contents)) => state.take_part(ticket, part, contents),
            (Ok(()), None) => state.grant(ticket, Err(Status::ReadError)),
            (Err(status), _) => state.grant(ticket, Err(status)),
        }
    }

    /// Commands that were not executed are sent again, or executed here if this node is primary
    /// now.
    pub(super) fn tick_forwards(&self, state: &mut State, now: LocalTime) {
        if state.forwards.is_empty() {
            return;
        }
        let primary = state.primary();
        for (id, mut forward) in state.forwards.take() {
            let waited = forward.sent.map(|(_, at)| now.since(at));
            let is_late = |patience| waited.is_some_and(|waited| waited >= patience);
            let is_elsewhere = forward.sent.is_some_and(|(node, _)| Some(node) != primary);
            if let Some((ticket, _)) = forward.read {
                if !state.is_fetching(ticket) {
                    continue;
                }
                if is_elsewhere || is_late(Self::READ_PATIENCE) {
                    forward.sent = None;
                }
            } else if is_elsewhere && is_late(self.command_age_max * 5 / 4)
                || is_late(Self::WRITE_PATIENCE)
            {
                // A primary that was replaced has answered what it had executed. It may be one
                // again at once, but what it did not execute is too old by its clock, too.
                state.finish(id, forward.written(), Err(Status::Busy));
                continue;
            }
            let patience = match forward.read {
                Some(_) => Self::PARKED_MAX,
                None => Self::WRITE_PATIENCE,
            };
            if forward.sent.is_some() {
                state.forwards.insert(id, forward);
            } else if now.since(forward.since) >= patience {
                Self::give_up(state, id, &forward);
            } else if !self.execute_here(state, now, id, &forward) {
                self.send_forward(state, now, id, &mut forward);
                state.forwards.insert(id, forward);
            }
        }
    }

    fn give_up(state: &mut State, id: u64, forward: &Forward) {
        match forward.read {
            Some((ticket, _)) => state.grant(ticket, Err(Status::Busy)),
            None => state.finish(id, forward.written(), Err(Status::Busy)),
        }
    }

    /// Executes a command of this node's hosts if the node has become primary meanwhile.
    fn execute_here(&self, state: &mut State, now: LocalTime, id: u64, forward: &Forward) -> bool {
        if let Some((ticket, part)) = forward.read {
            let read = self.read_locked(state, forward.extent);
            if let Some(contents) = read {
                state.take_part(ticket, part, contents);
                return true;
            }
            return false;
        }
        if !state.serves_writes() {
            return false;
        }
        let (extent, origin) = (forward.extent, Origin::Host(id));
        let executed = match &forward.kind {
            CommandKind::Write(contents) => self.write_here(state, now, extent, contents, origin),
            CommandKind::Copy(to) => self.copy_here(state, now, extent, *to, origin),
            CommandKind::Read => return false,
        };
        match executed {
            Err((AnswerCode::NotExecuted, _)) => return false,
            Err((_, status)) => state.finish(id, forward.written(), Err(status)),
            Ok(()) => {}
        }
        true
    }

    /// What is committed, if this node serves reads.
    fn read_locked(&self, state: &State, extent: Extent) -> Option<Contents> {
        let store = self.store.get().filter(|_| state.is_serving())?;
        let range = self.byte_range(extent);
        let mut bytes = vec![0; range.len as usize];
        let (block_size, in_flight) = (self.geometry.block_size, state.overwritten());
        read_committed(store, in_flight, block_size, range.offset, &mut bytes).ok()?;
        let contents = Contents::of_bytes(block_size, bytes.into())?;
        // The lease last, as for hosts of this node.
        self.serves_reads().then_some(contents)
    }

    /// Another node passes a command on.
    pub(crate) fn handle_command(&self, from: u32, command: &Command) {
        let refused = self
            .drive(|volume, state, now| volume.execute_command(state, now, from, command).err());
        if let Some(code) = refused {
            self.answer(from, command.id, code, None);
        }
    }

    fn execute_command(
        &self,
        state: &mut State,
        now: LocalTime,
        from: u32,
        command: &Command,
    ) -> Result<(), AnswerCode> {
        let is_whole = |extent| self.geometry.byte_range(extent).is_ok();
        if command.block_size != self.geometry.block_size || !is_whole(command.extent) {
            return Err(AnswerCode::Invalid);
        }
        let is_old = now.since(command.heard_at) > self.command_age_max;
        let is_read = matches!(command.kind, CommandKind::Read);
        if is_old || command.heard_at > now || !(is_read || state.serves_writes()) {
            return Err(AnswerCode::NotExecuted);
        }
        let range = self.byte_range(command.extent);
        let origin = Origin::Node {
            node: from,
            command: command.id,
        };
        match &command.kind {
            CommandKind::Read if range.len > self.piece_bytes => Err(AnswerCode::Invalid),
            CommandKind::Read => {
                let contents = self.read_locked(state, command.extent);
                let contents = contents.ok_or(AnswerCode::NotExecuted)?;
                self.answer(from, command.id, AnswerCode::Done, Some(contents));
                Ok(())
            }
            CommandKind::Write(contents) => {
                if contents.block_size() != command.block_size {
                    return Err(AnswerCode::Invalid);
                }
                let written = self.write_here(state, now, command.extent, contents, origin);
                written.map_err(|(code, _)| code)
            }
            CommandKind::Copy(to) => {
                if !is_whole(Extent::new(*to, command.extent.blocks)) {
                    return Err(AnswerCode::Invalid);
                }
                let copied = self.copy_here(state, now, command.extent, *to, origin);
                copied.map_err(|(code, _)| code)
            }
        }
    }
}
