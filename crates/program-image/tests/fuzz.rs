//! Mutations of real and made-up executables: every image and plan must keep the promises of a
//! plan, and nothing may panic.
//!
//! `FUZZ_ROUNDS` sets how many mutations are tried (default 200,000, a second or two) and
//! `FUZZ_SEED` the first one; a failure prints both and the bytes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hayate_fuzzing::{Random, rounds, seed};
use hayate_program_image::{HEAD, Image, PAGE, Plan};

/// The beginning of this very program, and scripts of several shapes.
fn corpus() -> Vec<Vec<u8>> {
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let mut long = b"#!/usr/bin/env".to_vec();
    long.extend([b' '; 300]);
    vec![
        own[..own.len().min(2048)].to_vec(),
        b"#!/bin/sh -e\necho hi\n".to_vec(),
        b"#! /usr/bin/awk -f".to_vec(),
        long,
    ]
}

const INTERESTING: [u64; 10] =
    [0, 1, 0x7f, 0xfff, 0x1000, 0xffff, 0x7fff_ffff, 0x7fff_ffff_f000, 1 << 63, u64::MAX];

fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(6) {
        // Mostly in the headers, which decide the most.
        let limit = if random.below(4) == 0 { bytes.len() } else { bytes.len().min(64 + 56 * 14) };
        let at = random.below(limit);
        match random.below(5) {
            0 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            1 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.word() as u8;
                }
            }
            2 => {
                let value = INTERESTING[random.below(INTERESTING.len())].to_le_bytes();
                let width = [1, 2, 4, 8][random.below(4)];
                for (to, from) in bytes.iter_mut().skip(at & !(width - 1)).zip(&value[..width]) {
                    *to = *from;
                }
            }
            3 => bytes.truncate(at),
            _ => {
                let from = random.below(bytes.len());
                let piece: Vec<u8> = bytes.iter().skip(from).take(56).copied().collect();
                for (to, from) in bytes.iter_mut().skip(at).zip(piece) {
                    *to = from;
                }
            }
        }
    }
}

fn check(bytes: &[u8]) {
    let head = bytes.get(..HEAD).unwrap_or(bytes);
    match Image::recognise(head) {
        Ok(Image::Script(script)) => {
            assert!(!script.interpreter.is_empty());
            assert!(script.argument != Some(b""));
        }
        Ok(Image::Elf(header)) => {
            let table = header.table();
            let end = bytes.len() as u64;
            let table = &bytes[table.start.min(end) as usize..table.end.min(end) as usize];
            let Ok(plan) = Plan::new(&header, table) else { return };
            assert!(!plan.segments.is_empty());
            assert!(plan.alignment.is_power_of_two() && plan.alignment >= PAGE);
            assert!(plan.span.start < plan.span.end && plan.span.end <= 0x7fff_ffff_f000);
            assert!(plan.end() <= plan.span.end);
            for segment in &plan.segments {
                assert!(segment.file_size <= segment.memory_size);
                assert!(segment.address >= plan.span.start && segment.end() <= plan.span.end);
                assert_eq!(segment.address % PAGE, segment.file_offset % PAGE);
                assert!(segment.file_offset.checked_add(segment.file_size).is_some());
            }
        }
        Err(_) => {}
    }
}

#[test]
fn mutated_files_are_survived() {
    let rounds = rounds(200_000);
    let seed = seed();
    let corpus = corpus();
    let mut random = Random::new(seed);
    let mut planned = 0u64;
    for round in 0..rounds {
        let mut bytes = corpus[random.below(corpus.len() + 4).saturating_sub(4)].clone();
        mutate(&mut random, &mut bytes);
        planned += u64::from(bytes.starts_with(b"\x7fELF"));
        if catch_unwind(AssertUnwindSafe(|| check(&bytes))).is_err() {
            panic!("FUZZ_SEED={seed}, round {round}: {}", bytes.escape_ascii());
        }
    }
    assert!(planned > rounds / 4, "the mutations no longer look like executables");
}
