//! Nine paths through the kernel, each from its first instruction to its last.
//!
//! | path | begins with | ends with |
//! |---|---|---|
//! | [`page_fault`] | a program touches a page | the instruction is tried again |
//! | [`system_call`] | the instruction `syscall` | `sysretq` |
//! | [`fork`] | `clone`, `fork`, `vfork` | two programs at the same instruction |
//! | [`exec`] | `execve` | the first instruction of another program |
//! | [`read`] | `read` of a file | bytes in the program's memory |
//! | [`packet`] | `send` in one machine | bytes for a `recv` in another |
//! | [`interrupt`] | the timer fires | perhaps another program |
//! | [`kept_start`] | an exec of a program that ran before | its space as it was at its first instruction |
//! | [`mode_switch`] | `mode supervisor PID` | the program's next system call is a function call |
//!
//! Files of the machine layer are named by path, because rustdoc does not link to private items of
//! another crate; `cargo doc -p hayate-machine --document-private-items` has their pages. This
//! module is only in the documentation.

/// A page fault: the processor finds no entry, or no right, for an address of a program.
///
/// 1. `machine/src/trap/entry.rs`: the stub of vector 14 builds the frame
///    ([`UserRegs`](machine::trap::UserRegs)) on the thread's kernel stack.
/// 2. `machine/src/trap/exception.rs`, `trap_from_user`: reads CR2 and calls the handler that the
///    kernel registered at boot ([`Handlers::page_fault`](machine::trap::Handlers)). A checked copy
///    of the kernel that meets the page comes by `trap_from_kernel` to the same handler.
/// 3. [`process::fault::page_fault`](crate::process::fault::page_fault): reading, writing or
///    executing?
/// 4. [`Space::handle`](crate::memory::Space::handle) in `memory/fault.rs`, with the space's lock
///    held: which region is it, does the program have the right, and what belongs there? A zeroed
///    frame, the page of the page cache
///    ([`PageCache::peek`](crate::page_cache::cache::PageCache::peek)), or a copy of a page that is
///    shared since a fork.
/// 5. [`Edit`](machine::paging::Edit) walks to the entry, and copies page tables that a fork shared
///    (`machine/src/paging/own.rs`, `share.rs`); [`Slot`](machine::paging::Slot) enters the page.
/// 6. If the page must be read from a disk or memory must be found, the lock is released first:
///    `handle_slowly`, [`PageCache::read_for`](crate::page_cache::cache::PageCache::read_for),
///    [`reclaim::relieve`](crate::reclaim::relieve). Then the attempt is made again from step 4.
/// 7. Back in `process/fault.rs`: a fault that cannot be resolved becomes SIGSEGV, SIGBUS, or the
///    end of the process. The stub returns by `iretq`, and the instruction is tried again.
///
/// No global lock is on this path: one lock of the space, and of the frame allocator only the part
/// of this processor.
pub mod page_fault {}

/// A system call: from `syscall` to `sysretq`.
///
/// 1. `machine/src/trap/entry.rs`, `hayate_syscall_entry`: changes to the thread's kernel stack and
///    builds the frame ([`UserRegs`](machine::trap::UserRegs)).
/// 2. By the number in `rax` it calls a function of the table in `machine/src/trap/calls.rs`; for a
///    number without one that is the handler registered at boot:
/// 3. [`syscall::dispatch`](crate::syscall::dispatch): looks the number up in
///    [`HANDLERS`](crate::syscall::HANDLERS).
/// 4. `syscall/table.rs`: one row for each call: number, name, arguments with their types, how
///    complete it is, and the function. The macros of `syscall/calls.rs` make the handler of it,
///    which decodes the registers ([`syscall::argument`](crate::syscall::argument)) and encodes the
///    result.
/// 5. The function, in a file of its family, for instance `syscall/process.rs`: checks, then
///    calls the module that does the work. Memory of the program is reached by checked copies only
///    ([`machine::user`]): a bad pointer is EFAULT.
/// 6. Back in the stub: if the attention word of this processor is zero, `sysretq`. If not,
///    [`Handlers::attention`](machine::trap::Handlers) is called until it is:
///    [`schedule::attend`](crate::schedule::attend) for the scheduler,
///    [`process::attend`](crate::process::attend) for signals and memory.
///
/// `trace=syscalls` on the kernel's command line registers another handler in step 2
/// ([`syscall::trace`](crate::syscall::trace)), so that tracing costs nothing while it is off.
pub mod system_call {}

