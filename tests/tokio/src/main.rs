//! A web server on tokio: its runtime with a thread for each processor, epoll edge-triggered, and a
//! timer for each connection. Answers every request of `hayate-tokio-server PORT` with `tokio`, on
//! connections that stay open as long as the client asks (HTTP/1.1, RFC 9112).

use std::io::{Error, ErrorKind};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// How long a client may say nothing.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<(), Error> {
    let port = std::env::args().nth(1).and_then(|word| word.parse().ok());
    let Some(port) = port else {
        eprintln!("hayate-tokio-server: name a port: hayate-tokio-server 8003");
        std::process::exit(2);
    };
    let listener = TcpListener::bind(("0.0.0.0", port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            // A client that goes away in the middle is its own affair.
            let _ = serve(stream).await;
        });
    }
}

async fn serve(stream: TcpStream) -> Result<(), Error> {
    let mut stream = BufReader::new(stream);
    loop {
        let Some(request) = timeout(PATIENCE, request(&mut stream)).await?? else {
            return Ok(());
        };
        let close = if request.stays { "" } else { "Connection: close\r\n" };
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n{close}\r\ntokio\n");
        stream.write_all(answer.as_bytes()).await?;
        if !request.stays {
            return stream.shutdown().await;
        }
    }
}

struct Request {
    /// Whether the client keeps the connection.
    stays: bool,
}

/// Reads a request up to its empty line; `None` if the client has closed.
async fn request(stream: &mut BufReader<TcpStream>) -> Result<Option<Request>, Error> {
    let mut first = String::new();
    if stream.read_line(&mut first).await? == 0 {
        return Ok(None);
    }
    let mut stays = first.trim_end().ends_with("HTTP/1.1");
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim().to_ascii_lowercase();
        match line.as_str() {
            "" => return Ok(Some(Request { stays })),
            "connection: close" => stays = false,
            "connection: keep-alive" => stays = true,
            _ => {}
        }
    }
}
