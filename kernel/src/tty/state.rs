//! A terminal: its state, and the operations of the master and of programs on it.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_line_discipline::{Discipline, Effect, Signal, Termios};
use hayate_machine::sync::SpinLock;

use super::groups::{groups, signal};
use crate::reclaim::growth::Grow;
use crate::schedule::{Mutex, WaitQueue};
use crate::vfs::fasync::Signals;
use crate::vfs::poll::Events;
use crate::vfs::signal_owner::Band;

/// Bytes of pending output at which a writer waits.
const OUTPUT_MARK: usize = 4096;
/// Bytes of pending output at which even echo is dropped, because the output is not taken.
const OUTPUT_LIMIT: usize = 16 * 1024;

/// `struct winsize` (tty_ioctl(4)).
pub use hayate_abi::file::Winsize as Window;

/// A terminal as programs see it.
pub struct Tty {
    /// Device number of the node, major and minor.
    pub device: (u32, u32),
    /// The name in /proc/PID/stat and ttyname(3), without `/dev/`.
    pub name: alloc::string::String,
    /// Whether it is the slave of a pseudo terminal, not the console.
    pub pseudo: bool,
    pub(super) reading: Mutex<()>,
    pub(super) writing: Mutex<()>,
    state: SpinLock<State>,
    /// Readers and pollers of the program side.
    pub(super) readers: Arc<WaitQueue>,
    /// Writers of the program side, and threads that wait for output to drain.
    pub(super) writers: Arc<WaitQueue>,
    /// The master: woken when there is output to take or room for input.
    pub(super) master: Arc<WaitQueue>,
    /// Open files of the program side, and of the master, that want signals.
    pub(super) signals: Signals,
    pub(super) master_signals: Signals,
    /// Number of open files of the program side.
    opens: AtomicUsize,
}

struct State {
    discipline: Discipline,
    output: VecDeque<u8>,
    /// Bytes that the master has taken but not yet shown (a console thread at its device).
    in_flight: usize,
    window: Window,
    session: Option<u32>,
    foreground: Option<u32>,
    /// The master is closed, or vhangup was called: reads return the end, writes fail.
    hung_up: bool,
    /// The program side was open and is closed now; the master reads EIO.
    abandoned: bool,
    exclusive: bool,
    /// Packet mode of the master (TIOCPKT), and the status bits not yet read in it.
    packet: bool,
    packet_status: u8,
    /// The master has locked the slave (TIOCSPTLCK).
    locked: bool,
}

/// The effect of typed bytes, up to the first that asks for a signal.
#[derive(Default)]
struct Typed {
    /// How many were taken.
    taken: usize,
    /// A program can read more.
    readable: bool,
    /// The master can read more.
    shown: bool,
    /// The signal that the last of them asks for.
    signal: Option<Signal>,
}

impl State {
    /// Whether no more input is taken. A full buffer takes more only while it holds nothing that
    /// could be read: then the input is dropped, except for the character that ends the line.
    fn is_full(&self) -> bool {
        self.discipline.room() == 0 && self.discipline.readable()
    }

    /// Passes bytes through the line discipline, until the buffer is full or a signal is asked for.
    fn type_in(&mut self, bytes: &[u8]) -> Typed {
        let mut typed = Typed::default();
        let before = self.output.len();
        for &byte in bytes {
            if self.is_full() {
                break;
            }
            typed.taken += 1;
            let output = &mut self.output;
            let effect = self.discipline.receive(byte, &mut |echo: &[u8]| {
                let room = output.len() + echo.len() <= OUTPUT_LIMIT;
                if room && output.make_room(echo.len()).is_ok() {
                    output.extend(echo);
                }
            });
            match effect {
                Effect::None => {}
                Effect::Readable => typed.readable = true,
                Effect::Stop => self.packet_status |= packet::STOP,
                Effect::Start => {
                    self.packet_status |= packet::START;
                    typed.shown = true;
                }
                Effect::Signal(which, flush) => {
                    if flush {
                        // Keep the echo of the character itself.
                        let echo = self.output.len().saturating_sub(before);
                        let drop = self.output.len() - echo.min(2);
                        self.output.drain(..drop);
                        self.packet_status |= packet::FLUSHREAD | packet::FLUSHWRITE;
                    }
                    typed.signal = Some(which);
                    typed.shown = true;
                    break;
                }
            }
        }
        typed.shown |= self.output.len() > before;
        typed
    }
}