/// fork, vfork and clone: a second program at the same instruction.
///
/// 1. `syscall/process.rs` turns the call into a
///    [`CloneRequest`](crate::process::clone::CloneRequest).
/// 2. [`clone::start`](crate::process::clone::start) checks flags and limits and draws a number.
/// 3. The space: shared (threads, vfork), or copied by [`Space::fork`](crate::memory::Space::fork):
///    an empty space from [`recycle::empty_spaces`](crate::recycle::empty_spaces), filled in
///    `memory/fork.rs`. The copy shares whole page-table pages with the parent
///    (`machine/src/paging/share.rs`), which are split at the first write below them: its cost does
///    not grow with the parent's memory.
/// 4. The record: [`Process`](crate::process::Process), [`Thread`](crate::process::Thread), and an
///    [`Execution`](crate::schedule::Execution) with a kernel stack
///    ([`recycle::stacks`](crate::recycle::stacks)) and a copy of the floating-point registers.
/// 5. `introduce` is the point of no return: the child enters its parent's list
///    (`process/family.rs`) and the table of numbers (`process/pids.rs`). Until here everything can
///    fail and is undone.
/// 6. The child becomes runnable: [`schedule::start_child`](crate::schedule::start_child)
///    (`schedule/start.rs`) puts it into a run queue (`schedule/run_queue.rs`), on the parent's
///    processor if the parent tends to wait at once
///    ([`wake_affinity`](crate::schedule::wake_affinity)). The parent of a vfork waits in
///    `wait_for_space`.
/// 7. The child's first instructions are the way out of a system call with 0 in `rax`
///    (`hayate_user_start` in `machine/src/trap/entry.rs`).
///
/// The other end is [`process::exit`](crate::process::exit).
pub mod fork {}

/// execve: from the path of a program to its first instruction.
///
/// 1. `syscall/process.rs` copies path, arguments and environment from the program.
/// 2. [`program::prepare`](crate::program::prepare) does everything that can fail, with no effect
///    on the process:
///    * it opens the file and checks the right to execute it
///      ([`Executable`](crate::program::Executable)), and follows `#!` lines;
///    * the load plan comes from [`recycle::programs`](crate::recycle::programs), or is made by the
///      crate `hayate-program-image`;
///    * a space comes from [`recycle::spaces`](crate::recycle::spaces) (see [`kept_start`]),
///      or is made and mapped (`program/load.rs`, [`crate::memory::map`]);
///    * the first stack is built (`program/stack.rs`).
/// 3. [`exec::execute`](crate::process::exec::execute) ends the other threads of the process.
/// 4. `commit` is the point of no return: credentials, space and program are replaced together
///    (`process/transform.rs`), close-on-exec descriptors are closed, signal handlers are reset.
/// 5. [`recycle::spaces::release`](crate::recycle::spaces::release) keeps the space that the
///    process left, if nobody else uses it.
/// 6. The frame of the system call gets the entry point and the new stack pointer, so that the way
///    out leads into the new program. A dynamic program begins in its interpreter, `ld.so`.
///
/// Text of a program in two files is entered in the page table when it is mapped
/// ([`in_place::attach`](crate::in_place::attach)); all other pages come by [`page_fault`].
pub mod exec {}

