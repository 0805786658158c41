//! Saves reservations of iSCSI targets that are to outlive a restart. The commands that made them
//! wait for that, so this has a thread of its own.

use std::io;
use std::sync::Weak;
use std::thread;

use server::{ReservationFeed, TargetName};

use super::{Engine, Shared};
use crate::change::Change;
use crate::reservations::to_saved;
use crate::text::Text;

/// Starts the thread. It ends with the server.
pub(super) fn start(engine: &Engine, feed: ReservationFeed) -> io::Result<()> {
    let shared = std::sync::Arc::downgrade(&engine.shared);
    thread::Builder::new()
        .name("reservations".to_owned())
        .spawn(move || run(&shared, &feed))
        .map(drop)
}

fn run(shared: &Weak<Shared>, feed: &ReservationFeed) {
    while let Some(target) = feed.wait() {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        Engine { shared }.save_reservations(&target);
    }
}

impl Engine {
    fn save_reservations(&self, target: &TargetName) {
        let mut store = self.begin();
        let Some(unsaved) = self.server().unsaved_reservations(target) else {
            return;
        };
        let luns = to_saved(&unsaved);
        let mut is_saved = self.reservations().of(target) == luns;
        if !is_saved {
            let change = Change::SetReservations(Text(target.clone()), luns);
            match store.append(std::slice::from_ref(&change)) {
                Ok(()) => {
                    is_saved = true;
                    self.make(vec![change]);
                }
                Err(error) => {
                    tracing::error!(%target, %error, "cannot save reservations; the commands of hosts fail");
                }
            }
        }
        self.server().reservations_saved(&unsaved, is_saved);
    }
}
