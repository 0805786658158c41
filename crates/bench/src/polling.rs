//! How threads wait for completions if the plan does not say.

use std::{thread, time::Duration};

use crate::{Plan, Wait};

/// How long threads poll before they sleep if polling without pause could starve others.
const POLL_TIME: Duration = Duration::from_micros(50);

/// The location of a run's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A process of this machine serves it.
    ThisMachine,
    /// The network or the kernel.
    Elsewhere,
}

/// The processors that the threads of `plan` may use.
pub(crate) fn processors(plan: &Plan) -> usize {
    match plan.cpus.0.len() {
        0 => thread::available_parallelism().map_or(1, usize::from),
        pinned => pinned,
    }
}

/// How `threads` threads wait, and a remark if the plan left that open and polling without pause
/// was not chosen.
pub(crate) fn choose(plan: &Plan, threads: usize, place: Place) -> (Wait, Option<String>) {
    if let Some(wait) = plan.wait {
        return (wait, None);
    }
    let processors = processors(plan);
    let is_full = threads >= processors;
    let (wait, manner) = match (is_full, place) {
        (false, Place::Elsewhere) => return (Wait::Spin, None),
        (true, Place::ThisMachine) => (Wait::Sleep, "threads sleep until I/Os complete".to_owned()),
        _ => (
            Wait::Adaptive(POLL_TIME),
            format!("threads poll for {POLL_TIME:?}, then sleep"),
        ),
    };
    let jobs = format!("{threads} threads run on {processors} processors");
    let reason = match (is_full, place) {
        (true, Place::ThisMachine) => format!("{jobs}, and the target is on this machine"),
        (true, Place::Elsewhere) => jobs,
        (false, _) => "the target is on this machine".to_owned(),
    };
    let note = format!("{manner}, since {reason}; choose otherwise with --poll");
    (wait, Some(note))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuList;

    fn chosen(wait: Option<Wait>, threads: usize, place: Place) -> (Wait, Option<String>) {
        let plan = Plan {
            wait,
            cpus: CpuList(vec![0, 1]),
            ..Plan::new(Vec::new())
        };
        choose(&plan, threads, place)
    }

    #[test]
    fn polling_without_pause_needs_idle_processors() {
        assert_eq!(chosen(None, 1, Place::Elsewhere), (Wait::Spin, None));
        for (threads, place, wait, reason) in [
            (
                2,
                Place::Elsewhere,
                Wait::Adaptive(POLL_TIME),
                "2 threads run on 2",
            ),
            (
                1,
                Place::ThisMachine,
                Wait::Adaptive(POLL_TIME),
                "this machine",
            ),
            (2, Place::ThisMachine, Wait::Sleep, "this machine"),
        ] {
            let (chosen, note) = chosen(None, threads, place);
            assert_eq!(chosen, wait);
            let note = note.expect("the choice is told");
            assert!(note.contains(reason) && note.contains("--poll"), "{note}");
        }
    }

    #[test]
    fn what_was_asked_for_is_done() {
        let asked = Some(Wait::Spin);
        assert_eq!(chosen(asked, 9, Place::ThisMachine), (Wait::Spin, None));
    }
}
