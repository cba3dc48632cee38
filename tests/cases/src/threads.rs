//! Threads, locks, channels and time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock, RwLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::harness::Case;

/// The cases of this file.
pub const CASES: &[Case] = &[
    ("scoped_threads_sum_a_slice", scoped_threads_sum_a_slice),
    ("channel_carries_from_many_senders", channel_carries_from_many_senders),
    ("bounded_channel_holds_the_sender_back", bounded_channel_holds_the_sender_back),
    ("channel_ends_and_timeouts", channel_ends_and_timeouts),
    ("mutex_and_condvar_hand_over", mutex_and_condvar_hand_over),
    ("condvar_times_out", condvar_times_out),
    ("rwlock_readers_see_whole_writes", rwlock_readers_see_whole_writes),
    ("barrier_has_one_leader", barrier_has_one_leader),
    ("once_runs_once", once_runs_once),
    ("park_and_unpark", park_and_unpark),
    ("thread_locals_are_dropped", thread_locals_are_dropped),
    ("names_and_large_stacks", names_and_large_stacks),
    ("hundred_threads_and_parallelism", hundred_threads_and_parallelism),
    ("instants_and_system_time", instants_and_system_time),
    ("sleep_is_long_enough", sleep_is_long_enough),
    ("work_stealing_by_hand", work_stealing_by_hand),
];

fn scoped_threads_sum_a_slice() {
    let numbers: Vec<u64> = (0..100_000).collect();
    let total: u64 = thread::scope(|scope| {
        let parts: Vec<_> =
            numbers.chunks(12_500).map(|part| scope.spawn(|| part.iter().sum::<u64>())).collect();
        parts.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(total, 100_000 * 99_999 / 2);
}

fn channel_carries_from_many_senders() {
    let (sender, receiver) = mpsc::channel();
    for id in 0..8u32 {
        let sender = sender.clone();
        thread::spawn(move || (0..500u32).for_each(|i| sender.send((id, i)).unwrap()));
    }
    drop(sender);
    let mut next = HashMap::new();
    for (id, i) in receiver {
        let expected = next.entry(id).or_insert(0);
        assert_eq!(i, *expected, "messages of sender {id} out of order");
        *expected += 1;
    }
    assert!(next.len() == 8 && next.values().all(|n| *n == 500));
}

fn bounded_channel_holds_the_sender_back() {
    let (sender, receiver) = mpsc::sync_channel(2);
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let thread = thread::spawn(move || {
        for i in 0..10 {
            sender.send(i).unwrap();
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    thread::sleep(Duration::from_millis(50));
    assert!(sent.load(Ordering::SeqCst) <= 2);
    assert_eq!(receiver.iter().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    thread.join().unwrap();
}

fn channel_ends_and_timeouts() {
    let (sender, receiver) = mpsc::channel::<i32>();
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    let from = Instant::now();
    assert_eq!(receiver.recv_timeout(Duration::from_millis(30)), Err(RecvTimeoutError::Timeout));
    assert!(from.elapsed() >= Duration::from_millis(30));
    drop(sender);
    assert!(receiver.recv().is_err());
    let (sender, receiver) = mpsc::channel();
    drop(receiver);
    assert!(sender.send(1).is_err());
}

fn mutex_and_condvar_hand_over() {
    let pair = Arc::new((Mutex::new(0), Condvar::new()));
    let other = pair.clone();
    let thread = thread::spawn(move || {
        for i in 0..200 {
            let mut turn =
                other.1.wait_while(other.0.lock().unwrap(), |t| *t != 2 * i + 1).unwrap();
            *turn += 1;
            other.1.notify_all();
        }
    });
    for i in 0..200 {
        let mut turn = pair.1.wait_while(pair.0.lock().unwrap(), |t| *t != 2 * i).unwrap();
        *turn += 1;
        pair.1.notify_all();
    }
    thread.join().unwrap();
    assert_eq!(*pair.0.lock().unwrap(), 400);
}

fn condvar_times_out() {
    let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    let from = Instant::now();
    let (_guard, result) = condvar
        .wait_timeout_while(mutex.lock().unwrap(), Duration::from_millis(40), |()| true)
        .unwrap();
    assert!(result.timed_out() && from.elapsed() >= Duration::from_millis(40));
}

fn rwlock_readers_see_whole_writes() {
    let pair = RwLock::new((0u64, 0u64));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    let mut p = pair.write().unwrap();
                    p.0 += 1;
                    p.1 += 1;
                }
            });
        }
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    let p = pair.read().unwrap();
                    assert_eq!(p.0, p.1);
                }
            });
        }
    });
    assert_eq!(*pair.read().unwrap(), (2000, 2000));
}

