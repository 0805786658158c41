//! Text requests: SendTargets, and parameters that may be negotiated again.
//!
//! Read first: RFC 7143 §11.10, and the appendix "SendTargets Operation".

use super::full_feature::FullFeature;
use super::reply::{Numbering, ReplyHeader};
use crate::backend::{Backend, SessionKind, TargetAddress, TargetRecord};
use crate::params::Phase;
use crate::text::{self, TextBuilder};
use crate::wire::login::{CONTINUE, TextRequest};
use crate::wire::other::reason;
use crate::wire::{Bhs, NO_TASK_TAG, response};

/// The only Target Transfer Tag of text continuations: one negotiation is in progress at a time.
const TEXT_TAG: u32 = 1;

impl FullFeature {
    pub(super) fn on_text<B: Backend>(&mut self, bhs: &Bhs, segment: &[u8], backend: &mut B) {
        let request: &TextRequest = bhs.cast();
        // No request that the target knows needs several PDUs.
        let is_whole = request.flags & CONTINUE == 0;
        let text = match request.ttt.get() {
            NO_TASK_TAG if is_whole => self.answer_text(segment, backend),
            TEXT_TAG if is_whole && !self.text_left.is_empty() => {
                Some(std::mem::take(&mut self.text_left))
            }
            _ => None,
        };
        match text {
            Some(text) => self.send_text(request.itt.get(), text),
            None => self.replies.reject(bhs, reason::PROTOCOL_ERROR),
        }
    }

    /// Sends as much of a text as the initiator takes in one PDU; the rest waits for its next
    /// request.
    fn send_text(&mut self, itt: u32, mut text: Vec<u8>) {
        let max = self.parameters.send_segment_len_max as usize;
        let mut header = ReplyHeader {
            ttt: NO_TASK_TAG,
            ..ReplyHeader::new(response::TEXT, itt)
        };
        if text.len() > max {
            self.text_left = text.split_off(max);
            header.flags = CONTINUE;
            header.ttt = TEXT_TAG;
        }
        self.replies.push(header.encode(), text, Numbering::Status);
    }

    /// The response to a text; `None` if it is malformed.
    fn answer_text<B: Backend>(&mut self, segment: &[u8], backend: &mut B) -> Option<Vec<u8>> {
        let pairs = text::parse(segment).ok()?;
        let mut answer = TextBuilder::default();
        for (key, value) in pairs {
            if key == "SendTargets" {
                for record in self.requested_targets(value, backend)? {
                    describe(&record, &mut answer);
                }
                continue;
            }
            self.parameters
                .negotiate(Phase::FullFeature, key, value, &mut answer)
                .ok()?;
        }
        Some(answer.into_bytes())
    }

    /// The targets that SendTargets asks for: all (only in a discovery session), one, or the
    /// session's own.
    fn requested_targets<B: Backend>(
        &self,
        value: &str,
        backend: &mut B,
    ) -> Option<Vec<TargetRecord>> {
        let all = backend.targets(&self.initiator);
        let name = match (value, self.kind) {
            ("All", SessionKind::Discovery) => return Some(all),
            ("All", SessionKind::Normal(_)) | ("", SessionKind::Discovery) => return None,
            ("", SessionKind::Normal(_)) => self.target.as_deref(),
            (name, _) => Some(name),
        };
        let is_meant = |record: &TargetRecord| Some(record.name.as_str()) == name;
        Some(all.into_iter().filter(is_meant).collect())
    }
}

fn describe(record: &TargetRecord, answer: &mut TextBuilder) {
    answer.push("TargetName", &record.name);
    for TargetAddress { ip, port, group } in &record.addresses {
        let text = match ip {
            std::net::IpAddr::V4(v4) => format!("{v4}:{port},{group}"),
            std::net::IpAddr::V6(v6) => format!("[{v6}]:{port},{group}"),
        };
        answer.push("TargetAddress", &text);
    }
}
