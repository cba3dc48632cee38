//! Output processing: the effect of OPOST on the bytes for the screen, and the cursor's column,
//! which is needed to erase a tab and to expand one.

use crate::termios::{Termios, flags::*};

/// The state of the screen's cursor.
#[derive(Debug, Default)]
pub struct Screen {
    column: usize,
}

impl Screen {
    /// The cursor's column, counted from 0.
    pub fn column(&self) -> usize {
        self.column
    }

    /// Sends `bytes` to `out` in as few pieces as their processing allows.
    pub fn process(&mut self, termios: &Termios, bytes: &[u8], out: &mut impl FnMut(&[u8])) {
        let returns = termios.oflag & (OPOST | ONLRET) == OPOST | ONLRET;
        if termios.oflag & OPOST == 0 {
            for &byte in bytes {
                self.advance(byte, returns);
            }
            if !bytes.is_empty() {
                out(bytes);
            }
            return;
        }
        let mut start = 0;
        for (index, &byte) in bytes.iter().enumerate() {
            let replacement: Option<&[u8]> = match byte {
                b'\n' if termios.oflag & ONLCR != 0 => Some(b"\r\n"),
                b'\r' if termios.oflag & ONOCR != 0 && self.column == 0 => Some(b""),
                b'\r' if termios.oflag & OCRNL != 0 => Some(b"\n"),
                b'\t' if termios.oflag & TABDLY == XTABS => {
                    Some(&b"        "[..8 - (self.column & 7)])
                }
                _ if termios.oflag & OLCUC != 0 && byte.is_ascii_lowercase() => None,
                _ => {
                    self.advance(byte, returns);
                    continue;
                }
            };
            if start < index {
                out(&bytes[start..index]);
            }
            start = index + 1;
            match replacement {
                Some(replaced) => {
                    for &byte in replaced {
                        self.advance(byte, returns);
                    }
                    if !replaced.is_empty() {
                        out(replaced);
                    }
                }
                None => {
                    self.advance(byte, returns);
                    out(&[byte.to_ascii_uppercase()]);
                }
            }
        }
        if start < bytes.len() {
            out(&bytes[start..]);
        }
    }

    fn advance(&mut self, byte: u8, newline_returns: bool) {
        match byte {
            b'\r' => self.column = 0,
            b'\n' if newline_returns => self.column = 0,
            b'\n' => {}
            8 => self.column = self.column.saturating_sub(1),
            b'\t' => self.column = (self.column | 7) + 1,
            // Continuation bytes of UTF-8 take no column; control characters move nothing.
            0x80..=0xbf => {}
            _ if byte < 0x20 || byte == 0x7f => {}
            _ => self.column = self.column.saturating_add(1),
        }
    }
}
