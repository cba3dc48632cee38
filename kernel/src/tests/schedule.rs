//! Tests of the scheduler, inside the kernel.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hayate_machine::{cpu, heap, time};

use crate::schedule::execution::Execution;
use crate::schedule::waiting::Waiting;
use crate::schedule::wake_affinity::WakeAffinity;
use crate::schedule::{
    Mutex, Timer, TimerTarget, WaitQueue, Woken, count_blocked, sleep_until, start_kernel,
    yield_now,
};
use crate::{check, ktest};

const MS: u64 = 1_000_000;

ktest! {
    fn executions_take_turns_by_waking_each_other() {
        struct Turn { whose: AtomicUsize, queue: WaitQueue, rounds: AtomicUsize }
        let turn = Arc::new(Turn { whose: AtomicUsize::new(0), queue: WaitQueue::new(), rounds: AtomicUsize::new(0) });
        let done = Arc::new(WaitQueue::new());
        for me in 0..2 {
            let (turn, done) = (turn.clone(), done.clone());
            check!(start_kernel("turns", move || {
                for _ in 0..1000 {
                    turn.queue.wait(|| (turn.whose.load(Ordering::SeqCst) == me).then_some(()));
                    turn.rounds.fetch_add(1, Ordering::SeqCst);
                    turn.whose.store(1 - me, Ordering::SeqCst);
                    turn.queue.wake_all();
                }
                done.wake_all();
            }).is_ok());
        }
        let deadline = time::monotonic_ns() + 10_000 * MS;
        let all = || (turn.rounds.load(Ordering::SeqCst) == 2000).then_some(());
        check!(done.wait_interruptible(Some(deadline), all) == Ok(()));
    }
}

ktest! {
    fn a_sleep_lasts_as_long_as_asked() {
        for ms in [1, 5, 20] {
            let before = time::monotonic_ns();
            check!(sleep_until(before + ms * MS, true).is_ok());
            let slept = time::monotonic_ns() - before;
            check!(slept >= ms * MS);
            // A wide limit: a busy host can delay the wake-up by an amount no test can predict.
            check!(slept < ms * MS + 60_000 * MS);
        }
    }
}

ktest! {
    fn who_waits_at_once_is_expected_to_do_so_again() {
        let more = cpu::count() > 1;
        // A host that takes the processor away in between makes the wait late: allow a few such
        // cases.
        let mut times = 0;
        for _ in 0..100 {
            let affinity = WakeAffinity::default();
            check!(!affinity.makes());
            affinity.waits();
            if affinity.makes() == more {
                times += 1;
            }
            // Of several children in a row only the first.
            check!(!affinity.makes());
            affinity.waits();
            affinity.makes_and_sleeps();
            if affinity.returns_here() == more {
                times += 1;
            }
            check!(!affinity.returns_here());
            // A parent that does other work first is not expected to wait.
            affinity.goes_on();
            let later = time::monotonic_ns() + MS;
            while time::monotonic_ns() < later {
                core::hint::spin_loop();
            }
            affinity.waits();
            check!(!affinity.makes());
        }
        check!(times > 100);
    }
}

ktest! {
    fn a_run_queue_keeps_the_order_of_a_thousand_and_takes_no_memory() {
        const MANY: usize = 1000;
        let mut waiting = Waiting::new();
        let mut all = Vec::new();
        check!(all.try_reserve_exact(MANY).is_ok());
        for _ in 0..MANY {
            match Execution::new_kernel("waits", || ()) {
                Ok(execution) => all.push(execution),
                Err(_) => break,
            }
        }
        check!(all.len() == MANY);
        let rank = |at: usize| (at * 7919 % 101) as u64;
        let before = heap::counts();
        for (at, execution) in all.iter().enumerate() {
            waiting.put(rank(at), execution.clone());
        }
        check!(heap::counts() == before);
        check!(waiting.length() == MANY);
        check!(waiting.first_rank() == Some(0));
        check!(!waiting.has_allowed(0, 101) && waiting.has_allowed(0, 100));
        // The first two executions of rank 50 may not run on processor 63; the third is taken.
        let of = |wanted: u64| (0..MANY).filter(move |at| rank(*at) == wanted);
        for at in of(50).take(2) {
            check!(all[at].set_affinity(1).is_ok());
        }
        let third = of(50).nth(2).map(|at| all[at].id());
        check!(third.is_some() && waiting.take_allowed(63, 50).map(|taken| taken.id()) == third);
        check!(waiting.length() == MANY - 1);
        // The others come out by rank, and those of one rank in the order they came.
        let mut last = (0, 0);
        let mut taken = 0;
        while let Some(execution) = waiting.take_first() {
            let now = (execution.rank.load(Ordering::Relaxed), execution.id());
            check!(now > last);
            last = now;
            taken += 1;
        }
        check!(taken == MANY - 1 && waiting.length() == 0 && waiting.first_rank().is_none());
        check!(heap::counts() == before);
    }
}

