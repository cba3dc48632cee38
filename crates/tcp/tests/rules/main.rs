//! Rules of RFCs and of Linux, each as a script; `common/script.rs` explains the language.

#[path = "../common/mod.rs"]
mod common;

mod attacks;
mod data;
mod ends;
mod handshake;
mod loss;
mod memory;

use common::script::{bare, plain, run};
use hayate_tcp::{Config, SECOND};

/// The handshake of an active open with nothing but an MSS.
const OPEN: &str = "
    connect
    > S 0:0 mss 1460
    < S. 0:0 ack 1 win 65535 mss 1000
    > . 1:1 ack 1
    event CONNECTED
    state Established
    quiet
";

fn opened(config: Config, script: &str) {
    run(config, &format!("{OPEN}{script}"));
}

fn open(script: &str) {
    opened(bare(), script);
}

/// With SACK and window scaling, and a round trip of 20 milliseconds in the handshake.
fn modern(script: &str) {
    let config = Config { timestamps: false, ..Config::default() };
    let head = "
        connect
        > S 0:0 mss 1460 sackok wscale 6
        +20
        < S. 0:0 ack 1 win 65535 mss 1000 sackok wscale 0
        > . 1:1 ack 1
    ";
    run(config, &format!("{head}{script}"));
}
