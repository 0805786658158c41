//! What the target sends: PDUs in any chunking, each field checked before it is used.

use scsi::ScsiStatus;
use scsi::host::{CommandFailure, Outcome, ReceivedSense, Transfer};
use session::{BufferRange, Buffers};
use zerocopy::FromBytes;

use super::error::{SessionError, Violation};
use super::login::Next;
use super::pending::{Control, DataSequence, TAG_LOGIN, TAG_LOGOUT, TAG_PING, TAG_TEXT};
use super::receiver::{Segment, Sink, TRAILER_BYTES};
use super::session::{Event, Session, State};
use super::table::DataVerdict;
use crate::params::{Digest, RECV_SEGMENT_LEN_MAX};
use crate::text::TEXT_LEN_MAX;
use crate::wire::command::{
    RESIDUAL_UNDERFLOW, ScsiCommand, ScsiResponse, TaskManagementResponse, function_response,
};
use crate::wire::data::{DataIn, R2t, STATUS_PRESENT};
use crate::wire::login::{CONTINUE, LoginResponse, LogoutResponse, TextResponse};
use crate::wire::other::{AsyncMessage, NopIn, Reject, event, reason};
use crate::wire::{BHS_LEN, Bhs, DIGEST_LEN, FINAL, NO_TASK_TAG, request, response, sn_before};

/// What is kept of the data segments of SCSI Responses and events: SenseLength and sense data.
const SENSE_SEGMENT_BYTES: usize = 2 + 252;

