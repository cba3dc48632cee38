//! The building blocks of predictions, measured on this machine at the start of a run: a cycle, an
//! instruction, an entry into the kernel, a load from each level, a byte copied, a block from the
//! device. Predictions multiply them; no cost is a constant in the code.

use crate::experiment::{Experiment, Setting};
use crate::experiments::bandwidth::{Access, sweep};
use crate::experiments::chase::{UNROLLED, follow, link};
use crate::experiments::{basics, faults, files};
use crate::sampler::{Sampler, Skip};
use crate::sys::memory::{Mapping, Pages};
use crate::sys::{PAGE, raw};
use measure_data::run::{Prediction, Primitive, Quantity, Term};
use std::hint::black_box;
use std::net::TcpStream;
use std::time::Duration;

const TURNS: u32 = 2000;
const LOADS: u32 = 4096;
const HOT: usize = 16 << 10;

/// A primitive and how to take samples of it.
struct Definition {
    name: &'static str,
    method: &'static str,
    /// Operations (or bytes) in a sample.
    work: fn(&Setting) -> f64,
    body: fn(&Setting, &mut Sampler) -> Result<(), Skip>,
}

const DEFINITIONS: [Definition; 19] = [
    Definition {
        name: "timer-instruction",
        method: "1,000 readings of the clock in a row",
        work: |_| 1000.0,
        body: |_, m| {
            let clock = m.clock();
            m.batch(1000, || {
                black_box(clock.stop());
            })
        },
    },
    Definition {
        name: "cycle",
        method: "32,000 additions, each needing the last: one cycle of the core each",
        work: |_| f64::from(TURNS * 16),
        body: |_, m| m.batch(1, || basics::dependent_additions(TURNS)),
    },
    Definition {
        name: "instruction",
        method: "21 instructions as in an operating system, one load of them from the L2 cache, 2,000 times",
        work: |_| f64::from(TURNS * basics::MIXED),
        body: |s, m| {
            let (_mapping, mut node) = chased(s.cache(2) / 2, 64, Pages::Large)?;
            m.batch(1, || {
                // SAFETY: the chase was linked just above in a mapping that outlives it.
                node = unsafe { basics::mixed_instructions(TURNS, node) };
            })
        },
    },
    Definition {
        name: "loop",
        method: "2,000 turns of an empty loop",
        work: |_| f64::from(TURNS),
        body: |_, m| m.batch(1, || basics::empty_loop(TURNS)),
    },
    Definition {
        name: "trap",
        method: "200 system calls with a number that no kernel has",
        work: |_| 200.0,
        body: |_, m| {
            m.batch(200, || {
                black_box(raw::nothing());
            })
        },
    },
    Definition {
        name: "l1",
        method: "loads in a random cycle through half of the L1 data cache",
        work: |_| f64::from(LOADS),
        body: |s, m| chase(m, s.cache(1) / 2, 64, Pages::Large),
    },
    Definition {
        name: "l2",
        method: "loads in a random cycle through half of the L2 cache",
        work: |_| f64::from(LOADS),
        body: |s, m| chase(m, s.cache(2) / 2, 64, Pages::Large),
    },
    Definition {
        name: "l3",
        method: "loads in a random cycle through twice the L2 cache, at most half of the L3 cache",
        work: |_| f64::from(LOADS),
        body: |s, m| {
            chase(m, (2 * s.cache(2)).min(s.cache(3) / 2).min(s.memory_limit), 64, Pages::Large)
        },
    },
    Definition {
        name: "memory",
        method: "loads in a random cycle through four times the last cache",
        work: |_| f64::from(LOADS),
        body: |s, m| {
            chase(m, (4 * s.last_cache()).max(64 << 20).min(s.memory_limit), 64, Pages::Large)
        },
    },
    Definition {
        name: "page-walk",
        method: "loads in a random cycle through 8,192 pages of 4 KB, one line of each",
        work: |_| f64::from(LOADS),
        body: |s, m| {
            chase(m, (8192 * (PAGE as u64 + 64)).min(s.memory_limit), PAGE + 64, Pages::Small)
        },
    },
    Definition {
        name: "copy-byte",
        method: "8 KB copied within the L1 cache",
        work: |_| (HOT / 2) as f64 * 16.0,
        body: |_, m| hot_sweep(m, Access::Copy),
    },
    Definition {
        name: "store-byte",
        method: "16 KB written within the L1 cache",
        work: |_| HOT as f64 * 16.0,
        body: |_, m| hot_sweep(m, Access::Write),
    },
    Definition {
        name: "load-byte-memory",
        method: "a large array read once by one thread",
        work: |s| large(s) as f64,
        body: |s, m| large_sweep(s, m, Access::Read),
    },
    Definition {
        name: "store-byte-memory",
        method: "a large array written once by one thread",
        work: |s| large(s) as f64,
        body: |s, m| large_sweep(s, m, Access::Write),
    },
    Definition {
        name: "copy-byte-memory",
        method: "half of a large array copied to the other half by one thread",
        work: |s| (large(s) / 2) as f64,
        body: |s, m| large_sweep(s, m, Access::Copy),
    },
    Definition {
        name: "file-fault",
        method: "a byte read every 64 KB of a mapping of a cached file of 8 MB",
        work: |_| f64::from(faults::WARM_FAULTS),
        body: faults::file_warm,
    },
    Definition {
        name: "device-read",
        method: "random reads of 4 KB with O_DIRECT from a file of 4 MB",
        work: |_| 1.0,
        body: files::device_read,
    },
    Definition {
        name: "device-flush",
        method: "4 KB written and fdatasync",
        work: |_| 1.0,
        body: files::device_flush,
    },
    Definition {
        name: "wire",
        method: "a TCP connection request to the other host and its answer",
        work: |_| 1.0,
        body: |s, m| {
            let address = s.remote.ok_or_else(|| Skip("no other host".into()))?;
            m.try_batch(1, || {
                TcpStream::connect_timeout(&address, Duration::from_secs(3))
                    .map_err(Skip::because("connecting"))
                    .map(drop)
            })
        },
    },
];

