//! Tests of network devices, inside the kernel: on QEMU's own network, whose router 10.0.2.2
//! answers to ARP, and on packets of a device that lies.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use hayate_abi::Errno;
use hayate_ip::checksum::Checksum as SumOfBytes;
use hayate_machine::sync::{Once, SpinLock};
use hayate_machine::virtio::{Chain, Piece};
use hayate_virtio_net::feature;
use machine::frames::{Frame, Run};

use crate::drivers::net::{
    self, Checksum, FrameSlice, IncomingFrame, NetworkDevice, OutgoingFrame, Owner, Partial,
    Receiver, WITNESS,
};
use crate::drivers::virtio_net::receive::{Unfit, assemble};
use crate::schedule::time::monotonic_ns;
use crate::schedule::{WaitQueue, sleep_until};
use crate::{check, ktest};

const MS: u64 = 1_000_000;
/// How long an answer may take on a busy host.
const PATIENCE: u64 = 10_000 * MS;
const BROADCAST: [u8; 6] = [0xff; 6];
const GUEST: [u8; 4] = [10, 0, 2, 15];
const ROUTER: [u8; 4] = [10, 0, 2, 2];
/// Bytes of an ARP packet in its frame.
const ARP: usize = 42;

/// Counts the answers of the router, and keeps the last.
struct Witness {
    answers: AtomicU64,
    last: SpinLock<[u8; ARP]>,
    arrived: WaitQueue,
}

impl Receiver for Witness {
    fn receive(&self, _device: usize, frames: &mut dyn Iterator<Item = IncomingFrame>) {
        frames.for_each(|frame| self.look(&frame));
    }

    fn link_changed(&self, _device: usize) {}
}

impl Witness {
    fn look(&self, frame: &IncomingFrame) {
        let mut bytes = [0; ARP];
        let Some(first) = frame.slices.first() else { return };
        // ARP, and an answer of the router's (RFC 826).
        if first.read(0, &mut bytes) == ARP
            && bytes[12..14] == [8, 6]
            && bytes[20..22] == [0, 2]
            && bytes[28..32] == ROUTER
        {
            *self.last.lock() = bytes;
            self.answers.fetch_add(1, SeqCst);
            self.arrived.wake_all();
        }
    }
}

static WATCHER: Once<Witness> = Once::new();

/// Returns the witness, which gets all frames from now on, and the first device.
fn watched() -> (&'static Witness, Option<Arc<dyn NetworkDevice>>) {
    let witness = WATCHER.call_once(|| Witness {
        answers: AtomicU64::new(0),
        last: SpinLock::new([0; ARP]),
        arrived: WaitQueue::new(),
    });
    *WITNESS.lock() = Some(witness);
    (witness, net::device(0))
}

/// A question for the address of `target`.
fn question(device: &dyn NetworkDevice, target: [u8; 4]) -> Result<OutgoingFrame, Errno> {
    let mac = device.mac();
    let mut frame = OutgoingFrame::new(ARP)?;
    frame.push(&BROADCAST)?;
    frame.push(&mac)?;
    frame.push(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1])?;
    frame.push(&mac)?;
    frame.push(&GUEST)?;
    frame.push(&[0; 6])?;
    frame.push(&target)?;
    Ok(frame)
}

/// Sends the frame, and sleeps while the queue is full.
fn send(device: &dyn NetworkDevice, frame: OutgoingFrame) {
    let mut frame = Some(frame);
    device.room().wait(|| match device.transmit(frame.take()?) {
        Ok(()) => Some(()),
        Err(back) => {
            frame = Some(back);
            None
        }
    });
}

/// Waits until the witness has seen `count` answers; false if they do not come.
fn answered(witness: &Witness, count: u64, patience: u64) -> bool {
    let all = || (witness.answers.load(SeqCst) >= count).then_some(());
    witness.arrived.wait_interruptible(Some(monotonic_ns() + patience), all).is_ok()
}

