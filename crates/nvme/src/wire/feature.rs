//! Feature Identifiers (FID) and what Get and Set Features carry.
//!
//! Read first: NVM Express Base 2.0, "Get Features command", "Set Features command".

use super::Sqe;

/// Arbitration.
pub const ARBITRATION: u8 = 0x01;
/// Power Management.
pub const POWER_MANAGEMENT: u8 = 0x02;
/// Temperature Threshold.
pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
/// Error Recovery.
pub const ERROR_RECOVERY: u8 = 0x05;
/// Volatile Write Cache.
pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
/// Number of Queues.
pub const NUMBER_OF_QUEUES: u8 = 0x07;
/// Write Atomicity Normal.
pub const WRITE_ATOMICITY: u8 = 0x0A;
/// Asynchronous Event Configuration.
pub const ASYNC_EVENT_CONFIGURATION: u8 = 0x0B;
/// Timestamp.
pub const TIMESTAMP: u8 = 0x0E;
/// Keep Alive Timer.
pub const KEEP_ALIVE_TIMER: u8 = 0x0F;
/// Host Behavior Support.
pub const HOST_BEHAVIOR_SUPPORT: u8 = 0x16;
/// Host Identifier.
pub const HOST_IDENTIFIER: u8 = 0x81;
/// Reservation Notification Mask.
pub const RESERVATION_NOTIFICATION_MASK: u8 = 0x82;
/// Reservation Persistence.
pub const RESERVATION_PERSISTENCE: u8 = 0x83;
/// Namespace Write Protection Config.
pub const NAMESPACE_WRITE_PROTECTION: u8 = 0x84;

/// Feature Identifier (FID) of a Get Features or Set Features command: CDW10 bits 7:0.
pub fn identifier(sqe: &Sqe) -> u8 {
    sqe.cdw10.get() as u8
}

/// Bytes of data that a Set Features command carries.
pub fn host_data_len(sqe: &Sqe) -> usize {
    match identifier(sqe) {
        HOST_BEHAVIOR_SUPPORT => 512,
        HOST_IDENTIFIER if is_extended_host_id(sqe) => 16,
        TIMESTAMP | HOST_IDENTIFIER => 8,
        _ => 0,
    }
}

/// Enable Extended Host Identifier (EXHID): the Host Identifier is of 128 bits.
pub fn is_extended_host_id(sqe: &Sqe) -> bool {
    sqe.cdw11.get() & 1 != 0
}
