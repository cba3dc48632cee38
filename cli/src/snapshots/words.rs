//! A command in one text, as words: what a POSIX shell makes of it if nothing is expanded (XCU,
//! 2.2): blanks separate, quotes and backslashes take their meaning from characters.

/// Splits a text into words.
///
/// # Errors
/// A quote that is not closed, a backslash at the end, or no word at all.
pub fn split(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        match next {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\\' => word.get_or_insert_default().push(rest.next().ok_or("a backslash ends it")?),
            '\'' | '"' => quoted(next, &mut rest, word.get_or_insert_default())?,
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    if words.is_empty() { Err("there is no word in it") } else { Ok(words) }
}

/// Takes what follows a quote, to its end.
fn quoted(
    quote: char,
    rest: &mut std::str::Chars<'_>,
    word: &mut String,
) -> Result<(), &'static str> {
    loop {
        match rest.next().ok_or("a quote is not closed")? {
            end if end == quote => return Ok(()),
            '\\' if quote == '"' => match rest.next().ok_or("a quote is not closed")? {
                escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                other => word.extend(['\\', other]),
            },
            other => word.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_a_shell() {
        let of = |text: &str| split(text).unwrap();
        assert_eq!(of(" python3  -c 'print( 42 )'\n"), ["python3", "-c", "print( 42 )"]);
        assert_eq!(of(r#"sh -c "echo \"a b\" \$x \n""#), ["sh", "-c", r#"echo "a b" $x \n"#]);
        assert_eq!(of(r"a\ b'c d'e '' x"), ["a bc de", "", "x"]);
        for wrong in ["", "  ", "'a", "\"a", "a\\", "\"a\\"] {
            assert!(split(wrong).is_err(), "{wrong}");
        }
    }
}
