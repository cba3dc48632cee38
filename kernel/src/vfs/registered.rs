//! Values that upper modules register at boot, so that a lower one can call them.

use hayate_machine::sync::Once;

/// Up to `N` registered values, in the order of registration.
pub struct Registered<T, const N: usize>([Once<T>; N]);

impl<T, const N: usize> Registered<T, N> {
    /// Makes an empty list.
    pub const fn new() -> Self {
        Self([const { Once::new() }; N])
    }

    /// Adds a value; at boot, which one processor does.
    ///
    /// # Panics
    /// If there is no place left, which a first boot shows.
    pub fn add(&self, value: T) {
        let Some(free) = self.0.iter().find(|slot| !slot.is_completed()) else {
            panic!("more is registered than the list has places");
        };
        free.call_once(|| value);
    }

    /// Returns the values.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map_while(Once::get)
    }
}
