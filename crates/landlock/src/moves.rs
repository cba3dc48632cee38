//! Whether a file may get a name in another directory (`current_check_refer_path`).

use crate::rules::{Access, Domain, Key, Masks, is_empty};

/// A file that moves.
#[derive(Clone, Copy, Debug)]
pub struct Child {
    /// Its key.
    pub key: Key,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// A file that gets a name in another directory, by a rename or a link.
pub struct Move<A, B, C> {
    /// The keys of the old directory and of those above, up to the root of the mount.
    pub from: A,
    /// The same of the new directory.
    pub to: B,
    /// The keys from the root of their mount up to the real root.
    pub above: C,
    /// The rights asked of the old directory besides [`Access::REFER`].
    pub wanted_from: Access,
    /// The rights asked of the new one.
    pub wanted_to: Access,
    /// The file.
    pub child: Child,
    /// The file that moves the other way at the same time (`RENAME_EXCHANGE`).
    pub exchanged: Option<Child>,
}

/// Why a file may not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A right is missing: `EACCES`.
    Denied,
    /// Only the move itself is not allowed, so that a copy may do: `EXDEV`.
    OtherDevice,
}

/// One side of a move while the directories above are looked at.
struct Side {
    wanted: Access,
    masks: Masks,
}

impl Side {
    /// Forgets what is not wanted. Returns whether nothing is denied any more
    /// (`scope_to_request`).
    fn narrow(&mut self) -> bool {
        for number in Access::ALL.without(self.wanted).numbers() {
            if let Some(mask) = self.masks.get_mut(number) {
                *mask = 0;
            }
        }
        is_empty(self.wanted, &self.masks)
    }

    /// Whether another right than [`Access::REFER`] is missing (`is_eacces`).
    fn is_denied(&self) -> bool {
        !is_empty(self.wanted.without(Access::REFER), &self.masks)
    }
}

impl<P> Domain<P> {
    /// Whether the file may move.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn may_move<A, B, C>(&self, asked: Move<A, B, C>) -> Result<(), Refused>
    where
        A: Iterator<Item = Key>,
        B: Iterator<Item = Key>,
        C: Iterator<Item = Key>,
    {
        let Move { from, to, above, wanted_from, wanted_to, child, exchanged } = asked;
        let (is_free, masks) = self.collect(from);
        let mut from = Side { wanted: wanted_from.with(Access::REFER), masks };
        let (is_free_too, masks) = self.collect(to);
        let mut to = Side { wanted: wanted_to.with(Access::REFER), masks };
        if is_free && is_free_too {
            return Ok(());
        }
        let child = self.masks_of(child);
        let exchanged = exchanged.map(|other| self.masks_of(other));
        // At first all handled rights are compared; once the new place is known to be restricted
        // as the old one is, only what is wanted counts.
        let mut checked = None;
        let compare = |from: &mut Side, to: &mut Side| {
            gives_nothing(&from.masks, &child, &to.masks)
                && exchanged
                    .as_ref()
                    .is_none_or(|other| gives_nothing(&to.masks, other, &from.masks))
        };
        for key in above {
            if checked.is_none() && compare(&mut from, &mut to) {
                let (one, other) = (from.narrow(), to.narrow());
                if one && other {
                    return Ok(());
                }
                checked = Some((from.wanted, to.wanted));
            }
            let all = self.all_handled();
            let (of_from, of_to) = checked.unwrap_or((all, all));
            let one = self.unmask(key, of_from, &mut from.masks);
            let other = self.unmask(key, of_to, &mut to.masks);
            if one && other {
                return Ok(());
            }
        }
        let is_denied = from.is_denied() || to.is_denied();
        Err(if is_denied { Refused::Denied } else { Refused::OtherDevice })
    }

    /// What the directories up to the root of a mount leave denied of all rights; whether that is
    /// nothing (`collect_domain_accesses`).
    fn collect(&self, path: impl Iterator<Item = Key>) -> (bool, Masks) {
        let (all, mut masks) = self.masks(Access::ALL);
        let mut path = path;
        let is_free = path.any(|key| self.unmask(key, all, &mut masks));
        (is_free, masks)
    }

    /// What the rule about the file itself leaves denied.
    fn masks_of(&self, child: Child) -> (bool, Masks) {
        let (all, mut masks) = self.masks(Access::ALL);
        self.unmask(child.key, all, &mut masks);
        (child.is_directory, masks)
    }
}

/// Whether a file has no more rights at its new place than at its old one: each layer that denies
/// one to it at the old place does so at the new one (`no_more_access`). Of what is no directory
/// only some rights count.
fn gives_nothing(from: &Masks, (is_directory, child): &(bool, Masks), to: &Masks) -> bool {
    let counts = if *is_directory { Access::ALL } else { Access::OF_FILES };
    counts.numbers().all(|number| {
        let of = |masks: &Masks| masks.get(number).copied().unwrap_or(0);
        of(from) & of(child) & !of(to) == 0
    })
}
