use super::*;
use hayate_fuzzing::Random;

const ALL: u64 = u64::MAX;

fn header(flags: u8, kind: u8, words: [u16; 5]) -> [u8; HEADER] {
    let mut header = [flags, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for (at, word) in words.iter().enumerate() {
        header[2 + 2 * at..][..2].copy_from_slice(&word.to_le_bytes());
    }
    header
}

#[test]
fn features_come_with_what_they_need() {
    use feature::*;
    let all = choose(ALL);
    for (one, needed) in [
        (HOST_TSO4, CSUM),
        (HOST_TSO6, CSUM),
        (GUEST_TSO4, GUEST_CSUM),
        (GUEST_TSO6, GUEST_CSUM),
        (GUEST_TSO4, MRG_RXBUF),
        (CTRL_RX, CTRL_VQ),
        (MQ, CTRL_VQ),
        (CTRL_MAC_ADDR, CTRL_VQ),
    ] {
        assert!(all & one != 0 && all & needed != 0);
        assert_eq!(choose(ALL & !needed) & one, 0, "{one:#x} without {needed:#x}");
    }
    // Never asked for: fragments of UDP to the host (bit 14) and to the guest (bit 10).
    assert_eq!(all & (1 << 14 | 1 << 10), 0);
    assert_eq!(choose(0), 0);
}

#[test]
fn a_plain_frame_is_plain() {
    let plain = Received { checksum: Checksum::Unknown, segments: None };
    assert_eq!(read(&[0; HEADER], 60, 0), Ok(plain));
    assert_eq!(write(&Sent::default(), 60, 0), Ok([0; HEADER]));
    assert_eq!(buffers(&header(0, 0, [0, 0, 0, 0, 7]), 0), 1);
    assert_eq!(buffers(&header(0, 0, [0, 0, 0, 0, 7]), feature::MRG_RXBUF), 7);
}

#[test]
fn what_is_written_is_what_is_read() {
    let segments = Segments { protocol: Protocol::Tcp6, size: 1428 };
    let partial = Partial { start: 54, offset: 16 };
    let sent = Sent { checksum: Some(partial), segments: Some((segments, 74)) };
    let written = write(&sent, 9000, choose(ALL)).unwrap();
    assert_eq!(written, header(1, 4, [74, 1428, 54, 16, 0]));
    let received = Received { checksum: Checksum::Partial(partial), segments: Some(segments) };
    assert_eq!(read(&written, 9000, choose(ALL)), Ok(received));
}

#[test]
fn what_was_not_negotiated_is_not_believed() {
    let verified = header(2, 0, [0; 5]);
    assert_eq!(read(&verified, 60, ALL).unwrap().checksum, Checksum::Verified);
    assert_eq!(read(&verified, 60, 0).unwrap().checksum, Checksum::Unknown);
    let joined = header(1, 1, [54, 1460, 34, 16, 0]);
    assert!(read(&joined, 9000, ALL).is_ok());
    assert_eq!(read(&joined, 9000, ALL & !feature::GUEST_TSO4), Err(Invalid));
}

#[test]
fn what_is_no_header_is_refused() {
    // A checksum that ends behind the frame; it fits a frame that is longer by one byte.
    assert_eq!(read(&header(1, 0, [0, 0, 34, 16, 0]), 51, ALL), Err(Invalid));
    assert!(read(&header(1, 0, [0, 0, 34, 16, 0]), 52, ALL).is_ok());
    assert_eq!(read(&header(1, 0, [0, 0, u16::MAX, u16::MAX, 0]), 60, ALL), Err(Invalid));
    // Segments without a size, of UDP, with marks of congestion.
    assert_eq!(read(&header(1, 1, [54, 0, 34, 16, 0]), 9000, ALL), Err(Invalid));
    assert_eq!(read(&header(1, 3, [42, 1400, 34, 6, 0]), 9000, ALL), Err(Invalid));
    assert_eq!(read(&header(1, 0x81, [54, 1460, 34, 16, 0]), 9000, ALL), Err(Invalid));
}

#[test]
fn what_a_device_cannot_do_is_not_asked() {
    let partial = Partial { start: 34, offset: 16 };
    let segments = Segments { protocol: Protocol::Tcp4, size: 1460 };
    let whole = Sent { checksum: Some(partial), segments: Some((segments, 54)) };
    assert!(write(&whole, 4000, ALL).is_ok());
    assert_eq!(write(&whole, 4000, ALL & !feature::HOST_TSO4), Err(Invalid));
    assert_eq!(write(&whole, 4000, ALL & !feature::CSUM), Err(Invalid));
    assert_eq!(write(&whole, 51, ALL), Err(Invalid));
    assert_eq!(write(&Sent { checksum: None, ..whole }, 4000, ALL), Err(Invalid));
    let none = Segments { size: 0, ..segments };
    assert_eq!(write(&Sent { segments: Some((none, 54)), ..whole }, 4000, ALL), Err(Invalid));
    assert_eq!(write(&Sent { segments: Some((segments, 4001)), ..whole }, 4000, ALL), Err(Invalid));
}

/// Whatever a device writes, the result of [`read`] lies inside of the frame.
#[test]
fn random_headers_stay_inside_of_the_frame() {
    let mut random = Random::new(1);
    let mut believed = 0;
    for _ in 0..200_000 {
        let mut bytes = [0; HEADER];
        bytes.iter_mut().for_each(|byte| *byte = random.below(256) as u8);
        bytes[1] &= 7;
        // Half of the offsets are small, as real ones are.
        if random.below(2) == 0 {
            (bytes[7], bytes[9]) = (0, 0);
        }
        let length = random.below(LARGEST);
        if let Ok(read) = read(&bytes, length, ALL) {
            believed += 1;
            if let Checksum::Partial(Partial { start, offset }) = read.checksum {
                assert!(usize::from(start) + usize::from(offset) + 2 <= length);
            }
            assert!(read.segments.is_none_or(|segments| segments.size > 0));
        }
    }
    assert!(believed > 10_000, "{believed}");
}
