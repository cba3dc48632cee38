//! `userfaultfd(2)` and what is done with its descriptor.

use super::{CLONE, IOCTL, POLL, READ};
use crate::worker::Worker;

const MAP: u64 = 9;
const PROTECT: u64 = 10;
const UNMAP: u64 = 11;
const REMAP: u64 = 25;
const ADVISE: u64 = 28;
const LOCK: u64 = 149;
const RANDOM: u64 = 318;
const USERFAULT: u64 = 323;

/// A child whose missing pages this worker provides (userfaultfd(2)); they share their descriptors.
pub fn missing(worker: &mut Worker) {
    const FILES: u64 = 0x400;
    const PAGES: u64 = 8;
    const AGREE: u64 = 0xc018_aa3f;
    const REGISTER: u64 = 0xc020_aa00;
    let page = |worker: &mut Worker| 4096 * worker.random.below(PAGES);
    // Memory that the child gets a copy of, and its place in the child.
    let kind = worker.random.pick(&[0x22u64, 0x22, 0x21]);
    let a = [0, PAGES * 4096, 3, kind, u64::MAX, 0];
    let Ok(start) = u64::try_from(worker.make("mmap", MAP, a)) else { return };
    let told = worker.words_of(&[0]);
    let child = worker.make("clone", CLONE, [FILES | 17, 0, 0, 0, 0, 0]);
    if child == 0 {
        let flags = 0o4000 | worker.random.pick(&[0u64, 1, 1, 0o2000000]);
        let fd = Worker::opened(worker.make("userfaultfd", USERFAULT, [flags, 0, 0, 0, 0, 0]));
        let features = worker.random.pick(&[0u64, 0, 0x80, 0x100, 0x800, 0x10]);
        let agree = worker.words_of(&[0xaa, features, 0]);
        worker.make("ioctl", IOCTL, [fd, AGREE, agree, 0, 0, 0]);
        for _ in 0..2 {
            let (from, mode) = (page(worker), worker.random.pick(&[1u64, 1, 1, 2, 0]));
            let register = worker.words_of(&[start + from, PAGES * 4096 - from, mode, 0]);
            worker.make("ioctl", IOCTL, [fd, REGISTER, register, 0, 0, 0]);
        }
        worker.put(told, fd);
        for _ in 0..6 {
            let (at, size) = (start + page(worker), worker.random.pick(&[1u64, 4096, 8192]));
            match worker.random.below(8) {
                0 => worker.make("madvise", ADVISE, [at, size, 4, 0, 0, 0]),
                1 => worker.make("mprotect", PROTECT, [at, size, 3, 0, 0, 0]),
                2 => worker.make("munmap", UNMAP, [at, 4096, 0, 0, 0, 0]),
                3 => worker.make("mremap", REMAP, [at, 4096, size, 1, 0, 0]),
                4 => worker.make("mlock", LOCK, [at, size, 0, 0, 0, 0]),
                // The kernel touches it.
                _ => worker.make("getrandom", RANDOM, [at, size, 0, 0, 0, 0]),
            };
            if worker.random.one_in(2) {
                worker.touch(at);
            }
        }
        worker.live_briefly();
    }
    for _ in 0..20 {
        if worker.word(told) != 0 {
            break;
        }
        worker.make("poll", POLL, [0, 0, 2, 0, 0, 0]);
    }
    let fd = worker.word(told);
    for _ in 0..8 {
        let poll = worker.words_of(&[fd & 0xffff_ffff | 1 << 32]);
        worker.make("poll", POLL, [poll, 1, 5, 0, 0, 0]);
        let message = worker.words_of(&[0; 8]);
        worker.make("read", READ, [fd, message, 64, 0, 0, 0]);
        let mut at = worker.word(message + 16) & !4095;
        if at == 0 || worker.random.one_in(4) {
            at = start + page(worker);
        }
        let size = worker.random.pick(&[4096u64, 4096, 8192, 100]);
        let mode = worker.random.pick(&[0u64, 0, 0, 1, 2]);
        let from = worker.memory();
        // Copying, zeroing, waking, unregistering.
        let (request, words) = worker.random.pick(&[
            (0xc028_aa03u64, [at, from, size, mode, 0]),
            (0xc028_aa03, [at, start, size, mode, 0]),
            (0xc020_aa04, [at, size, mode, 0, 0]),
            (0x8010_aa02, [at, size, 0, 0, 0]),
            (0x8010_aa01, [at, size, 0, 0, 0]),
        ]);
        let words = worker.words_of(&words);
        worker.make("ioctl", IOCTL, [fd, request, words, 0, 0, 0]);
    }
    if worker.random.one_in(2) {
        worker.close(fd);
    }
    if let Ok(child) = u64::try_from(child) {
        worker.leave(child);
    }
    worker.make("munmap", UNMAP, [start, PAGES * 4096, 0, 0, 0, 0]);
}
