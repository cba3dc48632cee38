//! The memory that all connections share is scarce.

use super::*;

#[test]
fn a_receiver_under_pressure_takes_little_and_goes_on() {
    // A piece costs 4096 bytes here, whatever it shows.
    open(
        "pressure shared
        < P. 1:11 ack 1 win 65535
        > . 1:1 ack 11
        < P. 11:21 ack 1 win 65535
        > . 1:1 ack 21
        < P. 21:31 ack 1 win 65535
        > . 1:1 ack 31
        < P. 31:41 ack 1 win 65535
        > . 1:1 ack 41
        < P. 41:51 ack 1 win 65535
        > . 1:1 ack 41 win 0         # refused
        available 40
        read 40
        > . 1:1 ack 41               # the window opens again
        < P. 41:51 ack 1 win 65535
        > . 1:1 ack 51
        available 10",
    );
}

#[test]
fn one_segment_is_taken_however_large_it_is() {
    open(
        "pressure shared
        < P. 1:30001 ack 1 win 65535
        > . 1:1 ack 30001
        available 30000",
    );
}

#[test]
fn nothing_is_taken_when_memory_is_exhausted() {
    open(
        "pressure exhausted
        < P. 1:11 ack 1 win 65535
        > . 1:1 ack 1 win 0
        available 0
        pressure none
        < P. 1:11 ack 1 win 65535
        > . 1:1 ack 11
        available 10",
    );
}

#[test]
fn a_sender_under_pressure_queues_little_and_goes_on() {
    open(
        "sndbuf 60000
        room 60000
        pressure shared
        room 4096
        write 4096
        > . 1:1001
        > . 1001:2001
        > . 2001:3001
        > . 3001:4001
        room 0
        < . 1:1 ack 4001 win 65535
        event WRITABLE
        pressure none
        event WRITABLE",
    );
}