impl Session {
    /// Takes bytes at a PDU's start or inside of its header. Returns the rest.
    pub(super) fn on_header_bytes<'a>(
        &mut self,
        input: &'a [u8],
        done: &mut Vec<Outcome>,
    ) -> Result<&'a [u8], SessionError> {
        let wanted_bytes = match self.parameters.header_digest {
            Digest::None => BHS_LEN,
            Digest::Crc32c => BHS_LEN + DIGEST_LEN,
        };
        if self.inbound.stash_len == 0
            && let Some((header, rest)) = input.split_at_checked(wanted_bytes)
        {
            self.on_header(header, done)?;
            return Ok(rest);
        }
        let at = self.inbound.stash_len;
        let take = (wanted_bytes - at).min(input.len());
        let (head, rest) = input.split_at(take);
        self.inbound.stash[at..at + take].copy_from_slice(head);
        self.inbound.stash_len += take;
        if self.inbound.stash_len == wanted_bytes {
            let stash = self.inbound.stash;
            self.inbound.stash_len = 0;
            self.on_header(&stash[..wanted_bytes], done)?;
        }
        Ok(rest)
    }

    /// A whole header, with its digest if digests are used.
    fn on_header(&mut self, header: &[u8], done: &mut Vec<Outcome>) -> Result<(), SessionError> {
        self.heard_pdus += 1;
        let Ok((bhs, digest)) = Bhs::read_from_prefix(header) else {
            unreachable!("a header has 48 bytes");
        };
        // RFC 7143 §7.7: at recovery level 0 a wrong header digest ends the connection.
        if !digest.is_empty() && crc32c::crc32c(&header[..BHS_LEN]).to_le_bytes() != digest {
            return Err(violated(&bhs, Violation::HeaderDigest));
        }
        if bhs.ahs_len() > 0 {
            return Err(violated(&bhs, Violation::HasAhs));
        }
        let len_bytes = bhs.data_segment_len.get();
        let max_bytes = match self.state {
            State::Login(_) => TEXT_LEN_MAX as u32,
            _ => RECV_SEGMENT_LEN_MAX,
        };
        if len_bytes > max_bytes {
            let violation = Violation::SegmentLength {
                len_bytes,
                max_bytes,
            };
            return Err(violated(&bhs, violation));
        }
        let sink = self
            .sink(&bhs)
            .map_err(|violation| violated(&bhs, violation))?;
        if len_bytes == 0 {
            return self.on_pdu(&bhs, sink, done);
        }
        let padding = bhs.padded_data_len() - len_bytes as usize;
        let digest_bytes = match self.parameters.data_digest {
            Digest::None => 0,
            Digest::Crc32c => DIGEST_LEN,
        };
        self.inbound.gathered.clear();
        self.inbound.segment = Some(Segment {
            bhs,
            sink,
            left_bytes: len_bytes as usize,
            crc: 0,
            trailer: [0; TRAILER_BYTES],
            trailer_len: 0,
            trailer_bytes: padding + digest_bytes,
        });
        Ok(())
    }

    /// Whether a PDU is possible now, and where its data go. Data-In are checked against their
    /// command here.
    fn sink(&mut self, bhs: &Bhs) -> Result<Sink, Violation> {
        let gather = |max_bytes| Ok(Sink::Gather { max_bytes });
        match (&self.state, bhs.opcode()) {
            (State::Login(_), response::LOGIN) => gather(TEXT_LEN_MAX),
            (State::FullFeature, response::DATA_IN) => self.sink_of_data_in(bhs.cast()),
            (State::FullFeature, response::SCSI_RESPONSE | response::ASYNC | response::REJECT) => {
                gather(SENSE_SEGMENT_BYTES)
            }
            (State::FullFeature, response::TEXT) => gather(RECV_SEGMENT_LEN_MAX as usize),
            (
                State::FullFeature,
                response::NOP_IN | response::TASK_MANAGEMENT | response::LOGOUT | response::R2T,
            ) => gather(0),
            _ => Err(Violation::Unexpected),
        }
    }

    fn sink_of_data_in(&mut self, data: &DataIn) -> Result<Sink, Violation> {
        let itt = data.itt.get();
        let len = data.data_segment_len.get();
        let Some((key, entry)) = self.table.find(itt) else {
            return Err(Violation::TaskTag { itt });
        };
        if !matches!(entry.transfer, Transfer::ToHost(_)) {
            return Err(Violation::TaskTag { itt });
        }
        check_number(data.data_sn.get(), entry.next_sn)?;
        check_range(
            data.buffer_offset.get(),
            len,
            entry.moved_bytes,
            entry.len_bytes(),
        )?;
        // Only the last data carry a status (RFC 7143 §11.7.1).
        if data.flags & STATUS_PRESENT != 0 && data.flags & FINAL == 0 {
            return Err(Violation::Unexpected);
        }
        let dest = entry.part(entry.moved_bytes, len);
        entry.next_sn += 1;
        entry.moved_bytes += len;
        Ok(Sink::Place { key, dest })
    }

    /// Takes bytes of a data segment, its padding and its digest. Returns the rest.
    pub(super) fn on_segment<'a>(
        &mut self,
        input: &'a [u8],
        buffers: &mut Buffers,
        done: &mut Vec<Outcome>,
    ) -> Result<&'a [u8], SessionError> {
        let Some(segment) = &mut self.inbound.segment else {
            return Ok(input);
        };
        let (data, rest) = input.split_at(input.len().min(segment.left_bytes));
        if !data.is_empty() {
            match &mut segment.sink {
                Sink::Place { dest, .. } => {
                    let len_bytes = data.len() as u32;
                    // Copied, since it arrived together with other PDUs; long data are received in
                    // place.
                    buffers
                        .range_mut(BufferRange { len_bytes, ..*dest })
                        .copy_from_slice(data);
                }
                Sink::Gather { max_bytes } => {
                    let gathered = &mut self.inbound.gathered;
                    let room = max_bytes.saturating_sub(gathered.len());
                    gathered.extend_from_slice(&data[..data.len().min(room)]);
                }
            }
            segment.take(data, self.parameters.data_digest);
        }
        let missing = segment.trailer_bytes - segment.trailer_len;
        let (trailer, rest) = rest.split_at(rest.len().min(missing));
        let at = segment.trailer_len;
        segment.trailer[at..at + trailer.len()].copy_from_slice(trailer);
        segment.trailer_len += trailer.len();
        self.finish_segment(done)?;
        Ok(rest)
    }

    pub(super) fn on_placed(
        &mut self,
        len_bytes: u32,
        buffers: &Buffers,
        done: &mut Vec<Outcome>,
    ) -> Result<(), SessionError> {
        let digest = self.parameters.data_digest;
        let Some(segment) = &mut self.inbound.segment else {
            panic!("only data that direct() asked for are received in place");
        };
        let Sink::Place { dest, .. } = segment.sink else {
            panic!("only data that direct() asked for are received in place");
        };
        assert!(
            len_bytes <= dest.len_bytes,
            "no more than fits was received in place"
        );
        segment.take(buffers.range(BufferRange { len_bytes, ..dest }), digest);
        self.finish_segment(done)
    }

    /// Ends the arriving PDU if it is whole.
    fn finish_segment(&mut self, done: &mut Vec<Outcome>) -> Result<(), SessionError> {
        let Some(segment) = &self.inbound.segment else {
            return Ok(());
        };
        if segment.left_bytes > 0 || segment.trailer_len < segment.trailer_bytes {
            return Ok(());
        }
        let sink = segment.sink;
        let is_sound = segment.is_sound(self.parameters.data_digest);
        let bhs = segment.bhs;
        self.inbound.segment = None;
        match (is_sound, sink) {
            (true, _) => {}
            (false, Sink::Place { key, .. }) => {
                self.table.get_mut(key).data_verdict = DataVerdict::DigestError;
            }
            // Its content is unknown, and nothing is sent again at recovery level 0.
            (false, Sink::Gather { .. }) => {
                return Err(violated(&bhs, Violation::DataDigest));
            }
        }
        self.on_pdu(&bhs, sink, done)
    }

    /// A PDU is whole.
    fn on_pdu(
        &mut self,
        bhs: &Bhs,
        sink: Sink,
        done: &mut Vec<Outcome>,
    ) -> Result<(), SessionError> {
        if bhs.data_segment_len.get() == 0 {
            self.inbound.gathered.clear();
        }
        let result = match (sink, bhs.opcode()) {
            (Sink::Place { key, .. }, _) => {
                self.on_data_in(key, bhs.cast(), done);
                Ok(())
            }
            (_, response::SCSI_RESPONSE) => self.on_response(bhs.cast(), done),
            (_, response::R2T) => self.on_r2t(bhs.cast()),
            (_, response::NOP_IN) => self.on_nop_in(bhs.cast()),
            (_, response::TASK_MANAGEMENT) => {
                self.on_abort_response(bhs.cast(), done);
                Ok(())
            }
            (_, response::TEXT) => self.on_text(bhs.cast()),
            (_, response::LOGOUT) => self.on_logout(bhs.cast()),
            (_, response::LOGIN) => return self.on_login(bhs),
            (_, response::ASYNC) => return self.on_async(bhs),
            (_, response::REJECT) => return self.on_reject(bhs, done),
            _ => Err(Violation::Unexpected),
        };
        result.map_err(|violation| violated(bhs, violation))
    }

    fn on_data_in(&mut self, key: u16, data: &DataIn, done: &mut Vec<Outcome>) {
        self.on_window(data.exp_cmd_sn.get(), data.max_cmd_sn.get());
        if data.flags & STATUS_PRESENT == 0 {
            return;
        }
        self.on_stat_sn(data.stat_sn.get());
        let entry = self.table.get_mut(key);
        let result = match (data.status, entry.data_verdict) {
            (GOOD, DataVerdict::Sound) => Ok(entry.moved_bytes),
            (GOOD, DataVerdict::DigestError) => Err(CommandFailure::DataDigest),
            (status, _) => Err(CommandFailure::Status {
                status,
                sense: None,
            }),
        };
        self.end(key, result, done);
    }

    fn on_response(
        &mut self,
        header: &ScsiResponse,
        done: &mut Vec<Outcome>,
    ) -> Result<(), Violation> {
        const COMPLETED: u8 = 0;
        self.on_window(header.exp_cmd_sn.get(), header.max_cmd_sn.get());
        self.on_stat_sn(header.stat_sn.get());
        let itt = header.itt.get();
        let Some((key, entry)) = self.table.find(itt) else {
            return Err(Violation::TaskTag { itt });
        };
        let result = if header.response != COMPLETED {
            Err(CommandFailure::Undelivered {
                response: header.response,
            })
        } else if header.status != GOOD {
            Err(CommandFailure::Status {
                status: header.status,
                sense: sense(&self.inbound.gathered),
            })
        } else if entry.data_verdict == DataVerdict::DigestError {
            Err(CommandFailure::DataDigest)
        } else {
            Ok(match entry.transfer {
                Transfer::None => 0,
                // The received bytes count, whatever length the target reports.
                Transfer::ToHost(_) => entry.moved_bytes,
                Transfer::ToTarget(range) => {
                    let missing = match header.flags & RESIDUAL_UNDERFLOW {
                        0 => 0,
                        _ => header.residual.get(),
                    };
                    entry
                        .moved_bytes
                        .min(range.len_bytes.saturating_sub(missing))
                }
            })
        };
        self.end(key, result, done);
        Ok(())
    }

    fn on_r2t(&mut self, r2t: &R2t) -> Result<(), Violation> {
        self.on_window(r2t.exp_cmd_sn.get(), r2t.max_cmd_sn.get());
        let itt = r2t.itt.get();
        let Some((key, entry)) = self.table.find(itt) else {
            return Err(Violation::TaskTag { itt });
        };
        if !matches!(entry.transfer, Transfer::ToTarget(_)) || r2t.ttt.get() == NO_TASK_TAG {
            return Err(Violation::TaskTag { itt });
        }
        let (offset, len) = (r2t.buffer_offset.get(), r2t.desired_len.get());
        check_number(r2t.r2t_sn.get(), entry.next_sn)?;
        check_range(offset, len, entry.moved_bytes, entry.len_bytes())?;
        if len == 0 || len > self.parameters.burst_len_max {
            return Err(Violation::Limit {
                limit: "MaxBurstLength",
            });
        }
        if u32::from(entry.open_answers) >= self.parameters.outstanding_r2t_max {
            return Err(Violation::Limit {
                limit: "MaxOutstandingR2T",
            });
        }
        entry.next_sn += 1;
        entry.moved_bytes += len;
        entry.open_answers += 1;
        self.answers.push_back(DataSequence {
            key,
            ttt: r2t.ttt,
            lun: r2t.lun,
            data_sn: 0,
            offset,
            left_bytes: len,
        });
        Ok(())
    }

    fn on_nop_in(&mut self, nop: &NopIn) -> Result<(), Violation> {
        self.on_window(nop.exp_cmd_sn.get(), nop.max_cmd_sn.get());
        let itt = nop.itt.get();
        if itt == TAG_PING && self.is_pinging {
            self.is_pinging = false;
            self.on_stat_sn(nop.stat_sn.get());
            return Ok(());
        }
        if itt != NO_TASK_TAG {
            return Err(Violation::TaskTag { itt });
        }
        if nop.ttt.get() == NO_TASK_TAG {
            return Ok(());
        }
        self.push_control(Control::nop(nop.lun, nop.ttt))
    }

    fn on_abort_response(&mut self, header: &TaskManagementResponse, done: &mut Vec<Outcome>) {
        self.on_window(header.exp_cmd_sn.get(), header.max_cmd_sn.get());
        self.on_stat_sn(header.stat_sn.get());
        // The command ended before the target received the request.
        let Some(key) = self.table.find_aborting(header.itt.get()) else {
            return;
        };
        // The target has no such task: its response was lost, and none will arrive.
        if matches!(
            header.response,
            function_response::COMPLETE | function_response::NO_TASK
        ) {
            self.end(key, Err(CommandFailure::Aborted), done);
        }
    }

    fn on_text(&mut self, header: &TextResponse) -> Result<(), Violation> {
        self.on_window(header.exp_cmd_sn.get(), header.max_cmd_sn.get());
        self.on_stat_sn(header.stat_sn.get());
        let itt = header.itt.get();
        let Some(discovery) = self.discovery.as_mut().filter(|_| itt == TAG_TEXT) else {
            return Err(Violation::TaskTag { itt });
        };
        discovery.gather(&self.inbound.gathered)?;
        if header.flags & FINAL == 0 || header.flags & CONTINUE != 0 {
            return self.push_control(Control::text_rest(header.lun, header.ttt));
        }
        let targets = discovery.targets()?;
        self.discovery = None;
        self.notify(Event::Targets(targets));
        Ok(())
    }

    fn on_logout(&mut self, header: &LogoutResponse) -> Result<(), Violation> {
        let itt = header.itt.get();
        if itt != TAG_LOGOUT {
            return Err(Violation::TaskTag { itt });
        }
        self.state = State::Closed;
        self.notify(Event::LoggedOut);
        Ok(())
    }

    fn on_login(&mut self, bhs: &Bhs) -> Result<(), SessionError> {
        let header: &LoginResponse = bhs.cast();
        let itt = header.itt.get();
        if itt != TAG_LOGIN {
            return Err(violated(bhs, Violation::TaskTag { itt }));
        }
        let State::Login(login) = &mut self.state else {
            unreachable!("a Login Response is taken during the login only");
        };
        let next = login.on_response(header, &self.inbound.gathered)?;
        self.on_stat_sn(header.stat_sn.get());
        self.on_window(header.exp_cmd_sn.get(), header.max_cmd_sn.get());
        match next {
            Next::Send(control) => self.controls.push_back(control),
            Next::Done(parameters) => {
                self.parameters = *parameters;
                self.state = State::FullFeature;
                self.notify(Event::LoggedIn);
            }
        }
        Ok(())
    }

    /// RFC 7143 §11.9.1.
    fn on_async(&mut self, bhs: &Bhs) -> Result<(), SessionError> {
        let header: &AsyncMessage = bhs.cast();
        self.on_window(header.exp_cmd_sn.get(), header.max_cmd_sn.get());
        self.on_stat_sn(header.stat_sn.get());
        match header.event {
            event::SCSI => {
                if let Some(sense) = sense(&self.inbound.gathered) {
                    self.notify(Event::Sense(sense));
                }
                Ok(())
            }
            event::LOGOUT_REQUEST => {
                self.logout();
                self.notify(Event::LogoutRequested);
                Ok(())
            }
            event @ (event::CONNECTION_DROP | event::SESSION_DROP) => {
                let wait_s = header.parameter_2.get();
                Err(SessionError::Dropped { event, wait_s })
            }
            // A request to negotiate, and events of vendors: the session need not act on them.
            _ => Ok(()),
        }
    }

    /// RFC 7143 §11.17: the segment holds the rejected header.
    fn on_reject(&mut self, bhs: &Bhs, done: &mut Vec<Outcome>) -> Result<(), SessionError> {
        let header: &Reject = bhs.cast();
        self.on_window(header.exp_cmd_sn.get(), header.max_cmd_sn.get());
        self.on_stat_sn(header.stat_sn.get());
        // The command whose data were damaged ends with a response of its own.
        if header.reason == reason::DATA_DIGEST {
            return Ok(());
        }
        let rejected = Bhs::ref_from_prefix(&self.inbound.gathered).map(|(bhs, _)| *bhs);
        let Ok(rejected) = rejected else {
            return Err(violated(bhs, Violation::Unexpected));
        };
        let command: &ScsiCommand = rejected.cast();
        let key = match rejected.opcode() {
            request::SCSI_COMMAND => self.table.find(command.itt.get()).map(|(key, _)| key),
            // An abort that is rejected has no effect.
            request::TASK_MANAGEMENT => return Ok(()),
            _ => None,
        };
        let Some(key) = key else {
            return Err(SessionError::Rejected {
                opcode: rejected.opcode(),
                reason: header.reason,
            });
        };
        let failure = CommandFailure::Rejected {
            reason: header.reason,
        };
        self.end(key, Err(failure), done);
        Ok(())
    }

    /// RFC 7143 §4.2.2.1: MaxCmdSN only grows, and a pair that contradicts itself is ignored.
    #[inline]
    fn on_window(&mut self, exp_cmd_sn: u32, max_cmd_sn: u32) {
        if !sn_before(max_cmd_sn, exp_cmd_sn.wrapping_sub(1))
            && sn_before(self.max_cmd_sn, max_cmd_sn)
        {
            self.max_cmd_sn = max_cmd_sn;
        }
    }

    /// Advances ExpStatSN. On one TCP connection no status can be lost in between.
    #[inline]
    fn on_stat_sn(&mut self, stat_sn: u32) {
        self.exp_stat_sn = stat_sn.wrapping_add(1);
    }
}

const GOOD: u8 = ScsiStatus::Good as u8;

/// SenseLength and sense data.
fn sense(segment: &[u8]) -> Option<ReceivedSense> {
    let (len, rest) = segment.split_first_chunk::<2>()?;
    let len = usize::from(u16::from_be_bytes(*len)).min(rest.len());
    ReceivedSense::parse(&rest[..len])
}

fn check_number(have: u32, want: u32) -> Result<(), Violation> {
    if have == want {
        Ok(())
    } else {
        Err(Violation::Number { have, want })
    }
}

/// Checks that data arrive in order, as negotiated, and lie inside of the command's data.
fn check_range(offset: u32, len: u32, want: u32, len_bytes: u32) -> Result<(), Violation> {
    let end = u64::from(offset) + u64::from(len);
    if offset == want && end <= u64::from(len_bytes) {
        return Ok(());
    }
    Err(Violation::Range {
        offset: u64::from(offset),
        end,
        len_bytes,
    })
}

#[cold]
fn violated(bhs: &Bhs, violation: Violation) -> SessionError {
    SessionError::Violation {
        opcode: bhs.opcode(),
        violation,
    }
}
