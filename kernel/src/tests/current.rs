//! Tests of what is current and what is loaded, inside the kernel.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use machine::cpu;
use machine::paging::{self, PageTable};

use super::memory::space;
use crate::memory::*;
use crate::{check, ktest, schedule};

ktest! {
    fn a_context_works_in_its_own_space_only() {
        let own = space().unwrap();
        check!(try_current().is_none());
        let seen = Arc::new(AtomicUsize::new(0));
        let told = seen.clone();
        let looker = move || told.store(1 + usize::from(try_current().is_some()), SeqCst);
        own.visit(|| {
            check!(schedule::start_kernel("looker", looker).is_ok());
            // Others run here meanwhile, on one processor the looker among them.
            while seen.load(SeqCst) == 0 {
                schedule::yield_now();
            }
            check!(core::ptr::eq(&*current(), &*own));
            Ok(())
        })?;
        check!(seen.load(SeqCst) == 1);
        check!(try_current().is_none());
    }
}

ktest! {
    fn a_page_table_that_is_loaded_may_be_moved() {
        let Some(table) = PageTable::new(()) else {
            check!(false);
            return Ok(());
        };
        table.activate();
        let moved = Box::new(table);
        check!(moved.active() == 1 << cpu::id());
        paging::deactivate();
        check!(moved.active() == 0);
    }
}
