//! Nice values as weights: each step is about a tenth of the processor (Linux kernel/sched/core.c,
//! `sched_prio_to_weight`).

/// Those of -20 to 19.
pub const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

/// The weight of nice 0.
pub const UNIT: u32 = 1024;

/// The weight of `nice`, cut to -20..=19.
pub fn weight(nice: i8) -> u32 {
    WEIGHTS[(nice.clamp(-20, 19) + 20) as usize]
}
