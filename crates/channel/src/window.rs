//! The windows of streams: how much may be on the way.
//!
//! The sender has an [`Allowance`], which data takes from and credit adds to. The receiver has
//! [`Receipts`], which say when enough was passed on to be worth a frame of credit.

use crate::WINDOW;

/// The other side sent more than it may, or gave more credit than there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overdrawn;

/// How many bytes the sender of a stream may still send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowance(u32);

impl Default for Allowance {
    fn default() -> Self {
        Allowance(WINDOW)
    }
}

impl Allowance {
    /// Returns how many bytes may be sent.
    pub fn left(&self) -> usize {
        self.0 as usize
    }

    /// Takes the bytes of a frame.
    ///
    /// # Errors
    /// There is less left. Nothing is taken.
    pub fn spend(&mut self, bytes: usize) -> Result<(), Overdrawn> {
        let bytes = u32::try_from(bytes).map_err(|_| Overdrawn)?;
        self.0 = self.0.checked_sub(bytes).ok_or(Overdrawn)?;
        Ok(())
    }

    /// Adds credit.
    ///
    /// # Errors
    /// It is more than was ever spent. Nothing is added.
    pub fn grant(&mut self, bytes: u32) -> Result<(), Overdrawn> {
        let sum = self.0.checked_add(bytes).filter(|&sum| sum <= WINDOW);
        self.0 = sum.ok_or(Overdrawn)?;
        Ok(())
    }
}

/// How many bytes the receiver of a stream has passed on since it last gave credit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipts(u32);

impl Receipts {
    /// Counts bytes that were passed on, and returns the credit to give now, if any: a frame for
    /// each byte would cost more than it brings.
    pub fn passed_on(&mut self, bytes: usize) -> Option<u32> {
        self.0 = self.0.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        (self.0 >= WINDOW / 4).then(|| core::mem::take(&mut self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_side_overdraws() {
        let mut allowance = Allowance::default();
        assert_eq!(allowance.grant(1), Err(Overdrawn));
        assert_eq!(allowance.spend(WINDOW as usize + 1), Err(Overdrawn));
        assert_eq!(allowance.spend(usize::MAX), Err(Overdrawn));
        assert_eq!(allowance.spend(WINDOW as usize), Ok(()));
        assert_eq!(allowance.spend(1), Err(Overdrawn));
        assert_eq!(allowance.grant(u32::MAX), Err(Overdrawn));
        assert_eq!(allowance.grant(5), Ok(()));
        assert_eq!(allowance.left(), 5);
    }

    proptest! {
        /// A sender that sends whenever it may, and a receiver that passes on what it got, never
        /// stand still and never overdraw.
        #[test]
        fn a_stream_goes_on(
            pieces in prop::collection::vec((1_usize..40_000, any::<bool>()), 1..200),
        ) {
            let (mut allowance, mut receipts) = (Allowance::default(), Receipts::default());
            let mut held = 0;
            for (piece, passes) in pieces {
                let piece = piece.min(allowance.left());
                allowance.spend(piece).unwrap();
                held += piece;
                prop_assert!(held <= WINDOW as usize);
                if passes || piece == 0 {
                    let credit = receipts.passed_on(core::mem::take(&mut held));
                    allowance.grant(credit.unwrap_or(0)).unwrap();
                    prop_assert!(allowance.left() > 0);
                }
            }
        }
    }
}
