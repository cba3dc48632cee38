//! One program in a machine: started, its streams carried, its end awaited.
//!
//! The first line of its output is the guest's `container`, which says whether it was started;
//! all after that is the program's. Credit goes back to the guest as bytes reach the host's end, so
//! a program that nobody reads stops. One that was killed does not wait for a reader: what is left
//! of its output is given up after [`PATIENCE`].

use crate::link::{Frames, Link};
use crate::stdio::{Hold, Input, Output, Stdio};
use hayate_channel::WINDOW;
use hayate_channel::command::{Command, PidNamespace};
use hayate_channel::frame::{MOST_DATA, Message, Stream};
use hayate_channel::window::Receipts;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How long the output of a program that was killed waits for its reader.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest first line.
const MOST_LINE: usize = 4096;
/// The longest answer of the guest's program.
const MOST_ANSWER: usize = 1 << 20;
/// The status of a program whose machine is gone: that of SIGKILL.
pub const KILLED: u32 = 128 + 9;

/// A program that runs.
pub struct Running {
    link: Link,
    /// Its number in the guest.
    pub pid: u32,
    session: u32,
    frames: Frames,
    /// The bytes that came with the first line, with their streams.
    early: Vec<(Stream, Vec<u8>)>,
    outputs: [Output; 2],
    input: Option<Input>,
    killed: Arc<AtomicBool>,
}

/// A handle to a program that runs, for its input, its signals and its terminal.
#[derive(Clone)]
pub struct Handle {
    link: Link,
    session: u32,
    hold: Hold,
    killed: Arc<AtomicBool>,
}

impl Handle {
    /// Kills its process group, without starting anything in the guest.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
        self.link.send(self.session, Message::Signal(9));
    }

    /// Sets the size of its terminal.
    pub fn resize(&self, rows: u16, columns: u16) {
        self.link.send(self.session, Message::Resize(rows, columns));
    }

    /// Lets its input end.
    pub fn close_input(&self) {
        self.hold.release();
    }
}

/// Starts a program of the guest that makes or enters a container, in this PID namespace; `named`
/// are containerd's namespace and the container.
pub async fn start(
    link: &Link,
    words: &[&str],
    pid_namespace: Option<PidNamespace>,
    stdio: &Stdio,
    named: (&str, &str),
) -> Result<Running, String> {
    let outputs =
        stdio.open_outputs(named.0, named.1).await.map_err(|error| format!("{error:#}"))?;
    let input = stdio.open_input().map_err(|error| format!("{error:#}"))?;
    let arguments = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let terminal = stdio.terminal.then_some((24, 80));
    let command = Command { arguments, terminal, pid_namespace, ..Command::default() };
    let gone = || "the machine has ended".to_string();
    let (session, mut frames) = link.open(command).await.ok_or_else(gone)?;
    let (line, early) = first_line(&mut frames).await?;
    let pid = line.strip_prefix("ok ").and_then(|pid| pid.parse().ok());
    let Some(pid) = pid else {
        return Err(line.strip_prefix("failed ").unwrap_or(&line).to_string());
    };
    let (link, killed) = (link.clone(), Arc::default());
    Ok(Running { link, pid, session, frames, early, outputs, input, killed })
}

/// Takes the first line off the output.
async fn first_line(frames: &mut Frames) -> Result<(String, Vec<(Stream, Vec<u8>)>), String> {
    let (mut line, mut early) = (Vec::new(), Vec::new());
    loop {
        match frames.recv().await {
            Some(Message::Data(Stream::Output, bytes)) => line.extend_from_slice(&bytes),
            Some(Message::Data(stream, bytes)) => early.push((stream, bytes)),
            Some(Message::Exit(status)) => {
                let said = match u32::from(status) {
                    KILLED => "it was killed; is the limit of memory too low?".into(),
                    _ => String::from_utf8_lossy(&line).trim().to_string(),
                };
                return Err(format!("the guest ended with status {status}: {said}"));
            }
            Some(Message::Failed(_, text)) => return Err(text),
            Some(_) => {}
            None => return Err("the machine has ended".into()),
        }
        if let Some(at) = line.iter().position(|&byte| byte == b'\n') {
            let rest = line.split_off(at + 1);
            if !rest.is_empty() {
                early.push((Stream::Output, rest));
            }
            return Ok((String::from_utf8_lossy(&line).trim_end().to_string(), early));
        }
        if line.len() > MOST_LINE {
            return Err("the guest's first line has no end".into());
        }
    }
}

impl Running {
    /// Returns a handle to it.
    pub fn handle(&self) -> Handle {
        let hold = self.input.as_ref().map(|input| input.hold.clone()).unwrap_or_default();
        let (link, killed) = (self.link.clone(), self.killed.clone());
        Handle { link, session: self.session, hold, killed }
    }

