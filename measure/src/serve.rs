//! The other end of the network experiments: `measure serve`, and the same code in a child process
//! for loopback.
//!
//! A TCP connection begins with one byte. [`ECHO`] sends back messages of [`MESSAGE`] bytes.
//! [`SINK`] takes a length of eight bytes (little-endian) and that many bytes, and answers with one
//! byte. [`SOURCE`] takes such a length and sends that many bytes. Closing without a byte is
//! allowed. UDP datagrams are sent back unchanged.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// Bytes in a message.
pub const MESSAGE: usize = 32;
/// Command: echo.
pub const ECHO: u8 = b'e';
/// Command: take bulk data.
pub const SINK: u8 = b's';
/// Command: send bulk data.
pub const SOURCE: u8 = b'd';
/// A connection without data for this long is closed.
const IDLE: Duration = Duration::from_secs(60);

/// Serves both sockets until the process is ended; returns an exit status.
pub fn serve(tcp: TcpListener, udp: UdpSocket) -> i32 {
    let echo_datagrams = std::thread::Builder::new().spawn(move || {
        let mut datagram = [0; 2048];
        while let Ok((len, from)) = udp.recv_from(&mut datagram) {
            // A datagram may be lost; the other side sends again or gives up.
            let _ = udp.send_to(&datagram[..len], from);
        }
    });
    if let Err(error) = echo_datagrams {
        eprintln!("measure: serving UDP: {error}");
    }
    for stream in tcp.incoming().flatten() {
        if let Err(error) = std::thread::Builder::new().spawn(move || answer(stream)) {
            eprintln!("measure: serving a connection: {error}");
        }
    }
    1
}

fn answer(mut stream: TcpStream) {
    let prepared = stream.set_nodelay(true).and(stream.set_read_timeout(Some(IDLE)));
    let mut command = [0];
    if prepared.is_err() || stream.read_exact(&mut command).is_err() {
        return;
    }
    match command[0] {
        ECHO => echo(stream),
        SINK => sink(stream),
        SOURCE => source(stream),
        _ => 0,
    };
}

/// Sends messages back until the other side closes.
pub fn echo(mut stream: impl Read + Write) -> i32 {
    let mut message = [0; MESSAGE];
    while stream.read_exact(&mut message).is_ok() && stream.write_all(&message).is_ok() {}
    0
}

/// Takes announced numbers of bytes until the other side closes.
pub fn sink(mut stream: impl Read + Write) -> i32 {
    let mut buffer = vec![0; 256 << 10];
    let mut length = [0; 8];
    while stream.read_exact(&mut length).is_ok() {
        let mut left = u64::from_le_bytes(length);
        while left > 0 {
            let part = left.min(buffer.len() as u64) as usize;
            match stream.read(&mut buffer[..part]) {
                Ok(0) | Err(_) => return 1,
                Ok(n) => left -= n as u64,
            }
        }
        if stream.write_all(&[1]).is_err() {
            return 1;
        }
    }
    0
}

/// Sends announced numbers of bytes until the other side closes.
fn source(mut stream: impl Read + Write) -> i32 {
    let buffer = vec![7; 128 << 10];
    let mut length = [0; 8];
    while stream.read_exact(&mut length).is_ok() {
        let mut left = u64::from_le_bytes(length);
        while left > 0 {
            let part = left.min(buffer.len() as u64) as usize;
            if stream.write_all(&buffer[..part]).is_err() {
                return 1;
            }
            left -= part as u64;
        }
    }
    0
}
