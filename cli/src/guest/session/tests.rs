//! Tests of sessions in which a script takes the place of QEMU and fails at each stage of a start.

use super::*;
use crate::arguments::network::Network;
use crate::arguments::{Accel, Board, Machine, Monitor, Profile};
use crate::test::start::put_program;

/// The words of the script. Its descriptors: 3 the log, 4 the monitor, 5 to 8 standard input,
/// output, error and the control port.
const WORDS: &str = r#"#!/bin/sh
greet() { echo '{"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}}}}' >&4; }
up() { greet; read -r line <&4; echo '{"return": {}, "id": "begin"}' >&4; }
log() { echo '[    0.000001] boot: memory 1' >&3; }
init() { log; echo 'timing exec 5' >&8; }
pause() { echo '{"event": "STOP"}' >&4; read -r line <&4; }
stop() { pause; echo '{"return": {"status": "'$1'"}, "id": "status"}' >&4; }
reset() { echo '{"event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-reset"}}' >&4; }
program() {
    init; text=$(cat <&5); printf %s "$text" >&6; echo "exit 7 ${#text} 0" >&8
    read -r line <&8; exit 0
}
case "$*" in *"-accel tcg"*) up; program ;; esac
"#;
/// Long enough for a script on a busy host.
const SILENCE: Duration = Duration::from_secs(4);
const INPUT: &[u8] = b"for the program";

/// Bytes kept in memory.
#[derive(Clone, Default)]
struct OutputBuffer(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for OutputBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Input that records whether it was read.
struct Watched(&'static [u8], Arc<Mutex<bool>>);

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        *self.1.lock().unwrap() = true;
        self.0.read(buffer)
    }
}

/// The results of a machine with KVM whose QEMU runs the script.
struct Played {
    outcome: Outcome,
    output: Vec<u8>,
    touched: bool,
}

fn play(accel: Accel, script: &str, qemu: &[&str]) -> Played {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("qemu-system-x86_64");
    put_program(&program, format!("{WORDS}{script}\n").as_bytes()).unwrap();
    let options = Machine {
        cpus: 1,
        memory: 64,
        accel,
        board: Board::Q35,
        aslr: None,
        deterministic: false,
        nvm: None,
        network: Network::default(),
        append: Vec::new(),
        qemu: qemu.iter().map(Into::into).collect(),
        kernel: None,
        background: false,
        vmm: Monitor::Qemu,
        linux: false,
        processor: None,
        profile: Profile::Release,
    };
    let mut qemu = Qemu::stand_in(&program, &options, SILENCE);
    qemu.accelerate(true);
    let (output, touched) = (OutputBuffer::default(), Arc::<Mutex<bool>>::default());
    let streams = Streams::Separate {
        input: Some(Box::new(Watched(INPUT, touched.clone()))),
        output: Box::new(output.clone()),
        error: Box::new(std::io::sink()),
    };
    let limit = Duration::from_secs(60);
    let outcome = Session::new(qemu, streams, Sink::None, Some(limit)).run(None).unwrap();
    let (output, touched) = (output.0.lock().unwrap().clone(), *touched.lock().unwrap());
    Played { outcome, output, touched }
}

/// With KVM requested, the machine fails in this way before anything is read for the program.
/// Otherwise it is started again, and the program gets all its input.
fn failure_before_a_word(script: &str, line: &str) {
    let played = play(Accel::Kvm, script, &[]);
    let End::Failed(fault) = &played.outcome.end else { panic!("{:?}", played.outcome.end) };
    assert_eq!(fault.to_string(), line);
    assert!(!played.touched);
    let played = play(Accel::Auto, script, &[]);
    assert_eq!(played.outcome.end, End::Program(7));
    assert_eq!(played.output, INPUT);
}

/// The machine fails in this way, and is not started again.
fn failure(script: &str, line: &str) {
    for accel in [Accel::Kvm, Accel::Auto] {
        let played = play(accel, script, &[]);
        let text = match &played.outcome.end {
            End::Failed(fault) => fault.to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(text, line);
        assert_eq!(played.output, b"");
    }
}

#[test]
fn it_never_speaks() {
    failure_before_a_word("exec sleep 100", "QEMU did not start the machine within 4 s");
}

#[test]
fn its_kernel_is_silent() {
    failure_before_a_word("up; exec sleep 100", "the kernel printed nothing for 4 s");
}

#[test]
fn it_stops_the_machine() {
    let script = |state| format!("up; stop {state}; exec sleep 100");
    failure_before_a_word(&script("paused"), "QEMU stopped the machine (paused)");
    failure_before_a_word(&script("io-error"), "QEMU stopped the machine (io-error)");
    let script =
        format!("echo 'KVM internal error. Suberror: 1\nRAX=0' >&2; {}", script("internal-error"));
    let line = "QEMU stopped the machine (internal-error): KVM internal error. Suberror: 1";
    failure_before_a_word(&script, line);
}

#[test]
fn it_stops_without_a_reason() {
    let line = "QEMU stopped the machine (for an unknown reason)";
    failure_before_a_word("up; pause; exec sleep 100", line);
}

#[test]
fn it_ends_before_a_word() {
    let said = |how| format!("QEMU ended ({how}) before the guest printed anything");
    failure_before_a_word("exit 1", &said("status 1"));
    failure_before_a_word("kill -KILL $$", &said("signal 9"));
    failure_before_a_word("greet; exit 1", &said("status 1"));
    failure_before_a_word("up; exit 1", &said("status 1"));
    failure_before_a_word("up; reset; exit 0", &said("guest-reset"));
}

#[test]
fn it_refuses_kvm() {
    let script = "echo 'qemu-system-x86_64: failed to initialize kvm: Busy' >&2; exit 1";
    failure_before_a_word(
        script,
        "QEMU does not start the machine: failed to initialize kvm: Busy",
    );
}

#[test]
fn it_refuses_an_option() {
    failure(
        "echo '-x: invalid option' >&2; exit 1",
        "QEMU does not start the machine: -x: invalid option",
    );
    let script = "greet; echo 'q: -device y: no such' >&2; exit 1";
    failure(script, "QEMU does not start the machine: q: -device y: no such");
}

/// After the first byte from the guest the machine is not started again: the guest's actions may
/// have had effects.
#[test]
fn it_fails_after_a_word() {
    failure("up; log; exit 1", "Machine(1)");
    failure("up; init; exit 1", "Machine(1)");
    failure("up; init; kill -KILL $$", "Machine(-1)");
    let line = "QEMU stopped the machine (internal-error)";
    failure("up; log; stop internal-error; exec sleep 100", line);
    failure("up; init; stop internal-error; exec sleep 100", line);
}

/// Neither a pause nor silence is a fault while a user examines the machine.
#[test]
fn a_person_may_pause_it() {
    for options in [["-S", "-s"], ["-gdb", "none"], ["--monitor", "none"], ["-serial", "mon:null"]]
    {
        let script = "up; stop paused; sleep 5; stop internal-error; program";
        let played = play(Accel::Auto, script, &options);
        assert_eq!(played.outcome.end, End::Program(7));
        assert_eq!(played.output, INPUT);
    }
}

/// A QEMU that survives a kill (here through a child that holds every stream) is not waited for.
#[test]
fn it_cannot_be_killed() {
    let began = Instant::now();
    let script = "sleep 30 & up; stop internal-error; exec sleep 100";
    failure_before_a_word(script, "QEMU stopped the machine (internal-error)");
    assert!(began.elapsed() < Duration::from_secs(25));
}