    /// Carries the streams until the program has ended and its output has arrived; returns the
    /// status.
    pub async fn finish(mut self) -> u32 {
        let allowance = Arc::new(Semaphore::new(WINDOW as usize));
        let feeder = self.input.take().map(|input| {
            tokio::spawn(feed(input, self.link.clone(), self.session, allowance.clone()))
        });
        if feeder.is_none() {
            self.link.send(self.session, Message::Close(Stream::Input));
        }
        let mut writers = Vec::new();
        let [output, error] = self.outputs;
        let mut bytes = [(Stream::Output, output), (Stream::Error, error)].map(|(stream, end)| {
            let (sender, waiting) = unbounded_channel();
            let drain = Drain {
                end: Some(end),
                stream,
                session: self.session,
                link: self.link.clone(),
                killed: self.killed.clone(),
                receipts: Receipts::default(),
            };
            writers.push(tokio::spawn(drain.run(waiting)));
            Some(sender)
        });
        // The first line counts, too; so little needs no credit of its own.
        for (stream, early) in std::mem::take(&mut self.early) {
            pass(&mut bytes, stream, early);
        }
        let status = loop {
            match self.frames.recv().await {
                Some(Message::Data(stream, data)) => pass(&mut bytes, stream, data),
                Some(Message::Close(Stream::Input)) => {
                    if let Some(feeder) = &feeder {
                        feeder.abort();
                    }
                }
                Some(Message::Close(stream)) => bytes[usize::from(stream == Stream::Error)] = None,
                Some(Message::Credit(Stream::Input, credit)) => {
                    let room = (WINDOW as usize).saturating_sub(allowance.available_permits());
                    allowance.add_permits((credit as usize).min(room));
                }
                Some(Message::Exit(status) | Message::Failed(status, _)) => break status.into(),
                Some(_) => {}
                None => {
                    self.killed.store(true, Ordering::Relaxed);
                    break KILLED;
                }
            }
        };
        drop(bytes);
        if let Some(feeder) = feeder {
            feeder.abort();
        }
        for writer in writers {
            let _ = writer.await;
        }
        status
    }
}

type Senders = [Option<UnboundedSender<Vec<u8>>>; 2];

fn pass(senders: &mut Senders, stream: Stream, bytes: Vec<u8>) {
    if let Some(sender) = &senders[usize::from(stream == Stream::Error)] {
        let _ = sender.send(bytes);
    }
}

/// Reads the input of a program, and sends it as the guest takes it.
async fn feed(mut input: Input, link: Link, session: u32, allowance: Arc<Semaphore>) {
    let mut buffer = vec![0; MOST_DATA];
    loop {
        // There is one taker of permits, so what is free stays free.
        let Ok(permit) = allowance.acquire().await else { return };
        drop(permit);
        let most = allowance.available_permits().min(MOST_DATA);
        match input.bytes.read(&mut buffer[..most]).await {
            Ok(count @ 1..) => {
                let taken = allowance.try_acquire_many(u32::try_from(count).unwrap_or(1));
                taken.into_iter().for_each(tokio::sync::SemaphorePermit::forget);
                link.send(session, Message::Data(Stream::Input, buffer[..count].to_vec()));
            }
            _ => return link.send(session, Message::Close(Stream::Input)),
        }
    }
}

/// The way of one stream to the host.
struct Drain {
    /// `None`: what comes is dropped.
    end: Option<Output>,
    stream: Stream,
    session: u32,
    link: Link,
    killed: Arc<AtomicBool>,
    receipts: Receipts,
}

impl Drain {
    async fn run(mut self, mut waiting: UnboundedReceiver<Vec<u8>>) {
        while let Some(bytes) = waiting.recv().await {
            if let Some(mut end) = self.end.take()
                && self.write(&mut end, &bytes).await
            {
                self.end = Some(end);
            }
            if let Some(credit) = self.receipts.passed_on(bytes.len()) {
                self.link.send(self.session, Message::Credit(self.stream, credit));
            }
        }
        if let Some(mut end) = self.end {
            let _ = end.flush().await;
        }
    }

    /// Writes bytes. False: there is no use in writing more.
    async fn write(&self, end: &mut Output, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match tokio::time::timeout(PATIENCE, end.write(bytes)).await {
                Ok(Ok(count @ 1..)) => bytes = &bytes[count..],
                Ok(_) => return false,
                Err(_) if self.killed.load(Ordering::Relaxed) => return false,
                Err(_) => {}
            }
        }
        true
    }
}

/// Runs a program of the guest that only says something; returns what it printed.
pub async fn ask(link: &Link, words: &[&str]) -> Result<String, String> {
    let arguments = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let command = Command { arguments, ..Command::default() };
    let gone = || "the machine has ended".to_string();
    let (session, mut frames) = link.open(command).await.ok_or_else(gone)?;
    link.send(session, Message::Close(Stream::Input));
    let (mut output, mut error) = (Vec::new(), Vec::new());
    loop {
        match frames.recv().await.ok_or_else(gone)? {
            Message::Data(stream, bytes) => {
                let count = u32::try_from(bytes.len()).unwrap_or_default();
                link.send(session, Message::Credit(stream, count));
                let kept = if stream == Stream::Error { &mut error } else { &mut output };
                kept.extend_from_slice(&bytes);
                if kept.len() > MOST_ANSWER {
                    return Err("the guest's answer has no end".into());
                }
            }
            Message::Exit(0) => return Ok(String::from_utf8_lossy(&output).into_owned()),
            Message::Exit(_) => return Err(String::from_utf8_lossy(&error).trim().to_string()),
            Message::Failed(_, text) => return Err(text),
            _ => {}
        }
    }
}
