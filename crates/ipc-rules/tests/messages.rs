//! Which message a receiver gets.

use hayate_ipc_rules::messages::*;
use proptest::prelude::*;

fn queue(kinds: &[i64]) -> Messages<usize> {
    let mut messages = Messages::default();
    for (number, &kind) in kinds.iter().enumerate() {
        messages.reserve().unwrap();
        messages.push(kind, number);
    }
    messages
}

#[test]
fn arguments_mean() {
    assert_eq!(Wanted::of(0, EXCEPT), Wanted::Any);
    assert_eq!(Wanted::of(5, 0), Wanted::Type(5));
    assert_eq!(Wanted::of(5, EXCEPT), Wanted::Other(5));
    assert_eq!(Wanted::of(-5, EXCEPT), Wanted::AtMost(5));
    assert_eq!(Wanted::of(i64::MIN, 0), Wanted::AtMost(i64::MAX));
    assert_eq!(Wanted::of(-5, COPY), Wanted::Number(-5));
}

#[test]
fn receivers_get() {
    let mut messages = queue(&[5, 3, 4, 3]);
    assert_eq!(messages.find(Wanted::Any), Some(0));
    assert_eq!(messages.find(Wanted::Type(3)), Some(1));
    assert_eq!(messages.find(Wanted::Other(5)), Some(1));
    assert_eq!(messages.find(Wanted::AtMost(4)), Some(1));
    assert_eq!(messages.find(Wanted::AtMost(2)), None);
    assert_eq!(messages.find(Wanted::Number(2)), Some(2));
    assert_eq!(messages.find(Wanted::Number(4)), None);
    assert_eq!(messages.find(Wanted::Number(-1)), None);
    assert_eq!(messages.take(1), Some((3, 1)));
    assert_eq!(messages.find(Wanted::AtMost(4)), Some(2));
    assert_eq!(messages.get(0), Some((5, &0)));
    assert_eq!((messages.len(), messages.is_empty()), (3, false));
    assert_eq!(messages.drain().count(), 3);
}

proptest! {
    /// The loop of Linux' `find_msg`.
    #[test]
    fn does_what_linux_does(kinds in prop::collection::vec(1i64..6, 0..20), kind in -7i64..8) {
        for flags in [0, EXCEPT] {
            let wanted = Wanted::of(kind, flags);
            let (mut found, mut most) = (None, kind.abs());
            for (place, &this) in kinds.iter().enumerate() {
                let fits = match wanted {
                    Wanted::AtMost(_) => this <= most,
                    _ => wanted.takes(this),
                };
                if !fits {
                    continue;
                }
                if matches!(wanted, Wanted::AtMost(_)) && this != 1 {
                    most = this - 1;
                    found = Some(place);
                } else {
                    found = Some(place);
                    break;
                }
            }
            prop_assert_eq!(queue(&kinds).find(wanted), found);
        }
    }
}
