//! The two threads of a save.
//!
//! ```text
//!  snapshot ──► calling thread ── pieces of 64 KiB ──► packing thread: compress, checksum, write ──► file
//!               priority of sessions                   what others leave of the processors
//! ```
//!
//! Who reads a snapshot holds the lock of a granule, for which writes of hosts spin. A thread of
//! low priority that lost its processor with such a lock would stop them, so only the calling
//! thread reads. It reads a granule at a time and sleeps in between, so it delays a session on its
//! processor by no more than that. The packing thread asks for one piece ahead, so it need not
//! sleep.

use std::cell::RefCell;
use std::io;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use block::{Allocation, ByteRange, Status};
use image::Source;
use memory::Progress;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;
/// Reports of the progress of a save; a large one has more.
const REPORTS: u64 = 256;
/// Bytes from one report to the next, at most.
const REPORT_BYTES_MAX: u64 = 4 << 20;

/// What the packing thread asks for.
enum Question {
    Allocation(ByteRange),
    /// The bytes at this offset, as many as the buffer holds. The answer returns the buffer,
    /// filled.
    Read(u64, Vec<u8>),
    Progress(Progress),
}

enum Answer {
    Allocation(Allocation),
    Read(Vec<u8>, Result<(), Status>),
    Flow(ControlFlow<()>),
}

/// The snapshot, as the packing thread sees it.
pub(super) struct Asker {
    questions: SyncSender<Question>,
    answers: Receiver<Answer>,
    known: RefCell<Known>,
}

/// What the packing thread knows already.
struct Known {
    /// What the last answer about an allocation covers.
    extent: ByteRange,
    is_allocated: bool,
    reported_bytes: Option<u64>,
    ahead: Option<Piece>,
    spare: Vec<u8>,
}

/// A piece that was asked for ahead.
struct Piece {
    range: ByteRange,
    /// `None` until the answer was taken.
    bytes: Option<(Vec<u8>, Result<(), Status>)>,
}

impl Asker {
    /// Notes how far the save is, if that is more than a little. Returns whether it goes on.
    pub(super) fn report(&self, progress: Progress) -> ControlFlow<()> {
        let mut known = self.known.borrow_mut();
        let step_bytes = (progress.total_bytes / REPORTS).min(REPORT_BYTES_MAX);
        let is_near = |last: u64| progress.done_bytes < last + step_bytes;
        if known.reported_bytes.is_some_and(is_near) {
            return ControlFlow::Continue(());
        }
        known.reported_bytes = Some(progress.done_bytes);
        match self.ask(&mut known, Question::Progress(progress)) {
            Some(Answer::Flow(flow)) => flow,
            _ => ControlFlow::Break(()),
        }
    }

    /// `None` if the calling thread has panicked.
    fn ask(&self, known: &mut Known, question: Question) -> Option<Answer> {
        self.take_ahead(known)?;
        self.questions.send(question).ok()?;
        self.answers.recv().ok()
    }

    /// Waits for the piece that was asked for ahead, if there is one.
    fn take_ahead(&self, known: &mut Known) -> Option<()> {
        let awaited = known.ahead.as_mut().filter(|piece| piece.bytes.is_none());
        if let Some(piece) = awaited {
            let Ok(Answer::Read(bytes, result)) = self.answers.recv() else {
                return None;
            };
            piece.bytes = Some((bytes, result));
        }
        Some(())
    }

    fn ask_ahead(&self, known: &mut Known, range: ByteRange) -> Option<()> {
        let mut buffer = std::mem::take(&mut known.spare);
        buffer.resize(range.len as usize, 0);
        let question = Question::Read(range.offset, buffer);
        self.questions.send(question).ok()?;
        known.ahead = Some(Piece { range, bytes: None });
        Some(())
    }

