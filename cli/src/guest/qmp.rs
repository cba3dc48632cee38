//! QEMU's own messages about its machine, by QMP (docs/interop/qmp-spec of QEMU): that it is up,
//! that it stopped and why, that it shuts down.
//!
//! The monitor is one end of a socket pair, like every stream of the guest. The one command that is
//! needed, `qmp_capabilities`, is in the socket before QEMU starts; after that QEMU is queried only
//! when it stopped. So the monitor does not change a run that counts instructions.
//!
//! A snapshot is saved by commands in between ([`save`]); those that restore one ([`restore`]) are
//! in the socket before QEMU starts, too, so that nothing waits for an answer.

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Ends the negotiation, after which QEMU reports events. The answer arrives once the machine runs.
const NEGOTIATE: &str = "{\"execute\": \"qmp_capabilities\", \"id\": \"begin\"}\n";
/// Queries the state of the machine.
const QUERY_STATUS: &str = "{\"execute\": \"query-status\", \"id\": \"status\"}\n";

/// The name that QEMU gives the file of a snapshot's devices.
const SAVED: &str = "devices";
/// Bytes a second that a migration may write: no limit.
const SPEED: u64 = 1 << 40;

/// A message of QEMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QmpMessage {
    /// QEMU reads its options: its version, major and minor.
    Version(u64, u64),
    /// The machine is made, and runs unless a user asked otherwise.
    Up,
    /// The machine has stopped; the state comes next.
    Stopped,
    /// The machine runs again.
    Resumed,
    /// The state of the machine, as `query-status` has it.
    State(String),
    /// A device noticed that the guest's kernel panicked.
    Panicked,
    /// The machine ends, for this reason.
    Shutdown(String),
    /// A migration, which saves a snapshot or restores one, has come to this state.
    Migration(String),
    /// A command about a snapshot is refused, for this reason.
    Refused(String),
}

/// Writes the first command into the socket of a machine that has not been started yet.
pub fn negotiate(mut socket: &UnixStream) -> std::io::Result<()> {
    socket.write_all(NEGOTIATE.as_bytes())
}

/// A command about a snapshot. Only an error that answers it is a message.
fn command(name: &str, arguments: Value) -> String {
    let line = json!({ "execute": name, "arguments": arguments, "id": "snapshot" });
    format!("{line}\n")
}

/// The memory that is shared stays out of a migration, and its states are events.
fn prepare() -> String {
    let switches = ["x-ignore-shared", "events"]
        .map(|capability| json!({ "capability": capability, "state": true }));
    command("migrate-set-capabilities", json!({ "capabilities": switches }))
        + &command(
            "migrate-set-parameters",
            // A clone has another address than the one that would be announced.
            json!({ "announce-rounds": 0, "max-bandwidth": SPEED }),
        )
}

/// Lets a machine that was not started yet restore the devices that its descriptor has.
pub fn restore(mut socket: &UnixStream, descriptor: i32) -> std::io::Result<()> {
    let uri = json!({ "uri": format!("fd:{descriptor}") });
    socket.write_all((prepare() + &command("migrate-incoming", uri)).as_bytes())
}

/// Lets a machine write its devices into a file, and stop. The end is [`QmpMessage::Migration`].
pub fn save(mut socket: &UnixStream, file: &File) -> std::io::Result<()> {
    socket.write_all(prepare().as_bytes())?;
    let line = command("getfd", json!({ "fdname": SAVED }));
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut more = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    more.push(SendAncillaryMessage::ScmRights(&files));
    let sent = sendmsg(socket, &[IoSlice::new(line.as_bytes())], &mut more, SendFlags::empty())?;
    socket.write_all(line.as_bytes().get(sent..).unwrap_or_default())?;
    socket.write_all(command("migrate", json!({ "uri": format!("fd:{SAVED}") })).as_bytes())
}

/// Reads QEMU's messages to their end.
pub fn listen(socket: UnixStream, mut handle: impl FnMut(QmpMessage)) {
    let Ok(mut answers) = socket.try_clone() else { return };
    for line in BufReader::new(socket).split(b'\n') {
        let Ok(line) = line else { return };
        let Some(message) = parse(&line) else { continue };
        if message == QmpMessage::Stopped {
            // If QEMU is gone there is no answer; other events report its end.
            let _ = answers.write_all(QUERY_STATUS.as_bytes());
        }
        handle(message);
    }
}

