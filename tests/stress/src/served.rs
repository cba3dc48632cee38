//! A server that has to go on while the kernel is attacked, and its client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::exit;
use std::time::Duration;

use crate::{fork, kill, wait};

/// The bytes that a client sends, and gets back.
const LENGTH: usize = 32 << 10;

/// A process that sends back what it gets over TCP. It ends with this value.
pub struct Server {
    pid: i32,
    address: SocketAddr,
}

impl Server {
    /// Starts it, on a port of the kernel's choice, with a listener of this backlog.
    ///
    /// # Errors
    /// What failed.
    pub fn start(backlog: i32) -> Result<Server, String> {
        let told = |error: std::io::Error| format!("the server cannot be started: {error}");
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(told)?;
        // SAFETY: a plain call with numbers.
        unsafe { libc::listen(listener.as_raw_fd(), backlog) };
        let address = listener.local_addr().map_err(told)?;
        match fork().map_err(told)? {
            0 => {
                for stream in listener.incoming().flatten() {
                    // A connection that cannot have a thread is closed.
                    let echo = || echo(stream);
                    let _ = std::thread::Builder::new().stack_size(1 << 16).spawn(echo);
                }
                exit(1)
            }
            pid => Ok(Server { pid, address }),
        }
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sends bytes over a new connection, which come back. The connection ends by a reset, so that
    /// nothing of it is left.
    ///
    /// # Errors
    /// What failed, or took longer than `patience`.
    pub fn ask(&self, patience: Duration) -> Result<(), String> {
        let told = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
        let connect = TcpStream::connect_timeout(&self.address, patience);
        let mut stream = connect.map_err(told("connect"))?;
        stream.set_read_timeout(Some(patience)).map_err(told("SO_RCVTIMEO"))?;
        stream.set_write_timeout(Some(patience)).map_err(told("SO_SNDTIMEO"))?;
        reset_at_end(&stream);
        let sent: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
        for piece in sent.chunks(4000) {
            stream.write_all(piece).map_err(told("send"))?;
            let mut back = vec![0; piece.len()];
            stream.read_exact(&mut back).map_err(told("receive"))?;
            if back != piece {
                return Err("other bytes came back than were sent".into());
            }
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        kill(self.pid, libc::SIGKILL);
        wait(self.pid);
    }
}

fn echo(mut stream: TcpStream) {
    let mut bytes = [0; 8192];
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        if stream.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

/// Ends a connection by a reset when it is closed, so that nothing of it is left (SO_LINGER).
pub fn reset_at_end(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let length = size_of_val(&linger) as u32;
    let (at, fd) = ((&raw const linger).cast(), stream.as_raw_fd());
    // SAFETY: the structure lives.
    unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, at, length) };
}
