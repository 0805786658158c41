//! How large a window is.

/// How large a window is.
#[derive(Clone, Copy, Debug)]
pub struct WindowOptions {
    /// Bytes of a frame: a power of two from [`FRAME_BYTES_MIN`](Self::FRAME_BYTES_MIN) to
    /// [`FRAME_BYTES_MAX`](Self::FRAME_BYTES_MAX).
    pub frame_bytes: u32,
    /// The most memory of all frames in bytes. It is charged to the budget when it is used.
    pub memory_bytes_max: u64,
}

impl WindowOptions {
    /// The smallest frame.
    pub const FRAME_BYTES_MIN: u32 = 4 << 10;
    /// The largest frame.
    pub const FRAME_BYTES_MAX: u32 = 64 << 10;
    /// The most memory of a cache.
    pub const CACHE_BYTES_MAX: u64 = 256 << 30;
}