ktest! {
    fn a_wait_with_a_deadline_times_out() {
        let queue = WaitQueue::new();
        let deadline = time::monotonic_ns() + 3 * MS;
        check!(queue.wait_interruptible(Some(deadline), || None::<()>) == Err(Woken::TimedOut));
        check!(time::monotonic_ns() >= deadline);
        check!(!queue.is_wanted());
    }
}

ktest! {
    fn a_wait_for_a_device_is_counted_while_it_lasts() {
        struct Device { ready: AtomicUsize, queue: WaitQueue, left: AtomicUsize, done: WaitQueue }
        let device = Arc::new(Device {
            ready: AtomicUsize::new(0), queue: WaitQueue::new(), left: AtomicUsize::new(2), done: WaitQueue::new(),
        });
        let before = count_blocked();
        for _ in 0..2 {
            let device = device.clone();
            check!(start_kernel("device", move || {
                device.queue.wait_for_device(|| (device.ready.load(Ordering::SeqCst) == 1).then_some(()));
                device.left.fetch_sub(1, Ordering::SeqCst);
                device.done.wake_all();
            }).is_ok());
        }
        let end = time::monotonic_ns() + 60_000 * MS;
        while count_blocked() != before + 2 && time::monotonic_ns() < end {
            check!(sleep_until(time::monotonic_ns() + MS, true).is_ok());
        }
        check!(count_blocked() == before + 2);
        device.ready.store(1, Ordering::SeqCst);
        device.queue.wake_all();
        device.done.wait(|| (device.left.load(Ordering::SeqCst) == 0).then_some(()));
        check!(count_blocked() == before);
    }
}

struct Counter(AtomicU64, WaitQueue);

impl TimerTarget for Counter {
    fn expire(&self, now: u64) -> Option<u64> {
        let count = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.1.wake_all();
        (count < 5).then_some(now + MS)
    }
}

ktest! {
    fn a_periodic_timer_fires_until_it_says_no() {
        let counter = Arc::new(Counter(AtomicU64::new(0), WaitQueue::new()));
        let target: Arc<dyn TimerTarget> = counter.clone();
        let timer = Timer::new(Arc::downgrade(&target));
        timer.arm(time::monotonic_ns() + MS);
        let end = time::monotonic_ns() + 5000 * MS;
        check!(counter.1.wait_interruptible(Some(end), || (counter.0.load(Ordering::SeqCst) == 5).then_some(())) == Ok(()));
        check!(sleep_until(time::monotonic_ns() + 5 * MS, true).is_ok());
        check!(counter.0.load(Ordering::SeqCst) == 5);
        check!(!timer.cancel());
        timer.arm(time::monotonic_ns() + 10_000 * MS);
        check!(timer.cancel());
        check!(!timer.cancel());
    }
}

ktest! {
    fn a_mutex_excludes() {
        struct Shared { data: Mutex<(u64, u64)>, left: AtomicUsize, done: WaitQueue }
        let workers = 8;
        let shared = Arc::new(Shared { data: Mutex::new((0, 0)), left: AtomicUsize::new(workers), done: WaitQueue::new() });
        for _ in 0..workers {
            let shared = shared.clone();
            check!(start_kernel("mutex", move || {
                for _ in 0..200 {
                    let mut data = shared.data.lock();
                    let seen = data.0;
                    yield_now();
                    data.0 = seen + 1;
                    data.1 += 1;
                }
                shared.left.fetch_sub(1, Ordering::SeqCst);
                shared.done.wake_all();
            }).is_ok());
        }
        let end = time::monotonic_ns() + 20_000 * MS;
        check!(shared.done.wait_interruptible(Some(end), || (shared.left.load(Ordering::SeqCst) == 0).then_some(())) == Ok(()));
        check!(*shared.data.lock() == (200 * workers as u64, 200 * workers as u64));
    }
}

