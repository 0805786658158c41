//! Architecture invariant: nothing on the data path allocates.

use sim::{Protocol, command_loop};

/// Commands until all queues and buffers have grown to the size that they keep. What the tests' own
/// backend notes of each command has grown to a power of two that the commands which are counted do
/// not reach.
const WARM_UP: usize = 600;
const COUNTED: usize = 64;

#[test]
fn no_command_allocates() {
    for protocol in Protocol::ALL {
        for is_read in [true, false] {
            let mut execute = command_loop(protocol, is_read);
            (0..WARM_UP).for_each(|_| execute());
            let counted = allocation_counter::measure(|| (0..COUNTED).for_each(|_| execute()));
            assert_eq!(
                counted.count_total, 0,
                "{protocol:?}, is_read: {is_read}: {counted:?}"
            );
        }
    }
}
