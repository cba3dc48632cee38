//! Questions whose answers a start may see and that differ from start to start: what lies behind
//! an inherited descriptor, and the numbers of relatives.
//!
//! A recorded program's question is asked by the kernel before the call is carried out, and asked
//! again at each start from the image. A word of an answer that differed between the two recordings
//! of an image does not matter: both gave the same image.

use arrayvec::ArrayVec;

use crate::process::thread::Thread;
use crate::vfs::attributes::{Metadata, Timestamp};

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// `fstat(2)` of an inherited descriptor.
    File(i32),
    /// `F_GETFL` of it.
    Flags(i32),
    /// `lseek(fd, 0, SEEK_CUR)`.
    Position(i32),
    /// The parent's number.
    Parent,
    /// The number of the process group.
    Group,
    /// The number of the session.
    Session,
    /// Whether the session has a terminal.
    Terminal,
    /// The names of host and domain (`uname(2)`).
    Names,
}

/// The words of an answer.
pub type Words = ArrayVec<u64, 16>;

/// A question and its answer, with the words that matter.
#[derive(Clone)]
pub struct Answer {
    /// The question.
    pub question: Question,
    /// What the program saw.
    pub words: Words,
    /// One bit for each word that must be the same at a start.
    pub matters: u16,
}

fn time(at: Timestamp) -> u64 {
    (at.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(at.nanoseconds))
}

fn words_of(metadata: &Metadata) -> Words {
    let device = metadata.represents;
    Words::from_iter([
        metadata.device,
        metadata.number,
        u64::from(metadata.kind.mode_bits()) << 32 | u64::from(metadata.mode),
        u64::from(metadata.links),
        u64::from(metadata.uid) << 32 | u64::from(metadata.gid),
        u64::from(device.major) << 32 | u64::from(device.minor),
        metadata.size,
        metadata.blocks,
        u64::from(metadata.block_size),
        time(metadata.accessed),
        time(metadata.modified),
        time(metadata.changed),
    ])
}

impl Question {
    /// The answer for the current thread.
    pub fn ask(self, thread: &Thread) -> Words {
        let mut words = Words::new();
        let process = thread.process();
        let mut put = |word: u64| {
            let _ = words.try_push(word);
        };
        match self {
            Question::File(fd) => match thread.file(fd).and_then(|file| file.metadata()) {
                Ok(metadata) => return words_of(&metadata),
                Err(error) => put(error.to_return() as u64),
            },
            Question::Flags(fd) => match thread.file(fd) {
                Ok(file) => put(u64::from(file.flags())),
                Err(error) => put(error.to_return() as u64),
            },
            Question::Position(fd) => {
                use crate::vfs::open_file::Whence;
                match thread.file(fd).and_then(|file| file.seek(0, Whence::Current)) {
                    Ok(at) => put(at),
                    Err(error) => put(error.to_return() as u64),
                }
            }
            Question::Parent => put(u64::from(process.parent_id())),
            Question::Group => put(u64::from(process.group())),
            Question::Session => put(u64::from(process.session_id())),
            Question::Names => {
                let uts = thread.uts();
                for name in [uts.host(), uts.domain()] {
                    let mut bytes = [0; 64];
                    let text = name.as_bytes();
                    if let Some(to) = bytes.get_mut(..text.len()) {
                        to.copy_from_slice(text);
                    }
                    bytes.as_chunks::<8>().0.iter().for_each(|word| put(u64::from_le_bytes(*word)));
                }
            }
            Question::Terminal => put(u64::from(process.session().terminal().is_some())),
        }
        words
    }
}

impl Answer {
    /// Asks now. `None`: memory is exhausted, never here.
    pub fn now(question: Question, thread: &Thread) -> Answer {
        Answer { question, words: question.ask(thread), matters: u16::MAX }
    }

    /// Whether the same program would see the same now, as far as it matters.
    pub fn holds(&self, thread: &Thread) -> bool {
        let now = self.question.ask(thread);
        now.len() == self.words.len()
            && now
                .iter()
                .zip(&self.words)
                .enumerate()
                .all(|(at, (now, then))| now == then || self.matters >> at & 1 == 0)
    }

    /// Notes which words differ from those of the other recording. Returns false if it is another
    /// question or an answer of another kind.
    pub fn merge(&mut self, other: &Answer) -> bool {
        if self.question != other.question || self.words.len() != other.words.len() {
            return false;
        }
        for (at, (a, b)) in self.words.iter().zip(&other.words).enumerate() {
            if a != b {
                self.matters &= !(1 << at);
            }
        }
        true
    }
}
