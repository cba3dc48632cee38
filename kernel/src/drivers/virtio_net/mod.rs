//! The driver of virtio network devices (virtio 1.2, 5.1).
//!
//! A device has pairs of queues, [`receive`] and [`transmit`]: one for each processor if the device
//! has several (`MQ`), each with an interrupt of its own on that processor, otherwise one for all.
//! A processor sends on its own pair's queue; on which one a packet arrives is the device's choice.
//! Start-up waits for nothing: the command for more pairs is answered later ([`control`]).
//!
//! # Locks
//!
//! Each queue has a spin lock; no code takes two of them, nor any other lock but the heap's and the
//! frame allocator's while it holds one. `mac` is a leaf. A command to the device holds the
//! sleeping lock of [`control`].

mod control;
pub mod receive;
mod transmit;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::{Once, SpinLock};
use hayate_machine::virtio::{Device, EVENT_INDEX, Error};
use hayate_machine::{cpu, info, warn};
use hayate_virtio_net::{choose, feature};

use super::net::{self, Counts, NetworkDevice, Offloads, OutgoingFrame};
use crate::random;
use crate::schedule::execution::Execution;
use crate::schedule::{self, WaitQueue};
use control::{Control, command};
use receive::Receive;
use transmit::Transmit;

/// Offsets in the device's configuration.
mod config {
    pub const MAC: usize = 0;
    pub const STATUS: usize = 6;
    pub const PAIRS: usize = 8;
    pub const MTU: usize = 10;
}

/// The bit of the status that stands for the link.
const LINK_UP: u16 = 1;
/// Descriptors of a queue.
const QUEUE: u16 = 256;
const CONTROL_QUEUE: u16 = 16;
/// The nice value of the executions of receive queues. Packets that arrive are taken before the
/// programs go on that send more, or the queue has no buffers for those that follow, and time does
/// not tell how far away the peer is. Under a flood programs still have a tenth of the processor.
const RECEIVE_NICE: i8 = -10;
/// The MTU of Ethernet, unless the device says another.
const MTU: usize = 1500;
/// The least MTU for IPv4 (RFC 791).
const LEAST_MTU: usize = 68;
/// The most of a frame of memory without `MRG_RXBUF`.
const PAGE_MTU: usize = 4096 - hayate_virtio_net::HEADER - 18;
/// The most pairs of queues that a device may have (5.1.4.1).
const MOST_PAIRS: u16 = 0x8000;

/// A device.
struct Card {
    device: Device,
    /// Its number among all, set when it is registered.
    number: Once<usize>,
    agreed: u64,
    mac: SpinLock<[u8; 6]>,
    mtu: usize,
    link: AtomicBool,
    pairs: Vec<Pair>,
    /// How many pairs the device works with.
    active: AtomicUsize,
    control: Option<Control>,
    room: WaitQueue,
}

/// A receive and a transmit queue with one interrupt.
struct Pair {
    receive: Receive,
    transmit: Transmit,
}

/// The card of an interrupt handler, which is connected before there is one.
type Slot = Arc<Once<Arc<Card>>>;

/// Sets the device up and registers it.
pub fn start(device: Device) -> core::result::Result<(), Error> {
    let agreed = device.negotiate_by(|offered| choose(offered) | offered & EVENT_INDEX)?;
    let slot = Slot::default();
    let target = Arc::clone(&slot);
    device.connect(Box::new(move || {
        if let Some(card) = target.get() {
            card.interrupt();
        }
    }))?;
    let offered = if agreed & feature::MQ == 0 {
        1
    } else {
        device.config(|config| config.u16(config::PAIRS)).clamp(1, MOST_PAIRS)
    };
    let pairs = pairs(&device, agreed, offered, &slot)?;
    let control = if agreed & feature::CTRL_VQ == 0 {
        None
    } else {
        // It comes after all pairs that the device has (5.1.2).
        Some(Control::new(device.queue(2 * offered, CONTROL_QUEUE)?))
    };
    let card = Arc::new(Card {
        number: Once::new(),
        agreed,
        mac: SpinLock::new(mac(&device, agreed)),
        mtu: mtu(&device, agreed),
        link: AtomicBool::new(true),
        pairs,
        active: AtomicUsize::new(1),
        control,
        room: WaitQueue::new(),
        device,
    });
    card.link.store(card.sees_link(), Ordering::Relaxed);
    let number = net::register(Arc::clone(&card) as _).map_err(|_| Error::Memory)?;
    card.number.call_once(|| number);
    // From here on there may be interrupts.
    slot.call_once(|| Arc::clone(&card));
    card.device.start();
    for index in 0..card.pairs.len() {
        run(&card, index, number).map_err(|_| Error::Memory)?;
    }
    card.ask_for_pairs();
    let [a, b, c, d, e, f] = card.mac();
    info!(
        "virtio-net: device {number}, {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}, {} pair(s) of \
         queues at {}",
        card.pairs.len(),
        card.device.place()
    );
    Ok(())
}

/// Makes pairs of queues: as many as there are processors, as far as the device has them.
fn pairs(
    device: &Device,
    agreed: u64,
    offered: u16,
    slot: &Slot,
) -> core::result::Result<Vec<Pair>, Error> {
    let mut pairs = Vec::new();
    for index in 0..usize::from(offered).min(cpu::count()) {
        let queues = [2 * index as u16, 2 * index as u16 + 1];
        let receive = Receive::new(device.queue(queues[0], QUEUE)?, agreed);
        let transmit = Transmit::new(device.queue(queues[1], QUEUE)?, agreed);
        pairs.push(Pair { receive, transmit: transmit.map_err(|_| Error::Memory)? });
        let target = Arc::clone(slot);
        let handler = move || {
            if let Some(card) = target.get() {
                card.interrupt_of(index);
            }
        };
        // Without an interrupt of its own the pair shares the device's.
        device.connect_queues(&queues, index, Box::new(handler));
    }
    Ok(pairs)
}

