//! Rules as text, and the starts that they serve.

use hayate_fuzzing::{Random, rounds, seed};
use hayate_template_rules::{ReadError, Rules};
use proptest::prelude::*;

const PYTHON: &[u8] = b"option -u\nlast -c\nlast -m\nscript\nsame PYTHON*\nsame LANG\n";

fn rules(text: &[u8]) -> Rules {
    Rules::read(text).unwrap()
}

fn is_valid(text: &[u8]) -> bool {
    Rules::read(text).is_ok()
}

fn is_decisive(text: &[u8], variable: &[u8]) -> bool {
    rules(text).is_decisive(variable)
}

fn is_served(arguments: &[&str]) -> bool {
    rules(PYTHON).serve(arguments.iter().map(|argument| argument.as_bytes()))
}

#[test]
fn starts_are_served_whose_options_are_known() {
    for arguments in [
        &["script.py"][..],
        &["script.py", "-x", "--help"],
        &["-u", "script.py"],
        &["-c", "pass"],
        &["-u", "-m", "json.tool", "-"],
    ] {
        assert!(is_served(arguments), "{arguments:?}");
    }
    for arguments in [
        &[][..],
        &["-u"],
        &["-"],
        &["-c"],
        &["-i", "script.py"],
        &["-cpass"],
        &["--version"],
        &["-uB", "script.py"],
    ] {
        assert!(!is_served(arguments), "{arguments:?}");
    }
}

#[test]
fn a_script_that_is_named_is_served_alone() {
    let of = rules(b"option -w\nscript /srv/a b.pl\nunchanged /srv/a b.pl\nunchanged /lib/m.pm\n");
    let served = |arguments: &[&str]| of.serve(arguments.iter().map(|text| text.as_bytes()));
    assert!(served(&["/srv/a b.pl"]) && served(&["-w", "/srv/a b.pl", "x"]));
    for arguments in
        [&["a b.pl"][..], &["/srv/a b.pl/"], &["/srv/a"], &["-W", "/srv/a b.pl"], &[""]]
    {
        assert!(!served(arguments), "{arguments:?}");
    }
    assert!(
        of.name_script(b"/srv/a b.pl") && !of.name_script(b"/lib/m.pm") && !of.name_script(b"")
    );
    assert!(!rules(PYTHON).name_script(b"script.py") && !rules(PYTHON).name_script(b""));
    assert_eq!(of.unchanged().collect::<Vec<_>>(), [&b"/srv/a b.pl"[..], b"/lib/m.pm"]);
}

#[test]
fn a_text_of_other_lines_is_refused() {
    for text in [
        &b"options -u"[..],
        b"option u",
        b"option -",
        b"option",
        b"same",
        b"same A=B",
        b"last -c x",
        b"script x",
        b"option -u\r",
        b"option -u x",
        b"script /x\r",
        b"unchanged x",
        b"unchanged",
    ] {
        assert!(!is_valid(text), "{}", text.escape_ascii());
    }
    assert!(is_valid(PYTHON) && is_valid(b"") && is_valid(b"\n\nscript\n"));
    assert!(!is_valid(&[b'\n'; 4097]));
    assert!(matches!(Rules::read(b"x"), Err(ReadError::NoRules)));
    let serve_any = |text: &[u8]| rules(text).serve_any();
    assert!(serve_any(PYTHON) && !serve_any(b"") && !serve_any(b"option -u\nsame A\n"));
}

#[test]
fn decisive_variables_are_compared_in_any_order() {
    let same = |kept: &[&'static str], variables: &[&'static str]| {
        let bytes = |list: &[&'static str]| -> Vec<&'static [u8]> {
            list.iter().map(|text| text.as_bytes()).collect()
        };
        let (kept, variables) = (bytes(kept), bytes(variables));
        rules(PYTHON).have_same_environment(kept.iter().copied(), variables.iter().copied())
    };
    assert!(same(&[], &["HOME=/", "PATH=/bin"]));
    assert!(same(&["LANG=C", "PYTHONPATH=/x"], &["PYTHONPATH=/x", "A=1", "LANG=C"]));
    assert!(!same(&["LANG=C"], &["LANG=de_DE"]));
    assert!(!same(&["LANG=C"], &[]));
    assert!(!same(&[], &["PYTHONHASHSEED=1"]));
    assert!(!same(&[], &["LD_PRELOAD=/x.so"]));
    assert!(!same(&[], &["GLIBC_TUNABLES=x"]));
    assert!(same(&[], &["LD_BIND_NOW=1"]) && !same(&[], &["LD_BIND_NOT=1"]));
    assert!(!same(&["LANG=C"], &["LANG=C", "LANG=D"]));
    assert!(is_decisive(b"", b"LD_LIBRARY_PATH=") && is_decisive(b"same A", b"A"));
    assert!(is_decisive(b"same *", b"=x") && is_decisive(b"same *", b"") && !is_decisive(b"", b""));
    assert!(!is_decisive(b"same A", b"AB=1") && !is_decisive(b"", b"PYTHONPATH=/x"));
}

proptest! {
    /// What is served ends in a way that the rules name, and an unknown option is never passed over.
    #[test]
    fn unknown_options_are_not_served(arguments in prop::collection::vec("-?[a-z]{0,2}", 0..6)) {
        let known = ["-u", "-c", "-m"];
        let options: Vec<&String> =
            arguments.iter().take_while(|argument| argument.starts_with('-')).collect();
        let last = options.iter().position(|option| ["-c", "-m"].contains(&option.as_str()));
        let before = last.map_or(options.len(), |at| at + 1);
        let expected = options.iter().take(before).all(|option| known.contains(&option.as_str()))
            && match last {
                Some(at) => arguments.len() > at + 1,
                None => arguments.len() > options.len(),
            };
        let given = arguments.iter().map(|argument| argument.as_bytes());
        prop_assert_eq!(rules(PYTHON).serve(given), expected);
    }

    /// The first letters leave out no variable that a pattern names.
    #[test]
    fn decisive_are_the_variables_that_a_pattern_names(
        patterns in prop::collection::vec("[A-Cal_]{1,2}\\*?|\\*", 0..4),
        variable in "[A-CLDalG_]{0,3}(=x)?",
    ) {
        let text: String = patterns.iter().map(|pattern| format!("same {pattern}\n")).collect();
        let name = variable.split('=').next().unwrap();
        let always = ["LD_*", "GLIBC_TUNABLES", "MALLOC_*"];
        let mut all = patterns.iter().map(String::as_str).chain(always);
        let expected = all.any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        });
        prop_assert_eq!(is_decisive(text.as_bytes(), variable.as_bytes()), expected);
    }
}

#[test]
fn any_bytes_are_read() {
    let mut random = Random::new(seed());
    for _ in 0..rounds(20_000) {
        let mut text = PYTHON.to_vec();
        for _ in 0..random.below(8) {
            let at = random.below(text.len());
            match random.below(3) {
                0 => text[at] = random.word() as u8,
                1 => drop(text.remove(at)),
                _ => text
                    .insert(at, *random.pick::<[u8]>(&[b"\n", b" ", b"-", b"*"]).first().unwrap()),
            }
            if text.is_empty() {
                text.push(b'\n');
            }
        }
        let arguments = ["-u", "-c", "x"].map(str::as_bytes);
        let Ok(rules) = Rules::read(&text) else { continue };
        assert!(!rules.serve(arguments) || rules.serve_any(), "{}", text.escape_ascii());
        assert!(rules.is_decisive(b"LD_PRELOAD=x"));
    }
}
