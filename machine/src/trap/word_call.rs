//! The macro that declares a system call which only reads a word.

/// Declares a system call that only reads a word of the object in a per-CPU
/// [`Local`](crate::cpu::Local) slot: a function for the table of calls, and an entry for the gate
/// ([`Gate::Own`](crate::trap::Gate::Own)) that does the same without a stack.
///
/// `current` returns what the slot holds, in the shortest way ([`read_slot`](crate::read_slot)).
///
/// `word_call!(getpid, getpid_gate, current, CURRENT, Thread, number);`
// SOUND: slot, object and field are checked to belong together and to be of the width that is read;
// safe code never gets the entry as a function, only as an `OwnGate`.
#[macro_export]
macro_rules! word_call {
    ($(#[$meta:meta])* $name:ident, $gate:ident, $current:path, $local:path, $type:ty,
     $field:ident) => {
        $(#[$meta])*
        #[inline(always)]
        pub fn $name() -> u32 {
            $current().$field.load(core::sync::atomic::Ordering::Relaxed)
        }

        // The field has four bytes, as the entry below reads it, and belongs to the type that the
        // slot names.
        const _: fn(&$type) -> &core::sync::atomic::AtomicU32 = |object| &object.$field;
        const _: fn() -> &'static $crate::cpu::Local<$type, $crate::cpu::OfPrincipal> = || &$local;

        /// The gate's entry for the same word.
        #[allow(unsafe_code)]
        pub fn $gate() -> $crate::trap::OwnGate {
            // SAFETY: only the gate's table enters this, with interrupts off; see the gate's
            // contract. The slot is never empty there, and the field has four bytes and belongs to
            // the object that the slot names.
            #[unsafe(naked)]
            unsafe extern "C" fn code() {
                core::arch::naked_asm!(
                    "swapgs",
                    "inc qword ptr gs:[{gated}]",
                    "mov rax, gs:[{local}]",
                    "mov eax, [rax + {offset}]",
                    "swapgs",
                    "jmp rcx",
                    gated = sym $crate::trap::GATED,
                    local = sym $local,
                    offset = const core::mem::offset_of!($type, $field),
                )
            }
            // SAFETY: the code swaps GS twice, touches neither the stack nor any register but rax,
            // and goes to rcx.
            unsafe { $crate::trap::OwnGate::new(code) }
        }
    };
}
