//! Rules of RFCs and of Linux, each as a script; `common/script.rs` explains the language.

mod common;

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

mod handshake {
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
        plain(
            "connect\n> S 0:0\nunreachable 99\nstate SynSent\nunreachable 0\nerror HostUnreachable",
        );
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
}

mod data {
    use super::*;

    #[test]
    fn nagle_holds_back_a_second_small_segment() {
        open(
            "write 10
            > P. 1:11
            write 10
            quiet
            < . 1:1 ack 11 win 65535
            > P. 11:21
            nodelay on
            write 10
            > P. 21:31",
        );
    }

    #[test]
    fn a_full_segment_goes_and_its_tail_waits() {
        open(
            "write 500
            > P. 1:501
            write 1200
            > . 501:1501
            quiet
            < . 1:1 ack 1501 win 65535
            > P. 1501:1701",
        );
    }

    #[test]
    fn a_corked_rest_goes_after_200_milliseconds() {
        open(
            "cork on
            write 1500
            > . 1:1001
            < . 1:1 ack 1001 win 65535
            quiet
            +199
            quiet
            +2
            > P. 1001:1501
            write 10
            quiet
            cork off
            < . 1:1 ack 1501 win 65535
            > P. 1501:1511",
        );
    }

    #[test]
    fn more_is_like_cork_for_one_write() {
        open("more on\nwrite 10\nquiet\nmore off\nwrite 10\n> P. 1:21");
    }

    #[test]
    fn large_segments_are_whole_multiples() {
        opened(
            Config { segment_limit: 4500, ..bare() },
            "nodelay on
            write 9300
            > . 1:4001
            > . 4001:8001
            > P. 8001:9301",
        );
    }

    #[test]
    fn the_window_bounds_and_probes_find_it_open() {
        open(
            "< . 1:1 ack 1 win 1500
            write 3000
            > . 1:1001
            quiet                        # 500 bytes of window would be a silly segment
            < . 1:1 ack 1001 win 0
            quiet
            +201
            > . 1000:1000 ack 1          # a probe: an old number
            < . 1:1 ack 1001 win 0
            +401
            > . 1000:1000
            +801
            > . 1000:1000
            < . 1:1 ack 1001 win 4000
            > . 1001:2001
            > P. 2001:3001",
        );
    }

    #[test]
    fn a_window_that_stays_small_gets_what_fits() {
        open(
            "< . 1:1 ack 1 win 1500
            write 3000
            > . 1:1001
            < . 1:1 ack 1001 win 300
            quiet
            +201
            > . 1001:1301",
        );
    }

    #[test]
    fn window_probes_without_an_answer_end() {
        opened(
            Config { retries: 3, ..bare() },
            "< . 1:1 ack 1 win 0
            write 10
            +10000
            > . 0:0
            > . 0:0
            > . 0:0
            quiet
            event FAILED
            error TimedOut",
        );
    }

    #[test]
    fn the_first_segments_are_acknowledged_at_once_then_every_second() {
        let mut script = String::new();
        for index in 0..16 {
            let (from, to) = (1 + 1000 * index, 1001 + 1000 * index);
            script += &format!("< . {from}:{to} ack 1 win 65535\n > . 1:1 ack {to}\n");
            if index % 4 == 3 {
                script += "read 4000\n";
            }
        }
        script += "< . 16001:17001 ack 1 win 65535
            quiet
            < . 17001:18001 ack 1 win 65535
            > . 1:1 ack 18001
            < . 18001:19001 ack 1 win 65535
            quiet
            +39
            quiet
            +1
            > . 1:1 ack 19001";
        opened(Config { receive_limit: 65535, ..bare() }, &script);
    }

    #[test]
    fn an_answer_carries_the_acknowledgement() {
        open(
            "< P. 1:11 ack 1 win 65535
            > . 1:1 ack 11               # quick acknowledgements at the beginning
            read 10
            write 10
            > P. 1:11 ack 11
            < P. 11:21 ack 11 win 65535
            quiet                        # a conversation: the answer is awaited
            read 10
            quiet
            write 10
            > P. 11:21 ack 21
            < P. 21:31 ack 21 win 65535
            +40
            > . 21:21 ack 31",
        );
    }

    #[test]
    fn a_full_buffer_closes_the_window_and_reading_opens_it() {
        opened(
            Config { receive_limit: 2000, receive_limit_max: 2000, ..bare() },
            "< . 1:1001 ack 1 win 65535
            > . 1:1 ack 1001 win 1000
            < . 1001:2001 ack 1 win 65535
            > . 1:1 ack 2001 win 0
            < . 2001:2011 ack 1 win 65535     # beyond the window
            > . 1:1 ack 2001 win 0
            read 100
            quiet                             # silly window avoidance
            read 900
            > . 1:1 ack 2001 win 1000
            read 1000
            > . 1:1 ack 2001 win 2000",
        );
    }

    #[test]
    fn out_of_order_data_are_kept_and_reported() {
        modern(
            "< . 1001:2001 ack 1 win 65535
            > . 1:1 ack 1 sack 1001-2001
            < . 3001:4001 ack 1 win 65535
            > . 1:1 ack 1 sack 3001-4001,1001-2001
            < . 2001:2501 ack 1 win 65535
            > . 1:1 ack 1 sack 1001-2501,3001-4001
            < . 1001:2001 ack 1 win 65535
            > . 1:1 ack 1 sack 1001-2001,1001-2501,3001-4001
            available 0
            < . 1:1001 ack 1 win 65535
            > . 1:1 ack 2501 sack 3001-4001
            < . 2001:3001 ack 1 win 65535
            > . 1:1 ack 4001 sack 2001-2501
            < . 1:1001 ack 1 win 65535
            > . 1:1 ack 4001 sack 1-1001
            read 4000",
        );
    }

    #[test]
    fn urgent_data() {
        open(
            "< PU. 1:11 ack 1 win 65535 urg 10
            > . 1:1 ack 11
            event URGENT
            available 9
            no mark
            read 9
            mark
            urgent 10
            no urgent                    # once
            < P. 11:21 ack 1 win 65535
            > . 1:1 ack 21
            read 10",
        );
        open(
            "inline on
            < PU. 1:11 ack 1 win 65535 urg 10
            > . 1:1 ack 11
            available 10
            read 9
            mark
            read 1
            no mark",
        );
        // The mark comes before its byte.
        open(
            "< U. 1:1 ack 1 win 65535 urg 5
            event URGENT
            no urgent
            < P. 1:11 ack 1 win 65535
            > . 1:1 ack 11
            peek 4
            read 4
            urgent 5
            read 5",
        );
    }

    #[test]
    fn urgent_data_are_sent_with_a_pointer_behind_them() {
        open(
            "oob 10
            > PU. 1:11 urg 10
            write 10
            > P. 11:21
            < . 1:1 ack 11 win 65535
            write 10
            quiet",
        );
    }
}

mod loss {
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
        open(
            "write 100\n+924000\nno error\nno event FAILED\n+120000\nevent FAILED\nerror TimedOut",
        );
    }

    #[test]
    fn the_user_timeout_is_kept() {
        open(
            "patience 5000\nwrite 100\n+4000\nno event FAILED\n+3000\nevent FAILED\nerror TimedOut",
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
}

mod attacks {
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
        open(
            "< S 1:1 win 100\n> . 1:1 ack 1\nstate Established\n+600\n< S 500:500 win 100\n> . 1:1",
        );
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
}

mod ends {
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
}
