//! `name_to_handle_at(2)` and `open_by_handle_at(2)`, one after the other.

use super::AT_HERE;
use crate::worker::Worker;

/// Handles of files and directories, as they are and changed, of files that are there and gone.
pub fn of_files(worker: &mut Worker) {
    const NAME: u64 = 303;
    const OPEN_BY: u64 = 304;
    const UNLINK: u64 = 263;
    let paths = &[c"a", c"dir", c"dir/sub", c".", c"link", c"/proc", c"/dev/shm", c"/dev/null"];
    for _ in 0..4 {
        let room = worker.random.pick(&[128u64, 128, 12, 8, 0, 200]);
        let handle = worker.words_of(&[room, 0, 0, 0]);
        let mount = worker.words_of(&[0]);
        let path = worker.random.pick(paths).as_ptr() as u64;
        let flags = worker.random.pick(&[0u64, 0, 0x400]);
        worker.make("name_to_handle_at", NAME, [AT_HERE, path, handle, mount, flags, 0]);
        if worker.random.one_in(4) {
            let changed = worker.word(handle + 8) ^ 1 << worker.random.below(64);
            worker.put(handle + 8, changed);
        }
        if worker.random.one_in(4) {
            let flags = worker.random.pick(&[0u64, 0x200]);
            worker.make("unlinkat", UNLINK, [AT_HERE, path, flags, 0, 0, 0]);
        }
        let flags = worker.random.pick(&[0u64, 0, 1, 2, 0o200000, 0o10000000, 0o100, 0o1000]);
        let a = [AT_HERE, handle, flags | 0o2000000, 0, 0, 0];
        let fd = Worker::opened(worker.make("open_by_handle_at", OPEN_BY, a));
        if !worker.random.one_in(4) {
            worker.close(fd);
        }
    }
}
