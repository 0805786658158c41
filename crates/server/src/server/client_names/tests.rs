//! The addresses of names, without a name service.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::*;
use crate::ShareClient;

fn name(text: &str) -> ClientName {
    match text.parse() {
        Ok(ShareClient::Name(name)) => name,
        other => panic!("{other:?} is no name"),
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn not_found() -> io::Error {
    io::Error::other("Name or service not known")
}

#[test]
fn addresses_stay_for_a_while_when_the_name_service_fails() {
    let names = ClientNames::default();
    let db = name("db");
    names.want(&BTreeSet::from([&db]));
    let start = Instant::now();
    let found = vec![ip("192.0.2.8"), ip("192.0.2.7"), ip("192.0.2.8")];
    assert!(names.take(&db, Ok(found.clone()), start));
    assert_eq!(names.addresses(&db), [ip("192.0.2.7"), ip("192.0.2.8")]);
    assert!(!names.take(&db, Ok(found), start), "they are the same");

    let late = start + KEEP_FOR;
    let early = late.checked_sub(Duration::from_secs(1)).expect("later");
    assert!(!names.take(&db, Err(not_found()), early));
    let problem = names.info(&db).problem.expect("one");
    assert!(
        problem.contains("db") && problem.contains("/etc/hosts"),
        "{problem}"
    );
    assert!(names.take(&db, Ok(Vec::new()), late), "too old by now");
    assert!(names.addresses(&db).is_empty());

    assert!(names.take(&db, Ok(vec![ip("::7")]), late));
    assert_eq!(names.info(&db).problem, None);
    names.want(&BTreeSet::new());
    assert!(names.addresses(&db).is_empty(), "no share names it");
    assert!(!names.take(&db, Ok(vec![ip("::8")]), late));
}

#[test]
fn a_name_has_a_bounded_number_of_addresses() {
    let many = (0..100_u32).map(|n| IpAddr::from(n.to_be_bytes()));
    assert_eq!(normalized(many.collect()).len(), ADDRESSES_MAX);
}

#[test]
fn a_definition_waits_for_the_first_look_up_and_its_publication() {
    let names = Arc::<ClientNames>::default();
    let published = Arc::<AtomicUsize>::default();
    let of_thread = Arc::clone(&published);
    let _thread = NameThread::start(
        Arc::clone(&names),
        Box::new(|name| match name.as_str() {
            "db" => Ok(vec![ip("192.0.2.7")]),
            _ => Err(not_found()),
        }),
        Box::new(move || {
            of_thread.fetch_add(1, Ordering::Relaxed);
        }),
    );
    let (db, other) = (name("db"), name("other"));
    names.want(&BTreeSet::from([&db, &other]));
    names.settle();
    assert_eq!(published.load(Ordering::Relaxed), 1);
    assert_eq!(names.addresses(&db), [ip("192.0.2.7")]);
    assert!(names.addresses(&other).is_empty());
    assert!(names.info(&other).problem.is_some());
}

#[test]
fn a_name_service_that_hangs_is_waited_for_once() {
    let names = Arc::<ClientNames>::default();
    let (answer, answers) = mpsc::channel::<()>();
    let thread = NameThread::start(
        Arc::clone(&names),
        Box::new(move |_| {
            // The channel ends with the test.
            let _ = answers.recv();
            Ok(vec![ip("192.0.2.7")])
        }),
        Box::new(|| {}),
    );
    let (db, other) = (name("db"), name("other"));
    names.want(&BTreeSet::from([&db]));
    let begin = Instant::now();
    names.settle();
    assert!(begin.elapsed() >= FIRST_WITHIN);
    names.want(&BTreeSet::from([&db, &other]));
    let begin = Instant::now();
    names.settle();
    assert!(begin.elapsed() < FIRST_WITHIN, "it is known to be slow");
    answer.send(()).expect("the thread waits");
    answer.send(()).expect("the thread waits");
    let until = Instant::now() + Duration::from_secs(30);
    while names.addresses(&other).is_empty() {
        assert!(Instant::now() < until, "it answers again");
        thread::sleep(Duration::from_millis(5));
    }
    drop(thread);
}

#[test]
fn the_system_knows_this_machine_without_a_name_service() {
    let found = by_system(&name("localhost")).expect("it is in /etc/hosts");
    assert!(found.iter().any(IpAddr::is_loopback), "{found:?}");
}
