//! Segments that an attacker may send.

use super::*;

#[test]
fn only_an_exact_reset_is_believed() {
    // RFC 5961, 3.2.
    open(
        "< R 5000:5000 win 0
        > . 1:1 ack 1                # a challenge
        < R 5001:5001 win 0
        quiet                        # no more than one in half a second
        < R 90000:90000 win 0
        state Established
        < R 1:1 win 0
        state Closed
        error Reset",
    );
}

#[test]
fn a_syn_is_challenged() {
    // RFC 5961, 4.2.
    open("< S 1:1 win 100\n> . 1:1 ack 1\nstate Established\n+600\n< S 500:500 win 100\n> . 1:1");
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_is_challenged() {
    // RFC 5961, 5.2.
    open(
        "< P. 1:11 ack 100 win 9\n> . 1:1 ack 1\navailable 0\n+600\n< . 1:1 ack 4294800000 win 9\n> . 1:1",
    );
}

#[test]
fn old_timestamps_are_refused() {
    // RFC 7323, 5.3.
    run(
        Config::default(),
        "connect
        > S 0:0
        < S. 0:0 ack 1 win 1000 mss 1460 ts 700 100000
        > . 1:1 ack 1 ts 100000 700
        < P. 1:11 ack 1 win 1000 ts 699 100000
        > . 1:1 ack 1
        available 0
        < P. 1:11 ack 1 win 1000 ts 701 100000
        > . 1:1 ack 11 ts 100000 701
        available 10",
    );
}

#[test]
fn a_lying_sack_changes_nothing() {
    modern(
        "write 1000
        > P. 1:1001
        < . 1:1 ack 1 win 65535 sack 5000-9000
        < . 1:1 ack 1 win 65535 sack 900-200
        quiet
        < . 1:1 ack 1001 win 65535
        no deadline",
    );
}
