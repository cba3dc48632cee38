//! A terminal's settings, as `struct termios` of Linux x86-64 has them
//! (`include/uapi/asm-generic/termbits.h`, Linux 6.1).

/// Indices of the control characters.
#[allow(missing_docs)]
pub mod cc {
    pub const VINTR: usize = 0;
    pub const VQUIT: usize = 1;
    pub const VERASE: usize = 2;
    pub const VKILL: usize = 3;
    pub const VEOF: usize = 4;
    pub const VTIME: usize = 5;
    pub const VMIN: usize = 6;
    pub const VSWTC: usize = 7;
    pub const VSTART: usize = 8;
    pub const VSTOP: usize = 9;
    pub const VSUSP: usize = 10;
    pub const VEOL: usize = 11;
    pub const VREPRINT: usize = 12;
    pub const VDISCARD: usize = 13;
    pub const VWERASE: usize = 14;
    pub const VLNEXT: usize = 15;
    pub const VEOL2: usize = 16;
    /// NCCS of the kernel's structure (libc's own has 32).
    pub const COUNT: usize = 19;
}

/// Bits of the four flag words.
#[allow(missing_docs)]
pub mod flags {
    // c_iflag
    pub const PARMRK: u32 = 0o10;
    pub const ISTRIP: u32 = 0o40;
    pub const INLCR: u32 = 0o100;
    pub const IGNCR: u32 = 0o200;
    pub const ICRNL: u32 = 0o400;
    pub const IUCLC: u32 = 0o1000;
    pub const IXON: u32 = 0o2000;
    pub const IXANY: u32 = 0o4000;
    pub const IMAXBEL: u32 = 0o20000;
    pub const IUTF8: u32 = 0o40000;
    // c_oflag
    pub const OPOST: u32 = 0o1;
    pub const OLCUC: u32 = 0o2;
    pub const ONLCR: u32 = 0o4;
    pub const OCRNL: u32 = 0o10;
    pub const ONOCR: u32 = 0o20;
    pub const ONLRET: u32 = 0o40;
    pub const TABDLY: u32 = 0o14000;
    pub const XTABS: u32 = 0o14000;
    // c_cflag
    pub const B38400: u32 = 0o17;
    pub const CS8: u32 = 0o60;
    pub const CREAD: u32 = 0o200;
    pub const HUPCL: u32 = 0o2000;
    // c_lflag
    pub const ISIG: u32 = 0o1;
    pub const ICANON: u32 = 0o2;
    pub const ECHO: u32 = 0o10;
    pub const ECHOE: u32 = 0o20;
    pub const ECHOK: u32 = 0o40;
    pub const ECHONL: u32 = 0o100;
    pub const NOFLSH: u32 = 0o200;
    pub const TOSTOP: u32 = 0o400;
    pub const ECHOCTL: u32 = 0o1000;
    pub const ECHOKE: u32 = 0o4000;
    pub const IEXTEN: u32 = 0o100000;
}

/// The settings: flag words and control characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Termios {
    /// Input flags.
    pub iflag: u32,
    /// Output flags.
    pub oflag: u32,
    /// Control flags (speed, size): kept for programs, without meaning for a virtual line.
    pub cflag: u32,
    /// Local flags.
    pub lflag: u32,
    /// Line discipline number; only N_TTY (0) exists.
    pub line: u8,
    /// Control characters, by the indices in [`cc`].
    pub cc: [u8; cc::COUNT],
}

impl Default for Termios {
    /// Returns `tty_std_termios` of Linux (`drivers/tty/tty_io.c`), with IUTF8 set, as in terminals
    /// of today.
    fn default() -> Self {
        use flags::*;
        let mut characters = [0; cc::COUNT];
        // INIT_C_CC: ^C ^\ DEL ^U ^D, time 0, min 1, ^Q ^S ^Z, none, ^R ^O ^W ^V, none.
        characters[..17]
            .copy_from_slice(&[3, 28, 127, 21, 4, 0, 1, 0, 17, 19, 26, 0, 18, 15, 23, 22, 0]);
        Self {
            iflag: ICRNL | IXON | IUTF8,
            oflag: OPOST | ONLCR,
            cflag: B38400 | CS8 | CREAD | HUPCL,
            lflag: ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN,
            line: 0,
            cc: characters,
        }
    }
}
