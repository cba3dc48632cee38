//! Rights, rulesets, domains, and whether a domain allows something at a place.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::MOST_LAYERS;

/// Device and number of a file.
pub type Key = (u64, u64);

/// A set of rights (`LANDLOCK_ACCESS_FS_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(u16);

#[allow(missing_docs, reason = "named as in landlock(7)")]
impl Access {
    pub const NONE: Access = Access(0);
    pub const EXECUTE: Access = Access(1);
    pub const WRITE_FILE: Access = Access(1 << 1);
    pub const READ_FILE: Access = Access(1 << 2);
    pub const READ_DIR: Access = Access(1 << 3);
    pub const REMOVE_DIR: Access = Access(1 << 4);
    pub const REMOVE_FILE: Access = Access(1 << 5);
    pub const MAKE_CHAR: Access = Access(1 << 6);
    pub const MAKE_DIR: Access = Access(1 << 7);
    pub const MAKE_REG: Access = Access(1 << 8);
    pub const MAKE_SOCK: Access = Access(1 << 9);
    pub const MAKE_FIFO: Access = Access(1 << 10);
    pub const MAKE_BLOCK: Access = Access(1 << 11);
    pub const MAKE_SYM: Access = Access(1 << 12);
    pub const REFER: Access = Access(1 << 13);

    /// All rights of this version.
    pub const ALL: Access = Access((1 << Access::COUNT) - 1);
    /// Those that make sense for what is no directory.
    pub const OF_FILES: Access =
        Access(Access::EXECUTE.0 | Access::WRITE_FILE.0 | Access::READ_FILE.0);
    /// Those that a layer denies even if it does not handle them (`ACCESS_INITIALLY_DENIED`).
    const DENIED_AT_FIRST: Access = Access::REFER;
    /// How many rights there are.
    pub(crate) const COUNT: usize = 14;

    /// The set of these bits; `None` if one is unknown.
    pub fn from_bits(bits: u64) -> Option<Access> {
        let access = Access(u16::try_from(bits).ok()?);
        Access::ALL.contains(access).then_some(access)
    }

    /// The rights of both.
    #[must_use]
    pub const fn with(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }

    /// The rights without those of `other`.
    #[must_use]
    pub const fn without(self, other: Access) -> Access {
        Access(self.0 & !other.0)
    }

    /// Whether all rights of `other` are in the set.
    pub const fn contains(self, other: Access) -> bool {
        other.0 & !self.0 == 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The numbers of the rights.
    pub(crate) fn numbers(self) -> impl Iterator<Item = usize> {
        (0..Access::COUNT).filter(move |number| self.0 >> number & 1 != 0)
    }
}

/// Why something cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The domain has as many layers as it may.
    TooManyLayers,
    /// Memory is exhausted.
    Memory,
}

/// Rights that are handled, and what is allowed of them where.
#[derive(Debug)]
pub struct Ruleset<P> {
    handled: Access,
    /// In the order of the keys, of which each is there once.
    rules: Vec<(Key, P, Access)>,
}

impl<P> Ruleset<P> {
    /// A ruleset without rules.
    pub fn new(handled: Access) -> Ruleset<P> {
        Ruleset { handled, rules: Vec::new() }
    }

    /// The rights that it handles.
    pub fn handled(&self) -> Access {
        self.handled
    }

    /// Allows these rights, all of which it handles, at and below a file. A second rule about the
    /// same file adds to the first.
    ///
    /// # Errors
    /// [`Failure::Memory`].
    pub fn allow(&mut self, key: Key, pin: P, allowed: Access) -> Result<(), Failure> {
        // A right that is not handled is not denied, either.
        let unhandled = Access::ALL.without(self.handled.with(Access::DENIED_AT_FIRST));
        let allowed = allowed.with(unhandled);
        match self.rules.binary_search_by_key(&key, |rule| rule.0) {
            Ok(at) => {
                if let Some((_, _, old)) = self.rules.get_mut(at) {
                    *old = old.with(allowed);
                }
            }
            Err(at) => {
                self.rules.try_reserve(1).map_err(|_| Failure::Memory)?;
                self.rules.insert(at, (key, pin, allowed));
            }
        }
        Ok(())
    }
}

/// What the layers of a domain say about one file.
#[derive(Clone, Debug)]
struct Rule<P> {
    key: Key,
    pin: P,
    /// The number of a layer, and what it allows, for each layer that says something.
    layers: Vec<(u8, Access)>,
}

/// The place of a domain among others: it descends from the domain of the thread that made it.
#[derive(Debug)]
pub struct Lineage(Option<Arc<Lineage>>);

impl Lineage {
    /// Whether `other` is this domain's or one that descends from it.
    pub fn covers(self: &Arc<Lineage>, other: &Arc<Lineage>) -> bool {
        let mut here = Some(other);
        while let Some(lineage) = here {
            if Arc::ptr_eq(lineage, self) {
                return true;
            }
            here = lineage.0.as_ref();
        }
        false
    }
}

