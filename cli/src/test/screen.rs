//! A screen and a keyboard, on the master's side of a pseudo-terminal.

use anyhow::{Result, bail};
use rustix::termios::Winsize;
use std::fs::File;
use std::io::{Read, Write};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Makes a pseudo-terminal of this size; returns the master's side, and the path of the other.
pub(super) fn terminal(rows: u16, columns: u16) -> Result<(File, String)> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&master, size)?;
    Ok((File::from(master), name.to_str()?.to_string()))
}

/// The screen's content, read by a thread.
pub(super) struct Screen {
    keyboard: File,
    pieces: Receiver<Vec<u8>>,
    seen: String,
    all: String,
}

impl Screen {
    /// The screen of the terminal that `master` leads.
    pub(super) fn new(master: File) -> Result<Screen> {
        let keyboard = master.try_clone()?;
        let (sender, pieces) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut master = master;
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = master.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Ok(Screen { keyboard, pieces, seen: String::new(), all: String::new() })
    }

    /// Types these keys.
    pub(super) fn keys(&mut self, keys: &str) -> Result<()> {
        Ok(self.keyboard.write_all(keys.as_bytes())?)
    }

    /// Waits for a text, and discards everything up to its end.
    pub(super) fn until(&mut self, text: &str) -> Result<()> {
        let began = Instant::now();
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return Ok(());
            }
            let left = Duration::from_secs(60).saturating_sub(began.elapsed());
            match self.pieces.recv_timeout(left) {
                Ok(piece) => {
                    let piece = String::from_utf8_lossy(&piece).into_owned();
                    self.seen.push_str(&piece);
                    self.all.push_str(&piece);
                }
                Err(_) => bail!("waited for {text:?}; on the screen is:\n{}", self.all),
            }
        }
    }
}
