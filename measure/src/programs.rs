//! Small static ELF programs with text, data and bss of any size, generated here so that process
//! creation can be measured on any system without a compiler.
//!
//! There are two kinds. One touches its pages and ends, for measuring exec. The other measures
//! fork: asked by a byte on its standard input it touches its pages, times a fork, the child's exit
//! and the wait by the time-stamp counter, and writes the ticks to its standard output.

/// The sizes of a program's three parts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Text: read page by page when it runs.
    pub text: usize,
    /// Data: written page by page.
    pub data: usize,
    /// Bss: written page by page.
    pub bss: usize,
}

const PAGE: usize = 4096;
const BASE: u64 = 0x40_0000;
const HEADERS: usize = 64 + 2 * 56;
const ENTRY: usize = 0x100;
/// The code of the largest program fits well below this.
const LEAST_TEXT: usize = 0x200;

/// The offsets of a program's parts.
struct Layout {
    text: usize,
    data_offset: usize,
    data_start: u64,
    bss_start: u64,
}

impl Layout {
    fn of(sizes: Sizes) -> Self {
        let text = sizes.text.max(LEAST_TEXT);
        let data_offset = text.next_multiple_of(PAGE);
        let data_start = BASE + data_offset as u64;
        let bss_start = (data_start + sizes.data as u64).next_multiple_of(PAGE as u64);
        Self { text, data_offset, data_start, bss_start }
    }
}

/// Returns an executable that touches every page of its parts once and exits with 0. Text is at
/// least half a kilobyte.
pub fn executable(sizes: Sizes) -> Vec<u8> {
    exiting(sizes, touch_all(sizes))
}

/// Returns the same program, except that it reads only `pages` pages of the text, evenly spread.
pub fn sparse_executable(sizes: Sizes, pages: usize) -> Vec<u8> {
    let all = Layout::of(sizes).text.div_ceil(PAGE);
    let pages = pages.clamp(1, all);
    let mut code = Vec::new();
    touch_each(&mut code, BASE, pages, all / pages, &READ);
    code.extend(touch_written(sizes));
    exiting(sizes, code)
}

/// A program with `code` that then exits with 0.
fn exiting(sizes: Sizes, mut code: Vec<u8>) -> Vec<u8> {
    // mov eax, 60; xor edi, edi; syscall
    code.extend([0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05]);
    image(sizes, &code)
}

/// The first part of a forking program: waits for a byte.
const ASKED: [u8; 19] = [
    0x31, 0xc0, // xor eax, eax: read
    0x31, 0xff, // xor edi, edi: of standard input
    0x48, 0x8d, 0x74, 0x24, 0xf0, // lea rsi, [rsp - 16]
    0xba, 0x01, 0x00, 0x00, 0x00, // mov edx, 1
    0x0f, 0x05, // syscall
    0x83, 0xf8, 0x01, // cmp eax, 1; the jump follows
];

