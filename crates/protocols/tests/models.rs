//! Models: every protocol of this crate between two or three threads, in every order of their
//! steps.
//!
//! `./hayate test models` runs them; by hand:
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test --release -p hayate-protocols --target-dir target/loom
//! ```
//!
//! Each model states what must never happen. To see that it can fail, remove a barrier from the
//! protocol. For example, without `after_locked` in `Presence::enter`,
//! `a_sleeper_is_never_forgotten` finds the order in which both sides read too early.
#![cfg(loom)]

use hayate_protocols::deferred::Deferred;
use hayate_protocols::futex::{Bucket, Queue, Table, Waiter, Wake, Which};
use hayate_protocols::presence::Presence;
use hayate_protocols::shootdown::{FlushRequest, Inbox};
use hayate_protocols::sleep::{Left, Sleep, State};
use hayate_protocols::write_errors::WriteErrors;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Explores a model. A thread is preempted at most three times: in practice that finds as much as
/// more preemptions would, and limits the number of orders.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// An execution, the queue it waits in, and how often it was put into a run queue.
struct Sleeper {
    sleep: Sleep,
    waiting: Mutex<bool>,
    presence: Presence,
    queued: AtomicUsize,
    interrupted: AtomicBool,
    condition: AtomicU32,
}

impl Sleeper {
    fn running() -> Arc<Sleeper> {
        let sleeper = Sleeper {
            sleep: Sleep::new(),
            waiting: Mutex::new(false),
            presence: Presence::new(),
            queued: AtomicUsize::new(0),
            interrupted: AtomicBool::new(false),
            condition: AtomicU32::new(0),
        };
        assert!(sleeper.sleep.begin());
        sleeper.sleep.run();
        Arc::new(sleeper)
    }

    /// Does the steps of `WaitQueue::wait` up to the point where the execution would stop. True: it
    /// went on without sleeping.
    fn wait(&self) -> bool {
        self.sleep.prepare();
        *self.waiting.lock().unwrap() = true;
        self.presence.enter();
        if self.condition.load(Ordering::Relaxed) != 0 || self.interrupted.load(Ordering::SeqCst) {
            self.sleep.run();
            return true;
        }
        if !self.sleep.is_prepared() {
            self.sleep.run();
            return true;
        }
        // From here on the processor is on another stack.
        match self.sleep.leave() {
            Left::Woken => self.queue(),
            Left::Parked => {}
            left => panic!("{left:?}"),
        }
        false
    }

    /// The steps of `WaitQueue::wake_one`.
    fn wake(&self) {
        if self.presence.is_any() {
            let mut waiting = self.waiting.lock().unwrap();
            if std::mem::take(&mut *waiting) {
                self.presence.leave();
                self.wake_it();
            }
        }
    }

    fn wake_it(&self) {
        if self.sleep.wake() {
            self.queue();
        }
    }

    /// The steps of `Execution::interrupt`.
    fn interrupt(&self) {
        self.interrupted.store(true, Ordering::SeqCst);
        hayate_protocols::after_locked();
        if matches!(self.sleep.state(), State::Prepared | State::Parked) {
            self.wake_it();
        }
    }