ktest! {
    fn the_router_answers_a_thousand_times() {
        let (witness, device) = watched();
        let Some(device) = device else { check!(false); return Ok(()) };
        check!(device.link_up());
        check!(device.mtu() == 1500);
        let before = device.counts();
        let first = witness.answers.load(SeqCst);
        for round in 1..=1000 {
            let frame = question(&*device, ROUTER);
            check!(frame.is_ok());
            send(&*device, frame.map_err(|_| ()).unwrap());
            check!(answered(witness, first + round, PATIENCE));
        }
        let bytes = *witness.last.lock();
        check!(bytes[..6] == device.mac());
        check!(bytes[22..28] == bytes[6..12]);
        check!(net::is_station([bytes[6], bytes[7], bytes[8], bytes[9], bytes[10], bytes[11]]));
        let after = device.counts();
        check!(after.tx_packets - before.tx_packets == 1000);
        check!(after.tx_bytes - before.tx_bytes == 1000 * ARP as u64);
        check!(after.rx_packets - before.rx_packets >= 1000);
        check!((after.rx_errors, after.tx_errors) == (before.rx_errors, before.tx_errors));
        check!(after.rx_dropped == before.rx_dropped);
    }
}

ktest! {
    fn nobody_answers_for_an_address_without_a_station() {
        let (witness, device) = watched();
        let Some(device) = device else { check!(false); return Ok(()) };
        let before = witness.answers.load(SeqCst);
        let frame = question(&*device, [10, 0, 2, 99]);
        check!(frame.is_ok());
        send(&*device, frame.map_err(|_| ()).unwrap());
        check!(!answered(witness, before + 1, 200 * MS));
    }
}

ktest! {
    fn a_full_queue_takes_more_when_it_was_emptied() {
        let (witness, device) = watched();
        let Some(device) = device else { check!(false); return Ok(()) };
        let before = device.counts();
        let first = witness.answers.load(SeqCst);
        // Ten times what the queue holds: the head is a range of memory, the slice another.
        for _ in 0..2560 {
            let (frame, memory) = (question(&*device, [10, 0, 2, 99]), Frame::allocate_zeroed());
            check!(frame.is_ok() && memory.is_some());
            let (Ok(mut frame), Some(memory)) = (frame, memory) else { return Ok(()) };
            let padding = FrameSlice::new(memory, 0, 18);
            check!(padding.is_some_and(|padding| frame.append(padding).is_ok()));
            send(&*device, frame);
        }
        // The last ones may wait behind the queue; interrupts move them on.
        let end = monotonic_ns() + PATIENCE;
        let sent = || device.counts().tx_packets - before.tx_packets;
        while sent() < 2560 && monotonic_ns() < end {
            let _ = sleep_until(monotonic_ns() + MS, true);
        }
        check!(sent() == 2560);
        check!(device.counts().tx_bytes - before.tx_bytes == 2560 * 60);
        check!(device.counts().tx_dropped == before.tx_dropped);
        // The device works as before.
        let frame = question(&*device, ROUTER);
        check!(frame.is_ok());
        send(&*device, frame.map_err(|_| ()).unwrap());
        check!(answered(witness, first + 1, PATIENCE));
    }
}

/// Is told when frames are sent.
struct Teller((AtomicU64, WaitQueue));

impl Owner for Teller {
    fn given(&self, _: usize) {}

    fn sent(&self, _: usize) {
        self.0.0.fetch_add(1, SeqCst);
        self.0.1.wake_all();
    }
}

fn teller() -> Arc<Teller> {
    Arc::new(Teller((AtomicU64::new(0), WaitQueue::new())))
}

ktest! {
    fn a_frame_for_which_somebody_waits_is_dropped_when_it_is_sent() {
        let (_, device) = watched();
        let Some(device) = device else { check!(false); return Ok(()) };
        let told = teller();
        for round in 1..=100 {
            let frame = question(&*device, [10, 0, 2, 99]);
            let memory = Frame::allocate_zeroed();
            check!(frame.is_ok() && memory.is_some());
            let (Ok(mut frame), Some(memory)) = (frame, memory) else { return Ok(()) };
            check!(frame.append(FrameSlice::new(memory.clone(), 0, 18).unwrap()).is_ok());
            frame.set_owner(told.clone());
            frame.prompt = true;
            send(&*device, frame);
            let gone = || (told.0.0.load(SeqCst) == round).then_some(());
            let deadline = monotonic_ns() + PATIENCE;
            check!(told.0.1.wait_interruptible(Some(deadline), gone).is_ok());
            check!(memory.is_unique());
        }
    }
}

