//! What tests and fuzz targets run on.

#[cfg(test)]
mod bytes;
pub mod fuzz;

#[cfg(test)]
pub(crate) use bytes::Bytes;

use block::Volume;

use crate::{CopyWork, Execution, Medium, Response, Sense, Step, Turn};

/// Executes a medium command, in as many turns as it takes.
pub fn execute(command: Medium, data: &[u8], volume: &dyn Volume) -> Result<(), Sense> {
    let mut execution = Execution::new(command);
    let (response, _) = in_turns(|turn| execution.go_on(data, volume, turn));
    response.sense.map_or(Ok(()), Err)
}

/// Copies, in as many turns as it takes.
pub fn copy(work: &mut CopyWork) -> Response {
    in_turns(|turn| work.go_on(turn)).0
}

/// What came of it, and how many turns it took.
pub(crate) fn in_turns(mut go_on: impl FnMut(&mut Turn) -> Step) -> (Response, usize) {
    for turns in 1.. {
        if let Step::Over(response) = go_on(&mut Turn::new()) {
            return (response, turns);
        }
    }
    unreachable!("a command ends")
}