    /// The bytes of a piece, whether they were asked for ahead or not.
    fn piece(&self, known: &mut Known, range: ByteRange) -> Option<(Vec<u8>, Result<(), Status>)> {
        self.take_ahead(known)?;
        if let Some(piece) = known.ahead.take() {
            let (bytes, result) = piece.bytes?;
            if piece.range == range {
                return Some((bytes, result));
            }
            known.spare = bytes;
        }
        self.ask_ahead(known, range)?;
        self.take_ahead(known)?;
        known.ahead.take()?.bytes
    }
}

impl Known {
    /// What follows in the same extent, as far as it is a piece.
    fn following(&self, offset: u64) -> Option<ByteRange> {
        let end = self.extent.offset + self.extent.len;
        let is_inside = self.is_allocated && (self.extent.offset..end).contains(&offset);
        is_inside.then(|| ByteRange {
            offset,
            len: (end - offset).min(PIECE_BYTES as u64),
        })
    }
}

impl Source for Asker {
    fn allocation(&self, range: ByteRange) -> Allocation {
        let mut known = self.known.borrow_mut();
        let end = known.extent.offset + known.extent.len;
        if (known.extent.offset..end).contains(&range.offset) {
            return Allocation {
                allocated: known.is_allocated,
                len_bytes: range.len.min(end - range.offset),
            };
        }
        let Some(Answer::Allocation(told)) = self.ask(&mut known, Question::Allocation(range))
        else {
            // So that it is read, which fails.
            return Allocation {
                allocated: true,
                len_bytes: range.len,
            };
        };
        known.extent = ByteRange {
            offset: range.offset,
            len: told.len_bytes.min(range.len),
        };
        known.is_allocated = told.allocated;
        told
    }

    fn read(&self, offset: u64, dest: &mut [u8]) -> Result<(), Status> {
        let known = &mut *self.known.borrow_mut();
        let end = offset + dest.len() as u64;
        let mut range = ByteRange { offset, len: 0 };
        for piece in dest.chunks_mut(PIECE_BYTES) {
            range.len = piece.len() as u64;
            let (bytes, result) = self.piece(known, range).ok_or(Status::Gone)?;
            range.offset += range.len;
            let rest = (end - range.offset).min(PIECE_BYTES as u64);
            let next = if rest > 0 {
                Some(ByteRange { len: rest, ..range })
            } else {
                known.following(range.offset)
            };
            if let Some(next) = next {
                self.ask_ahead(known, next).ok_or(Status::Gone)?;
            }
            // A copy more, so that the other thread never writes what this one owns.
            piece.copy_from_slice(&bytes);
            known.spare = bytes;
            result?;
        }
        Ok(())
    }
}

/// Does `work` in a thread of its own, after `prepare`, and answers its questions about `source`
/// and `progress` meanwhile.
///
/// # Errors
/// If the thread cannot be started.
pub(super) fn pack<T: Send>(
    source: &dyn Source,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    prepare: fn(),
    work: impl FnOnce(&Asker) -> T + Send,
) -> io::Result<T> {
    let (questions, asked) = sync_channel(1);
    let (answer, answers) = sync_channel(1);
    let asker = Asker {
        questions,
        answers,
        known: RefCell::new(Known {
            extent: ByteRange { offset: 0, len: 0 },
            is_allocated: false,
            reported_bytes: None,
            ahead: None,
            spare: Vec::new(),
        }),
    };
    thread::scope(|scope| {
        // Dropped before the scope waits for the thread, so that a panic here ends both.
        let (asked, answer) = (asked, answer);
        let thread = thread::Builder::new().name("save".to_owned());
        let packer = thread.spawn_scoped(scope, move || {
            prepare();
            work(&asker)
        })?;
        for question in asked {
            let reply = match question {
                Question::Allocation(range) => Answer::Allocation(source.allocation(range)),
                Question::Read(offset, mut buffer) => {
                    let result = source.read(offset, &mut buffer);
                    Answer::Read(buffer, result)
                }
                Question::Progress(done) => Answer::Flow(progress(done)),
            };
            if answer.send(reply).is_err() {
                break;
            }
        }
        let done = packer.join();
        Ok(done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
