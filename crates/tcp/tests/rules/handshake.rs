//! How connections begin.

use super::*;

#[test]
fn active() {
    open("no deadline");
}

#[test]
fn passive() {
    plain(
        "listen
        < S 0:0 win 1000 mss 500
        > S. 0:0 ack 1 mss 1460
        state SynReceived
        < . 1:1 ack 1 win 1000
        state Established
        event CONNECTED
        < P. 1:11 ack 1 win 1000
        > . 1:1 ack 11
        read 10",
    );
}

#[test]
fn data_with_the_last_segment_of_the_handshake() {
    plain(
        "listen
        < S 0:0 win 1000 mss 500
        > S. 0:0 ack 1
        < P. 1:11 ack 1 win 1000
        state Established
        > . 1:1 ack 11
        read 10",
    );
}

#[test]
fn simultaneous() {
    // RFC 9293, figure 7.
    plain(
        "connect
        > S 0:0
        < S 0:0 win 1000 mss 1000
        > S. 0:0 ack 1
        state SynReceived
        < S. 0:0 ack 1 win 1000 mss 1000
        state Established
        event CONNECTED
        write 10
        > P. 1:11 ack 1",
    );
}

#[test]
fn syn_is_sent_again_six_times() {
    // 1 + 2 + 4 + ... + 64 s (tcp_syn_retries).
    plain(
        "connect
        > S 0:0
        +1000
        > S 0:0
        +2000
        > S 0:0
        +4000
        > S 0:0
        +8000
        > S 0:0
        +16000
        > S 0:0
        +32000
        > S 0:0
        quiet
        +63999
        no error
        +1
        quiet
        event CLOSED
        error TimedOut",
    );
}

#[test]
fn refused() {
    plain(
        "connect
        > S 0:0
        < R. 0:0 ack 7 win 0         # not our number
        quiet
        state SynSent
        < R. 0:0 ack 1 win 0
        quiet
        state Closed
        error Refused",
    );
}

#[test]
fn a_wrong_acknowledgement_is_reset() {
    plain(
        "connect
        > S 0:0
        < S. 0:0 ack 9 win 100
        > R 9:9
        state SynSent",
    );
}

#[test]
fn syn_again_is_answered_again() {
    plain(
        "listen
        < S 0:0 win 1000 mss 500
        > S. 0:0 ack 1
        +10
        < S 0:0 win 1000 mss 500
        > S. 0:0 ack 1
        +10
        < S 0:0 win 1000 mss 500     # not each of a flood
        quiet
        < . 1:1 ack 5 win 1000
        > R 5:5
        state SynReceived",
    );
}

#[test]
fn unreachable_ends_the_attempt_only() {
    plain("connect\n> S 0:0\nunreachable 99\nstate SynSent\nunreachable 0\nerror HostUnreachable");
    open("write 10\n> P. 1:11\nunreachable 1\nstate Established\nno error");
}

#[test]
fn data_written_before_the_handshake_follow_it() {
    plain(
        "connect
        > S 0:0
        write 10
        quiet
        < S. 0:0 ack 1 win 100 mss 1000
        > P. 1:11 ack 1",
    );
}

#[test]
fn options_are_used_when_both_have_them() {
    let script = "connect
        > S 0:0 mss 1460 wscale 6 sackok ts 100000 0
        < S. 0:0 ack 1 win 65535 mss 1460 wscale 2 sackok ts 7 100000
        > . 1:1 ack 1 win 1024 ts 100000 7
        write 3000
        > . 1:1449 ts 100000 7
        > . 1449:2897
        > P. 2897:3001               # Minshall: no other small segment is in flight
        quiet";
    run(Config::default(), script);
}