/// The result of taking output.
pub enum Output {
    /// This many bytes were taken.
    Bytes(usize),
    /// A packet-mode status byte.
    Status(u8),
    /// There is no output now.
    Nothing,
    /// There is no output, and no program has the terminal open any more.
    Abandoned,
}

/// Status bits of packet mode (`TIOCPKT_*`, ioctl_tty(2)).
pub mod packet {
    #![allow(missing_docs)]
    pub const FLUSHREAD: u8 = 1;
    pub const FLUSHWRITE: u8 = 2;
    pub const STOP: u8 = 4;
    pub const START: u8 = 8;
}

impl Tty {
    /// Makes a terminal that is not open.
    pub fn new(device: (u32, u32), name: alloc::string::String, pseudo: bool) -> Arc<Self> {
        Arc::new(Self {
            device,
            name,
            pseudo,
            reading: Mutex::new(()),
            writing: Mutex::new(()),
            state: SpinLock::new(State {
                discipline: Discipline::new(),
                output: VecDeque::new(),
                in_flight: 0,
                window: Window::default(),
                session: None,
                foreground: None,
                hung_up: false,
                abandoned: false,
                exclusive: false,
                packet: false,
                packet_status: 0,
                locked: pseudo,
            }),
            readers: Arc::new(WaitQueue::new()),
            writers: Arc::new(WaitQueue::new()),
            master: Arc::new(WaitQueue::new()),
            signals: Signals::new(),
            master_signals: Signals::new(),
            opens: AtomicUsize::new(0),
        })
    }

    // ---- the master's side ------------------------------------------------------------------

    /// Passes typed bytes to the terminal. Returns how many were taken; fewer than all when
    /// programs do not read. Wakes readers and sends the signals of special characters.
    pub fn type_in(&self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        let mut readable = false;
        let mut shown = false;
        while taken < bytes.len() {
            let wanted;
            {
                let mut state = self.state.lock();
                let typed = state.type_in(&bytes[taken..]);
                wanted = typed.signal.and_then(|which| Some((state.foreground?, which)));
                taken += typed.taken;
                readable |= typed.readable;
                shown |= typed.shown;
                if wanted.is_none() && taken < bytes.len() && state.is_full() {
                    break;
                }
            }
            if let (Some((group, which)), Some(groups)) = (wanted, groups()) {
                groups.signal_group(
                    group,
                    match which {
                        Signal::Interrupt => signal::INT,
                        Signal::Quit => signal::QUIT,
                        Signal::Suspend => signal::TSTP,
                    },
                );
            }
        }
        if readable {
            self.readers.wake_events(Events::IN.bits());
            self.signals.tell(Band::In);
        }
        if shown {
            self.master.wake_events(Events::IN.bits());
            self.writers.wake_events(Events::OUT.bits());
            self.master_signals.tell(Band::In);
        }
        taken
    }

    /// Takes bytes of output. With `in_flight` they count as in flight until [`Self::shown`] is
    /// called, so that tcdrain(3) waits for the device.
    pub fn take_output(&self, into: &mut [u8], in_flight: bool) -> Output {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.packet && state.packet_status != 0 {
            return Output::Status(core::mem::take(&mut state.packet_status));
        }
        if state.output.is_empty() || state.discipline.stopped() {
            return if state.abandoned { Output::Abandoned } else { Output::Nothing };
        }
        let count = into.len().min(state.output.len());
        for (slot, byte) in into.iter_mut().zip(state.output.drain(..count)) {
            *slot = byte;
        }
        if in_flight {
            state.in_flight += count;
        }
        if state.output.len() < OUTPUT_MARK / 2 {
            self.writers.wake_events(Events::OUT.bits());
        }
        Output::Bytes(count)
    }

    /// Notes that bytes in flight have reached the screen.
    pub fn shown(&self, count: usize) {
        let mut state = self.state.lock();
        state.in_flight = state.in_flight.saturating_sub(count);
        if state.in_flight == 0 && state.output.is_empty() {
            self.writers.wake_events(Events::OUT.bits());
        }
    }

    /// Returns the events that a poll of the master finds.
    pub fn master_events(&self) -> Events {
        let state = self.state.lock();
        let mut events = Events::empty();
        if (!state.output.is_empty() && !state.discipline.stopped())
            || (state.packet && state.packet_status != 0)
        {
            events |= Events::IN;
        }
        if state.packet && state.packet_status != 0 {
            events |= Events::PRI;
        }
        if state.discipline.room() > 0 || !state.discipline.readable() {
            events |= Events::OUT;
        }
        if state.abandoned {
            events |= Events::HUP;
        }
        events
    }