/// A read of a file.
///
/// 1. `syscall/file/io.rs`, `read`: from the descriptor to the open file
///    ([`Thread::file`](crate::process::Thread::file) asks the
///    [`FdTable`](crate::vfs::descriptor::FdTable), under the table's own spin lock).
/// 2. [`OpenFile::read`](crate::vfs::open_file::OpenFile): checks the mode, takes the position, and
///    calls the operations of the file ([`FileOps`](crate::vfs::open_file::FileOps)). For a pipe, a
///    socket or a terminal those are in [`crate::ipc`] or [`crate::tty`], and the path ends there.
/// 3. A file with pages: its file system in [`crate::fs`] (`fs/ext4/file.rs`) leads to
///    [`vfs::content::read_cached`](crate::vfs::content::read_cached), the loop that is the same
///    for all of them.
/// 4. [`PageCache::peek`](crate::page_cache::cache::PageCache::peek): the page is in memory, and
///    [`Output`](crate::vfs::transfer::Output) copies it to the program, checked. A hole of a file
///    in memory is zeroes.
/// 5. The page is not in memory:
///    [`PageCache::readahead`](crate::page_cache::cache::PageCache::readahead) asks the
///    [`PageSource`](crate::page_cache::source::PageSource) for this page and those that follow;
///    `fs/ext4/content.rs` finds the blocks (crate `hayate-ext4`), [`crate::drivers`] reads them,
///    and the thread sleeps meanwhile. A reader that goes on finds the next ones asked for in the
///    background ([`read_ahead`](crate::page_cache::read_ahead)).
/// 6. Back in step 1: the bytes are counted, and watchers are told ([`crate::vfs::notify`]).
pub mod read {}

/// A packet: bytes of a TCP connection from one machine to another.
///
/// Sending:
///
/// 1. `syscall/socket/messages.rs`, `send`: from the descriptor to the operations of the socket
///    ([`SocketOps`](crate::vfs::socket::SocketOps)); for TCP those are in `net/tcp/socket_ops.rs`.
/// 2. `net/tcp/data.rs`, `send_bytes`: waits for room, copies the bytes into slices of frames
///    (`net/slice.rs`), checked, without a lock, and gives these to the connection.
/// 3. The connection (crate `hayate-tcp`, `connection/output.rs`) makes segments as far as the
///    windows allow, with the socket's lock held. They are sent after it is released: `finish` in
///    `net/tcp/mod.rs`.
/// 4. `net/tcp/route.rs` makes a packet of a segment, and `net/output.rs` chooses the interface. On
///    the loopback interface (`net/loopback.rs`) the packet goes to step 9 as it is, and is never
///    bytes.
/// 5. `net/link.rs`: asks for the hardware address of the next host, if it is not known
///    ([`net::neighbour`](crate::net::neighbour)), writes the headers (`net/wire.rs`), and gives
///    the device the frame, which still refers to the sender's slices.
/// 6. `drivers/virtio_net/transmit.rs` puts it into the queue of this processor.
///
/// Receiving:
///
/// 7. The device's interrupt wakes the execution of its queue (`drivers/virtio_net/receive.rs`),
///    which takes packets until the queue is empty: the device wrote them into frames that the
///    queue had given it.
/// 8. `net/link.rs` and `net/wire.rs` check the headers, with the checksum if the device has not
///    verified it. The payload stays in the device's frames.
/// 9. `net/input.rs` chooses the protocol, and `net/tcp/input.rs` finds the socket by the addresses
///    and ports (`net/tcp/table.rs`).
/// 10. The connection takes the segment with the socket's lock held: the usual one in
///     `connection/fast.rs`, all others in `connection/input.rs`. Then, without it, `finish` sends
///     the answer and wakes the readers.
/// 11. The reader, in `receive_bytes` of `net/tcp/data.rs`, copies the bytes to its program and
///     drops them from the queue.
///
/// No lock of a socket is held while a packet is sent, and no two connections share a lock, except
/// a part of the table for the time of a look-up.
pub mod packet {}