/// Starts the execution of a receive queue, on the processor of its interrupt if there are several
/// queues.
fn run(card: &Arc<Card>, index: usize, number: usize) -> Result<()> {
    let target = Arc::clone(card);
    let work = move || target.pairs[index].receive.run(number);
    let execution = Execution::new_kernel("net-receive", work)?;
    if card.pairs.len() > 1 {
        execution.set_affinity(1 << index)?;
    }
    execution.set_nice(RECEIVE_NICE);
    schedule::start(&execution);
    Ok(())
}

/// Returns the device's address; one of chance, locally administered, if it has none.
fn mac(device: &Device, agreed: u64) -> [u8; 6] {
    if agreed & feature::MAC != 0 {
        let own = device.config(|config| core::array::from_fn(|at| config.u8(config::MAC + at)));
        if net::is_station(own) {
            return own;
        }
    }
    let mut mac = [0; 6];
    random::fill(&mut mac);
    mac[0] = mac[0] & !1 | 2;
    mac
}

/// Returns the device's MTU; that of Ethernet if it says none, or one that cannot be.
fn mtu(device: &Device, agreed: u64) -> usize {
    let most = if agreed & feature::MRG_RXBUF == 0 { PAGE_MTU } else { 65535 };
    let own = if agreed & feature::MTU == 0 {
        MTU
    } else {
        device.config(|config| config.u16(config::MTU)).into()
    };
    if (LEAST_MTU..=most).contains(&own) { own } else { MTU }
}

impl Card {
    /// Reads from the device whether the link is up.
    fn sees_link(&self) -> bool {
        self.agreed & feature::STATUS == 0
            || self.device.config(|config| config.u16(config::STATUS)) & LINK_UP != 0
    }

    /// Asks the device to work with all pairs.
    fn ask_for_pairs(&self) {
        let count = self.pairs.len();
        if count > 1
            && let Some(control) = &self.control
            && control.begin(command::PAIRS, &(count as u16).to_le_bytes()).is_err()
        {
            warn!("virtio-net: no memory for the command; one pair of queues is used");
        }
    }

    /// Handles the interrupt that is for everything without one of its own.
    fn interrupt(&self) {
        if self.device.may_have_changed() {
            let link = self.sees_link();
            if self.link.swap(link, Ordering::Relaxed) != link
                && let (Some(receiver), Some(&number)) = (net::receiver(), self.number.get())
            {
                receiver.link_changed(number);
            }
        }
        match self.control.as_ref().and_then(Control::interrupt) {
            Some(true) if self.pairs.len() > 1 => {
                self.active.store(self.pairs.len(), Ordering::Release);
                info!("virtio-net: {} pairs of queues at work", self.pairs.len());
            }
            Some(false) => warn!("virtio-net: the device refuses a command"),
            _ => {}
        }
        for index in 0..self.pairs.len() {
            self.interrupt_of(index);
        }
    }

    /// Handles the interrupt of a pair.
    fn interrupt_of(&self, index: usize) {
        let Some(pair) = self.pairs.get(index) else { return };
        pair.receive.interrupt();
        if pair.transmit.interrupt() {
            self.room.wake_all();
        }
    }

    /// Sends a command that needs a feature.
    fn command(&self, needed: u64, command: (u8, u8), data: &[u8]) -> Result<()> {
        match &self.control {
            Some(control) if self.agreed & needed != 0 => control.send(command, data),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

impl NetworkDevice for Card {
    fn mac(&self) -> [u8; 6] {
        *self.mac.lock()
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    fn link_up(&self) -> bool {
        self.link.load(Ordering::Relaxed)
    }

    fn offloads(&self) -> Offloads {
        Offloads {
            checksum: self.agreed & feature::CSUM != 0,
            tso4: self.agreed & feature::HOST_TSO4 != 0,
            tso6: self.agreed & feature::HOST_TSO6 != 0,
        }
    }

    fn transmit(&self, frame: OutgoingFrame) -> core::result::Result<(), OutgoingFrame> {
        let index = cpu::id() % self.active.load(Ordering::Acquire);
        match self.pairs.get(index) {
            Some(pair) => pair.transmit.give(frame),
            None => Ok(()),
        }
    }

    fn hasten(&self) {
        let mut wake = false;
        for pair in &self.pairs {
            wake |= pair.transmit.hasten();
        }
        if wake {
            self.room.wake_all();
        }
    }

    fn room(&self) -> &WaitQueue {
        &self.room
    }

    fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for pair in &self.pairs {
            sum += pair.receive.counts();
            sum += pair.transmit.counts();
        }
        sum
    }

    fn set_promiscuous(&self, on: bool) -> Result<()> {
        self.command(feature::CTRL_RX, command::PROMISCUOUS, &[on.into()])
    }

    fn set_all_multicast(&self, on: bool) -> Result<()> {
        self.command(feature::CTRL_RX, command::ALL_MULTICAST, &[on.into()])
    }

    fn set_mac(&self, mac: [u8; 6]) -> Result<()> {
        if !net::is_station(mac) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        self.command(feature::CTRL_MAC_ADDR, command::MAC, &mac)?;
        *self.mac.lock() = mac;
        Ok(())
    }
}
