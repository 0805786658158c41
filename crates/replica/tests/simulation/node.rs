//! A machine: its clock, and the member that runs on it unless it has crashed.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use replica::{LocalTime, Member, MemberId, Settings};

use crate::disk::Disk;

/// A clock that runs at a rate of its own.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    shown: Duration,
    set_at: Duration,
    /// What a second shows, in millionths.
    rate_ppm: u32,
}

impl Clock {
    pub fn new(shown: Duration) -> Self {
        Self {
            shown,
            set_at: Duration::ZERO,
            rate_ppm: 1_000_000,
        }
    }

    pub fn read(&self, now: Duration) -> LocalTime {
        let real = now.saturating_sub(self.set_at).as_nanos();
        let shown = real * u128::from(self.rate_ppm) / 1_000_000;
        LocalTime(self.shown + Duration::from_nanos(shown as u64))
    }

    pub fn set_rate(&mut self, now: Duration, rate_ppm: u32) {
        self.shown = self.read(now).0;
        self.set_at = now;
        self.rate_ppm = rate_ppm;
    }
}

pub struct Node {
    pub id: MemberId,
    pub member: Option<Member<Disk>>,
    pub clock: Clock,
    pub paused_until: Duration,
    /// How many of its next writes find no memory.
    pub refuses: Rc<Cell<u32>>,
}

impl Node {
    pub fn new(node: u32, settings: &Settings, shown: Duration) -> Self {
        let mut node = Self {
            id: MemberId {
                node,
                incarnation: 0,
            },
            member: None,
            clock: Clock::new(shown),
            paused_until: Duration::ZERO,
            refuses: Rc::default(),
        };
        node.start(settings, Duration::ZERO);
        node
    }

    /// Starts with empty memory, as another member.
    pub fn start(&mut self, settings: &Settings, now: Duration) {
        self.id.incarnation += 1;
        let disk = Disk::empty(settings.blocks, Rc::clone(&self.refuses));
        let member = Member::new(self.id, settings.clone(), disk, self.clock.read(now));
        self.member = Some(member.expect("the settings are valid"));
    }

    pub fn serves(&self, now: Duration) -> bool {
        let member = self.member.as_ref();
        member.is_some_and(|member| member.serves_reads(self.clock.read(now)))
    }
}