/// Returns a chase through `bytes`, walked once, and the node to continue from.
fn chased(bytes: u64, stride: usize, pages: Pages) -> Result<(Mapping, usize), Skip> {
    let bytes = (bytes as usize).max(stride * 16);
    let mapping = Mapping::anonymous(bytes, pages).map_err(Skip::because("mmap"))?;
    let offsets: Vec<usize> = (0..bytes / stride).map(|i| i * stride).collect();
    let node = link(&mapping, &offsets);
    // SAFETY: the chase was linked just above in a mapping that outlives it.
    let node = unsafe { follow(node, (offsets.len() as u32).clamp(UNROLLED, 1 << 19)) };
    Ok((mapping, node))
}

fn chase(m: &mut Sampler, bytes: u64, stride: usize, pages: Pages) -> Result<(), Skip> {
    let (_mapping, mut node) = chased(bytes, stride, pages)?;
    m.batch(1, || {
        // SAFETY: the mapping of the chase is still there.
        node = unsafe { follow(node, LOADS) };
    })
}

fn hot_sweep(m: &mut Sampler, access: Access) -> Result<(), Skip> {
    let mut mapping = Mapping::anonymous(HOT, Pages::Default).map_err(Skip::because("mmap"))?;
    m.batch(16, || {
        sweep(&mut mapping, access);
    })
}

/// The array of the memory primitives.
fn large(s: &Setting) -> u64 {
    (2 * s.last_cache()).clamp(32 << 20, 128 << 20).min(s.memory_limit) / 4096 * 4096
}

