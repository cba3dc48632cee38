//! The remnants of closed connections: TIME-WAIT (RFC 9293, 3.6.1), a minute each.
//!
//! All last equally long, so a processor keeps its own in the order of their end, and one timer for
//! the first. A remnant that ends early, because its ports are used anew, leaves its place in the
//! order to expire.
//!
//! Locks: a processor's [`ORDER`] is a leaf; the table's parts come before.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};

use hayate_ip::binding::Binding;
use hayate_machine::cpu::PerCpu;
use hayate_machine::per_cpu;
use hayate_machine::sync::{Once, SpinLock};
use hayate_tcp::TimeWait;
use hayate_tcp::time_wait::DURATION;

use super::PORTS;
use super::route::Route;
use super::table::{self, ConnectionEntry, Remnant};
use crate::net::config::Network;
use crate::net::statistics::TcpCounter;
use crate::reclaim::growth::Grow;
use crate::schedule::time::monotonic_ns;
use crate::schedule::{Timer, TimerTarget};

/// The most remnants of a processor; above that a connection ends at once, as above
/// `tcp_max_tw_buckets` on Linux.
const MOST: usize = 16384;

struct Order {
    remnants: VecDeque<(u64, Weak<Remnant>)>,
    timer: Option<Arc<Timer>>,
}

per_cpu! {
    static ORDER: PerCpu<SpinLock<Order>> =
        PerCpu::new(SpinLock::new(Order { remnants: VecDeque::new(), timer: None }));
}

/// Ends the remnants of a processor whose time has come.
struct Reaper;

static REAPER: Once<Arc<Reaper>> = Once::new();

impl TimerTarget for Reaper {
    fn expire(&self, now: u64) -> Option<u64> {
        loop {
            let next = {
                let mut order = ORDER.here().lock();
                match order.remnants.front() {
                    Some((end, _)) if *end > now => return Some(*end),
                    Some(_) => order.remnants.pop_front(),
                    None => {
                        order.remnants = VecDeque::new();
                        return None;
                    }
                }
            };
            let Some(remnant) = next.and_then(|(_, remnant)| remnant.upgrade()) else { continue };
            // A segment that was answered meanwhile has begun the minute anew.
            let end = remnant.state.lock().deadline();
            let mut order = ORDER.here().lock();
            if end > now && order.remnants.make_room(1).is_ok() {
                order.remnants.push_back((end, Arc::downgrade(&remnant)));
                continue;
            }
            drop(order);
            if let Some(network) = remnant.route.path.interface.network.get() {
                network.count_tcp(TcpCounter::Remnants);
            }
            remnant.end();
        }
    }
}

impl Remnant {
    /// Puts what is left of a connection in its place in the table. It holds the port of `binding`
    /// until its end.
    pub fn leave(v6: bool, state: TimeWait, route: Arc<Route>, binding: Option<Binding>) {
        let ends = route.ends;
        let remnant = Arc::new(Remnant { v6, ends, state: SpinLock::new(state), route, binding });
        let end = monotonic_ns() + DURATION;
        let timer = {
            let mut order = ORDER.here().lock();
            if order.remnants.len() >= MOST || order.remnants.make_room(1).is_err() {
                None
            } else {
                order.remnants.push_back((end, Arc::downgrade(&remnant)));
                Some(order.timer.get_or_insert_with(new_timer).clone())
            }
        };
        table::replace(&ends, Arc::clone(&remnant));
        match timer {
            Some(timer) if timer.deadline().is_none() => timer.arm(end),
            Some(_) => {}
            None => remnant.end(),
        }
    }

    /// Ends it: its name and its port are free.
    pub fn end(self: &Arc<Self>) {
        let is_it = |entry: &ConnectionEntry| matches!(entry, ConnectionEntry::Remnant(other) if Arc::ptr_eq(other, self));
        if table::remove(&self.ends, is_it).is_some()
            && let Some(binding) = &self.binding
        {
            PORTS.unbind(self.ends.network, self.ends.local.port, binding, None);
        }
    }
}

/// Ends the remnants of a namespace, which has ended. Needs no memory.
pub fn forget(network: &Network) {
    let mut at = 0;
    while let Some(remnant) = table::next_remnant(&mut at, network.key) {
        remnant.end();
    }
}

fn new_timer() -> Arc<Timer> {
    let reaper: Weak<dyn TimerTarget> =
        Arc::<Reaper>::downgrade(REAPER.call_once(|| Arc::new(Reaper)));
    Timer::new(reaper)
}
