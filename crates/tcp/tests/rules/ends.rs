//! How connections end.

use super::*;

#[test]
fn we_close_first() {
    open(
        "close
        > F. 1:1 ack 1
        state FinWait1
        < . 1:1 ack 2 win 65535
        state FinWait2
        < F. 1:1 ack 2 win 65535
        > . 2:2 ack 2
        state TimeWait
        event TIME_WAIT
        no deadline",
    );
}

#[test]
fn the_peer_closes_first() {
    open(
        "< F. 1:1 ack 1 win 65535
        > . 1:1 ack 2
        event PEER_CLOSED
        state CloseWait
        end
        write 10
        > P. 1:11 ack 2
        close
        > F. 11:11 ack 2
        state LastAck
        < . 2:2 ack 12 win 65535
        state Closed
        event CLOSED
        no error",
    );
}

#[test]
fn both_close() {
    open(
        "close
        > F. 1:1 ack 1
        < F. 1:1 ack 1 win 65535
        > . 2:2 ack 2
        state Closing
        < . 2:2 ack 2 win 65535
        state TimeWait",
    );
}

#[test]
fn a_fin_goes_with_the_last_data_and_again_with_them() {
    open(
        "cork on
        write 10
        shutdown
        > PF. 1:11 ack 1
        +201
        > PF. 1:11 ack 1
        < . 1:1 ack 12 win 65535
        state FinWait2
        event DRAINED
        no deadline                  # a program has it: FIN-WAIT-2 may last
        close
        +60000
        state Closed
        event CLOSED",
    );
}

#[test]
fn unread_data_are_reset() {
    // RFC 2525, 2.17.
    open("< P. 1:11 ack 1 win 65535\n> . 1:1 ack 11\nclose\n> R. 1:1 ack 11\nstate Closed");
}

#[test]
fn data_for_nobody_are_reset() {
    open("close\n> F. 1:1\n< P. 1:11 ack 2 win 65535\n> R. 2:2\nstate Closed\nevent CLOSED");
}

#[test]
fn a_fin_out_of_order_waits() {
    open(
        "< F. 11:21 ack 1 win 65535
        > . 1:1 ack 1
        state Established
        < . 1:11 ack 1 win 65535
        > . 1:1 ack 22
        state CloseWait
        read 20
        end",
    );
}

#[test]
fn an_orphan_gives_up_sooner() {
    // tcp_orphan_retries: 8 timeouts, 102.2 s.
    open("write 10\nclose\n+102000\nno event CLOSED\n+110000\nevent CLOSED");
}

#[test]
fn an_aborted_connection_tells_the_peer() {
    open("write 10\n> P. 1:11\nabort\n> R. 11:11\nstate Closed\nno deadline");
    plain("connect\n> S 0:0\nabort\nquiet\nno deadline");
}

#[test]
fn keepalive() {
    open(
        "keepalive 5000 1000 2
        +4999
        quiet
        +1
        > . 0:0 ack 1
        < . 1:1 ack 1 win 65535
        +4999
        quiet
        +1
        > . 0:0
        +1000
        > . 0:0
        +1000
        > R. 1:1
        error TimedOut",
    );
}

#[test]
fn a_keepalive_probe_is_answered() {
    open("< . 0:0 ack 1 win 65535\n> . 1:1 ack 1\nquiet");
}

#[test]
fn fin_wait_2_of_an_orphan_ends() {
    opened(
        Config { fin_timeout: 3 * SECOND, ..bare() },
        "close
        > F. 1:1
        < . 1:1 ack 2 win 65535
        +2999
        state FinWait2
        +1
        state Closed",
    );
}
