//! Completions from the adapter, and events of its queue pairs.

use std::io;
use std::time::Instant;

use roce::wire::NakCode;

use super::adapter::Hw;
use super::queue_pairs::{Label, Serial};
use super::sys::{async_event, ibv_wc, wc_flags, wc_status};
use super::verbs::Cq;
use super::work_tracker::Arrived;
use crate::verbs::{QpFailure, QpState, Rkey, WorkStatus};

/// Completions that one call takes.
const BATCH: usize = 16;
/// Calls of that kind in a round.
const BATCHES_PER_ROUND: usize = 64;
/// Queue pairs whose state is queried in a round.
const WATCHED_PER_ROUND: usize = 16;
/// Events of the device in a round.
const EVENTS_PER_ROUND: usize = 256;

impl Hw {
    /// Takes completions from the adapter. Returns whether there were any.
    pub(super) fn reap(&mut self) -> io::Result<bool> {
        let mut came = [ibv_wc::default(); BATCH];
        let mut sent = [ibv_wc::default(); BATCH];
        let mut has_reaped = false;
        for _ in 0..BATCHES_PER_ROUND {
            // Receives are polled first and handled last. By then the completions of requests that
            // ended before them have been handled, so the cause of a failure is known before the
            // completions that it flushed.
            let came = self.take(&self.queues.cqs.receives, &mut came)?;
            let mut is_over = came.len() < BATCH;
            for _ in 0..BATCHES_PER_ROUND {
                let sent = self.take(&self.queues.cqs.sends, &mut sent)?;
                for wc in sent {
                    self.on_completion(wc);
                }
                has_reaped |= !sent.is_empty();
                is_over &= sent.len() < BATCH;
                if sent.len() < BATCH {
                    break;
                }
            }
            for wc in came {
                self.on_completion(wc);
            }
            has_reaped |= !came.is_empty();
            if is_over {
                break;
            }
        }
        Ok(has_reaped)
    }

    /// Takes completions of one completion queue.
    fn take<'b>(&self, cq: &Cq, batch: &'b mut [ibv_wc]) -> io::Result<&'b [ibv_wc]> {
        match cq.poll(batch) {
            Ok(count) => Ok(&batch[..count]),
            Err(_) if self.is_gone => Ok(&[]),
            Err(error) => Err(error),
        }
    }

    fn on_completion(&mut self, wc: &ibv_wc) {
        let Label {
            serial,
            is_recv,
            number,
        } = Label::from_wire(wc.wr_id);
        let status = status(wc.status);
        // The completions of a destroyed queue pair were flushed when it was destroyed.
        let Some(pair) = self.pairs.get_mut(serial) else {
            return;
        };
        let done = if is_recv {
            let is_ours = |key| self.regions.is_window_of(key, serial);
            pair.tracker.received(status, arrived(wc, status, is_ours))
        } else {
            pair.tracker.sent(number, status)
        };
        if let Some(key) = done.and_then(|done| done.invalidated) {
            // The peer has invalidated the key of this window, so the window cannot be used again.
            self.regions.remove(key);
        }
        self.report(serial, done);
        match status {
            WorkStatus::Success => {}
            // The adapter failed the request without a reason.
            WorkStatus::Flushed => {
                self.fail_pair(
                    serial,
                    QpFailure::Responder(NakCode::RemoteOperationalError),
                );
            }
            _ if is_recv => {
                self.fail_pair(serial, QpFailure::Responder(NakCode::InvalidRequest));
            }
            failed => self.fail_pair(serial, QpFailure::Request(failed)),
        }
    }

    /// Handles events of the device.
    pub(super) fn handle_device_events(&mut self) {
        for _ in 0..EVENTS_PER_ROUND {
            let Some((kind, about)) = self.context.next_event() else {
                return;
            };
            match kind {
                async_event::DEVICE_FATAL | async_event::CQ_ERR => self.lose_device(),
                async_event::COMM_EST => self.report_traffic(about),
                async_event::GID_CHANGE => self.follow_address(),
                _ => {
                    let code = match kind {
                        async_event::QP_ACCESS_ERR => NakCode::RemoteAccessError,
                        async_event::QP_REQ_ERR => NakCode::InvalidRequest,
                        async_event::QP_FATAL => NakCode::RemoteOperationalError,
                        // A port's state, and the like: connections notice by themselves.
                        _ => continue,
                    };
                    if let Some(serial) = self.pairs.at_address(about) {
                        self.fail_pair(serial, QpFailure::Responder(code));
                    }
                }
            }
        }
    }

    /// Checks queue pairs that the adapter may have failed without an event. rdma_rxe reports
    /// nothing if it refuses a peer's request and no receive is posted.
    pub(super) fn watch(&mut self) {
        let now = Instant::now();
        if now < self.next_watch {
            return;
        }
        self.next_watch = now + Self::WATCH_INTERVAL;
        let connected: Vec<Serial> = self.pairs.connected().map(|(serial, _)| serial).collect();
        let count = connected.len().max(1);
        let turns = connected.iter().cycle().skip(self.watched % count);
        for serial in turns.take(WATCHED_PER_ROUND.min(connected.len())) {
            self.watched = self.watched.wrapping_add(1);
            let pair = self.pairs.get_mut(*serial);
            if pair.is_some_and(|p| p.state == QpState::ReadyToSend && p.qp.has_failed()) {
                // The completions that have arrived meanwhile may give the reason.
                let _ = self.reap();
                let unknown = NakCode::RemoteOperationalError;
                self.fail_pair(*serial, QpFailure::Responder(unknown));
            }
        }
    }
}