ktest! {
    fn what_a_device_cannot_do_is_counted_and_dropped() {
        let (_, device) = watched();
        let Some(device) = device else { check!(false); return Ok(()) };
        let before = device.counts();
        let told = teller();
        // A checksum behind the frame's end, and more slices than a queue has descriptors.
        let frame = question(&*device, ROUTER);
        check!(frame.is_ok());
        let mut frame = frame.map_err(|_| ()).unwrap();
        frame.offload.checksum = Some(Partial { start: 40, offset: 16 });
        frame.set_owner(told.clone());
        check!(device.transmit(frame).is_ok());
        let memory = Frame::allocate_zeroed();
        check!(memory.is_some());
        let (Some(memory), Ok(mut frame)) = (memory, question(&*device, ROUTER)) else { return Ok(()) };
        for _ in 0..300 {
            check!(frame.append(FrameSlice::new(memory.clone(), 0, 1).unwrap()).is_ok());
        }
        check!(device.transmit(frame).is_ok());
        check!(memory.is_unique());
        check!(told.0.0.load(SeqCst) == 1);
        let after = device.counts();
        check!(after.tx_errors == before.tx_errors + 2);
        check!(after.tx_packets == before.tx_packets);
    }
}

ktest! {
    fn commands_are_answered() {
        let (witness, device) = watched();
        let Some(device) = device else { check!(false); return Ok(()) };
        // Each is answered by an interrupt: twenty without would take twenty seconds.
        let began = monotonic_ns();
        for on in (0..10).map(|round| round % 2 == 0) {
            check!(device.set_promiscuous(on).is_ok());
            check!(device.set_all_multicast(on).is_ok());
        }
        check!(monotonic_ns() - began < PATIENCE);
        check!(device.set_mac([1, 0, 0, 0, 0, 1]) == Err(Errno::EADDRNOTAVAIL));
        check!(device.set_mac([0; 6]) == Err(Errno::EADDRNOTAVAIL));
        let own = device.mac();
        let other = [2, 0, 0, 0, 0, 9];
        check!(device.set_mac(other).is_ok());
        check!(device.mac() == other);
        let first = witness.answers.load(SeqCst);
        let frame = question(&*device, ROUTER);
        check!(frame.is_ok());
        send(&*device, frame.map_err(|_| ()).unwrap());
        check!(answered(witness, first + 1, PATIENCE));
        check!(witness.last.lock()[..6] == other);
        check!(device.set_mac(own).is_ok());
    }
}

ktest! {
    fn memory_sums_up_like_its_bytes() {
        let memory = Frame::allocate_zeroed();
        check!(memory.is_some());
        let Some(memory) = memory else { return Ok(()) };
        let bytes = vec![0; 4096].into_iter().enumerate();
        // With words that overflow, one after the other.
        let odd = |(at, _): (usize, u8)| if at % 97 < 40 { 0xff } else { (at * 31) as u8 };
        let bytes: Vec<u8> = bytes.map(odd).collect();
        check!(memory.write(0, &bytes) == 4096);
        let run = Run::from(memory);
        for length in (0..200).chain([1440, 1447, 2048, 4000]) {
            for from in [0, 1, 3, 8, 96] {
                let mut sums = [SumOfBytes::new(); 2];
                sums[0].add(&bytes[from..from + length]);
                sums[1].add_sum(run.sum(from, length), length);
                check!(sums[0].folded() == sums[1].folded());
                let mut list = vec![7];
                list.reserve_exact(length);
                check!(run.append_to(&mut list, from, length));
                check!(list[0] == 7 && list[1..] == bytes[from..from + length]);
            }
        }
        // Never beyond the memory, nor beyond the list's room.
        check!(run.sum(4095, 9) == u64::from(bytes[4095]) && run.sum(usize::MAX, 9) == 0);
        let mut list = Vec::with_capacity(4096);
        check!(!run.append_to(&mut list, 4095, 2) && !run.append_to(&mut list, usize::MAX, 2));
        let room = list.capacity();
        check!(!run.append_to(&mut list, 0, room + 1) && list.is_empty());
    }
}