    /// Whether input would be taken now.
    pub fn takes_input(&self) -> bool {
        let state = self.state.lock();
        state.discipline.room() > 0 || !state.discipline.readable()
    }

    /// Sets packet mode.
    pub fn set_packet(&self, on: bool) {
        let mut state = self.state.lock();
        state.packet = on;
        state.packet_status = 0;
    }

    /// Whether packet mode is on.
    pub fn packet(&self) -> bool {
        self.state.lock().packet
    }

    /// Locks or unlocks the slave (unlockpt(3)).
    pub fn set_locked(&self, locked: bool) {
        self.state.lock().locked = locked;
    }

    /// Whether the slave is locked and cannot be opened.
    pub fn locked(&self) -> bool {
        self.state.lock().locked
    }

    /// Hangs up the line: the master was closed, or vhangup(2) was called. The session leader and
    /// the foreground group get SIGHUP and SIGCONT; reads return the end, writes fail with EIO.
    pub fn hang_up(self: &Arc<Self>) {
        let (session, foreground) = {
            let mut state = self.state.lock();
            state.hung_up = true;
            state.output.clear();
            state.discipline.flush_input();
            (state.session.take(), state.foreground.take())
        };
        if let Some(groups) = groups() {
            if let Some(session) = session {
                groups.signal_session_leader(session, signal::HUP);
                groups.signal_session_leader(session, signal::CONT);
                groups.take_terminal_away(session);
            }
            if let Some(group) = foreground {
                groups.signal_group(group, signal::HUP);
                groups.signal_group(group, signal::CONT);
            }
        }
        self.wake_everybody();
    }

    fn wake_everybody(&self) {
        self.readers.wake_events(Events::all().bits());
        self.writers.wake_events(Events::all().bits());
        self.master.wake_events(Events::all().bits());
    }

    // ---- the programs' side -----------------------------------------------------------------

    /// Called when a program opens the terminal: EIO while the master has it locked or is closed,
    /// EBUSY under TIOCEXCL for the unprivileged.
    pub fn opened(&self, privileged: bool) -> Result<()> {
        let mut state = self.state.lock();
        if state.locked || (state.hung_up && self.pseudo) {
            return Err(Errno::EIO);
        }
        if state.exclusive && !privileged && self.opens.load(Ordering::Relaxed) > 0 {
            return Err(Errno::EBUSY);
        }
        state.abandoned = false;
        state.hung_up = false;
        self.opens.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Called when an open file of the program side ends.
    pub fn closed(&self) {
        if self.opens.fetch_sub(1, Ordering::Relaxed) == 1 {
            let mut state = self.state.lock();
            state.exclusive = false;
            state.abandoned = self.pseudo;
            drop(state);
            self.master.wake_events(Events::all().bits());
        }
    }

    /// Whether the line is hung up.
    pub fn hung_up(&self) -> bool {
        self.state.lock().hung_up
    }

    /// Takes the bytes that a reader can have without waiting; `None` when it has to wait.
    pub(super) fn read_now(&self, into: &mut [u8], least: usize) -> Option<usize> {
        let mut state = self.state.lock();
        if state.hung_up {
            return Some(0);
        }
        let ready = if state.discipline.canonical() {
            state.discipline.readable()
        } else {
            state.discipline.available() >= least.max(1)
        };
        if !ready {
            return None;
        }
        let count = state.discipline.read(into);
        drop(state);
        self.master.wake_events(Events::OUT.bits());
        Some(count)
    }

    /// Returns how many bytes a raw read would get now.
    pub(super) fn available(&self) -> usize {
        self.state.lock().discipline.available()
    }

    /// Passes a piece of a program's output to the terminal; `None` when the writer has to wait.
    pub(super) fn write_now(&self, bytes: &[u8]) -> Option<Result<usize>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.hung_up {
            return Some(Err(Errno::EIO));
        }
        if state.discipline.stopped() || state.output.len() >= OUTPUT_MARK {
            return None;
        }
        let output = &mut state.output;
        if output.make_room(2 * bytes.len()).is_err() {
            return Some(Err(Errno::ENOMEM));
        }
        state.discipline.process_output(bytes, &mut |piece: &[u8]| output.extend(piece));
        self.master.wake_events(Events::IN.bits());
        Some(Ok(bytes.len()))
    }

