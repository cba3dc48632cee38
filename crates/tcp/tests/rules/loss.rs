//! Loss, and how it is repaired.

use super::*;

#[test]
fn timeouts_double() {
    open(
        "write 100
        > P. 1:101
        +201
        > P. 1:101
        +401
        > P. 1:101
        +801
        > P. 1:101
        < . 1:1 ack 101 win 65535
        no deadline
        write 100
        > P. 101:201",
    );
}

#[test]
fn data_are_given_up_after_924_seconds() {
    // tcp_retries2 = 15: the boundary of 924.6 s is looked at when the timer fires.
    open("write 100\n+924000\nno error\nno event FAILED\n+120000\nevent FAILED\nerror TimedOut");
}

#[test]
fn the_user_timeout_is_kept() {
    open("patience 5000\nwrite 100\n+4000\nno event FAILED\n+3000\nevent FAILED\nerror TimedOut");
}

#[test]
fn the_user_timeout_does_not_wait_for_the_next_attempt() {
    // `tcp_clamp_rto_to_user_timeout`: attempts at 200, 600, 1400 and 3000 ms, then at the end.
    open("patience 5000\nwrite 100\n+4950\nno event FAILED\n+100\nevent FAILED\nerror TimedOut");
}

#[test]
fn the_user_timeout_of_a_closed_window_does_not_wait_either() {
    // `tcp_clamp_probe0_to_user_timeout`; it counts from the first probe.
    open(
        "patience 5000
        < . 1:1 ack 1 win 0
        write 100
        +5150
        no event FAILED
        +100
        event FAILED
        error TimedOut",
    );
}

#[test]
fn the_error_of_a_router_is_told_in_the_end() {
    open("patience 5000\nwrite 100\nunreachable 1\n+9000\nerror HostUnreachable");
}

#[test]
fn three_duplicates_without_sack() {
    // RFC 5681, 3.2; new data after each duplicate are RFC 3042.
    open(
        "write 10000
        > . 1:1001
        > . 1001:2001
        > . 2001:3001
        > . 3001:4001
        > . 4001:5001
        > . 5001:6001
        > . 6001:7001
        > . 7001:8001
        > . 8001:9001
        > P. 9001:10001
        write 5000
        quiet
        < . 1:1 ack 1 win 65535
        > . 10001:11001
        < . 1:1 ack 1 win 65535
        > . 11001:12001
        quiet
        < . 1:1 ack 1 win 65535
        > . 1:1001
        quiet",
    );
}

#[test]
fn a_partial_acknowledgement_without_sack_repairs_the_next_hole() {
    // RFC 6582.
    open(
        "nodelay on
        write 6000
        > . 1:1001
        > . 1001:2001
        > . 2001:3001
        > . 3001:4001
        > . 4001:5001
        > P. 5001:6001
        < . 1:1 ack 1 win 65535
        < . 1:1 ack 1 win 65535
        < . 1:1 ack 1 win 65535
        > . 1:1001
        < . 1:1 ack 2001 win 65535
        > . 2001:3001
        quiet
        < . 1:1 ack 6001 win 65535
        quiet
        no deadline",
    );
}

#[test]
fn sack_repairs_what_is_missing_only() {
    modern(
        "write 6000
        > . 1:1001
        > . 1001:2001
        > . 2001:3001
        > . 3001:4001
        > . 4001:5001
        > P. 5001:6001
        +20
        < . 1:1 ack 1 win 65535 sack 1001-2001
        quiet
        < . 1:1 ack 1 win 65535 sack 1001-2001,3001-4001
        quiet
        < . 1:1 ack 1 win 65535 sack 1001-2001,3001-5001
        > . 1:1001
        < . 1:1 ack 2001 win 65535 sack 3001-6001
        > . 2001:3001
        < . 1:1 ack 6001 win 65535
        quiet
        no deadline",
    );
}

#[test]
fn reordering_is_given_a_quarter_of_a_round_trip() {
    // RFC 8985: one segment overtook; nothing is lost before min_rtt / 4.
    modern(
        "write 1000
        > P. 1:1001
        +20
        < . 1:1 ack 1001 win 65535
        write 2000
        > . 1001:2001
        > P. 2001:3001
        +20
        < . 1:1 ack 1001 win 65535 sack 2001-3001
        quiet
        +4
        quiet
        +2
        > . 1001:2001",
    );
}

#[test]
fn a_tail_loss_probe_comes_before_the_timeout() {
    modern(
        "write 1000
        > P. 1:1001
        +20
        < . 1:1 ack 1001 win 65535
        write 3000
        > . 1001:2001
        > . 2001:3001
        > P. 3001:4001
        +43
        > P. 3001:4001
        +20
        < . 1:1 ack 1001 win 65535 sack 3001-4001
        +10
        > . 1001:2001",
    );
}

#[test]
fn everything_is_lost_after_a_timeout_and_comes_in_slow_start() {
    modern(
        "write 3000
        > . 1:1001
        > . 1001:2001
        > P. 2001:3001
        +43
        > P. 2001:3001               # the tail loss probe
        +221
        > . 1:1001
        quiet
        < . 1:1 ack 1001 win 65535
        > . 1001:2001
        > P. 2001:3001",
    );
}

#[test]
fn the_path_shrinks() {
    modern(
        "write 3000
        > . 1:1001
        > . 1001:2001
        > P. 2001:3001
        mss 500
        > . 1:501
        > . 501:1001
        > . 1001:1501
        > . 1501:2001
        > . 2001:2501
        > P. 2501:3001
        < . 1:1 ack 3001 win 65535
        write 700
        > . 3001:3501
        > P. 3501:3701",
    );
}

#[test]
fn a_peer_that_closes_its_window_and_answers_lives() {
    let mut script = "write 100\n> P. 1:101\n".to_string();
    for time in [201, 401, 801, 1601, 3201, 6401, 12801, 25601, 51201, 102_401] {
        script += &format!("< . 1:1 ack 1 win 0\n+{time}\n> P. 1:101\n");
    }
    for _ in 0..20 {
        script += "< . 1:1 ack 1 win 0\n+120001\n> P. 1:101\n";
    }
    script += "state Established
        < . 1:1 ack 1 win 500
        > P. 1:101                   # at once
        < . 1:1 ack 101 win 500
        no deadline";
    open(&script);
}
