//! The restrictions that a thread has given itself (`landlock(7)`), as its credentials hold them.
//!
//! A leaf module below files and credentials: a rule keeps its file by a pin that this module knows
//! nothing of. [`crate::vfs::landlock`] asks the rules about places.

use alloc::sync::Arc;

use hayate_landlock::{Domain, Ruleset};

/// Keeps a file from going, so that its number names no other.
pub trait Pin: Send + Sync {}

/// A ruleset about files.
pub type Rules = Ruleset<Arc<dyn Pin>>;

/// The domain of a thread.
#[derive(Clone)]
pub struct Confinement(Arc<Domain<Arc<dyn Pin>>>);

impl Confinement {
    /// Makes the domain of a thread that had `old` and restricts itself by `rules`.
    ///
    /// # Errors
    /// [`hayate_landlock::Failure`].
    pub fn restricted(
        old: Option<&Confinement>,
        rules: &Rules,
    ) -> Result<Confinement, hayate_landlock::Failure> {
        Domain::restricted(old.map(|old| &*old.0), rules).map(|domain| Confinement(domain.into()))
    }

    /// Whether threads of this domain may look into those of another: of the same, or of one that
    /// descends from it (`domain_scope_le`, security/landlock/ptrace.c).
    pub fn covers(&self, other: Option<&Confinement>) -> bool {
        other.is_some_and(|other| self.0.lineage().covers(other.0.lineage()))
    }
}

impl core::ops::Deref for Confinement {
    type Target = Domain<Arc<dyn Pin>>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl core::fmt::Debug for Confinement {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Confinement({:p})", Arc::as_ptr(&self.0))
    }
}

impl PartialEq for Confinement {
    fn eq(&self, other: &Confinement) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Confinement {}
