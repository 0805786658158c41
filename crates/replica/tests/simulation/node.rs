//! A machine: its clock, and the member that runs on it unless it has crashed.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use block::Extent;
use replica::{LocalTime, Medium as _, Member, MemberId, Refusal, Settings};

use crate::disk::{Data, Disk};
use crate::hosts::{Command, Reply};

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

    /// Executes a command of a host, as crate `node_link` does. Returns the reply, unless it
    /// follows when a write is committed.
    pub fn execute(&mut self, now: LocalTime, command: &Command) -> Option<Reply> {
        let member = self.member.as_mut()?;
        let (extent, blocks) = (command.extent, command.extent.blocks.0);
        let Some(value) = command.value else {
            return Some(match read_committed(member, now, extent) {
                Some(values) => Reply::Read(values),
                None => Reply::Failed(member.config().map(|config| config.primary.node)),
            });
        };
        let data = if command.is_fill {
            Data::Fill { value, blocks }
        } else {
            Data::Blocks(vec![value; blocks as usize])
        };
        match member.handle_write(now, command.request, extent, &data) {
            Ok(()) => None,
            Err(Refusal::NotPrimary(Some(primary))) => Some(Reply::Failed(Some(primary.node))),
            Err(Refusal::InvalidExtent) => panic!("{command:?} is valid"),
            Err(_) => Some(Reply::Failed(None)),
        }
    }

    pub fn serves(&self, now: Duration) -> bool {
        let member = self.member.as_ref();
        member.is_some_and(|member| member.serves_reads(self.clock.read(now)))
    }
}

/// What is committed; `None` if the member does not serve, or a write in flight has overwritten
/// more than was kept.
fn read_committed(member: &Member<Disk>, now: LocalTime, extent: Extent) -> Option<Vec<u64>> {
    let mut values = member.medium().read(extent).values();
    for write in member.overwritten().rev() {
        for (place, value) in values.iter_mut().enumerate() {
            let lba = extent.lba.0 + place as u64;
            if (write.extent.lba.0..write.extent.lba.0 + write.extent.blocks.0).contains(&lba) {
                let old = write.old.as_ref()?.values();
                *value = old[(lba - write.extent.lba.0) as usize];
            }
        }
    }
    member.serves_reads(now).then_some(values)
}
