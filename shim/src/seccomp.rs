//! The filter of system calls of a specification (`linux.seccomp`), as one program for seccomp(2).
//!
//! The instructions are those of the crate `seccompiler`, whose programs know two actions each: one
//! for the calls that match, and one for all others. So there is a program for each action that a
//! rule names but `SCMP_ACT_ALLOW`, the strictest first, and then one that allows the calls that
//! any rule names and gives all others the default. They are one after the other in one program:
//! the end of one by which it allows a call leads to the next.
//!
//! What counts is that of runc and libseccomp: a name that x86-64 does not know is passed over;
//! conditions of one rule hold together, but several for one argument are rules of their own. Where
//! rules with several actions meet a call, the strictest counts.

use anyhow::{Context, Result, bail, ensure};
use hayate_container_plan::filter::{Filter, MOST, instruction};
use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompFilterFlag,
    LinuxSeccompOperator, LinuxSyscall,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;
use syscalls::x86_64::Sysno;

/// Instructions of classic BPF (include/uapi/linux/bpf_common.h): `BPF_RET | BPF_K`, and
/// `BPF_JMP | BPF_JA`.
const RETURN: u16 = 0x06;
const JUMP: u16 = 0x05;
/// `SECCOMP_RET_ALLOW`
const ALLOW: u32 = 0x7fff_0000;
/// The error of an action that names none (`EPERM`).
const USUAL_ERROR: u32 = 1;
/// The largest error (`MAX_ERRNO`).
const MOST_ERROR: u32 = 4095;
/// Flags of seccomp(2) (include/uapi/linux/seccomp.h).
const TSYNC: u32 = 1;
const LOG: u32 = 2;
const SPEC_ALLOW: u32 = 4;

/// The calls of a program, by number; a call with no rule in its list matches always.
type Calls = BTreeMap<i64, Vec<SeccompRule>>;

/// Returns the filter that a specification asks for, if it asks for one that does anything.
///
/// # Errors
/// A call is to be judged by a program of the host, a rule is none, or the program is too long.
pub fn filter(wanted: &LinuxSeccomp) -> Result<Option<Filter>> {
    let default = action(wanted.default_action(), wanted.default_errno_ret())?;
    let mut programs: Vec<(SeccompAction, Calls)> = Vec::new();
    let mut named = Calls::new();
    for rule in wanted.syscalls().iter().flatten() {
        let action = action(rule.action(), rule.errno_ret())?;
        let rules = conditions(rule).with_context(|| format!("the rule of {:?}", rule.names()))?;
        let numbers = rule.names().iter().filter_map(|name| Sysno::from_str(name).ok());
        for number in numbers.map(|call| i64::from(call.id())) {
            add(&mut named, number, &rules);
            if action == SeccompAction::Allow {
                continue;
            }
            let at = programs.iter().position(|(other, _)| *other == action);
            let at = at.unwrap_or_else(|| {
                programs.push((action.clone(), Calls::new()));
                programs.len() - 1
            });
            if let Some((_, calls)) = programs.get_mut(at) {
                add(calls, number, &rules);
            }
        }
    }
    programs.sort_by_key(|(action, _)| rank(action));
    let mut program = Vec::new();
    for (action, calls) in programs {
        let one = SeccompFilter::new(calls, SeccompAction::Allow, action, TargetArch::x86_64)?;
        program.extend(leading_on(one.try_into()?));
    }
    if default != SeccompAction::Allow {
        let last = SeccompFilter::new(named, default, SeccompAction::Allow, TargetArch::x86_64)?;
        program.extend(numbers(&last.try_into()?));
    } else if program.is_empty() {
        return Ok(None);
    } else {
        program.push(instruction(RETURN, 0, 0, ALLOW));
    }
    ensure!(program.len() <= MOST, "its filter of system calls has over {MOST} instructions");
    Ok(Some(Filter { flags: flags(wanted), program }))
}

/// Adds rules for a call. One without conditions makes the others needless.
fn add(calls: &mut Calls, number: i64, rules: &[SeccompRule]) {
    match calls.entry(number) {
        std::collections::btree_map::Entry::Vacant(entry) => {
            entry.insert(rules.to_vec());
        }
        std::collections::btree_map::Entry::Occupied(mut entry) => {
            if rules.is_empty() {
                entry.get_mut().clear();
            } else if !entry.get().is_empty() {
                entry.get_mut().extend_from_slice(rules);
            }
        }
    }
}

fn numbers(program: &BpfProgram) -> Vec<u64> {
    program.iter().map(|one| instruction(one.code, one.jt, one.jf, one.k)).collect()
}