/// An interrupt: the timer of this processor fires while a program runs.
///
/// 1. `machine/src/trap/entry.rs`: the stub of the vector changes GS, builds the frame on the
///    thread's kernel stack, and joins the path of exceptions.
/// 2. `machine/src/trap/exception.rs`, `take_interrupt`: acknowledges it at the local APIC. The
///    timer goes to [`Handlers::timer`](machine::trap::Handlers), a device to the handler of its
///    vector (`machine/src/interrupt.rs`), and requests of other processors are done here (TLB
///    flushes, rescheduling).
/// 3. [`schedule::tick`](crate::schedule::tick): runs the timers that are due, counts the time of
///    the running execution, and raises the attention bit `RESCHEDULE` if its turn has ended.
/// 4. On the way out the stub finds the attention word not zero and calls
///    [`Handlers::attention`](machine::trap::Handlers):
/// 5. [`schedule::attend`](crate::schedule::attend) calls `reschedule` in `schedule/switch.rs`: it
///    chooses the next execution from the run queue, or stays.
/// 6. [`machine::context::switch`] changes the stack and with it what the processor works for:
///    execution, thread, space.
/// 7. [`process::attend`](crate::process::attend) delivers signals, and `iretq` returns to the
///    program, perhaps another one than before.
///
/// The kernel itself runs with interrupts off. An interrupt arrives in a program, in the idle loop,
/// or in a window that a long path opens ([`machine::cpu::interrupt_window`]).
pub mod interrupt {}

/// One start from what was kept (Tender).
///
/// It begins where the program ran last: at its exit, or at its next exec.
///
/// 1. [`process::exit`](crate::process::exit) gives the space to
///    [`recycle::spaces::release`](crate::recycle::spaces::release). Was this its last user, did
///    exec make it, and does the policy ([`recycle::policy`](crate::recycle::policy)) keep such a
///    space? Then what the program added is unmapped, and the space with its page tables and pages
///    goes into this processor's pool. If not, it is emptied for any process
///    ([`recycle::empty_spaces`](crate::recycle::empty_spaces)), or only its pages are kept
///    ([`recycle::regions`](crate::recycle::regions)).
/// 2. The next exec: [`program::prepare`](crate::program::prepare) finds the load plan
///    ([`recycle::programs`](crate::recycle::programs)) and computes the key: which contents of
///    which files, user, limits, fixed or random addresses (crate `hayate-recycler`).
/// 3. [`recycle::spaces::take`](crate::recycle::spaces::take): the own pool first, then those of
///    other processors. If its reference is not the only one, the space is left.
/// 4. Restoring: for each region that the program could write, the dirty bits of the processor say
///    which pages were written (`machine/src/paging/restore.rs`). Those are copied again from the
///    page cache, or zeroed; all others stay as they are, and nothing is mapped.
/// 5. The stack gets the new arguments, and exec goes on at its point of no return (see
///    [`exec`]). The program runs with all its pages in place and takes hardly a fault.
///
/// When frames run out, kept spaces are dropped, the oldest first
/// ([`recycle::pools`](crate::recycle::pools), [`crate::reclaim`]).
pub mod kept_start {}

/// One switch of mode (DMSM): a running program moves to ring 0.
///
/// 1. `syscall/mode.rs`: Hayate's own call `switch_supervisor`, which `./hayate run --mode`
///    and the guest program `mode` make.
/// 2. [`supervisor::switch::switch`](crate::supervisor::switch::switch): may the caller do it, and
///    may this program have it? A program with set-user-id bits never may.
/// 3. [`Space::set_supervisor`](crate::memory::Space::set_supervisor) in `supervisor/space.rs`,
///    with the space's lock held.
/// 4. `machine/src/paging/supervisor.rs`: clears or sets the user bit in the entries of the root,
///    at most 256, whatever the size of the program. Then every processor that has the space loaded
///    flushes its TLB and moves its program to the other ring. The threads are not stopped and see
///    nothing of it.
/// 5. The program's next `syscall` in ring 0 enters at `hayate_supervisor_syscall`
///    (`machine/src/trap/supervisor.rs`), and `by_trap` in
///    [`supervisor::gate`](crate::supervisor::gate) serves it by the table of [`system_call`].
/// 6. A call site that is reached often is patched
///    ([`supervisor::call_sites`](crate::supervisor::call_sites), crate `hayate-call-sites`): a
///    jump to a trampoline, which calls the gate. From then on the system call is a function call,
///    without `syscall`, without a change of ring.
/// 7. Back to user mode: steps 1 to 4 again. A trampoline that is entered in ring 3 faults, its
///    site gets its own bytes back, and the call is made as before.
pub mod mode_switch {}
