//! Architecture invariant: nothing on the data path allocates.

use sim::{Protocol, command_loop, requested_write_loop};

/// Commands until all queues and buffers have grown to the size that they keep. What the tests' own
/// backend notes of each command has grown to a power of two that the commands which are counted do
/// not reach.
const WARM_UP: usize = 600;
const COUNTED: usize = 64;

/// Asserts that commands allocate nothing, one after the other.
fn assert_allocates_nothing(what: &str, mut execute: impl FnMut()) {
    (0..WARM_UP).for_each(|_| execute());
    let counted = allocation_counter::measure(|| (0..COUNTED).for_each(|_| execute()));
    assert_eq!(counted.count_total, 0, "{what}: {counted:?}");
}

#[test]
fn no_command_allocates() {
    for protocol in Protocol::ALL {
        for is_read in [true, false] {
            let what = format!("{protocol:?}, is_read: {is_read}");
            assert_allocates_nothing(&what, command_loop(protocol, is_read));
        }
    }
}

#[test]
fn no_r2t_allocates() {
    let mut loops = 0;
    for protocol in Protocol::ALL {
        if let Some(execute) = requested_write_loop(protocol) {
            assert_allocates_nothing(&format!("{protocol:?}"), execute);
            loops += 1;
        }
    }
    assert_eq!(loops, 2, "NVMe/TCP and iSCSI have R2Ts");
}