/// A program whose ends that allow a call lead behind it instead.
fn leading_on(mut program: BpfProgram) -> Vec<u64> {
    let length = program.len();
    for (at, one) in program.iter_mut().enumerate() {
        if one.code == RETURN && one.k == ALLOW {
            // From the next instruction on; a program has at most `MOST`.
            (one.code, one.k) = (JUMP, (length - at - 1) as u32);
        }
    }
    numbers(&program)
}

/// The action of a rule.
fn action(named: LinuxSeccompAction, error: Option<u32>) -> Result<SeccompAction> {
    let error = error.unwrap_or(USUAL_ERROR);
    Ok(match named {
        LinuxSeccompAction::ScmpActKill | LinuxSeccompAction::ScmpActKillThread => {
            SeccompAction::KillThread
        }
        LinuxSeccompAction::ScmpActKillProcess => SeccompAction::KillProcess,
        LinuxSeccompAction::ScmpActTrap => SeccompAction::Trap,
        LinuxSeccompAction::ScmpActErrno => {
            ensure!(error <= MOST_ERROR, "{error} is no error of a system call");
            SeccompAction::Errno(error)
        }
        LinuxSeccompAction::ScmpActTrace => {
            ensure!(error <= u32::from(u16::MAX), "{error} is too large for a tracer");
            SeccompAction::Trace(error)
        }
        LinuxSeccompAction::ScmpActLog => SeccompAction::Log,
        LinuxSeccompAction::ScmpActAllow => SeccompAction::Allow,
        LinuxSeccompAction::ScmpActNotify => {
            bail!("a program of the host is to judge system calls, which does not see a machine's")
        }
    })
}

/// How strict an action is (seccomp(2)): the least first.
fn rank(action: &SeccompAction) -> u8 {
    match action {
        SeccompAction::KillProcess => 0,
        SeccompAction::KillThread => 1,
        SeccompAction::Trap => 2,
        SeccompAction::Errno(_) => 3,
        SeccompAction::Trace(_) => 4,
        SeccompAction::Log => 5,
        SeccompAction::Allow => 6,
    }
}

/// The conditions of a rule: none, or rules of which one has to hold.
fn conditions(rule: &LinuxSyscall) -> Result<Vec<SeccompRule>> {
    let arguments: Vec<&LinuxSeccompArg> = rule.args().iter().flatten().collect();
    let mut counts = HashMap::new();
    let mut together = Vec::new();
    for argument in &arguments {
        *counts.entry(argument.index()).or_insert(0) += 1;
        together.push(condition(argument)?);
    }
    if together.is_empty() {
        return Ok(Vec::new());
    }
    if counts.values().all(|&count| count == 1) {
        return Ok(vec![SeccompRule::new(together)?]);
    }
    let each = together.into_iter().map(|one| Ok(SeccompRule::new(vec![one])?));
    each.collect()
}

fn condition(argument: &LinuxSeccompArg) -> Result<SeccompCondition> {
    let index = u8::try_from(argument.index()).context("a call has six arguments")?;
    let mut value = argument.value();
    let operator = match argument.op() {
        LinuxSeccompOperator::ScmpCmpNe => SeccompCmpOp::Ne,
        LinuxSeccompOperator::ScmpCmpLt => SeccompCmpOp::Lt,
        LinuxSeccompOperator::ScmpCmpLe => SeccompCmpOp::Le,
        LinuxSeccompOperator::ScmpCmpEq => SeccompCmpOp::Eq,
        LinuxSeccompOperator::ScmpCmpGe => SeccompCmpOp::Ge,
        LinuxSeccompOperator::ScmpCmpGt => SeccompCmpOp::Gt,
        LinuxSeccompOperator::ScmpCmpMaskedEq => {
            let mask = value;
            value = argument.value_two().unwrap_or_default();
            SeccompCmpOp::MaskedEq(mask)
        }
    };
    Ok(SeccompCondition::new(index, SeccompCmpArgLen::Qword, operator, value)?)
}

