//! The bounds that controllers advertise and enforce.

use std::time::Duration;

use crate::wire::discovery::TransportType;

/// The largest fused compare-and-write, in blocks: Atomic Compare & Write Unit (ACWU), 1's-based.
pub const COMPARE_AND_WRITE_BLOCKS_MAX: u64 = 8;
/// The most source ranges of a Copy: Maximum Source Range Count (MSRC), 1's-based.
pub const COPY_RANGES_MAX: u32 = 128;
/// The largest source range of a Copy, in blocks: Maximum Single Source Range Length (MSSRL).
pub const COPY_RANGE_BLOCKS_MAX: u16 = 1024;
/// The most blocks of a Copy: Maximum Copy Length (MCL).
pub const COPY_BLOCKS_MAX: u32 = COPY_RANGES_MAX * COPY_RANGE_BLOCKS_MAX as u32;

/// What a subsystem takes of each kind. Queue depths are in entries, 1's based.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Controllers at once.
    pub controllers_max: u16,
    /// I/O queues of one controller.
    pub io_queues_max: u16,
    /// Entries of an I/O submission queue.
    pub io_queue_depth_max: u32,
    /// Entries of an admin submission queue.
    pub admin_queue_depth_max: u32,
    /// Namespaces at once, and the largest NSID (NN).
    pub namespaces_max: u32,
    /// log2 of the largest transfer in units of 4 KiB (MDTS).
    pub mdts: u8,
    /// Largest in-capsule data of an I/O queue over TCP, in bytes; a multiple of 16.
    pub in_capsule_data_max_bytes: u32,
    /// The same over RDMA, where each entry of a queue has a receive of that size: a multiple of
    /// 16, at least 16 for each of [`Self::RDMA_SGL_DESCRIPTORS_MAX`].
    pub rdma_in_capsule_data_max_bytes: u32,
}

impl Limits {
    /// The smallest page, to which MDTS refers (CAP.MPSMIN = 0), in bytes.
    pub const PAGE_BYTES: u64 = 4096;
    /// Asynchronous Event Requests that a controller keeps.
    pub const ASYNC_EVENT_REQUESTS_MAX: usize = 8;
    /// The most SGL descriptors of a command's data over RDMA (MSDBD).
    pub const RDMA_SGL_DESCRIPTORS_MAX: u8 = 16;
    /// Controllers at once, of one subsystem, whose hosts have not been authenticated yet.
    pub const UNPROVEN_CONTROLLERS_MAX: usize = 64;
    /// The same, of hosts at one address.
    pub const UNPROVEN_CONTROLLERS_OF_ADDRESS_MAX: usize = 16;
    /// How long an authentication may take, from Connect or from AUTH_Negotiate.
    pub const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(30);
    /// Abort commands at once of one controller (ACL, 1's-based).
    pub const ABORTS_MAX: u8 = 4;

    /// log2 of the most that hosts should zero by one Write Zeroes, in units of
    /// [`Self::PAGE_BYTES`] (WZSL): 32 MiB. Longer ones are executed all the same.
    pub const WRITE_ZEROES_MAX_SHIFT: u8 = 13;

    /// Largest in-capsule data of an I/O queue over this transport, in bytes.
    pub const fn in_capsule_max_bytes(&self, transport: TransportType) -> u32 {
        match transport {
            TransportType::Rdma => self.rdma_in_capsule_data_max_bytes,
            TransportType::Tcp => self.in_capsule_data_max_bytes,
        }
    }

    /// The largest transfer of a command, in bytes.
    pub const fn transfer_max_bytes(&self) -> u64 {
        Self::PAGE_BYTES << self.mdts
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            controllers_max: 1024,
            io_queues_max: 128,
            io_queue_depth_max: 1024,
            admin_queue_depth_max: 128,
            namespaces_max: 1024,
            mdts: 8,
            in_capsule_data_max_bytes: 8192,
            rdma_in_capsule_data_max_bytes: 4096,
        }
    }
}