/// The last part: times a fork and writes the result. The jump back to the first part is filled in.
const FORKS: [u8; 118] = [
    0x0f, 0xae, 0xe8, 0x0f, 0x31, 0x0f, 0xae, 0xe8, // lfence; rdtsc; lfence
    0x48, 0xc1, 0xe2, 0x20, // shl rdx, 32
    0x4c, 0x8d, 0x24, 0x10, // lea r12, [rax + rdx]
    0xb8, 0x39, 0x00, 0x00, 0x00, // mov eax, 57: fork
    0x0f, 0x05, // syscall
    0x85, 0xc0, // test eax, eax
    0x74, 0x52, // jz child
    0x78, 0x49, // js failed
    0x89, 0xc7, // mov edi, eax
    0x48, 0x8d, 0x74, 0x24, 0xf0, // lea rsi, [rsp - 16]
    0x31, 0xd2, // xor edx, edx
    0x45, 0x31, 0xd2, // xor r10d, r10d
    0xb8, 0x3d, 0x00, 0x00, 0x00, // mov eax, 61: wait4
    0x0f, 0x05, // syscall
    0x85, 0xc0, // test eax, eax
    0x78, 0x32, // js failed
    0x0f, 0xae, 0xe8, 0x0f, 0x31, 0x0f, 0xae, 0xe8, // lfence; rdtsc; lfence
    0x48, 0xc1, 0xe2, 0x20, // shl rdx, 32
    0x48, 0x01, 0xd0, // add rax, rdx
    0x4c, 0x29, 0xe0, // sub rax, r12
    0x48, 0x89, 0x44, 0x24, 0xf0, // mov [rsp - 16], rax
    0xbf, 0x01, 0x00, 0x00, 0x00, // mov edi, 1: to standard output
    0xb8, 0x01, 0x00, 0x00, 0x00, // mov eax, 1: write
    0x48, 0x8d, 0x74, 0x24, 0xf0, // lea rsi, [rsp - 16]
    0xba, 0x08, 0x00, 0x00, 0x00, // mov edx, 8
    0x0f, 0x05, // syscall
    0xe9, 0x00, 0x00, 0x00, 0x00, // jmp to the first part
    0xbf, 0x01, 0x00, 0x00, 0x00, // failed: mov edi, 1
    0xeb, 0x02, // jmp out
    0x31, 0xff, // child: xor edi, edi
    0xb8, 0x3c, 0x00, 0x00, 0x00, // out: mov eax, 60: exit
    0x0f, 0x05, // syscall
];
/// The offset just behind the jump back, and that of the exit of a child and of a program that gets
/// no byte, in [`FORKS`].
const BEHIND_JUMP: usize = 102;
const CHILD: usize = 109;

/// Returns an executable that forks when asked; see the head of this module.
pub fn forking_executable(sizes: Sizes) -> Vec<u8> {
    let touches = touch_all(sizes);
    let mut code = ASKED.to_vec();
    code.extend([0x0f, 0x85]); // jne child
    code.extend(((touches.len() + CHILD) as u32).to_le_bytes());
    code.extend(touches);
    let back = -((code.len() + BEHIND_JUMP) as i32);
    let jump = code.len() + BEHIND_JUMP - 4;
    code.extend(FORKS);
    code[jump..jump + 4].copy_from_slice(&back.to_le_bytes());
    image(sizes, &code)
}

/// Code that touches every page of all parts.
fn touch_all(sizes: Sizes) -> Vec<u8> {
    let mut code = Vec::new();
    touch_each(&mut code, BASE, Layout::of(sizes).text.div_ceil(PAGE), 1, &READ);
    code.extend(touch_written(sizes));
    code
}

/// Code that touches every page of data and bss.
fn touch_written(sizes: Sizes) -> Vec<u8> {
    let l = Layout::of(sizes);
    let mut code = Vec::new();
    touch_each(&mut code, l.data_start, sizes.data.div_ceil(PAGE), 1, &WRITE);
    touch_each(&mut code, l.bss_start, sizes.bss.div_ceil(PAGE), 1, &WRITE);
    code
}

/// The file of a program with `code` at its entry.
fn image(sizes: Sizes, code: &[u8]) -> Vec<u8> {
    let Layout { text, data_offset, data_start, bss_start } = Layout::of(sizes);
    let mut image = Vec::with_capacity(data_offset + sizes.data);
    image.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    image.extend(2u16.to_le_bytes()); // ET_EXEC
    image.extend(62u16.to_le_bytes()); // x86-64
    image.extend(1u32.to_le_bytes());
    image.extend((BASE + ENTRY as u64).to_le_bytes());
    image.extend(64u64.to_le_bytes()); // program headers follow
    image.extend(0u64.to_le_bytes()); // no sections
    image.extend(0u32.to_le_bytes());
    for half in [64u16, 56, 2, 64, 0, 0] {
        image.extend(half.to_le_bytes());
    }
    let memory = bss_start - data_start + sizes.bss as u64;
    header(&mut image, 5, 0, BASE, text as u64, text as u64);
    header(&mut image, 6, data_offset as u64, data_start, sizes.data as u64, memory.max(1));
    debug_assert_eq!(image.len(), HEADERS);
    image.resize(ENTRY, 0);
    image.extend(code);
    debug_assert!(image.len() <= LEAST_TEXT);
    image.resize(text, 0x90);
    image.resize(data_offset, 0);
    image.resize(data_offset + sizes.data, 0);
    image
}

