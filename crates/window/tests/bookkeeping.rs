//! What a cache allocates is charged to the memory budget, and little more is.

use std::sync::{Arc, Mutex};

use block::{
    Admission, BlockSize, Blocks, Completion, Completions, DataUse, Extent, Geometry, Intent, Lba,
    OpKind, Persistence, Ticket,
};
use memory::Budget;
use window::{Backing, BackingClient, BackingOp, CacheMode, CacheOptions, Request, Window};

const FRAME_BYTES: u64 = 4096;
/// Commands of the test are completed before the next one.
const TICKET: Ticket = Ticket {
    connection: 1,
    slot: 0,
    generation: 0,
};

/// A device of zeros that answers when the test says so.
#[derive(Debug, Default)]
struct Zeros(Mutex<Vec<Request>>);

impl Backing for Zeros {
    fn submit(&self, request: Request) {
        self.0.lock().expect("no panic").push(request);
    }
}

impl Zeros {
    fn complete_all(&self, window: &Window) {
        let requests = std::mem::take(&mut *self.0.lock().expect("no panic"));
        let zeros = [0; FRAME_BYTES as usize];
        for request in requests {
            let len = match request.op {
                BackingOp::Read => request.range.len as usize,
                _ => 0,
            };
            window.done(request.id, Ok(&zeros[..len]));
        }
    }
}

struct Nobody;

impl Completions for Nobody {
    fn done(&self, _completion: Completion) {}
}

/// Reads or writes a whole frame.
fn touch(window: &Window, zeros: &Zeros, frame: u64, data_use: DataUse) {
    let extent = Extent::new(Lba(frame * FRAME_BYTES / 512), Blocks(FRAME_BYTES / 512));
    let is_write = data_use == DataUse::Overwrite;
    let intent = Intent {
        kind: if is_write {
            OpKind::Write
        } else {
            OpKind::Read
        },
        extents: &[extent],
        len_bytes: FRAME_BYTES,
        data_use,
        persistence: Persistence::Volatile,
    };
    match window.admit(&intent, TICKET) {
        Admission::Later(None) => zeros.complete_all(window),
        Admission::NowThenSettle(None) => {}
        other => panic!("{other:?}"),
    }
    if is_write {
        let data = &[7; FRAME_BYTES as usize];
        let op = block::Op::Write { extent, data };
        window.execute(op).expect("it has its frame");
        window.settle(TICKET).expect("it is written back");
    }
    window.release(TICKET);
}

/// A cache of `kept` frames that is full, half of it dirty, after it has evicted as many frames.
fn full_cache(kept: u64, budget: &Arc<Budget>) -> (Window, Arc<Zeros>) {
    let zeros = Arc::new(Zeros::default());
    let options = CacheOptions {
        mode: CacheMode::WriteBack,
        kept_bytes: kept * FRAME_BYTES,
        bypass_bytes: 0,
    };
    let window = Window::cache(
        Geometry::new(BlockSize::B512, Blocks(1 << 24)),
        FRAME_BYTES as u32,
        options,
        Arc::clone(&zeros) as Arc<dyn Backing>,
        budget,
        Arc::new(Nobody),
    );
    let window = window.expect("the budget is large enough");
    for frame in 0..2 * kept {
        touch(&window, &zeros, frame, DataUse::Read);
    }
    for frame in 0..kept / 2 {
        touch(&window, &zeros, 2 * kept + frame, DataUse::Overwrite);
    }
    (window, zeros)
}

#[test]
fn what_a_cache_allocates_is_charged() {
    // Vectors and maps have most to spare just above a power of two.
    for kept in [1800, 2048, 3700, 4097] {
        let budget = Arc::new(Budget::new(1 << 30));
        let mut cache = None;
        let counted = allocation_counter::measure(|| cache = Some(full_cache(kept, &budget)));
        // The memory of frames is mapped, which is not counted here.
        let charged = budget.used_bytes() - kept * FRAME_BYTES;
        let allocated = counted.bytes_current.unsigned_abs();
        assert!(
            allocated <= charged,
            "{kept} frames: {allocated} bytes, of which {charged} are charged"
        );
        assert!(
            charged <= 2 * allocated,
            "{kept} frames: {charged} bytes are charged for {allocated}"
        );
    }
}
