use super::*;
extern crate std;
use std::vec::Vec;

/// Code of an ordinary function before a site.
const CODE: &[u8] = &[
    0x48, 0x83, 0xec, 0x28, // sub rsp, 0x28
    0x48, 0x89, 0x54, 0x24, 0x18, // mov [rsp + 0x18], rdx
    0x48, 0x89, 0x74, 0x24, 0x10, // mov [rsp + 0x10], rsi
    0x89, 0x7c, 0x24, 0x08, // mov [rsp + 8], edi
    0x48, 0x8b, 0x7c, 0x24, 0x40, // mov rdi, [rsp + 0x40]
    0x31, 0xf6, // xor esi, esi
    0x4c, 0x8d, 0x4c, 0x24, 0x30, // lea r9, [rsp + 0x30]
    0x45, 0x31, 0xc0, // xor r8d, r8d
    0x49, 0x89, 0xca, // mov r10, rcx
];

fn with(before: &[u8], behind: &[u8], number: u64) -> Result<Form, Left> {
    let mut all: Vec<u8> = CODE.to_vec();
    all.extend_from_slice(before);
    let start = all.len().saturating_sub(BEFORE);
    look(&Site {
        address: 0x40_1000,
        before: &all[start..],
        behind,
        same_page: behind.len(),
        number,
    })
}

/// Examines a site with nothing around it but its own bytes.
fn look(site: &Site<'_>) -> Result<Form, Left> {
    let mut all: Vec<u8> = site.before.to_vec();
    all.extend_from_slice(&[0x0f, 0x05]);
    all.extend_from_slice(site.behind);
    let start = site.address - site.before.len() as u64;
    examine(site, &|address, to| {
        let rest = address.checked_sub(start).and_then(|at| all.get(at as usize..));
        let rest = rest.unwrap_or_default();
        let length = rest.len().min(to.len());
        to[..length].copy_from_slice(&rest[..length]);
        length
    })
}

const COMPARE: &[u8] = &[0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff, 0x77, 0x10, 0xc3];

fn after(bytes: &[u8], number: u32) -> Form {
    let mut moved = [0; MOVED];
    moved[..bytes.len()].copy_from_slice(bytes);
    Form::After { moved, length: bytes.len() as u8, number: Some(number) }
}

#[test]
fn glibc_stub_moves_the_compare() {
    // xor eax, eax; syscall; cmp rax, -4096; ja; ret
    assert_eq!(with(&[0x31, 0xc0], COMPARE, 0), Ok(after(&COMPARE[..6], 0)));
}

#[test]
fn stub_that_returns_at_once_loses_its_mov() {
    let found = with(&[0xb8, 0x27, 0, 0, 0], &[0xc3, 0x0f, 0x1f, 0x40, 0x00], 39);
    assert_eq!(found, Ok(Form::Before { number: 39 }));
}

#[test]
fn number_that_was_not_called_is_no_mov() {
    let found = with(&[0xb8, 0x27, 0, 0, 0], &[0xc3, 0x0f, 0x1f, 0x40, 0x00], 40);
    assert_eq!(found, Err(Left::Fixed));
}

#[test]
fn bytes_inside_another_instruction_are_no_mov() {
    // mov dword [rsp - 0x48], 39; mov r8d, 39; with 39 in eax all the same
    for before in [&[0xc7, 0x44, 0x24, 0xb8, 0x27, 0, 0, 0][..], &[0x41, 0xb8, 0x27, 0, 0, 0][..]] {
        assert_eq!(with(before, &[0xc3], 39), Err(Left::Fixed));
    }
}

#[test]
fn flags_that_are_read_keep_the_site() {
    // setc al; adc eax, 0; jc; pushf; and a jump to an unknown address
    for behind in [
        &[0x0f, 0x92, 0xc0, 0xc3][..],
        &[0x83, 0xd0, 0x00, 0xc3],
        &[0x72, 0x05, 0xc3],
        &[0x9c, 0xc3],
        &[0xe9, 0, 0, 0, 0x10],
        // mov, then jz
        &[0x48, 0x89, 0xc7, 0x74, 0x05, 0xc3],
    ] {
        assert_eq!(with(&[0xb8, 0x27, 0, 0, 0], behind, 39), Err(Left::Flags), "{behind:x?}");
    }
}

#[test]
fn loop_around_a_site_is_followed() {
    // mov [rsp + 8], rax; dec rbx; jne to the mov before the site; ret
    let behind = [0x48, 0x89, 0x44, 0x24, 0x08, 0x48, 0xff, 0xcb, 0x75, 0xef, 0xc3];
    assert_eq!(with(&[0xb8, 0x27, 0, 0, 0], &behind, 39), Ok(after(&behind[..5], 39)));
    // The same with adc in front of the mov; adc reads the carry, which dec does not change.
    let mut behind = behind;
    behind[9] = 0xec;
    let before = [0x83, 0xd2, 0x00, 0xb8, 0x27, 0, 0, 0];
    assert_eq!(with(&before, &behind, 39), Err(Left::Flags));
}

#[test]
fn what_depends_on_its_place_stays() {
    // mov [rip + 0x1000], eax; test eax, eax; ret
    let behind = [0x89, 0x05, 0, 0x10, 0, 0, 0x85, 0xc0, 0xc3];
    assert_eq!(with(&[0x89, 0xd0], &behind, 1), Err(Left::Fixed));
    // test eax, eax: too short
    assert_eq!(with(&[0x89, 0xd0], &[0x85, 0xc0, 0xc3], 1), Err(Left::Short));
}

