use super::*;
use crate::verbs::{Data, Inline, SendOp};

fn tracker(depth: u16) -> WorkTracker {
    let config = QpConfig {
        send_depth: depth,
        recv_depth: depth,
        ..QpConfig::default()
    };
    WorkTracker::new(Qpn::new(17), &config)
}

fn request(id: u64, signal: Signal) -> SendRequest {
    SendRequest {
        id: WorkId(id),
        op: SendOp::Send(Data::Inline(Inline::new(b"abc").expect("short"))),
        signal,
    }
}

#[test]
fn an_answer_speaks_for_what_was_before_it() {
    let mut tracker = tracker(64);
    for id in 0..3 {
        let ticket = tracker.send(&request(id, Signal::OnError)).expect("room");
        assert_eq!((ticket.number, ticket.is_signaled), (id as u32, false));
    }
    let ticket = tracker.send(&request(3, Signal::Always)).expect("room");
    assert_eq!((ticket.number, ticket.is_signaled), (3, true));
    let done = tracker.sent(3, WorkStatus::Success).expect("it is told");
    assert_eq!((done.id, done.kind), (WorkId(3), WorkKind::Send));
    assert_eq!((done.len_bytes, done.qpn), (3, Qpn::new(17)));
    assert_eq!(tracker.sends_held, 1);
    tracker.release(done.kind);
    assert_eq!(tracker.sends_held, 0);
    assert_eq!(tracker.sent(3, WorkStatus::Success), None);
    assert_eq!(tracker.sent(2, WorkStatus::RemoteAccess), None);
}

#[test]
fn quiet_requests_are_answered_now_and_then() {
    let mut tracker = tracker(16);
    let mut last = 0;
    // The caller never takes a completion, and yet there is room again.
    for id in 0..1000 {
        let ticket = tracker.send(&request(id, Signal::OnError)).expect("room");
        if ticket.is_signaled {
            assert!(id - last <= 4, "{id} after {last}");
            last = id;
            assert_eq!(tracker.sent(ticket.number, WorkStatus::Success), None);
        }
    }
    assert!(last > 990);
}

#[test]
fn numbers_wrap() {
    let mut tracker = tracker(8);
    tracker.first = WorkTracker::NUMBER_MASK;
    let numbers: Vec<_> = (0..3)
        .map(|id| {
            tracker
                .send(&request(id, Signal::Always))
                .expect("room")
                .number
        })
        .collect();
    assert_eq!(numbers, [WorkTracker::NUMBER_MASK, 0, 1]);
    assert_eq!(tracker.sent(2, WorkStatus::Success), None);
    let ids: Vec<_> = numbers
        .into_iter()
        .filter_map(|number| tracker.sent(number, WorkStatus::Success))
        .map(|done| done.id.0)
        .collect();
    assert_eq!(ids, [0, 1, 2]);
}

#[test]
fn a_failure_is_reported_without_a_signal() {
    let mut tracker = tracker(64);
    let quiet = tracker.send(&request(5, Signal::OnError)).expect("room");
    let failed = tracker.sent(quiet.number, WorkStatus::RemoteAccess);
    let failed = failed.expect("it failed");
    assert_eq!(
        (failed.id, failed.status),
        (WorkId(5), WorkStatus::RemoteAccess)
    );
}

#[test]
fn each_request_is_flushed_once() {
    let mut tracker = tracker(8);
    tracker.send(&request(1, Signal::OnError)).expect("room");
    tracker.bind().expect("room");
    tracker.send(&request(2, Signal::Always)).expect("room");
    tracker.recv(WorkId(3)).expect("room");
    let flushed: Vec<_> = std::iter::from_fn(|| tracker.flush())
        .map(|done| (done.id.0, done.kind, done.status))
        .collect();
    let flush = WorkStatus::Flushed;
    assert_eq!(
        flushed,
        [
            (1, WorkKind::Send, flush),
            (2, WorkKind::Send, flush),
            (3, WorkKind::Recv, flush)
        ]
    );
    assert_eq!(tracker.binds, 0);
}

#[test]
fn completions_that_are_not_taken_fill_the_queue() {
    let mut tracker = tracker(2);
    for id in 0..2 {
        let ticket = tracker.send(&request(id, Signal::Always)).expect("room");
        tracker
            .sent(ticket.number, WorkStatus::Success)
            .expect("told");
        tracker.recv(WorkId(id)).expect("room");
        tracker
            .received(WorkStatus::Success, Arrived::default())
            .expect("told");
    }
    assert_eq!(
        tracker.send(&request(2, Signal::Always)),
        Err(PostError::Full)
    );
    assert_eq!(tracker.recv(WorkId(2)), Err(PostError::Full));
    tracker.release(WorkKind::Send);
    tracker.release(WorkKind::Recv);
    assert!(tracker.send(&request(2, Signal::Always)).is_ok());
    assert!(tracker.recv(WorkId(2)).is_ok());
    tracker.retract_send();
    tracker.retract_recv();
    assert!(tracker.send(&request(2, Signal::Always)).is_ok());
    assert!(tracker.recv(WorkId(2)).is_ok());
}

#[test]
fn a_request_that_the_adapter_rejected_fails_only_itself() {
    let mut tracker = tracker(8);
    let status = WorkStatus::LocalMemory;
    for id in [1, 2] {
        tracker.send(&request(id, Signal::Always)).expect("room");
        tracker.recv(WorkId(10 + id)).expect("room");
    }
    let failed = tracker.fail_last_send(status).expect("it is told");
    assert_eq!((failed.id, failed.status), (WorkId(2), status));
    let failed = tracker.fail_last_recv(status).expect("it is told");
    assert_eq!((failed.id, failed.kind), (WorkId(12), WorkKind::Recv));
    assert_eq!((failed.status, failed.len_bytes), (status, 0));
    // Those before it are still to be answered.
    let sent = tracker.sent(0, WorkStatus::Success).expect("it is told");
    assert_eq!((sent.id, sent.status), (WorkId(1), WorkStatus::Success));
    let arrived = tracker.received(WorkStatus::Success, Arrived::default());
    assert_eq!(arrived.map(|done| done.id), Some(WorkId(11)));
    assert_eq!(tracker.flush(), None);
}
