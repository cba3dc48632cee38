//! Which resources are kept.
//!
//! The rows of the Tender papers' tables are names here (`none`, `program`, `space`, `region`,
//! `all`, `all+text`), and `full` is everything but `image`. A policy is written as names joined by
//! `+` or `,`, from left to right; `-` before a name removes it again: `full-text`.

use bitflags::bitflags;
use core::fmt;

bitflags! {
    /// The kinds that may be kept, each with a switch of its own.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct KeptKinds: u32 {
        /// Program records: an unchanged executable is parsed once.
        const PROGRAM = 1 << 0;
        /// Memory content: frames of data, bss and stack, for a region of the same size.
        const REGION = 1 << 1;
        /// Empty spaces: page table and map.
        const SPACE = 1 << 2;
        /// Spaces with the program's regions attached, for the same program.
        const ATTACHMENT = 1 << 3;
        /// The text of a kept region, entered in the page table.
        const TEXT = 1 << 4;
        /// Kernel stacks and register save areas.
        const WORK_AREA = 1 << 5;
        /// Process records.
        const PROCESS = 1 << 6;
        /// Executions.
        const EXECUTION = 1 << 7;
        /// Deferred frees: pages of large spaces that ended wait until a processor has time to free
        /// them.
        const DEFERRED_FREE = 1 << 8;
        /// Images: programs after their start-up, where the next start begins.
        const IMAGE = 1 << 9;
    }
}

impl KeptKinds {
    /// What `full` names: all but images, which are asked for by name.
    pub const FULL: KeptKinds = KeptKinds::all().difference(KeptKinds::IMAGE);
}

/// The set of kinds that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy(KeptKinds);

/// An unknown word in the text of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPolicy;

const NAMED: [(&str, KeptKinds); 7] = [
    ("none", KeptKinds::empty()),
    ("program", KeptKinds::PROGRAM),
    ("space", KeptKinds::SPACE),
    ("region", KeptKinds::REGION),
    ("all", KeptKinds::PROGRAM.union(KeptKinds::SPACE).union(KeptKinds::REGION)),
    (
        "all+text",
        KeptKinds::PROGRAM.union(KeptKinds::SPACE).union(KeptKinds::REGION).union(KeptKinds::TEXT),
    ),
    ("full", KeptKinds::FULL),
];

const SINGLE: [(&str, KeptKinds); 7] = [
    ("attachment", KeptKinds::ATTACHMENT),
    ("text", KeptKinds::TEXT),
    ("work-area", KeptKinds::WORK_AREA),
    ("process", KeptKinds::PROCESS),
    ("execution", KeptKinds::EXECUTION),
    ("debt", KeptKinds::DEFERRED_FREE),
    ("image", KeptKinds::IMAGE),
];

impl Policy {
    /// Nothing is kept.
    pub const NONE: Policy = Policy(KeptKinds::empty());
    /// Everything is kept but images: the default.
    pub const FULL: Policy = Policy(KeptKinds::FULL);

    /// Returns the policy that keeps these kinds.
    pub const fn new(keep: KeptKinds) -> Policy {
        Policy(keep)
    }

    /// Returns the kinds that it keeps.
    pub const fn keep(self) -> KeptKinds {
        self.0
    }

    /// Whether it keeps all of `what`.
    pub const fn keeps(self, what: KeptKinds) -> bool {
        self.0.contains(what)
    }

    /// Parses a policy; see the module for the syntax.
    ///
    /// # Errors
    /// [`BadPolicy`] for an unknown name, and for an empty text.
    pub fn parse(text: &str) -> Result<Policy, BadPolicy> {
        let mut keep = KeptKinds::empty();
        let mut rest = text.trim();
        let mut takes_away = false;
        loop {
            // `work-area` is one name, so the separator is searched behind the longest name.
            let end = name_end(rest).ok_or(BadPolicy)?;
            let (name, behind) = rest.split_at(end);
            let what = find(name).ok_or(BadPolicy)?;
            if takes_away {
                keep.remove(what);
            } else {
                keep.insert(what);
            }
            let mut next = behind.chars();
            takes_away = match next.next() {
                None => return Ok(Policy(keep)),
                Some('+' | ',') => false,
                Some('-') => true,
                Some(_) => return Err(BadPolicy),
            };
            rest = next.as_str();
        }
    }

    /// The names that [`parse`](Self::parse) knows, for messages.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().chain(&SINGLE).map(|(name, _)| *name)
    }
}

/// Returns where the name at the beginning of `text` ends.
fn name_end(text: &str) -> Option<usize> {
    Policy::names()
        .filter(|name| {
            text.strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ',', '-']))
        })
        .map(str::len)
        .max()
}

fn find(name: &str) -> Option<KeptKinds> {
    NAMED.iter().chain(&SINGLE).find(|(known, _)| *known == name).map(|(_, keep)| *keep)
}

impl Default for Policy {
    fn default() -> Self {
        Policy::FULL
    }
}

impl fmt::Display for Policy {
    /// Writes it as [`parse`](Policy::parse) reads it: the single name if there is one, otherwise
    /// the list.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = NAMED.iter().find(|(_, keep)| *keep == self.0) {
            return f.write_str(name);
        }
        if self.0 == KeptKinds::all() {
            return f.write_str("full+image");
        }
        let single = NAMED[1..4].iter().chain(&SINGLE).filter(|(_, keep)| self.0.contains(*keep));
        for (index, (name, _)) in single.enumerate() {
            write!(f, "{}{name}", if index == 0 { "" } else { "+" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn rows_of_the_papers() {
        let all = KeptKinds::PROGRAM | KeptKinds::SPACE | KeptKinds::REGION;
        assert_eq!(Policy::parse("none"), Ok(Policy::NONE));
        assert_eq!(Policy::parse("all"), Ok(Policy::new(all)));
        assert_eq!(Policy::parse("all+text"), Ok(Policy::new(all | KeptKinds::TEXT)));
        assert_eq!(Policy::parse("full"), Ok(Policy::FULL));
        assert_eq!(
            Policy::parse("space,program"),
            Ok(Policy::new(KeptKinds::SPACE | KeptKinds::PROGRAM))
        );
        assert_eq!(Policy::parse("full-text"), Ok(Policy::new(KeptKinds::FULL - KeptKinds::TEXT)));
        assert_eq!(
            Policy::parse("full-work-area-text+text").unwrap().to_string(),
            "program+space+region+attachment+text+process+execution+debt"
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "+", "full+", "ful", "fullest", "all text", "-all", "all++text", "none-"] {
            assert_eq!(Policy::parse(text), Err(BadPolicy), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bits in 0u32..1024) {
            let policy = Policy::new(KeptKinds::from_bits_truncate(bits));
            prop_assert_eq!(Policy::parse(&policy.to_string()), Ok(policy));
        }

        #[test]
        fn any_text_is_survived(text in ".{0,40}") {
            let _ = Policy::parse(&text);
        }
    }
}
