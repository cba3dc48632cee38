//! Compares the rules with a simple model.

use hayate_overlay_rules::{Fault, Merge, Outcome, Position, Seen, lower_paths, unescape};
use proptest::prelude::*;

const PLAIN: Seen = Seen::Directory { opaque: false };
const OPAQUE: Seen = Seen::Directory { opaque: true };

/// Returns the layers that make the result, as the documentation says.
fn model(layers: &[Seen]) -> Vec<usize> {
    let Some(first) = layers.iter().position(|seen| *seen != Seen::Absent) else { return vec![] };
    match layers[first] {
        Seen::Whiteout => vec![],
        Seen::Other => vec![first],
        _ => {
            let mut taken = vec![];
            for (index, seen) in layers.iter().enumerate().skip(first) {
                match seen {
                    Seen::Absent => continue,
                    Seen::Directory { opaque } => {
                        taken.push(index);
                        if *opaque {
                            break;
                        }
                    }
                    Seen::Whiteout | Seen::Other => break,
                }
            }
            taken
        }
    }
}

fn decide(layers: &[Seen]) -> (Vec<usize>, Outcome) {
    let mut merge = Merge::new();
    let mut taken = vec![];
    for (index, seen) in layers.iter().enumerate() {
        if !merge.goes_on() {
            break;
        }
        if merge.see(*seen) {
            taken.push(index);
        }
    }
    (taken, merge.outcome())
}

#[test]
fn the_cases_of_the_documentation() {
    use Seen::{Absent, Other, Whiteout};
    assert_eq!(decide(&[Absent, Other]), (vec![1], Outcome::Single));
    assert_eq!(decide(&[Whiteout, Other]), (vec![], Outcome::Absent));
    assert_eq!(decide(&[Other, Other]), (vec![0], Outcome::Single));
    assert_eq!(decide(&[Other, PLAIN]), (vec![0], Outcome::Single));
    assert_eq!(decide(&[PLAIN, PLAIN]), (vec![0, 1], Outcome::Merged));
    assert_eq!(decide(&[OPAQUE, PLAIN]), (vec![0], Outcome::Single));
    assert_eq!(decide(&[PLAIN, Other, PLAIN]), (vec![0], Outcome::Single));
    assert_eq!(decide(&[PLAIN, Whiteout, PLAIN]), (vec![0], Outcome::Single));
    assert_eq!(decide(&[PLAIN, Absent, PLAIN]), (vec![0, 2], Outcome::Merged));
    assert_eq!(decide(&[Absent, Absent]), (vec![], Outcome::Absent));
}

#[test]
fn lower_directories_are_listed_with_escapes() {
    let paths = |list: &str| lower_paths(list.as_bytes());
    assert_eq!(paths("/a"), Ok(vec![b"/a".to_vec()]));
    assert_eq!(paths("/a:/b"), Ok(vec![b"/a".to_vec(), b"/b".to_vec()]));
    assert_eq!(paths(r"/a\:b:/c"), Ok(vec![b"/a:b".to_vec(), b"/c".to_vec()]));
    assert_eq!(paths(r"/a\\b"), Ok(vec![br"/a\b".to_vec()]));
    assert_eq!(paths(""), Err(Fault::Empty));
    assert_eq!(paths("/a:"), Err(Fault::Empty));
    assert_eq!(paths(":/a"), Err(Fault::Empty));
    assert_eq!(paths("/a::/b"), Err(Fault::Empty));
    assert_eq!(unescape(br"/a\:b\"), Ok(br"/a:b\".to_vec()));
}

#[test]
fn positions_that_do_not_fit_are_refused() {
    assert_eq!(Position { turn: 1 << 15, inner: 2 }.encode(), None);
    assert_eq!(Position { turn: 0, inner: 1 << 48 }.encode(), None);
    assert_eq!(Position::begin(0).encode(), Some(2));
    assert_eq!(Position::decode(0), Position::begin(0));
}

fn seen() -> impl Strategy<Value = Seen> {
    prop_oneof![
        Just(Seen::Absent),
        Just(Seen::Whiteout),
        Just(Seen::Other),
        Just(PLAIN),
        Just(OPAQUE)
    ]
}

proptest! {
    #[test]
    fn look_ups_follow_the_model(layers in proptest::collection::vec(seen(), 0..8)) {
        let (taken, outcome) = decide(&layers);
        let expected = model(&layers);
        prop_assert_eq!(&taken, &expected);
        let by_count = match expected.len() {
            0 => Outcome::Absent,
            1 => Outcome::Single,
            _ => Outcome::Merged,
        };
        prop_assert_eq!(outcome, by_count);
    }

    #[test]
    fn positions_survive_encoding(turn in 0usize..1 << 15, inner in 2u64..1 << 48) {
        let position = Position { turn, inner };
        let encoded = position.encode().expect("it fits");
        prop_assert!(encoded <= i64::MAX as u64);
        prop_assert_eq!(Position::decode(encoded), position);
    }

    #[test]
    fn escaped_paths_come_back(paths in proptest::collection::vec("[a-z:\\\\/]{1,12}", 1..5)) {
        let list = paths
            .iter()
            .map(|path| path.replace('\\', r"\\").replace(':', r"\:"))
            .collect::<Vec<_>>()
            .join(":");
        let expected: Vec<_> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        prop_assert_eq!(lower_paths(list.as_bytes()), Ok(expected));
    }
}