ktest! {
    fn work_spreads_over_the_cpus() {
        struct Seen { mask: AtomicU64, left: AtomicUsize, done: WaitQueue }
        let workers = cpu::count() * 2;
        let seen = Arc::new(Seen { mask: AtomicU64::new(0), left: AtomicUsize::new(workers), done: WaitQueue::new() });
        for _ in 0..workers {
            let seen = seen.clone();
            check!(start_kernel("spread", move || {
                let end = time::monotonic_ns() + 5000 * MS;
                while time::monotonic_ns() < end
                    && seen.mask.load(Ordering::SeqCst) != cpu::online_mask() {
                    seen.mask.fetch_or(1 << cpu::id(), Ordering::SeqCst);
                    yield_now();
                }
                seen.left.fetch_sub(1, Ordering::SeqCst);
                seen.done.wake_all();
            }).is_ok());
        }
        let end = time::monotonic_ns() + 20_000 * MS;
        check!(seen.done.wait_interruptible(Some(end), || (seen.left.load(Ordering::SeqCst) == 0).then_some(())) == Ok(()));
        check!(seen.mask.load(Ordering::SeqCst) == cpu::online_mask());
    }
}

ktest! {
    /// Prints what a switch costs; under instruction counting the numbers are instructions.
    fn switches_are_cheap() {
        struct Shared { left: AtomicUsize, done: WaitQueue }
        let shared = Arc::new(Shared { left: AtomicUsize::new(2), done: WaitQueue::new() });
        let rounds = 5000;
        let before = time::monotonic_ns();
        for _ in 0..2 {
            let shared = shared.clone();
            check!(start_kernel("yield", move || {
                for _ in 0..rounds {
                    yield_now();
                }
                shared.left.fetch_sub(1, Ordering::SeqCst);
                shared.done.wake_all();
            }).is_ok());
        }
        let end = time::monotonic_ns() + 20_000 * MS;
        check!(shared.done.wait_interruptible(Some(end), || (shared.left.load(Ordering::SeqCst) == 0).then_some(())) == Ok(()));
        let yielding = (time::monotonic_ns() - before) / (2 * rounds);

        struct Turn { whose: AtomicUsize, queues: [WaitQueue; 2] }
        let turn = Arc::new(Turn { whose: AtomicUsize::new(0), queues: [WaitQueue::new(), WaitQueue::new()] });
        let other = turn.clone();
        check!(start_kernel("turns", move || {
            for _ in 0..rounds {
                other.queues[1].wait(|| (other.whose.load(Ordering::SeqCst) == 1).then_some(()));
                other.whose.store(0, Ordering::SeqCst);
                other.queues[0].wake_one();
            }
        }).is_ok());
        let before = time::monotonic_ns();
        for _ in 0..rounds {
            turn.whose.store(1, Ordering::SeqCst);
            turn.queues[1].wake_one();
            turn.queues[0].wait(|| (turn.whose.load(Ordering::SeqCst) == 0).then_some(()));
        }
        let waking = (time::monotonic_ns() - before) / (2 * rounds);
        hayate_machine::info!("one yield: {yielding} ns; one wake-up and switch: {waking} ns");
        check!(yielding > 0 && waking > 0);
    }
}

ktest! {
    fn real_time_leaves_a_share_to_those_who_wait() {
        use crate::schedule::real_time::{MOST_NS, SHARE_NS, Share, Turn};
        let mut share = Share::new();
        // The real-time execution takes over, uses its time, gives the share, and has its time
        // again.
        check!(share.turn(5, false, true, true) == Turn::First);
        check!(share.turn(4 + MOST_NS, true, true, true) == Turn::First);
        check!(share.turn(5 + MOST_NS, true, true, true) == Turn::Ordinary);
        check!(share.turn(4 + MOST_NS + SHARE_NS, false, true, true) == Turn::Ordinary);
        check!(share.turn(5 + MOST_NS + SHARE_NS, false, true, true) == Turn::First);
        check!(share.turn(4 + 2 * MOST_NS + SHARE_NS, true, true, true) == Turn::First);
        check!(share.turn(5 + 2 * MOST_NS + SHARE_NS, true, true, true) == Turn::Ordinary);
        // While no ordinary execution waits, no share is due.
        let mut share = Share::new();
        check!(share.turn(10 * MOST_NS, true, true, false) == Turn::First);
        check!(share.turn(11 * MOST_NS - 1, true, true, true) == Turn::First);
        check!(share.turn(11 * MOST_NS, true, true, true) == Turn::Ordinary);
        // The real-time execution sleeps: the share ends early, and its time begins anew.
        check!(share.turn(11 * MOST_NS + 1, false, false, true) == Turn::First);
        check!(share.turn(11 * MOST_NS + 2, false, true, true) == Turn::First);
        check!(share.turn(12 * MOST_NS + 1, true, true, true) == Turn::First);
    }
}
