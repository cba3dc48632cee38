//! A model of a processor's cache of frames, which others read while its owner works, in every
//! order of their steps. `./hayate test models` runs it with those of the crate `protocols`.
#![cfg(loom)]

use hayate_frames::Stack;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;

const ROOM: usize = 4;

/// The owner never loses a frame, nor has one twice, and a reader sees a number of frames that the
/// cache had. To see that it can fail, let `refill` count what it asked for before it is filled.
#[test]
fn others_count_what_the_owner_has() {
    loom::model(|| {
        let stack = Arc::new(Stack::<ROOM>::new());
        let seen = Arc::clone(&stack);
        let reader = thread::spawn(move || {
            let count = seen.len();
            assert!(count <= 3, "{count} frames of three");
        });
        let filled = stack.refill(|room| {
            room[0].store(1, Relaxed);
            room[1].store(2, Relaxed);
            2
        });
        assert_eq!(filled, 2);
        assert!(stack.push(3));
        assert_eq!(stack.pop(), Some(3));
        assert_eq!(stack.pop(), Some(1));
        assert!(stack.push(4));
        let mut out = Vec::new();
        stack.spill(true, |frame| out.push(frame));
        assert_eq!(out, [2, 4]);
        reader.join().unwrap();
        assert!(stack.is_empty());
    });
}