#[test]
fn instruction_that_crosses_the_page_stays() {
    let site =
        Site { address: 0x40_1ffb, before: &CODE[..16], behind: COMPARE, same_page: 3, number: 0 };
    assert_eq!(look(&site), Err(Left::Edge));
}

fn decoded(bytes: &[u8], at: u64) -> Vec<Instruction> {
    Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).into_iter().collect()
}

/// Returns the addresses of the gates' words.
fn gate(number: Option<u32>) -> u64 {
    number.map_or(0xffff_ffff_8123_4560, |number| 0xffff_ffff_8123_0000 + u64::from(number) * 8)
}

#[test]
fn longest_form_has_room() {
    let form = after(&[0x90; MOVED], 7);
    let (site, low) = (0x40_0000, 0x30_0000);
    let patched = patch(&form, site, first_fit(&form, site, low), gate).unwrap();
    assert_eq!(patched.length, TRAMPOLINE);
}

#[test]
fn number_that_cannot_be_compared_goes_through_the_gate_of_all() {
    for number in [1 << 31, u64::from(u32::MAX), 39 << 32, u64::MAX] {
        let Ok(form) = with(&[0x31, 0xc0], COMPARE, number) else { panic!("left") };
        assert!(matches!(form, Form::After { number: None, .. }));
        let (site, low) = (0x40_0000, 0x30_0000);
        let place = first_fit(&form, site, low);
        let patched = patch(&form, site, place, gate).unwrap();
        let code = decoded(&patched.trampoline[..patched.length], place);
        assert_eq!(code[0].ip_rel_memory_address(), code[3].ip());
        assert_eq!((code[1].code(), code[3].code()), (Code::Cli, Code::Sti));
        assert_eq!(code[2].memory_displacement64(), gate(None));
    }
}

#[test]
fn moved_form_is_what_it_says() {
    let form = after(&COMPARE[..6], 7);
    let site = 0x7f12_3456_7ff0;
    let low = 0x7f12_3400_0000;
    let place = first_fit(&form, site, low);
    assert!(place >= low && place < low + 0x10000 && fits(&form, site, place));
    assert!(!fits(&form, site, place - 1) && fits(&form, site, place + 255));
    assert_eq!(first_fit(&form, site, place + 31), place + 31);
    let patched = patch(&form, site, place, gate).unwrap();
    assert_eq!((patched.jump_at, patched.jump[0], patched.jump[2]), (site, 0xe9, 0xcc));
    assert_eq!(decoded(&patched.jump, site)[0].near_branch_target(), place);
    let code = decoded(&patched.trampoline[..patched.length], place);
    let back = code[0].ip_rel_memory_address();
    assert_eq!((code[1].code(), code[1].immediate32to64()), (Code::Cmp_RAX_imm32, 7));
    assert_eq!((code[2].code(), code[2].near_branch_target()), (Code::Jne_rel8_64, code[5].ip()));
    for (at, number) in [(3, Some(7)), (5, None)] {
        assert_eq!(code[at].code(), Code::Cli);
        assert_eq!(code[at + 1].memory_displacement64(), gate(number));
    }
    assert_eq!(code[7].ip(), back);
    assert_eq!(code[7].code(), Code::Sti);
    assert_eq!(code[9].near_branch_target(), site + 8);
    let again = (back - place) as usize + AGAIN;
    let code = decoded(&patched.trampoline[again..patched.length], place + again as u64);
    assert_eq!(code.len(), 3);
    assert_eq!(code[0].code(), Code::Syscall);
    assert_eq!(patched.breakpoint, Some((site + 2, code[1].ip())));
    assert_eq!(code[2].near_branch_target(), site + 8);
}

#[test]
fn replaced_form_is_what_it_says() {
    let form = Form::Before { number: 39 };
    let (site, place) = (0x40_1005, 0x3f_0000);
    let patched = patch(&form, site, place, |number| {
        assert_eq!(number, Some(39));
        0xffff_ffff_8123_0000
    })
    .unwrap();
    assert_eq!(patched.jump_at, 0x40_1000);
    assert_eq!(decoded(&patched.jump, 0x40_1000)[0].near_branch_target(), place);
    let code = decoded(&patched.trampoline[..patched.length], place);
    assert_eq!(code[0].immediate32(), 39);
    let back = code[1].ip_rel_memory_address();
    assert_eq!((code[4].ip(), code[4].code()), (back, Code::Sti));
    assert_eq!(code[5].near_branch_target(), site + 2);
    let again = (back - place) as usize + AGAIN;
    let code = decoded(&patched.trampoline[again..patched.length], place + again as u64);
    assert_eq!(code[0].code(), Code::Syscall);
    assert_eq!(code[1].near_branch_target(), site + 2);
    assert_eq!(patched.breakpoint, None);
}

#[test]
fn out_of_reach_is_refused() {
    let form = Form::Before { number: 1 };
    assert!(patch(&form, 0x40_0000, 0x7f00_0000_0000, |_| u64::MAX - 7).is_none());
    // A gate that no displacement reaches.
    assert!(patch(&form, 0x40_0000, 0x30_0000, |_| 0x7f00_0000_0000).is_none());
}
