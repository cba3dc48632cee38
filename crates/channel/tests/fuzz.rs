//! Mutated and cut streams of frames: the decoder returns frames that can be encoded again, or says
//! once that the stream is none, and holds no more than it was given.
//!
//! `FUZZ_ROUNDS` sets how many streams are tried (default 20,000) and `FUZZ_SEED` the first one.

use hayate_channel::command::{Command, PidNamespace};
use hayate_channel::frame::{Decoder, Frame, Message, Side, Stream};
use hayate_channel::relay::Relay;
use hayate_fuzzing::{Random, rounds, seed};

fn corpus(side: Side) -> Vec<Message> {
    let data = |stream| Message::Data(stream, vec![0x5a; 77]);
    match side {
        Side::Host => vec![
            Message::Open(Box::new(Command {
                arguments: vec![b"/bin/sh".to_vec(), b"-c".to_vec(), b"a=b\n\xff".to_vec()],
                environment: vec![b"TERM=xterm".to_vec()],
                directory: Some(b"/tmp".to_vec()),
                user: Some(b"nobody:4".to_vec()),
                terminal: Some((24, 80)),
                pid_namespace: Some(PidNamespace::Of(7)),
                rehearses: true,
            })),
            data(Stream::Input),
            Message::Close(Stream::Output),
            Message::Credit(Stream::Error, 9),
            Message::Signal(15),
            Message::Resize(1, 2),
            Message::Hangup,
            Message::Shutdown(3),
        ],
        Side::Guest => vec![
            Message::Hello(1),
            data(Stream::Output),
            data(Stream::Error),
            Message::Close(Stream::Input),
            Message::Credit(Stream::Input, 9),
            Message::Exit(1),
            Message::Failed(127, "there is no program".into()),
        ],
    }
}

fn stream(random: &mut Random, side: Side) -> Vec<u8> {
    let corpus = corpus(side);
    let mut bytes = Vec::new();
    for _ in 0..random.below(6) {
        let message = corpus[random.below(corpus.len())].clone();
        Frame::new(random.below(3) as u32, message).encode_to(&mut bytes);
    }
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len());
        match random.below(4) {
            0 if !bytes.is_empty() => bytes[at] = random.word() as u8,
            1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at),
            _ => bytes.extend((0..random.below(40)).map(|_| random.word() as u8)),
        }
    }
    bytes
}

#[test]
fn mutated_streams_are_read_or_refused() {
    let first = seed();
    for round in 0..rounds(20_000) {
        let mut random = Random::new(first + round);
        let side = if random.one_in(2) { Side::Host } else { Side::Guest };
        let bytes = stream(&mut random, side);
        let (mut decoder, mut relay) = (Decoder::new(side), Relay::default());
        relay.open(1);
        let mut rest = &bytes[..];
        'stream: while !rest.is_empty() {
            let (piece, later) = rest.split_at((1 + random.below(90)).min(rest.len()));
            rest = later;
            decoder.push(piece);
            loop {
                match decoder.frame() {
                    Ok(None) => break,
                    Ok(Some(frame)) => {
                        let mut again = Decoder::new(side);
                        again.push(&frame.encode());
                        assert_eq!(
                            again.frame(),
                            Ok(Some(frame.clone())),
                            "seed {}",
                            first + round
                        );
                        if side == Side::Guest {
                            relay.from_guest(frame);
                        } else {
                            let _ = relay.from_client(frame.session, frame.message);
                        }
                    }
                    Err(error) => {
                        assert_eq!(decoder.frame(), Err(error), "seed {}", first + round);
                        break 'stream;
                    }
                }
            }
        }
    }
}