    fn queue(&self) {
        assert_eq!(self.sleep.state(), State::Runnable, "it is put away while it runs");
        self.queued.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_sleeper_is_never_forgotten() {
    explore(|| {
        let sleeper = Sleeper::running();
        let other = sleeper.clone();
        let waker = thread::spawn(move || {
            other.condition.store(1, Ordering::Relaxed);
            other.wake();
        });
        let stayed = sleeper.wait();
        waker.join().unwrap();
        let queued = sleeper.queued.load(Ordering::Relaxed);
        assert_eq!(queued, usize::from(!stayed), "it sleeps for ever, or runs twice");
    });
}

#[test]
fn two_wakers_queue_a_sleeper_once() {
    explore(|| {
        let sleeper = Sleeper::running();
        let wakers = [sleeper.clone(), sleeper.clone()].map(|other| {
            thread::spawn(move || {
                other.condition.store(1, Ordering::Relaxed);
                other.wake_it();
            })
        });
        sleeper.sleep.prepare();
        let stayed = !sleeper.sleep.is_prepared();
        if stayed {
            sleeper.sleep.run();
        } else {
            match sleeper.sleep.leave() {
                Left::Woken => sleeper.queue(),
                Left::Parked => {}
                left => panic!("{left:?}"),
            }
        }
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
        assert!(sleeper.queued.load(Ordering::Relaxed) <= usize::from(!stayed), "it runs twice");
    });
}

#[test]
fn an_interrupt_ends_a_sleep_or_is_seen_before_it() {
    explore(|| {
        let sleeper = Sleeper::running();
        let other = sleeper.clone();
        let sender = thread::spawn(move || other.interrupt());
        let stayed = sleeper.wait();
        sender.join().unwrap();
        assert!(stayed || sleeper.queued.load(Ordering::Relaxed) == 1, "the signal is slept over");
    });
}

#[test]
fn what_is_pending_is_never_less_than_what_will_be_free() {
    const BOUND: usize = 8;
    explore(|| {
        let deferred = Arc::new(Deferred::new());
        let list = Arc::new(Mutex::new(Vec::new()));
        let free = Arc::new(AtomicUsize::new(0));
        let (counts, put) = (deferred.clone(), list.clone());
        let ending = thread::spawn(move || {
            for size in [1, 2] {
                assert!(counts.reserve(size, BOUND));
                put.lock().unwrap().push(size);
            }
        });
        let free_one = {
            let (deferred, list, free) = (deferred.clone(), list.clone(), free.clone());
            move || {
                let size = list.lock().unwrap().pop()?;
                free.fetch_add(size, Ordering::Relaxed);
                deferred.freed(size);
                Some(size)
            }
        };
        let (counts, mut other) = (deferred.clone(), free_one.clone());
        let second = thread::spawn(move || counts.free_some(&mut other, thread::yield_now));
        ending.join().unwrap();
        // An allocator that found nothing free asks until no free is deferred, then refuses.
        while deferred.free_some(free_one.clone(), thread::yield_now) {}
        assert_eq!(free.load(Ordering::Relaxed), 3, "refused although it would be free");
        second.join().unwrap();
    });
}

#[test]
fn the_deferred_frees_stay_within_their_bound() {
    explore(|| {
        let deferred = Arc::new(Deferred::new());
        let other = deferred.clone();
        let second = thread::spawn(move || other.reserve(3, 4));
        let first = deferred.reserve(2, 4);
        let second = second.join().unwrap();
        assert!(!(first && second));
        assert_eq!(deferred.pending(), usize::from(first) * 2 + usize::from(second) * 3);
    });
}

#[test]
fn nobody_reads_through_a_translation_after_its_shootdown() {
    explore(|| {
        let entry = Arc::new(AtomicBool::new(true));
        let page = Arc::new(UnsafeCell::new(0));
        let request = Arc::new(FlushRequest::new());
        let inbox = Arc::new(Inbox::new());
        let target = {
            let (entry, page) = (entry.clone(), page.clone());
            let (request, inbox) = (request.clone(), inbox.clone());
            thread::spawn(move || {
                // The TLB of this processor holds the translation until it is flushed.
                if entry.load(Ordering::Relaxed) {
                    page.with(|_| ());
                }
                while inbox.is_empty() {
                    thread::yield_now();
                }
                assert_eq!(inbox.take(), 1);
                assert_eq!(request.range(), (4096, 8192));
                request.answer(2);
            })
        };
        entry.store(false, Ordering::Relaxed);
        request.fill(4096, 8192, 2);
        inbox.put(1);
        while !request.is_answered() {
            thread::yield_now();
        }
        // loom reports an access of the target that did not happen before this one.
        page.with_mut(|_| ());
        target.join().unwrap();
    });
}

#[test]
fn two_shootdowns_at_each_other_both_end() {
    explore(|| {
        let state =
            Arc::new(([FlushRequest::new(), FlushRequest::new()], [Inbox::new(), Inbox::new()]));
        let shoot = |state: &([FlushRequest; 2], [Inbox; 2]), me: usize| {
            let (requests, inboxes) = state;
            let other = 1 - me;
            requests[me].fill(me as u64, 0, 1 << other);
            inboxes[other].put(1 << me);
            let answer = || {
                if inboxes[me].take() != 0 {
                    assert_eq!(requests[other].range(), (other as u64, 0));
                    requests[other].answer(1 << me);
                    return true;
                }
                false
            };
            let mut answered = false;
            while !requests[me].is_answered() {
                answered |= answer();
                thread::yield_now();
            }
            while !answered {
                answered = answer();
                thread::yield_now();
            }
        };
        let second = state.clone();
        let second = thread::spawn(move || shoot(&second, 1));
        shoot(&state, 0);
        second.join().unwrap();
    });
}

/// The object that a waiter of these models sleeps on: counts how often it was woken.
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Locked(Mutex<Queue<u32, Woken>>);

impl Bucket for Locked {
    type Key = u32;
    type Sleep = Woken;

    fn with<R>(&self, look: impl FnOnce(&mut Queue<u32, Woken>) -> R) -> R {
        look(&mut self.0.lock().unwrap())
    }
}

/// Two words, each in a bucket of its own.
struct Words {
    buckets: [Locked; 2],
    words: [AtomicU32; 2],
}

impl Words {
    fn new() -> Arc<Words> {
        Arc::new(Words {
            buckets: [(); 2].map(|()| Locked(Mutex::new(Vec::new()))),
            words: [(); 2].map(|()| AtomicU32::new(0)),
        })
    }

    fn table(&self) -> Table<'_, Locked> {
        Table(&self.buckets)
    }

    fn enter(&self, key: u32) -> std::sync::Arc<Waiter<Woken>> {
        let waiter = std::sync::Arc::new(Waiter::new(Woken(AtomicUsize::new(0))));
        self.table().enter(which(key), &waiter, 0).unwrap();
        waiter
    }
}

fn which(key: u32) -> Which<u32> {
    Which { key, bucket: key as usize, bits: u32::MAX }
}

#[test]
fn a_waiter_sees_the_word_or_is_woken() {
    explore(|| {
        let words = Words::new();
        let other = words.clone();
        let waker = thread::spawn(move || {
            other.words[0].store(1, Ordering::Relaxed);
            other.table().wake(which(0), 1)
        });
        let waiter = words.enter(0);
        let changed = words.words[0].load(Ordering::Relaxed) != 0;
        let woken = waker.join().unwrap();
        assert!(changed || woken == 1, "it sleeps for ever");
        assert_eq!(waiter.is_woken(), woken == 1);
        assert_eq!(waiter.sleep.0.load(Ordering::Relaxed), woken);
    });
}

#[test]
fn a_wake_is_not_lost_to_a_waiter_whose_time_passed() {
    explore(|| {
        let words = Words::new();
        let (first, second) = (words.enter(0), words.enter(0));
        let other = words.clone();
        let waker = thread::spawn(move || other.table().wake(which(0), 1));
        let left = words.table().leave(0, &first, 0, thread::yield_now);
        assert_eq!(waker.join().unwrap(), 1);
        // Either the first was woken, and reports that, or the second was.
        assert_eq!(left, !first.is_woken());
        assert_eq!(second.is_woken(), left);
    });
}

#[test]
fn a_waiter_that_is_moved_leaves_or_is_woken() {
    explore(|| {
        let words = Words::new();
        let waiter = words.enter(0);
        let other = words.clone();
        let mover = thread::spawn(move || {
            let check = || Ok::<(), ()>(());
            let (woken, moved) = other.table().requeue(which(0), which(1), 0, 1, check).unwrap();
            (woken, moved, other.table().wake(which(1), 1))
        });
        let left = words.table().leave(0, &waiter, 0, thread::yield_now);
        let (woken, moved, later) = mover.join().unwrap();
        assert_eq!(woken, 0);
        assert!(later <= moved);
        assert_eq!(left, later == 0);
        assert_eq!(waiter.is_woken(), later == 1);
        words.buckets.iter().for_each(|bucket| bucket.with(|queue| assert!(queue.is_empty())));
    });
}

#[test]
fn a_waiter_for_two_words_sees_one_change_or_is_woken() {
    explore(|| {
        let words = Words::new();
        let waiter = words.enter(0);
        let other = words.clone();
        // The second word changes; its waiters are moved to the first word, and woken there.
        let waker = thread::spawn(move || {
            other.words[1].store(1, Ordering::Relaxed);
            let check = || Ok::<(), ()>(());
            let (_, moved) = other.table().requeue(which(1), which(0), 0, 9, check).unwrap();
            assert!(moved <= 1);
            other.table().wake(which(0), 9)
        });
        words.table().enter(which(1), &waiter, 1).unwrap();
        let changed = words.words[1].load(Ordering::Relaxed) != 0;
        let leave = || {
            [0, 1].map(|word| words.table().leave(word.into(), &waiter, word, thread::yield_now))
        };
        let (left, woken) = if changed {
            let left = leave();
            (left, waker.join().unwrap())
        } else {
            // It sleeps until the waker was there.
            let woken = waker.join().unwrap();
            assert!(waiter.is_woken_at(1), "it sleeps for ever");
            (leave(), woken)
        };
        assert_eq!(left.iter().filter(|left| !**left).count(), woken);
        assert_eq!([0, 1].map(|word| !waiter.is_woken_at(word)), left);
        words.buckets.iter().for_each(|bucket| bucket.with(|queue| assert!(queue.is_empty())));
    });
}

#[test]
fn an_error_of_writing_is_told_once_and_never_lost() {
    explore(|| {
        let errors = Arc::new(WriteErrors::new());
        let seen = Arc::new(errors.open());
        let recorder = {
            let errors = errors.clone();
            thread::spawn(move || errors.record(5))
        };
        let teller = {
            let (errors, seen) = (errors.clone(), seen.clone());
            thread::spawn(move || errors.tell(&seen).is_some())
        };
        let mut told = usize::from(errors.tell(&seen).is_some());
        recorder.join().unwrap();
        told += usize::from(teller.join().unwrap());
        told += usize::from(errors.tell(&seen).is_some());
        assert_eq!(told, 1);
        assert_eq!(errors.tell(&errors.open()), None);
    });
}