/// A PT_LOAD program header.
fn header(image: &mut Vec<u8>, flags: u32, offset: u64, start: u64, in_file: u64, in_memory: u64) {
    image.extend(1u32.to_le_bytes());
    image.extend(flags.to_le_bytes());
    for field in [offset, start, start, in_file, in_memory, PAGE as u64] {
        image.extend(field.to_le_bytes());
    }
}

/// `mov al, [rsi]`
const READ: [u8; 2] = [0x8a, 0x06];
/// `mov byte [rsi], 1`
const WRITE: [u8; 3] = [0xc6, 0x06, 0x01];

/// Appends code that executes `access` (on `[rsi]`) once for each of `pages` pages, `step` pages
/// apart, from `start`.
fn touch_each(code: &mut Vec<u8>, start: u64, pages: usize, step: usize, access: &[u8]) {
    if pages == 0 {
        return;
    }
    code.extend([0x48, 0xbe]); // mov rsi, start
    code.extend(start.to_le_bytes());
    code.push(0xb9); // mov ecx, pages
    code.extend((pages as u32).to_le_bytes());
    let top = code.len();
    code.extend(access);
    code.extend([0x48, 0x81, 0xc6]); // add rsi, step * 4096
    code.extend(((step * PAGE) as u32).to_le_bytes());
    code.extend([0xff, 0xc9]); // dec ecx
    let back = top as isize - (code.len() as isize + 2);
    code.extend([0x75, back as i8 as u8]); // jnz top
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    #[test]
    fn programs_of_all_sizes_run() {
        let directory = std::env::temp_dir().join(format!("measure-elf-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        for (i, (text, data, bss)) in [
            (0, 0, 0),
            (20 << 10, 4 << 10, 4 << 10),
            (1 << 20, 100, 0),
            (5000, 5000, 5000),
            (4096, 0, 1 << 20),
        ]
        .into_iter()
        .enumerate()
        {
            let path = directory.join(i.to_string());
            std::fs::write(&path, executable(Sizes { text, data, bss })).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
            let status = Command::new(&path).status().unwrap();
            assert!(status.success(), "{text}/{data}/{bss}: {status}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn forking_programs_answer_as_often_as_they_are_asked() {
        use std::io::{Read, Write};
        let directory = std::env::temp_dir().join(format!("measure-fork-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        for (i, (text, data, bss)) in
            [(0, 0, 0), (20 << 10, 4 << 10, 4 << 10), (1 << 20, 1 << 20, 1 << 20)]
                .into_iter()
                .enumerate()
        {
            let path = directory.join(i.to_string());
            std::fs::write(&path, forking_executable(Sizes { text, data, bss })).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
            let piped = std::process::Stdio::piped;
            let mut child = Command::new(&path).stdin(piped()).stdout(piped()).spawn().unwrap();
            let mut ask = child.stdin.take().unwrap();
            let mut answers = child.stdout.take().unwrap();
            for _ in 0..3 {
                ask.write_all(&[1]).unwrap();
                let mut ticks = [0; 8];
                answers.read_exact(&mut ticks).unwrap();
                let ticks = u64::from_le_bytes(ticks);
                assert!((100..1 << 40).contains(&ticks), "{ticks}");
            }
            drop(ask);
            let status = child.wait().unwrap();
            assert!(status.success(), "{text}/{data}/{bss}: {status}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