/// The flags that seccomp(2) knows of a filter without a listener.
fn flags(wanted: &LinuxSeccomp) -> u32 {
    let bits = wanted.flags().iter().flatten().map(|flag| match flag {
        LinuxSeccompFilterFlag::SeccompFilterFlagTsync => TSYNC,
        LinuxSeccompFilterFlag::SeccompFilterFlagLog => LOG,
        LinuxSeccompFilterFlag::SeccompFilterFlagSpecAllow => SPEC_ALLOW,
        // Of listeners alone.
        _ => 0,
    });
    bits.fold(0, |all, bit| all | bit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const READ: u32 = 0;
    const PERSONALITY: u32 = 135;
    const CLONE: u32 = 56;
    const CLONE3: u32 = 435;
    const KILL: u32 = 0x8000_0000;
    const ERRNO: u32 = 0x0005_0000;

    fn of(wanted: Value) -> Result<Option<Filter>> {
        filter(&serde_json::from_value(wanted)?)
    }

    /// Carries a program out, for a call of x86-64.
    fn judge(filter: &Filter, call: u32, arguments: [u64; 6]) -> u32 {
        let mut data = [call.to_le_bytes(), 0xc000_003e_u32.to_le_bytes(), [0; 4], [0; 4]].concat();
        arguments.iter().for_each(|value| data.extend(value.to_le_bytes()));
        let (mut at, mut value) = (0, 0);
        loop {
            let one = filter.program[at];
            let (code, k) = (one as u16, (one >> 32) as u32);
            let (if_true, if_false) = ((one >> 16) as u8, (one >> 24) as u8);
            at += 1;
            let jump = |holds: bool| usize::from(if holds { if_true } else { if_false });
            match code {
                0x20 => {
                    let word = data[k as usize..][..4].try_into().unwrap();
                    value = u32::from_le_bytes(word);
                }
                0x54 => value &= k,
                0x05 => at += k as usize,
                0x15 => at += jump(value == k),
                0x25 => at += jump(value > k),
                0x35 => at += jump(value >= k),
                0x06 => return k,
                _ => panic!("instruction {code:#x}"),
            }
        }
    }

    #[test]
    fn a_profile_like_that_of_docker() {
        let filter = of(json!({
            "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1,
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"],
            "flags": ["SECCOMP_FILTER_FLAG_LOG"],
            "syscalls": [
                { "names": ["read", "no_such_call"], "action": "SCMP_ACT_ALLOW" },
                { "names": ["personality"], "action": "SCMP_ACT_ALLOW",
                  "args": [{ "index": 0, "value": 0, "op": "SCMP_CMP_EQ" }] },
                { "names": ["personality"], "action": "SCMP_ACT_ALLOW",
                  "args": [{ "index": 0, "value": 0xffff_ffff_u64, "op": "SCMP_CMP_EQ" }] },
                { "names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [
                    { "index": 0, "value": 0x7e02_0000, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ" }
                ] },
                { "names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38 },
            ],
        }));
        let filter = filter.unwrap().unwrap();
        assert_eq!(filter.flags, LOG);
        let first = |call, value| judge(&filter, call, [value, 7, 7, 7, 7, 7]);
        assert_eq!(first(READ, 5), ALLOW);
        assert_eq!(
            [0, 1, 0xffff_ffff, 1 << 32].map(|value| first(PERSONALITY, value)),
            [ALLOW, ERRNO | 1, ALLOW, ERRNO | 1]
        );
        assert_eq!([0x11, 0x1000_0011].map(|value| first(CLONE, value)), [ALLOW, ERRNO | 1]);
        assert_eq!((first(CLONE3, 0), first(77, 0)), (ERRNO | 38, ERRNO | 1));
    }

    #[test]
    fn a_list_of_what_is_refused() {
        let filter = of(json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [
                { "names": ["read"], "action": "SCMP_ACT_ERRNO",
                  "args": [{ "index": 2, "value": 10, "op": "SCMP_CMP_GT" }] },
                { "names": ["read"], "action": "SCMP_ACT_KILL_PROCESS",
                  "args": [{ "index": 0, "value": 3, "op": "SCMP_CMP_EQ" },
                           { "index": 0, "value": 5, "op": "SCMP_CMP_EQ" }] },
                { "names": ["clone"], "action": "SCMP_ACT_KILL_PROCESS" },
                { "names": ["clone3"], "action": "SCMP_ACT_ALLOW" },
            ],
        }));
        let filter = filter.unwrap().unwrap();
        let read = |fd, count| judge(&filter, READ, [fd, 0, count, 0, 0, 0]);
        assert_eq!((read(0, 10), read(0, 11), read(1, 1 << 40)), (ALLOW, ERRNO | 1, ERRNO | 1));
        // The strictest of both.
        assert_eq!((read(3, 11), read(5, 1)), (KILL, KILL));
        assert_eq!((judge(&filter, CLONE, [0; 6]), judge(&filter, CLONE3, [0; 6])), (KILL, ALLOW));
    }

    #[test]
    fn what_is_no_filter() {
        assert_eq!(of(json!({ "defaultAction": "SCMP_ACT_ALLOW" })).unwrap(), None);
        for (wanted, wrong) in [
            (json!({ "defaultAction": "SCMP_ACT_NOTIFY" }), "program of the host"),
            (json!({ "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 5000 }), "5000"),
            (
                json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
                    { "names": ["read"], "action": "SCMP_ACT_TRAP",
                      "args": [{ "index": 6, "value": 0, "op": "SCMP_CMP_EQ" }] }] }),
                "read",
            ),
        ] {
            let error = of(wanted).map(|_| ()).unwrap_err();
            assert!(format!("{error:#}").contains(wrong), "{error:#}");
        }
    }
}
