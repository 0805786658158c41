//! Opcodes (OPC) of the admin and the NVM command set.

/// Admin: Delete I/O Submission Queue (not in Fabrics).
pub const DELETE_IO_SQ: u8 = 0x00;
/// Admin: Get Log Page.
pub const GET_LOG_PAGE: u8 = 0x02;
/// Admin: Identify.
pub const IDENTIFY: u8 = 0x06;
/// Admin: Abort.
pub const ABORT: u8 = 0x08;
/// Admin: Set Features.
pub const SET_FEATURES: u8 = 0x09;
/// Admin: Get Features.
pub const GET_FEATURES: u8 = 0x0A;
/// Admin: Asynchronous Event Request.
pub const ASYNC_EVENT_REQUEST: u8 = 0x0C;
/// Admin: Keep Alive.
pub const KEEP_ALIVE: u8 = 0x18;

/// NVM: Flush.
pub const FLUSH: u8 = 0x00;
/// NVM: Write.
pub const WRITE: u8 = 0x01;
/// NVM: Read.
pub const READ: u8 = 0x02;
/// NVM: Write Uncorrectable.
pub const WRITE_UNCORRECTABLE: u8 = 0x04;
/// NVM: Compare.
pub const COMPARE: u8 = 0x05;
/// NVM: Write Zeroes.
pub const WRITE_ZEROES: u8 = 0x08;
/// NVM: Dataset Management.
pub const DATASET_MANAGEMENT: u8 = 0x09;
/// NVM: Verify.
pub const VERIFY: u8 = 0x0C;
/// NVM: Reservation Register.
pub const RESERVATION_REGISTER: u8 = 0x0D;
/// NVM: Reservation Report.
pub const RESERVATION_REPORT: u8 = 0x0E;
/// NVM: Reservation Acquire.
pub const RESERVATION_ACQUIRE: u8 = 0x11;
/// NVM: Reservation Release.
pub const RESERVATION_RELEASE: u8 = 0x15;
/// NVM: Copy.
pub const COPY: u8 = 0x19;