fn large_sweep(s: &Setting, m: &mut Sampler, access: Access) -> Result<(), Skip> {
    let mut mapping =
        Mapping::anonymous(large(s) as usize, Pages::Large).map_err(Skip::because("mmap"))?;
    mapping.populate();
    m.batch(1, || {
        sweep(&mut mapping, access);
    })
}

/// Returns the primitives that `experiments` need, as experiments of their own, in a fixed order.
pub fn needed(experiments: &[&Experiment], setting: &Setting) -> Vec<Experiment> {
    DEFINITIONS
        .iter()
        .filter(|d| {
            let modelled = |e: &Experiment| e.model.iter().any(|t| t.primitive == d.name);
            let taken_off = |e: &Experiment| e.loop_taken_off && d.name == "loop";
            experiments.iter().any(|e| modelled(e) || taken_off(e))
        })
        .map(|d| {
            let mut e = Experiment::time(d.name, d.name, d.body).method(d.method);
            e.work = (d.work)(setting);
            e
        })
        .collect()
}

/// The prediction of `experiment`, if every primitive of its model could be measured.
pub fn predict(experiment: &Experiment, primitives: &[Primitive]) -> Option<Prediction> {
    let terms = experiment
        .model
        .iter()
        .map(|term| {
            let primitive = primitives.iter().find(|p| p.name == term.primitive)?;
            Some(Term {
                kind: term.kind,
                count: term.count,
                primitive: term.primitive.to_owned(),
                each_ns: primitive.ns,
                why: term.why.to_owned(),
            })
        })
        .collect::<Option<Vec<_>>>()?;
    let ns: f64 = terms.iter().map(|t| t.count * t.each_ns).sum();
    if terms.is_empty() || !ns.is_normal() {
        return None;
    }
    let value = match experiment.quantity {
        Quantity::Time => ns,
        Quantity::Bandwidth => 1e9 / ns,
    };
    Some(Prediction { value, terms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments;

    #[test]
    fn every_model_uses_primitives_that_exist() {
        let setting = Setting {
            directory: "/tmp".into(),
            caches: Vec::new(),
            cpus: vec![0, 1],
            memory_limit: 1 << 30,
            file_limit: 1 << 30,
            remote: None,
            exits: true,
            raised: false,
            programs: Vec::new(),
            without_idle: false,
        };
        let all = experiments::all(&setting);
        for experiment in &all {
            assert!(!experiment.method.is_empty(), "{} states no method", experiment.name);
            assert!(!experiment.model.is_empty(), "{} predicts nothing", experiment.name);
            for term in &experiment.model {
                let known = DEFINITIONS.iter().any(|d| d.name == term.primitive);
                assert!(known, "{}: {}", experiment.name, term.primitive);
                assert!(term.count.is_finite() && term.count > 0.0);
            }
        }
        // The model assumes caches even if the machine does not report them.
        let small = all.iter().find(|e| e.name == "memory/latency/64/1K").unwrap();
        assert_eq!(small.model.iter().map(|t| t.primitive).collect::<Vec<_>>(), ["l1"]);
        let mut names: Vec<&str> = all.iter().map(|e| e.name.as_str()).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|w| w[0] != w[1]), "two experiments of one name");
    }

    #[test]
    fn predictions_are_sums_of_measured_costs() {
        let experiment = Experiment::time("x", "x", |_, _| Ok(()))
            .hardware(2.0, "trap", "")
            .software(100.0, "instruction", "");
        let primitive = |name: &str, ns| Primitive { name: name.into(), ns, method: String::new() };
        let known = [primitive("trap", 50.0), primitive("instruction", 0.3)];
        assert!((predict(&experiment, &known).unwrap().value - 130.0).abs() < 1e-9);
        assert_eq!(predict(&experiment, &known[..1]), None);
        let rate = Experiment::bandwidth("y", "y", 1, |_, _| Ok(())).hardware(0.5, "trap", "");
        assert!((predict(&rate, &known).unwrap().value - 1e9 / 25.0).abs() < 1e-3);
    }
}