ktest! {
    fn heads_and_slices_have_limits() {
        check!(OutgoingFrame::new(net::HEAD + 1).is_err());
        let frame = OutgoingFrame::new(net::HEAD);
        check!(frame.is_ok());
        let mut frame = frame.map_err(|_| ()).unwrap();
        check!(frame.push(&vec![0; net::HEAD]).is_ok());
        check!(frame.push(&[0]) == Err(Errno::EMSGSIZE));
        check!(frame.length() == net::HEAD);
        let memory = Frame::allocate_zeroed();
        check!(memory.is_some());
        let Some(memory) = memory else { return Ok(()) };
        check!(FrameSlice::new(memory.clone(), 0, 0).is_none());
        check!(FrameSlice::new(memory.clone(), 4095, 2).is_none());
        check!(FrameSlice::new(memory.clone(), usize::MAX, 2).is_none());
        let slice = FrameSlice::new(memory.clone(), 4090, 6);
        check!(slice.is_some());
        let Some(mut slice) = slice else { return Ok(()) };
        check!(memory.write(4090, b"abcdef") == 6);
        let mut bytes = [0; 8];
        check!(slice.read(4, &mut bytes) == 2 && bytes[..2] == *b"ef");
        check!(slice.read(6, &mut bytes) == 0 && slice.read(usize::MAX, &mut bytes) == 0);
        slice.advance(2);
        slice.truncate(3);
        check!(slice.read(0, &mut bytes) == 3 && bytes[..3] == *b"cde");
        slice.advance(100);
        check!(slice.len() == 1 && slice.read(0, &mut bytes) == 1 && bytes[0] == b'e');
    }
}

/// A buffer whose device wrote this header into it, and says that it wrote `written` bytes.
fn buffer(header: &[u8], written: u32) -> (Chain, u32) {
    let frame = Frame::allocate_zeroed().expect("a frame for a test");
    frame.write(0, header);
    let mut chain = Chain::new(0);
    assert!(chain.writes(Piece::frame(frame)));
    (chain, written)
}

/// The header of a packet in so many buffers.
fn header(buffers: u16) -> [u8; 12] {
    let [low, high] = buffers.to_le_bytes();
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, low, high]
}

ktest! {
    fn a_packet_is_the_buffers_that_the_device_wrote() {
        const AGREED: u64 = feature::MRG_RXBUF | feature::GUEST_CSUM;
        let whole = assemble(buffer(&header(1), 72), || None, AGREED);
        check!(whole.is_ok());
        if let Ok(frame) = whole {
            check!(frame.length == 60 && frame.slices.len() == 1);
            check!(frame.slices[0].offset() == 12 && frame.slices[0].len() == 60);
            check!(frame.checksum == Checksum::Unknown && frame.segments.is_none());
        }
        let mut more = [(4096, 1), (100, 2)].map(|(written, mark)| Some(buffer(&[mark], written)));
        let mut next = more.iter_mut().filter_map(Option::take);
        let long = assemble(buffer(&header(3), 4096), || next.next(), AGREED);
        check!(long.is_ok());
        if let Ok(frame) = long {
            check!(frame.length == 4084 + 4096 + 100 && frame.slices.len() == 3);
            let mut mark = [0];
            check!(frame.slices[2].read(0, &mut mark) == 1 && mark == [2]);
        }
    }
}

ktest! {
    fn a_device_that_lies_is_not_believed() {
        const AGREED: u64 = feature::MRG_RXBUF | feature::GUEST_CSUM;
        let fails = |first, more: &mut dyn FnMut() -> Option<(Chain, u32)>| {
            matches!(assemble(first, more, AGREED), Err(Unfit::Device))
        };
        // More than the buffer has, less than a header, no byte behind it.
        for written in [4097, u32::MAX, 0, 11, 12] {
            check!(fails(buffer(&header(1), written), &mut || None));
        }
        // No buffer, more than there are, more than any packet needs.
        check!(fails(buffer(&header(0), 72), &mut || None));
        check!(fails(buffer(&header(2), 4096), &mut || None));
        check!(fails(buffer(&header(u16::MAX), 4096), &mut || Some(buffer(&[], 4096))));
        // Further buffers that are empty or too full: they are taken all the same.
        for written in [0, 4097] {
            let mut taken = 0;
            check!(fails(buffer(&header(3), 4096), &mut || {
                taken += 1;
                Some(buffer(&[], written))
            }));
            check!(taken == 2);
        }
        // Longer than any packet; a checksum behind the end; segments that were not negotiated.
        check!(fails(buffer(&header(17), 4096), &mut || Some(buffer(&[], 4096))));
        check!(fails(buffer(&[1, 0, 0, 0, 0, 0, 59, 0, 0, 0, 1, 0], 72), &mut || None));
        check!(fails(buffer(&[1, 1, 54, 0, 180, 5, 34, 0, 16, 0, 1, 0], 72), &mut || None));
        // Bytes of the heap are no buffer.
        let mut chain = Chain::new(0);
        check!(chain.writes(Piece::bytes(Box::new([0; 128]))));
        check!(fails((chain, 72), &mut || None));
    }
}