/// The restrictions of a thread.
#[derive(Debug)]
pub struct Domain<P> {
    /// What each layer handles.
    layers: Vec<Access>,
    /// In the order of the keys.
    rules: Vec<Rule<P>>,
    lineage: Arc<Lineage>,
}

/// For each right the layers that do not allow it yet, a bit each.
pub(crate) type Masks = [u16; Access::COUNT];

impl<P: Clone> Domain<P> {
    /// The domain of a thread that had `old` and restricts itself by `ruleset`.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn restricted(old: Option<&Domain<P>>, ruleset: &Ruleset<P>) -> Result<Domain<P>, Failure> {
        const MEMORY: Failure = Failure::Memory;
        let depth = old.map_or(0, |old| old.layers.len());
        if depth >= MOST_LAYERS {
            return Err(Failure::TooManyLayers);
        }
        let mut layers = Vec::new();
        layers.try_reserve_exact(depth + 1).map_err(|_| MEMORY)?;
        layers.extend(old.iter().flat_map(|old| &old.layers));
        layers.push(ruleset.handled);
        let above = old.map_or(&[][..], |old| &old.rules);
        let mut rules: Vec<Rule<P>> = Vec::new();
        let most = above.len().saturating_add(ruleset.rules.len());
        rules.try_reserve(most).map_err(|_| MEMORY)?;
        let (mut above, mut new) = (above.iter().peekable(), ruleset.rules.iter().peekable());
        loop {
            let (mine, theirs) = (above.peek(), new.peek());
            let key = match (mine, theirs) {
                (None, None) => break,
                (Some(rule), None) => rule.key,
                (None, Some(rule)) => rule.0,
                (Some(one), Some(other)) => one.key.min(other.0),
            };
            let mine = above.next_if(|rule| rule.key == key);
            let theirs = new.next_if(|rule| rule.0 == key);
            let pin = mine.map(|rule| &rule.pin).or(theirs.map(|rule| &rule.1));
            let Some(pin) = pin else { break };
            let said = mine.map_or(&[][..], |rule| &rule.layers);
            let mut all = Vec::new();
            all.try_reserve_exact(said.len() + 1).map_err(|_| MEMORY)?;
            all.extend_from_slice(said);
            all.extend(theirs.map(|rule| (depth as u8, rule.2)));
            rules.push(Rule { key, pin: pin.clone(), layers: all });
        }
        let lineage = Arc::new(Lineage(old.map(|old| Arc::clone(&old.lineage))));
        Ok(Domain { layers, rules, lineage })
    }
}

impl<P> Domain<P> {
    /// Its place among other domains.
    pub fn lineage(&self) -> &Arc<Lineage> {
        &self.lineage
    }

    /// Whether these rights are allowed to the file whose path these are: its key, and those of the
    /// directories above up to the real root (`check_access_path`).
    pub fn allows(&self, wanted: Access, path: impl Iterator<Item = Key>) -> bool {
        let (handled, mut masks) = self.masks(wanted);
        if handled.is_empty() {
            return true;
        }
        path.into_iter().any(|key| self.unmask(key, handled, &mut masks))
    }

    /// The rights of `wanted` that some layer denies as long as no rule allows them, and for each
    /// of them these layers (`init_layer_masks`).
    pub(crate) fn masks(&self, wanted: Access) -> (Access, Masks) {
        let mut masks = [0; Access::COUNT];
        let mut handled = Access::NONE;
        for (level, layer) in self.layers.iter().enumerate() {
            let denied = layer.with(Access::DENIED_AT_FIRST);
            let both = Access(wanted.0 & denied.0);
            handled = handled.with(both);
            for number in both.numbers() {
                if let Some(mask) = masks.get_mut(number) {
                    *mask |= 1 << level;
                }
            }
        }
        (handled, masks)
    }

    /// All rights that some layer handles.
    pub(crate) fn all_handled(&self) -> Access {
        self.layers.iter().fold(Access::DENIED_AT_FIRST, |all, layer| all.with(*layer))
    }

    /// Takes out of the masks what the rule about a file allows, if there is one. Returns whether
    /// no layer denies one of the wanted rights any more.
    pub(crate) fn unmask(&self, key: Key, wanted: Access, masks: &mut Masks) -> bool {
        if let Ok(at) = self.rules.binary_search_by_key(&key, |rule| rule.key)
            && let Some(rule) = self.rules.get(at)
        {
            for (level, allowed) in &rule.layers {
                for number in Access(wanted.0 & allowed.0).numbers() {
                    if let Some(mask) = masks.get_mut(number) {
                        *mask &= !(1 << level);
                    }
                }
            }
        }
        is_empty(wanted, masks)
    }
}

/// Whether no layer denies one of these rights.
pub(crate) fn is_empty(wanted: Access, masks: &Masks) -> bool {
    wanted.numbers().all(|number| masks.get(number).is_none_or(|&mask| mask == 0))
}
