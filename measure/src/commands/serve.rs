//! `measure serve`.

use crate::exit::{CANNOT_MEASURE, Failure};
use std::net::{TcpListener, UdpSocket};

/// Answers network experiments until stopped.
pub fn serve(listen: &str) -> Result<(), Failure> {
    let failed = |error| {
        Failure::new(
            CANNOT_MEASURE,
            format!("listening on {listen}: {error}; use --listen ADDRESS:PORT"),
        )
    };
    let tcp = TcpListener::bind(listen).map_err(failed)?;
    let address = tcp.local_addr().map_err(failed)?;
    let udp = UdpSocket::bind(address).map_err(failed)?;
    println!("serving on {address}, TCP and UDP; Ctrl-C ends it");
    println!("anyone who can reach this port can use up this host's network: keep it inside");
    let status = crate::serve::serve(tcp, udp);
    Err(Failure::new(CANNOT_MEASURE, format!("serving ended with status {status}")))
}