    /// Whether all output was taken and shown, so that tcdrain(3) is done.
    pub(super) fn drained(&self) -> bool {
        let state = self.state.lock();
        // Output to a pseudo terminal counts as shown before the master has read it
        // (pty_chars_in_buffer of Linux is 0).
        self.pseudo || state.hung_up || (state.output.is_empty() && state.in_flight == 0)
    }

    /// Returns the number of bytes written and not yet shown (TIOCOUTQ).
    pub(super) fn unshown(&self) -> usize {
        let state = self.state.lock();
        state.output.len() + state.in_flight
    }

    /// Returns the events that a poll of the program side finds.
    pub(super) fn events(&self) -> Events {
        use hayate_line_discipline::cc::{VMIN, VTIME};
        let state = self.state.lock();
        let mut events = Events::empty();
        if state.hung_up {
            return Events::IN | Events::OUT | Events::HUP | Events::ERR;
        }
        let characters = &state.discipline.termios().cc;
        let least = if characters[VTIME] == 0 { usize::from(characters[VMIN]).max(1) } else { 1 };
        let ready = if state.discipline.canonical() {
            state.discipline.readable()
        } else {
            state.discipline.available() >= least
        };
        if ready {
            events |= Events::IN;
        }
        if state.output.len() < OUTPUT_MARK && !state.discipline.stopped() {
            events |= Events::OUT;
        }
        events
    }

    // ---- settings ---------------------------------------------------------------------------

    /// Returns the settings in force.
    pub fn termios(&self) -> Termios {
        *self.state.lock().discipline.termios()
    }

    /// Changes the settings.
    pub fn set_termios(&self, termios: Termios) {
        let readable = self.state.lock().discipline.set_termios(termios);
        if readable {
            self.readers.wake_events(Events::IN.bits());
        }
        self.writers.wake_events(Events::OUT.bits());
        self.master.wake_events(Events::IN.bits());
    }

    /// Returns the window's size.
    pub fn window(&self) -> Window {
        self.state.lock().window
    }

    /// Changes the window's size; the foreground group gets SIGWINCH if the size is new.
    pub fn set_window(&self, window: Window) {
        let group = {
            let mut state = self.state.lock();
            if state.window == window {
                return;
            }
            state.window = window;
            state.foreground
        };
        if let (Some(group), Some(groups)) = (group, groups()) {
            groups.signal_group(group, signal::WINCH);
        }
    }

    /// Discards pending input, output, or both (tcflush(3)).
    pub(super) fn flush(&self, input: bool, output: bool) {
        {
            let mut state = self.state.lock();
            if input {
                state.discipline.flush_input();
                state.packet_status |= packet::FLUSHREAD;
            }
            if output {
                state.output.clear();
                state.packet_status |= packet::FLUSHWRITE;
            }
        }
        self.master.wake_events((Events::IN | Events::OUT).bits());
        self.writers.wake_events(Events::OUT.bits());
    }

    /// Stops or restarts output (tcflow(3)).
    pub(super) fn set_stopped(&self, stopped: bool) {
        self.state.lock().discipline.set_stopped(stopped);
        if !stopped {
            self.master.wake_events(Events::IN.bits());
            self.writers.wake_events(Events::OUT.bits());
        }
    }

    /// Sets or clears TIOCEXCL.
    pub(super) fn set_exclusive(&self, exclusive: bool) {
        self.state.lock().exclusive = exclusive;
    }

    /// Whether TIOCEXCL is set.
    pub(super) fn exclusive(&self) -> bool {
        self.state.lock().exclusive
    }

    /// Returns the session that it controls and that session's foreground process group.
    pub fn session_and_foreground(&self) -> (Option<u32>, Option<u32>) {
        let state = self.state.lock();
        (state.session, state.foreground)
    }

    /// Makes it the controlling terminal of a session, or of none.
    pub fn set_session(&self, session: Option<u32>, foreground: Option<u32>) {
        let mut state = self.state.lock();
        state.session = session;
        state.foreground = foreground;
    }

    /// Changes the foreground process group.
    pub fn set_foreground(&self, group: u32) {
        self.state.lock().foreground = Some(group);
    }

    /// Called by `process` when the session leader has exited: the foreground group gets SIGHUP and
    /// SIGCONT, and the terminal is free for another session.
    pub fn session_ended(&self, session: u32) {
        let group = {
            let mut state = self.state.lock();
            if state.session != Some(session) {
                return;
            }
            state.session = None;
            state.foreground.take()
        };
        if let (Some(group), Some(groups)) = (group, groups()) {
            groups.signal_group(group, signal::HUP);
            groups.signal_group(group, signal::CONT);
        }
    }
}
