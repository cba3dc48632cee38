//! A program of the host that takes the output of containers, as `binary://` names it (containerd,
//! runtime/v2, "Logging"): its standard output is descriptor 3, its standard error 4, and it closes
//! 5 when it is ready.

use anyhow::{Context, Result, bail};
use command_fds::{CommandFdExt, FdMapping};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// How long it may take to be ready.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts it, for the container of a namespace; returns what it reads.
pub async fn start(uri: &str, namespace: &str, id: &str) -> Result<[pipe::Sender; 2]> {
    let rest = uri.strip_prefix("binary://").context("no program is named")?;
    let (program, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut command = std::process::Command::new(program);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        command.arg(decoded(key)?);
        if pair.contains('=') {
            command.arg(decoded(value)?);
        }
    }
    command.env("CONTAINER_ID", id).env("CONTAINER_NAMESPACE", namespace);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let pipe = || pipe::pipe().context("cannot make a pipe");
    let ((output, from_output), (error, from_error)) = (pipe()?, pipe()?);
    let (ready, mut is_ready) = pipe()?;
    let ends = [
        from_output.into_blocking_fd()?,
        from_error.into_blocking_fd()?,
        ready.into_blocking_fd()?,
    ];
    let mapping = |(parent_fd, child_fd): (OwnedFd, i32)| FdMapping { parent_fd, child_fd };
    command.fd_mappings(ends.into_iter().zip(3..).map(mapping).collect())?;
    let child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    drop(command);
    // It ends when its input does; nobody else waits for it.
    std::thread::spawn(move || {
        let mut child = child;
        child.wait()
    });
    let mut byte = [0];
    match tokio::time::timeout(PATIENCE, is_ready.read(&mut byte)).await {
        Ok(_) => Ok([output, error]),
        Err(_) => bail!("{program} is not ready"),
    }
}

/// Reads a part of a query (RFC 3986, 2.1; `+` is a blank).
fn decoded(text: &str) -> Result<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next().unwrap_or(0), rest.next().unwrap_or(0)];
                let digits = std::str::from_utf8(&digits).context("no text")?;
                u8::from_str_radix(digits, 16).with_context(|| format!("no text: {text}"))?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).with_context(|| format!("no text: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_query_are_read() {
        assert_eq!(decoded("a%20b+c%2F").unwrap(), "a b c/");
        assert!(decoded("%zz").is_err() && decoded("%4").is_err() && decoded("%ff").is_err());
    }
}