/// Parses one line; unknown messages are ignored.
fn parse(line: &[u8]) -> Option<QmpMessage> {
    let line: Value = serde_json::from_slice(line).ok()?;
    let text = |value: &Value| value.as_str().map(str::to_string);
    if let Some(greeting) = line.get("QMP") {
        let version = greeting.get("version")?.get("qemu")?;
        return Some(QmpMessage::Version(
            version.get("major")?.as_u64()?,
            version.get("minor")?.as_u64()?,
        ));
    }
    if let Some(event) = line.get("event") {
        return match event.as_str()? {
            "STOP" => Some(QmpMessage::Stopped),
            "RESUME" => Some(QmpMessage::Resumed),
            "GUEST_PANICKED" => Some(QmpMessage::Panicked),
            "MIGRATION" => Some(QmpMessage::Migration(
                line.get("data").and_then(|data| text(data.get("status")?))?,
            )),
            "SHUTDOWN" => Some(QmpMessage::Shutdown(
                line.get("data").and_then(|data| text(data.get("reason")?))?,
            )),
            _ => None,
        };
    }
    match line.get("id")?.as_str()? {
        "begin" => Some(QmpMessage::Up),
        "snapshot" => Some(QmpMessage::Refused(text(line.get("error")?.get("desc")?)?)),
        "status" => Some(QmpMessage::State(text(line.get("return")?.get("status")?)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let message = |line: &str| parse(line.as_bytes());
        let greeting = r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7},
            "package": "Debian"}, "capabilities": ["oob"]}}"#;
        assert_eq!(message(greeting), Some(QmpMessage::Version(7, 2)));
        assert_eq!(message(r#"{"return": {}, "id": "begin"}"#), Some(QmpMessage::Up));
        assert_eq!(
            message(r#"{"timestamp": {"seconds": 1}, "event": "STOP"}"#),
            Some(QmpMessage::Stopped)
        );
        assert_eq!(message(r#"{"event": "RESUME"}"#), Some(QmpMessage::Resumed));
        let state = r#"{"return": {"status": "internal-error", "running": false}, "id": "status"}"#;
        assert_eq!(message(state), Some(QmpMessage::State("internal-error".into())));
        let end = r#"{"event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-reset"}}"#;
        assert_eq!(message(end), Some(QmpMessage::Shutdown("guest-reset".into())));
        assert_eq!(
            message(r#"{"event": "GUEST_PANICKED", "data": {}}"#),
            Some(QmpMessage::Panicked)
        );
        let state = r#"{"event": "MIGRATION", "data": {"status": "completed"}}"#;
        assert_eq!(message(state), Some(QmpMessage::Migration("completed".into())));
        let refused = r#"{"id": "snapshot", "error": {"class": "GenericError", "desc": "no"}}"#;
        assert_eq!(message(refused), Some(QmpMessage::Refused("no".into())));
        assert_eq!(message(r#"{"return": {}, "id": "snapshot"}"#), None);
        for other in
            ["", "STOP", "[]", "7", "{}", r#"{"event": 7}"#, r#"{"id": "status"}"#, "\u{1}"]
        {
            assert_eq!(message(other), None, "{other}");
        }
    }

    /// The state is queried when the machine stopped, and not before.
    #[test]
    fn a_stop_is_asked_about() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        negotiate(&ours).unwrap();
        let qemu = std::thread::spawn(move || {
            let mut asked = BufReader::new(theirs.try_clone().unwrap()).lines();
            assert!(asked.next().unwrap().unwrap().contains("qmp_capabilities"));
            (&theirs)
                .write_all(b"{\"return\": {}, \"id\": \"begin\"}\n{\"event\": \"STOP\"}\n")
                .unwrap();
            assert!(asked.next().unwrap().unwrap().contains("query-status"));
            (&theirs)
                .write_all(b"{\"return\": {\"status\": \"paused\"}, \"id\": \"status\"}\n")
                .unwrap();
        });
        let mut messages = Vec::new();
        listen(ours, |message| messages.push(message));
        qemu.join().unwrap();
        assert_eq!(
            messages,
            [QmpMessage::Up, QmpMessage::Stopped, QmpMessage::State("paused".into())]
        );
    }
}
