//! The setting as a text and back, and how often what happens.

use hayate_fuzzing::{Random, rounds, seed};
use hayate_packet_faults::{Dice, Fate, Faults, OVERTAKEN, Refused, damage};
use proptest::prelude::*;

const ALL: &str = "loss:5,repeat:1,reorder:2,corrupt:1,delay:20ms";

fn fates(text: &str, count: usize) -> Vec<Fate> {
    let faults = Faults::parse(text).unwrap();
    let mut dice = Dice::new(faults.seed);
    (0..count).map(|_| dice.throw(&faults)).collect()
}

#[test]
fn without_faults_every_packet_arrives_at_once_and_whole() {
    for text in ["", "off", "loss:0", "seed:9", "on:devices"] {
        assert!(Faults::parse(text).unwrap().are_none(), "{text}");
        let whole = Fate { lost: false, repeated: false, damage: None, delay: 0 };
        assert!(fates(text, 1000).into_iter().all(|fate| fate == whole), "{text}");
    }
}

#[test]
fn a_seed_repeats_and_another_does_not() {
    assert_eq!(fates(ALL, 1000), fates(ALL, 1000));
    assert_ne!(fates(ALL, 1000), fates(&format!("{ALL},seed:2"), 1000));
}

#[test]
fn shares_are_met() {
    let fates = fates("loss:5,repeat:1,reorder:2,corrupt:0.5", 200_000);
    let near = |count: usize, wanted: usize| count.abs_diff(wanted) * 20 < wanted * 2;
    assert!(near(fates.iter().filter(|fate| fate.lost).count(), 10_000));
    assert!(near(fates.iter().filter(|fate| fate.repeated).count(), 2_000));
    assert!(near(fates.iter().filter(|fate| fate.delay == OVERTAKEN).count(), 4_000));
    assert!(near(fates.iter().filter(|fate| fate.damage.is_some()).count(), 1_000));
}

#[test]
fn all_is_all() {
    assert!(fates("loss:100", 10_000).iter().all(|fate| fate.lost));
}

#[test]
fn one_fault_does_not_move_another() {
    let lost = |text| fates(text, 5000).iter().map(|fate| fate.lost).collect::<Vec<_>>();
    assert_eq!(lost("loss:5"), lost("loss:5,corrupt:50,delay:1ms-9ms,repeat:3"));
}

#[test]
fn delays_lie_in_their_range() {
    let delays: Vec<u64> = fates("delay:1ms-3ms", 5000).iter().map(|fate| fate.delay).collect();
    assert!(delays.iter().all(|delay| (1_000_000..=3_000_000).contains(delay)));
    assert!(delays.iter().any(|&delay| delay < 1_500_000));
    assert!(delays.iter().any(|&delay| delay > 2_500_000));
    assert!(fates("delay:10s", 100).iter().all(|fate| fate.delay == 10_000_000_000));
}

#[test]
fn refusals_name_the_part_that_is_wrong() {
    fn refused(text: &str) -> Refused<'_> {
        Faults::parse(text).unwrap_err()
    }
    assert_eq!(refused("loss"), Refused::Word("loss"));
    assert_eq!(refused("loss:1,"), Refused::Word(""));
    assert_eq!(refused("lose:1"), Refused::Word("lose:1"));
    for share in ["101", "100.0001", "-1", "+1", "1.", ".5", "1.23456", "", "5%"] {
        let text = format!("loss:{share}");
        assert_eq!(refused(&text), Refused::Share(share));
    }
    for time in ["20", "20m", "11s", "-1ms", "9ms-1ms", "1ms-", "ms", ""] {
        let text = format!("delay:{time}");
        assert_eq!(refused(&text), Refused::Time(time));
    }
    assert_eq!(refused("seed:x"), Refused::Seed("x"));
    assert_eq!(refused("on:eth0"), Refused::Where("eth0"));
}

#[test]
fn where_is_heeded() {
    let concern = |text| {
        let faults = Faults::parse(text).unwrap();
        (faults.concern(true), faults.concern(false))
    };
    assert_eq!(concern("loss:1"), (true, true));
    assert_eq!(concern("loss:1,on:loopback"), (true, false));
    assert_eq!(concern("loss:1,on:devices"), (false, true));
}

#[test]
fn mutated_settings_are_read_without_a_panic() {
    let mut random = Random::new(seed());
    for _ in 0..rounds(20_000) {
        let mut text = format!("{ALL},seed:7,on:loopback").into_bytes();
        for _ in 0..=random.below(6) {
            let at = random.below(text.len());
            match random.below(3) {
                0 => text[at] = b"0123456789.,:-msu"[random.below(17)],
                1 => drop(text.remove(at)),
                _ => text.insert(at, random.word() as u8 & 0x7f),
            }
        }
        let text = String::from_utf8(text).unwrap();
        if let Ok(faults) = Faults::parse(&text) {
            assert_eq!(Faults::parse(&faults.to_string()).unwrap().loss, faults.loss);
            Dice::new(faults.seed).throw(&faults);
        }
    }
}

proptest! {
    #[test]
    fn damage_is_one_bit(mut bytes in proptest::collection::vec(any::<u8>(), 0..2000),
                         place in any::<u64>()) {
        let before = bytes.clone();
        damage(&mut bytes, place);
        let turned: u32 = before.iter().zip(&bytes).map(|(a, b)| (a ^ b).count_ones()).sum();
        prop_assert_eq!(turned, u32::from(!before.is_empty()));
    }

    #[test]
    fn a_setting_comes_back_from_its_text(
        (loss, repeat, reorder, corrupt) in (1..=100u32, 0..=100u32, 0..=100u32, 0..9999u32),
        (least, more) in (0..5_000_000u64, 0..5_000_000u64),
        (seed, on) in (any::<u64>(), 0..3usize),
    ) {
        let on = ["all", "loopback", "devices"][on];
        let text = format!(
            "loss:{loss},repeat:{repeat},reorder:{reorder},corrupt:0.{corrupt:04},\
             delay:{least}us-{}us,seed:{seed},on:{on}", least + more);
        let faults = Faults::parse(&text).unwrap();
        let shown = faults.to_string();
        prop_assert_eq!(Faults::parse(&shown), Ok(faults));
    }
}
