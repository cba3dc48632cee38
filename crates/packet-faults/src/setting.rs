//! The setting as a text: `loss:5,repeat:1,reorder:2,corrupt:1,delay:20ms,seed:7,on:loopback`.

use core::fmt;

/// Parts of [`Share`] that are all packets.
const WHOLE: u32 = 1_000_000;
/// The longest delay: ten seconds, in nanoseconds.
const LONGEST: u64 = 10_000_000_000;

/// A share of all packets, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share(u32);

/// The packets that faults befall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Where {
    /// Those on the loopback interface and those that arrive at a device.
    #[default]
    Everywhere,
    /// Those on the loopback interface.
    Loopback,
    /// Those that arrive at a device.
    Devices,
}

/// What happens to packets, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Packets that do not arrive.
    pub loss: Share,
    /// Packets that arrive twice.
    pub repeat: Share,
    /// Packets that later ones overtake.
    pub reorder: Share,
    /// Packets of which a bit is turned over.
    pub corrupt: Share,
    /// The least and the most nanoseconds that every packet is late.
    pub delay: (u64, u64),
    /// The first of all random numbers.
    pub seed: u64,
    /// The packets that this is about.
    pub on: Where,
}

/// Why a text is no setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused<'a> {
    /// No `NAME:VALUE` with a name that is known.
    Word(&'a str),
    /// A share that is no number from 0 to 100 with up to four digits behind the point.
    Share(&'a str),
    /// A time that is no whole number of `us`, `ms` or `s` up to ten seconds, or two of these
    /// joined by `-`.
    Time(&'a str),
    /// A seed that is no number.
    Seed(&'a str),
    /// None of `all`, `loopback` and `devices`.
    Where(&'a str),
}

impl Default for Faults {
    fn default() -> Faults {
        let none = Share::default();
        let (loss, repeat, reorder, corrupt) = (none, none, none, none);
        Faults { loss, repeat, reorder, corrupt, delay: (0, 0), seed: 1, on: Where::Everywhere }
    }
}

impl Share {
    /// Reads a share in percent. `None`: it is none.
    fn parse(text: &str) -> Option<Share> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        if part.is_empty() || part.len() > 4 {
            return None;
        }
        let scale = 10_u32.pow(4 - u32::try_from(part.len()).ok()?);
        let parts = number(whole)?.checked_mul(10_000)?;
        let parts = parts.checked_add(number(part)?.checked_mul(scale.into())?)?;
        u32::try_from(parts).ok().filter(|&parts| parts <= WHOLE).map(Share)
    }

    /// Whether a random word belongs to the share.
    pub(crate) fn hits(self, word: u64) -> bool {
        // The upper half of the product: `word` is a fraction of all words.
        (u128::from(word) * u128::from(WHOLE)) >> 64 < u128::from(self.0)
    }

    fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Reads digits and nothing else; `parse` would take a sign.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

fn time(text: &str) -> Option<u64> {
    let units = [("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let (count, unit) =
        units.iter().find_map(|&(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    number(count)?.checked_mul(unit).filter(|&time| time <= LONGEST)
}

fn times(text: &str) -> Option<(u64, u64)> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    Some((time(least)?, time(most)?)).filter(|(least, most)| least <= most)
}

impl Faults {
    /// Reads a setting: words `NAME:VALUE` with commas between them, a later one in place of an
    /// earlier one of the same name. `off` and no text are no faults.
    ///
    /// # Errors
    /// The word or value that is wrong.
    pub fn parse(text: &str) -> Result<Faults, Refused<'_>> {
        let mut faults = Faults::default();
        if text.is_empty() || text == "off" {
            return Ok(faults);
        }
        for word in text.split(',') {
            let (name, value) = word.split_once(':').ok_or(Refused::Word(word))?;
            let share = || Share::parse(value).ok_or(Refused::Share(value));
            match name {
                "loss" => faults.loss = share()?,
                "repeat" => faults.repeat = share()?,
                "reorder" => faults.reorder = share()?,
                "corrupt" => faults.corrupt = share()?,
                "delay" => faults.delay = times(value).ok_or(Refused::Time(value))?,
                "seed" => faults.seed = number(value).ok_or(Refused::Seed(value))?,
                "on" => faults.on = Where::parse(value).ok_or(Refused::Where(value))?,
                _ => return Err(Refused::Word(word)),
            }
        }
        Ok(faults)
    }

    /// Whether nothing happens to any packet.
    pub fn are_none(&self) -> bool {
        let shares = [self.loss, self.repeat, self.reorder, self.corrupt];
        shares.into_iter().all(Share::is_none) && self.delay == (0, 0)
    }

    /// Whether packets of the loopback interface are meant (`true`), or those that arrive at a
    /// device.
    pub fn concern(&self, loopback: bool) -> bool {
        match self.on {
            Where::Everywhere => true,
            Where::Loopback => loopback,
            Where::Devices => !loopback,
        }
    }
}

impl Where {
    fn parse(text: &str) -> Option<Where> {
        match text {
            "all" => Some(Where::Everywhere),
            "loopback" => Some(Where::Loopback),
            "devices" => Some(Where::Devices),
            _ => None,
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0 / 10_000)?;
        match self.0 % 10_000 {
            0 => Ok(()),
            part => write!(out, ".{part:04}"),
        }
    }
}

/// The text that [`Faults::parse`] reads as the same setting.
impl fmt::Display for Faults {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.are_none() {
            return out.write_str("off");
        }
        let Faults { loss, repeat, reorder, corrupt, delay: (least, most), seed, on } = self;
        write!(out, "loss:{loss},repeat:{repeat},reorder:{reorder},corrupt:{corrupt}")?;
        write!(out, ",delay:{}us-{}us,seed:{seed}", least / 1000, most / 1000)?;
        match on {
            Where::Everywhere => Ok(()),
            Where::Loopback => out.write_str(",on:loopback"),
            Where::Devices => out.write_str(",on:devices"),
        }
    }
}

impl fmt::Display for Refused<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Word(word) => write!(
                out,
                "'{word}' is no fault: write loss, repeat, reorder, corrupt, delay, seed or on, \
                 a colon and a value"
            ),
            Refused::Share(value) => {
                write!(out, "'{value}' is no share: write percent, from 0 to 100, as in loss:2.5")
            }
            Refused::Time(value) => write!(
                out,
                "'{value}' is no time: write at most 10s, as in delay:20ms or delay:500us-20ms"
            ),
            Refused::Seed(value) => write!(out, "'{value}' is no seed: write a whole number"),
            Refused::Where(value) => {
                write!(out, "'{value}' is no place: write all, loopback or devices")
            }
        }
    }
}