const fn status(code: u32) -> WorkStatus {
    match code {
        wc_status::SUCCESS => WorkStatus::Success,
        wc_status::LOC_LEN_ERR => WorkStatus::LocalLength,
        wc_status::WR_FLUSH_ERR => WorkStatus::Flushed,
        wc_status::BAD_RESP_ERR => WorkStatus::BadResponse,
        wc_status::REM_INV_REQ_ERR => WorkStatus::RemoteInvalidRequest,
        wc_status::REM_ACCESS_ERR => WorkStatus::RemoteAccess,
        wc_status::REM_OP_ERR => WorkStatus::RemoteOperation,
        wc_status::RETRY_EXC_ERR => WorkStatus::RetryExceeded,
        wc_status::RNR_RETRY_EXC_ERR => WorkStatus::RnrRetryExceeded,
        // Local protection errors, and all other failures of this side.
        _ => WorkStatus::LocalMemory,
    }
}

/// What arrived with a message. `is_window` says whether this queue pair's peer may invalidate a
/// key.
fn arrived(wc: &ibv_wc, status: WorkStatus, is_window: impl FnOnce(Rkey) -> bool) -> Arrived {
    if status != WorkStatus::Success {
        return Arrived::default();
    }
    let has = |flag| wc.wc_flags & flag != 0;
    let key = Rkey(wc.imm_data);
    let is_invalidated =
        has(wc_flags::WITH_INV) || (has(wc_flags::WITH_INV_OF_RXE) && is_window(key));
    Arrived {
        len_bytes: wc.byte_len,
        immediate: has(wc_flags::WITH_IMM).then(|| u32::from_be(wc.imm_data)),
        invalidated: is_invalidated.then_some(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_reports_immediate_data_and_invalidated_keys() {
        let mut wc = ibv_wc {
            byte_len: 100,
            imm_data: 77_u32.to_be(),
            wc_flags: wc_flags::WITH_IMM,
            ..ibv_wc::default()
        };
        let key = Rkey(77_u32.to_be());
        let came = arrived(&wc, WorkStatus::Success, |_| true);
        assert_eq!((came.len_bytes, came.immediate), (100, Some(77)));
        assert_eq!(came.invalidated, None);
        wc.wc_flags = wc_flags::WITH_INV;
        let came = arrived(&wc, WorkStatus::Success, |_| false);
        assert_eq!((came.invalidated, came.immediate), (Some(key), None));
        wc.wc_flags = wc_flags::WITH_INV_OF_RXE;
        let came = arrived(&wc, WorkStatus::Success, |asked| asked == key);
        assert_eq!(came.invalidated, Some(key));
        let came = arrived(&wc, WorkStatus::Success, |_| false);
        assert_eq!(came.invalidated, None);
        // With a failure, only the status is valid.
        let came = arrived(&wc, WorkStatus::Flushed, |_| true);
        assert_eq!(came, Arrived::default());
    }

    #[test]
    fn every_failure_has_a_status_that_is_no_success() {
        for code in 1..64 {
            assert_ne!(status(code), WorkStatus::Success, "{code}");
        }
        assert_eq!(status(wc_status::SUCCESS), WorkStatus::Success);
    }
}
