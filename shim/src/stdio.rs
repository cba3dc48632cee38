//! The host's ends of a program's streams: FIFOs that containerd makes, files, or a program.
//!
//! Output FIFOs are opened for reading, too: so a reader that goes and comes back, as containerd
//! does when it starts anew, ends nothing. The input's end is what containerd says by `CloseIO`,
//! as with runc's shim: until then this process holds a writer of its own, and after that the FIFO
//! ends when its last byte was read.

use crate::logger;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::AsyncWrite;
use tokio::net::unix::pipe;

/// Where the streams of a program lead, as containerd names it; empty: nowhere.
#[derive(Clone, Debug, Default)]
pub struct Stdio {
    /// Standard input, or the keys of the terminal.
    pub input: String,
    /// Standard output, or the screen.
    pub output: String,
    /// Standard error.
    pub error: String,
    /// Whether they are a terminal's.
    pub terminal: bool,
}

/// Takes output.
pub type Output = Box<dyn AsyncWrite + Send + Sync + Unpin>;

/// The input of a program.
pub struct Input {
    /// Its bytes.
    pub bytes: pipe::Receiver,
    /// Dropped at `CloseIO`.
    pub hold: Hold,
}

/// This process's own writer of an input.
#[derive(Clone, Default)]
pub struct Hold(Arc<Mutex<Option<pipe::Sender>>>);

impl Hold {
    /// Lets the input end with what is in it.
    pub fn release(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Stdio {
    /// Opens the input, if there is one.
    pub fn open_input(&self) -> Result<Option<Input>> {
        if self.input.is_empty() {
            return Ok(None);
        }
        let tried = || format!("cannot open the input {}", self.input);
        let path = Path::new(&self.input);
        let bytes = pipe::OpenOptions::new().open_receiver(path).with_context(tried)?;
        let writer = pipe::OpenOptions::new().open_sender(path).with_context(tried)?;
        Ok(Some(Input { bytes, hold: Hold(Arc::new(Mutex::new(Some(writer)))) }))
    }

    /// Opens standard output and standard error, of this container of a namespace.
    pub async fn open_outputs(&self, namespace: &str, id: &str) -> Result<[Output; 2]> {
        if self.output.starts_with("binary://") {
            // It takes both; containerd names it twice.
            let [output, error] = logger::start(&self.output, namespace, id).await?;
            return Ok([Box::new(output), Box::new(error)]);
        }
        let error = if self.terminal { "" } else { &self.error };
        Ok([open(&self.output).await?, open(error).await?])
    }
}

async fn open(uri: &str) -> Result<Output> {
    if uri.is_empty() {
        return Ok(Box::new(tokio::io::sink()));
    }
    let tried = || format!("cannot open the output {uri}");
    if let Some(path) = uri.strip_prefix("file://") {
        let file = tokio::fs::OpenOptions::new().append(true).create(true).open(path).await;
        return Ok(Box::new(file.with_context(tried)?));
    }
    let path = uri.strip_prefix("fifo://").unwrap_or(uri);
    if path.contains("://") {
        bail!("{uri}: only FIFOs, file:// and binary:// take output");
    }
    let sender = pipe::OpenOptions::new().read_write(true).open_sender(path);
    Ok(Box::new(sender.with_context(tried)?))
}
