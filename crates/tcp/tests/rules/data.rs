//! Data, windows and acknowledgements.

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
fn a_device_that_has_not_sent_much_holds_the_rest_back() {
    opened(
        Config { segment_limit: 4500, ..bare() },
        "nodelay on
        below 0
        write 9300
        > . 1:4001
        > . 4001:8001
        waits 8000
        below 8000
        < . 1:1 ack 2001 win 65535   # it came, but the device has not told of it yet
        quiet
        waits 8000
        below 4000
        transmit
        > P. 8001:9301
        no wait",
    );
}

#[test]
fn with_nothing_in_flight_a_segment_goes_to_any_device() {
    opened(
        Config { segment_limit: 4500, ..bare() },
        "nodelay on
        below 0
        write 8000
        > . 1:4001
        > P. 4001:8001
        no wait
        below 8000
        < . 1:1 ack 8001 win 65535
        write 8000
        > . 8001:12001
        quiet
        waits 8000
        below 0                      # now it tells
        transmit
        > P. 12001:16001",
    );
}

#[test]
fn what_is_sent_again_waits_for_the_device_too() {
    run(
        Config { segment_limit: 4500, sack: true, ..bare() },
        "connect
        > S 0:0
        < S. 0:0 ack 1 win 65535 mss 1000 sackok
        > . 1:1
        nodelay on
        below 0
        write 8000
        > . 1:4001
        > P. 4001:8001
        below 8000
        < . 1:1 ack 1 win 65535 sack 4001-8001
        +20
        quiet
        waits 8000
        below 4000
        transmit
        > . 1:4001",
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
