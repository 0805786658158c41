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
//! processor by no more than that.

use std::cell::Cell;
use std::io;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use block::{Allocation, ByteRange, Status};
use image::Source;
use memory::Progress;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;

/// What the packing thread asks for, one at a time.
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
    buffer: Cell<Vec<u8>>,
}

impl Asker {
    /// Notes how far the save is. Returns whether it goes on.
    pub(super) fn report(&self, progress: Progress) -> ControlFlow<()> {
        match self.ask(Question::Progress(progress)) {
            Some(Answer::Flow(flow)) => flow,
            _ => ControlFlow::Break(()),
        }
    }

    /// `None` if the calling thread has panicked.
    fn ask(&self, question: Question) -> Option<Answer> {
        self.questions.send(question).ok()?;
        self.answers.recv().ok()
    }
}

impl Source for Asker {
    fn allocation(&self, range: ByteRange) -> Allocation {
        match self.ask(Question::Allocation(range)) {
            Some(Answer::Allocation(told)) => told,
            // So that it is read, which fails.
            _ => Allocation {
                allocated: true,
                len_bytes: range.len,
            },
        }
    }

    fn read(&self, offset: u64, dest: &mut [u8]) -> Result<(), Status> {
        let mut offset = offset;
        for piece in dest.chunks_mut(PIECE_BYTES) {
            let mut buffer = self.buffer.take();
            buffer.resize(piece.len(), 0);
            let Some(Answer::Read(buffer, result)) = self.ask(Question::Read(offset, buffer))
            else {
                return Err(Status::Gone);
            };
            // A copy more, so that the other thread never writes what this one owns.
            piece.copy_from_slice(&buffer);
            self.buffer.set(buffer);
            result?;
            offset += piece.len() as u64;
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
        buffer: Cell::default(),
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
