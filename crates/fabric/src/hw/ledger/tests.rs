use super::*;
use crate::verbs::{Data, Inline, SendOp};

fn ledger(depth: u16) -> Ledger {
    let config = QpConfig {
        send_depth: depth,
        recv_depth: depth,
        ..QpConfig::default()
    };
    Ledger::new(Qpn::new(17), &config)
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
    let mut ledger = ledger(64);
    for id in 0..3 {
        let ticket = ledger.send(&request(id, Signal::OnError)).expect("room");
        assert_eq!((ticket.number, ticket.is_signaled), (id as u32, false));
    }
    let ticket = ledger.send(&request(3, Signal::Always)).expect("room");
    assert_eq!((ticket.number, ticket.is_signaled), (3, true));
    let done = ledger.sent(3, WorkStatus::Success).expect("it is told");
    assert_eq!((done.id, done.kind), (WorkId(3), WorkKind::Send));
    assert_eq!((done.len_bytes, done.qpn), (3, Qpn::new(17)));
    assert_eq!(ledger.sends_held, 1);
    ledger.release(done.kind);
    assert_eq!(ledger.sends_held, 0);
    assert_eq!(ledger.sent(3, WorkStatus::Success), None);
    assert_eq!(ledger.sent(2, WorkStatus::RemoteAccess), None);
}

#[test]
fn quiet_requests_are_answered_now_and_then() {
    let mut ledger = ledger(16);
    let mut last = 0;
    // Nobody ever takes a completion, and yet there is always room again.
    for id in 0..1000 {
        let ticket = ledger.send(&request(id, Signal::OnError)).expect("room");
        if ticket.is_signaled {
            assert!(id - last <= 4, "{id} after {last}");
            last = id;
            assert_eq!(ledger.sent(ticket.number, WorkStatus::Success), None);
        }
    }
    assert!(last > 990);
}

#[test]
fn numbers_wrap() {
    let mut ledger = ledger(8);
    ledger.first = Ledger::NUMBER_MASK;
    let numbers: Vec<_> = (0..3)
        .map(|id| {
            ledger
                .send(&request(id, Signal::Always))
                .expect("room")
                .number
        })
        .collect();
    assert_eq!(numbers, [Ledger::NUMBER_MASK, 0, 1]);
    assert_eq!(ledger.sent(2, WorkStatus::Success), None);
    let ids: Vec<_> = numbers
        .into_iter()
        .filter_map(|number| ledger.sent(number, WorkStatus::Success))
        .map(|done| done.id.0)
        .collect();
    assert_eq!(ids, [0, 1, 2]);
}

#[test]
fn a_failure_is_told_though_nobody_asked() {
    let mut ledger = ledger(64);
    let quiet = ledger.send(&request(5, Signal::OnError)).expect("room");
    let failed = ledger.sent(quiet.number, WorkStatus::RemoteAccess);
    let failed = failed.expect("it failed");
    assert_eq!(
        (failed.id, failed.status),
        (WorkId(5), WorkStatus::RemoteAccess)
    );
}

#[test]
fn each_request_is_flushed_once() {
    let mut ledger = ledger(8);
    ledger.send(&request(1, Signal::OnError)).expect("room");
    ledger.bind().expect("room");
    ledger.send(&request(2, Signal::Always)).expect("room");
    ledger.recv(WorkId(3)).expect("room");
    let flushed: Vec<_> = std::iter::from_fn(|| ledger.flush())
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
    assert_eq!(ledger.binds, 0);
}

#[test]
fn completions_that_nobody_takes_fill_the_queue() {
    let mut ledger = ledger(2);
    for id in 0..2 {
        let ticket = ledger.send(&request(id, Signal::Always)).expect("room");
        ledger
            .sent(ticket.number, WorkStatus::Success)
            .expect("told");
        ledger.recv(WorkId(id)).expect("room");
        ledger
            .received(WorkStatus::Success, Arrived::default())
            .expect("told");
    }
    assert_eq!(
        ledger.send(&request(2, Signal::Always)),
        Err(PostError::Full)
    );
    assert_eq!(ledger.recv(WorkId(2)), Err(PostError::Full));
    ledger.release(WorkKind::Send);
    ledger.release(WorkKind::Recv);
    assert!(ledger.send(&request(2, Signal::Always)).is_ok());
    assert!(ledger.recv(WorkId(2)).is_ok());
    ledger.retract_send();
    ledger.retract_recv();
    assert!(ledger.send(&request(2, Signal::Always)).is_ok());
    assert!(ledger.recv(WorkId(2)).is_ok());
}

#[test]
fn what_the_adapter_never_saw_fails_alone() {
    let mut ledger = ledger(8);
    let status = WorkStatus::LocalMemory;
    for id in [1, 2] {
        ledger.send(&request(id, Signal::Always)).expect("room");
        ledger.recv(WorkId(10 + id)).expect("room");
    }
    let failed = ledger.fail_last_send(status).expect("it is told");
    assert_eq!((failed.id, failed.status), (WorkId(2), status));
    let failed = ledger.fail_last_recv(status).expect("it is told");
    assert_eq!((failed.id, failed.kind), (WorkId(12), WorkKind::Recv));
    assert_eq!((failed.status, failed.len_bytes), (status, 0));
    // Those before it are still to be answered.
    let sent = ledger.sent(0, WorkStatus::Success).expect("it is told");
    assert_eq!((sent.id, sent.status), (WorkId(1), WorkStatus::Success));
    let arrived = ledger.received(WorkStatus::Success, Arrived::default());
    assert_eq!(arrived.map(|done| done.id), Some(WorkId(11)));
    assert_eq!(ledger.flush(), None);
}