fn barrier_has_one_leader() {
    let (barrier, leaders) = (Barrier::new(5), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| {
                for _ in 0..20 {
                    if barrier.wait().is_leader() {
                        leaders.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert_eq!(leaders.into_inner(), 20);
}

fn once_runs_once() {
    static VALUE: OnceLock<usize> = OnceLock::new();
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let v = *VALUE.get_or_init(|| {
                    thread::sleep(Duration::from_millis(20));
                    RUNS.fetch_add(1, Ordering::SeqCst) + 41
                });
                assert_eq!(v, 41);
            });
        }
    });
    assert_eq!(RUNS.load(Ordering::SeqCst), 1);
}

fn park_and_unpark() {
    let done = Arc::new(AtomicU64::new(0));
    let other = done.clone();
    let thread = thread::spawn(move || {
        while other.load(Ordering::SeqCst) == 0 {
            thread::park();
        }
        let from = Instant::now();
        thread::park_timeout(Duration::from_millis(30)); // may return early, must return
        from.elapsed()
    });
    thread::sleep(Duration::from_millis(20));
    done.store(1, Ordering::SeqCst);
    thread.thread().unpark();
    assert!(thread.join().unwrap() < Duration::from_secs(20));
}

fn thread_locals_are_dropped() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            DROPS.fetch_add(1, Ordering::SeqCst);
        }
    }
    thread_local!(static LOCAL: Counted = const { Counted });
    for _ in 0..10 {
        thread::spawn(|| LOCAL.with(|_| ())).join().unwrap();
    }
    assert_eq!(DROPS.load(Ordering::SeqCst), 10);
}

fn names_and_large_stacks() {
    fn deep(n: usize) -> usize {
        let frame = std::hint::black_box([n as u8; 1024]);
        if n == 0 { 0 } else { deep(n - 1) + usize::from(frame[1023] == n as u8) }
    }
    let thread = thread::Builder::new()
        .name("a-name".to_string())
        .stack_size(32 << 20)
        .spawn(|| {
            let comm = std::fs::read_to_string("/proc/thread-self/comm");
            (comm, deep(10_000))
        })
        .unwrap();
    let (comm, depth) = thread.join().unwrap();
    assert_eq!(depth, 10_000);
    assert_eq!(comm.unwrap(), "a-name\n");
}

fn hundred_threads_and_parallelism() {
    assert!(thread::available_parallelism().unwrap().get() >= 1);
    let barrier = Arc::new(Barrier::new(101));
    let threads: Vec<_> = (0..100)
        .map(|i| {
            let barrier = barrier.clone();
            thread::spawn(move || {
                barrier.wait();
                i
            })
        })
        .collect();
    barrier.wait();
    assert_eq!(threads.into_iter().map(|t| t.join().unwrap()).sum::<i32>(), 4950);
}

fn instants_and_system_time() {
    let mut last = Instant::now();
    for _ in 0..50_000 {
        let now = Instant::now();
        assert!(now >= last);
        last = now;
    }
    let day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() / 86_400;
    assert!(day > 18_000, "day {day} since 1970"); // after 2019
    std::fs::write("stamp", "").unwrap();
    let written = std::fs::metadata("stamp").unwrap().modified().unwrap();
    let gap = SystemTime::now().duration_since(written).unwrap_or_default();
    assert!(gap < Duration::from_secs(60));
}

fn sleep_is_long_enough() {
    for ms in [0, 1, 10, 35] {
        let from = Instant::now();
        thread::sleep(Duration::from_millis(ms));
        assert!(from.elapsed() >= Duration::from_millis(ms));
    }
}

fn work_stealing_by_hand() {
    let queue: Mutex<Vec<u64>> = Mutex::new((1..=2000).collect());
    let (more, sum) = (Condvar::new(), AtomicU64::new(0));
    let idle = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let job = queue.lock().unwrap().pop();
                    match job {
                        Some(n) if n > 1000 => {
                            queue.lock().unwrap().push(n - 1000);
                            more.notify_one();
                        }
                        Some(n) => drop(sum.fetch_add(n, Ordering::Relaxed)),
                        None => break,
                    }
                }
                *idle.lock().unwrap() += 1;
            });
        }
    });
    assert_eq!(*idle.lock().unwrap(), 4);
    assert_eq!(sum.into_inner(), 2 * (1000 * 1001 / 2));
}
