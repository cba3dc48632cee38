//! Ports of virtio consoles as character devices.
//!
//! Each port is `/dev/vportNpM`, with links by its name at `/dev/vport/NAME` and
//! `/dev/virtio-ports/NAME`. When the host has closed its end and all input is read, reading
//! returns 0 and writing fails with `EPIPE`. So a program in the guest ends like one that writes to
//! a pipe without readers (on Linux it would block for ever).

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::virtio::Piece;

use crate::drivers::virtio_console::{Host, Port, ports};
use crate::fs::devfs;
use crate::reclaim::growth::Grow;
use crate::schedule::Mutex;
use crate::tty::console;
use crate::tty::console::ConsoleBackend;
use crate::vfs::device;
use crate::vfs::inode::{DeviceNumber, FileKind};
use crate::vfs::open_file::{FileOps, OpenFile, OpenRequest, Traits};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::transfer::{Input, Output};

const PAGE: usize = 4096;
/// The major number; Linux gives these ports a dynamic one, and this is one that it uses.
const MAJOR: u32 = 247;

/// A port with its node.
struct Node {
    port: Arc<Port>,
    /// Held while input is taken, so that bytes keep their order.
    reading: Mutex<()>,
}

/// Makes the nodes of all ports, and attaches the console to its port, or to the log if there is
/// none.
pub fn init() -> Result<()> {
    let mut console = None;
    for (minor, port) in ports().into_iter().enumerate() {
        let number = DeviceNumber::new(MAJOR, minor as u32);
        let node = Arc::new(Node { port: Arc::clone(&port), reading: Mutex::new(()) });
        device::register(FileKind::CharDevice, number, "virtio-portsdev", Arc::new(Opener(node)));
        let plain = format!("vport{minor}p{}", port.number);
        devfs::add(&plain, FileKind::CharDevice, number, 0o600);
        if let Some(name) = port.name() {
            devfs::add(&format!("vport/{name}"), FileKind::CharDevice, number, 0o666);
            devfs::link(&format!("virtio-ports/{name}"), &format!("../{plain}"));
        }
        if port.is_console() && console.is_none() {
            console = Some(port);
        }
    }
    match console {
        Some(port) => {
            port.announce();
            console::attach(Arc::new(Terminal(port)))
        }
        None => console::attach_log(),
    }
}

struct Opener(Arc<Node>);

impl device::Device for Opener {
    fn open(&self, _: DeviceNumber, _: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
        self.0.port.announce();
        Ok(Arc::clone(&self.0) as _)
    }
}

/// Takes one piece of a program's output, at most a page.
fn piece(input: &mut Input<'_>) -> Result<Piece> {
    let length = input.remaining().min(PAGE);
    let mut bytes = Vec::new();
    bytes.make_room_exact(length)?;
    bytes.resize(length, 0);
    let count = input.take(&mut bytes)?;
    bytes.truncate(count);
    Ok(Piece::bytes(bytes.into_boxed_slice()))
}

impl FileOps for Node {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn read(&self, file: &OpenFile, _: u64, out: &mut Output<'_>) -> Result<usize> {
        let port = &*self.port;
        while out.remaining() > 0 {
            let there = match port.input_state() {
                Some(there) => there,
                None if file.nonblocking() => return Err(Errno::EAGAIN),
                None => port
                    .readers
                    .wait_interruptible(None, || port.input_state())
                    .map_err(|_| Errno::ERESTARTSYS)?,
            };
            if !there {
                return Ok(0);
            }
            let _reading = self.reading.lock();
            let mut result = Ok(0);
            while out.remaining() > 0 && result.is_ok() {
                let Some(mut input) = port.take() else { break };
                let length = (input.to - input.from).min(out.remaining());
                result = out.put_frame(&input.frame, input.from, length);
                let count = result.unwrap_or(0);
                input.from += count;
                port.put_back(input);
                if count < length {
                    break;
                }
            }
            if out.done() > 0 || result.is_err() {
                return out.finish(result);
            }
            // Another reader took the input meanwhile.
        }
        Ok(0)
    }

    fn write(&self, file: &OpenFile, _: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        let port = &*self.port;
        let mut written = 0;
        let mut result = Ok(());
        while input.remaining() > 0 && result.is_ok() {
            if file.nonblocking() && port.host() != Host::Closed && !port.can_send() {
                result = Err(Errno::EAGAIN);
                break;
            }
            let before = input.done();
            result = piece(input).and_then(|piece| {
                let mut piece = Some(piece);
                port.try_send(&mut piece).unwrap_or_else(|| {
                    port.writers
                        .wait_interruptible(None, || port.try_send(&mut piece))
                        .unwrap_or(Err(Errno::ERESTARTSYS))
                })
            });
            if result.is_ok() {
                written += input.done() - before;
            }
        }
        if written > 0 { Ok(written) } else { result.map(|()| 0) }
    }

    fn poll(&self, _: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        let port = &*self.port;
        registrar.register(&port.readers);
        registrar.register(&port.writers);
        let closed = port.host() == Host::Closed;
        let mut events = Events::empty();
        if closed || port.has_input() {
            events |= Events::READABLE;
        }
        if closed {
            events |= Events::HUP;
        } else if port.can_send() {
            events |= Events::WRITABLE;
        }
        events
    }

    fn sync(&self, _: &OpenFile, _: bool) -> Result<()> {
        self.port.drain();
        Ok(())
    }
}

/// The port of the console.
struct Terminal(Arc<Port>);

impl ConsoleBackend for Terminal {
    fn read(&self, into: &mut [u8]) -> Result<usize> {
        let port = &*self.0;
        loop {
            if !port.readers.wait(|| port.input_state()) {
                return Ok(0);
            }
            if let Some(mut input) = port.take() {
                let length = (input.to - input.from).min(into.len());
                let count = input.frame.read(input.from, &mut into[..length]);
                input.from += count;
                port.put_back(input);
                return Ok(count);
            }
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        let port = &*self.0;
        for part in bytes.chunks(PAGE) {
            let mut piece = Some(Piece::bytes(part.into()));
            port.writers.wait(|| port.try_send(&mut piece))?;
        }
        Ok(())
    }
}
