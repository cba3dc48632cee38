//! The numbers that programs write into the files of a group, as kstrtoint(9) and kstrtoll(9) take
//! them: decimal, octal behind `0`, hexadecimal behind `0x`, with a sign; white space around them
//! is cut off before (`strstrip`).

/// Why a text is no number that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is no number (`EINVAL`).
    NoNumber,
    /// It is too large or too small (`ERANGE`).
    OutOfRange,
}

/// A limit as a program writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// `max`: none.
    None,
    /// A number.
    Number(i64),
}

/// Reads a number of 64 bits.
///
/// # Errors
/// [`Refusal`].
pub fn number(text: &[u8]) -> Result<i64, Refusal> {
    let text = text.trim_ascii();
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let (digits, base) = match text {
        [b'0', b'x' | b'X', digits @ ..] if !digits.is_empty() => (digits, 16),
        [b'0', digits @ ..] if !digits.is_empty() => (digits, 8),
        _ => (text, 10),
    };
    if digits.is_empty() {
        return Err(Refusal::NoNumber);
    }
    let mut value: i64 = 0;
    for &byte in digits {
        let digit = char::from(byte).to_digit(base).ok_or(Refusal::NoNumber)?;
        let digit = if negative { -i64::from(digit) } else { i64::from(digit) };
        let shifted = value.checked_mul(i64::from(base));
        value = shifted.and_then(|value| value.checked_add(digit)).ok_or(Refusal::OutOfRange)?;
    }
    Ok(value)
}

/// Reads a number of 32 bits.
///
/// # Errors
/// [`Refusal`].
pub fn small_number(text: &[u8]) -> Result<i32, Refusal> {
    i32::try_from(number(text)?).map_err(|_| Refusal::OutOfRange)
}

/// Reads a limit: `max` or a number of 64 bits.
///
/// # Errors
/// [`Refusal`].
pub fn limit(text: &[u8]) -> Result<Limit, Refusal> {
    if text.trim_ascii() == b"max" { Ok(Limit::None) } else { number(text).map(Limit::Number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_kernel() {
        assert_eq!(number(b" 12\n"), Ok(12));
        assert_eq!(number(b"-3"), Ok(-3));
        assert_eq!(number(b"+0x1f"), Ok(31));
        assert_eq!(number(b"010"), Ok(8));
        assert_eq!(number(b"0"), Ok(0));
        assert_eq!(number(b"-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(number(b"9223372036854775808"), Err(Refusal::OutOfRange));
        assert_eq!(small_number(b"2147483648"), Err(Refusal::OutOfRange));
        for bad in ["", "\n", "a", "1a", "08", "0x", "--1", "1 2", "-"] {
            assert_eq!(number(bad.as_bytes()), Err(Refusal::NoNumber), "{bad:?}");
        }
    }

    #[test]
    fn a_limit_is_a_number_or_none() {
        assert_eq!(limit(b"max\n"), Ok(Limit::None));
        assert_eq!(limit(b"7"), Ok(Limit::Number(7)));
        assert_eq!(limit(b"maximum"), Err(Refusal::NoNumber));
    }
}
