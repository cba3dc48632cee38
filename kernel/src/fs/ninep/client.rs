//! The client of one server: a method for each request, and fids that end by themselves.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;
use hayate_ninep::reply::{Attributes, Reply, StatFs};
use hayate_ninep::request::{BASIC, Change, Request};
use hayate_ninep::{Qid, VERSION};

use crate::drivers::virtio_9p::{self, Channel, Data, Failure, MESSAGE_MOST};
use crate::reclaim::growth::Grow;
use crate::vfs::caller;

/// Bytes of a message beside the data of a read or a write (`P9_IOHDRSZ`).
const AROUND_DATA: u32 = 24;

/// A session with a server.
pub struct Client {
    channel: Arc<Channel>,
    /// The most data of one request.
    most: usize,
}

/// A file of the server's, by a number that it knows. The last reference ends it there.
pub struct Fid {
    client: Arc<Client>,
    number: u32,
}

impl Drop for Fid {
    fn drop(&mut self) {
        self.client.channel.drop_fid(self.number);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.channel.release();
    }
}

impl Client {
    /// Begins a session with the server that has this tag, and returns the root of its tree.
    ///
    /// # Errors
    /// `ENOENT`, `EBUSY` (see [`virtio_9p::take`]); `EREMOTEIO`: the server speaks another dialect
    /// (`p9_client_version`), or its messages hold no page.
    pub fn connect(tag: &[u8]) -> Result<(Fid, Qid)> {
        let channel = virtio_9p::take(tag)?;
        let mut client = Client { channel, most: 0 };
        let request = Request::Version { most: MESSAGE_MOST, version: VERSION };
        let answer = client.ask(&request, Data::None)?;
        client.most = match answer.read(&request)? {
            Reply::Version { most, version } if version == VERSION => {
                most.min(MESSAGE_MOST).saturating_sub(AROUND_DATA) as usize
            }
            _ => return Err(Errno::EREMOTEIO),
        };
        if client.most < 4096 {
            return Err(Errno::EREMOTEIO);
        }
        let client = Arc::new(client);
        let made = Client::make(&client, |fid| Request::Attach { fid, uid: 0, name: b"" })?;
        Ok((made.0, made.1.ok_or(Errno::EIO)?))
    }

    fn ask(&self, request: &Request<'_>, data: Data<'_>) -> Result<virtio_9p::Answer, Failure> {
        self.channel.exchange(request, data, None, caller::is_ending)
    }

    /// Sends a request that makes a fid.
    fn make<'r>(
        client: &Arc<Client>,
        request: impl FnOnce(u32) -> Request<'r>,
    ) -> Result<(Fid, Option<Qid>)> {
        let channel = &client.channel;
        let number = channel.new_fid()?;
        let request = request(number);
        let answer = channel.exchange(&request, Data::None, Some(number), caller::is_ending);
        let outcome = match answer {
            Ok(answer) => answer.read(&request).map(|reply| match reply {
                Reply::File(qid) => qid,
                _ => None,
            }),
            // The channel ends the fid.
            Err(Failure::Abandoned) => return Err(Errno::EINTR),
            Err(Failure::Error(error)) => Err(error),
        };
        match outcome {
            Ok(qid) => Ok((Fid { client: Arc::clone(client), number }, qid)),
            // A server that failed has made none; one whose answer was none may have: the number
            // then stays unused.
            Err(Errno::EIO) => Err(Errno::EIO),
            Err(error) => {
                channel.return_fid(number);
                Err(error)
            }
        }
    }
}

impl Fid {
    /// Sends a request whose reply says nothing but that it was done.
    fn done(&self, request: &Request<'_>) -> Result<()> {
        self.client.ask(request, Data::None)?.read(request).map(drop)
    }

    /// Returns the most data of one request.
    pub fn most(&self) -> usize {
        self.client.most
    }

    /// Returns another fid for the same file.
    pub fn again(&self) -> Result<Fid> {
        let fid = self.number;
        let made =
            Client::make(&self.client, |new_fid| Request::Walk { fid, new_fid, name: None })?;
        Ok(made.0)
    }

    /// Returns the file `name` in this directory.
    pub fn walk(&self, name: &[u8]) -> Result<Fid> {
        let fid = self.number;
        let made =
            Client::make(&self.client, |new_fid| Request::Walk { fid, new_fid, name: Some(name) })?;
        Ok(made.0)
    }

    /// Opens it, with flags of `open(2)`; returns what file that is.
    pub fn open(&self, flags: u32) -> Result<Qid> {
        let request = Request::Open { fid: self.number, flags };
        match self.client.ask(&request, Data::None)?.read(&request)? {
            Reply::Opened(qid, _) => Ok(qid),
            _ => Err(Errno::EIO),
        }
    }

    /// Makes a file in this directory; the fid becomes that of the file, opened.
    pub fn create(&self, name: &[u8], flags: u32, mode: u32, gid: u32) -> Result<()> {
        self.done(&Request::Create { fid: self.number, name, flags, mode, gid })
    }

    /// Reads into frames; returns how many bytes.
    pub fn read(&self, offset: u64, frames: &[Frame], count: usize) -> Result<usize> {
        let count = count.min(self.client.most).min(frames.len() * 4096);
        let request = Request::Read { fid: self.number, offset, count: count as u32 };
        let answer = self.client.ask(&request, Data::Receive(frames, count))?;
        match answer.read(&request)? {
            Reply::Data(count) => Ok(count as usize),
            _ => Err(Errno::EIO),
        }
    }

    /// Writes from frames; returns how many bytes.
    pub fn write(&self, offset: u64, frames: &[Frame], count: usize) -> Result<usize> {
        self.write_unless(caller::is_ending, offset, frames, count)
    }

    /// Writes from frames as [`write`](Self::write) does, but waits for the server even if the
    /// caller's process ends: the pages are not the caller's.
    pub fn write_back(&self, offset: u64, frames: &[Frame], count: usize) -> Result<usize> {
        self.write_unless(|| false, offset, frames, count)
    }

    fn write_unless(
        &self,
        is_ending: fn() -> bool,
        offset: u64,
        frames: &[Frame],
        count: usize,
    ) -> Result<usize> {
        let count = count.min(self.client.most).min(frames.len() * 4096);
        let request = Request::Write { fid: self.number, offset, count: count as u32 };
        let data = Data::Send(frames, count);
        let answer = self.client.channel.exchange(&request, data, None, is_ending)?;
        match answer.read(&request)? {
            Reply::Written(count) => Ok(count as usize),
            _ => Err(Errno::EIO),
        }
    }

    /// Reads entries of an open directory into frames; returns how many bytes.
    pub fn read_directory(&self, offset: u64, frames: &[Frame]) -> Result<usize> {
        let count = self.client.most.min(frames.len() * 4096);
        let request = Request::ReadDirectory { fid: self.number, offset, count: count as u32 };
        let answer = self.client.ask(&request, Data::Receive(frames, count))?;
        match answer.read(&request)? {
            Reply::Data(count) => Ok(count as usize),
            _ => Err(Errno::EIO),
        }
    }

    /// Returns the attributes.
    pub fn attributes(&self) -> Result<Attributes> {
        let request = Request::GetAttributes { fid: self.number, mask: BASIC };
        match self.client.ask(&request, Data::None)?.read(&request)? {
            Reply::Attributes(attributes) => Ok(attributes),
            _ => Err(Errno::EIO),
        }
    }

    /// Changes attributes.
    pub fn change(&self, change: Change) -> Result<()> {
        self.done(&Request::SetAttributes { fid: self.number, change })
    }

    /// Returns the text of a symbolic link.
    pub fn read_link(&self, frame: &Frame) -> Result<Vec<u8>> {
        let request = Request::ReadLink { fid: self.number };
        let frames = core::slice::from_ref(frame);
        let answer = self.client.ask(&request, Data::Receive(frames, 4096))?;
        let Reply::Link(text) = answer.read(&request)? else { return Err(Errno::EIO) };
        let mut copy = Vec::new();
        copy.make_room_exact(text.len())?;
        copy.extend_from_slice(text);
        Ok(copy)
    }

    /// Makes a symbolic link in this directory.
    pub fn symlink(&self, name: &[u8], target: &[u8], gid: u32) -> Result<()> {
        self.done(&Request::Symlink { fid: self.number, name, target, gid })
    }

    /// Makes a FIFO, a socket or a device in this directory; `mode` has the kind.
    pub fn mknod(&self, name: &[u8], mode: u32, device: (u32, u32), gid: u32) -> Result<()> {
        self.done(&Request::MakeNode { fid: self.number, name, mode, device, gid })
    }

    /// Makes a directory in this one.
    pub fn mkdir(&self, name: &[u8], mode: u32, gid: u32) -> Result<()> {
        self.done(&Request::MakeDirectory { fid: self.number, name, mode, gid })
    }

    /// Gives `file` a name in this directory.
    pub fn link(&self, file: &Fid, name: &[u8]) -> Result<()> {
        self.done(&Request::Link { directory: self.number, fid: file.number, name })
    }

    /// Moves the file `name` in this directory.
    pub fn rename(&self, name: &[u8], to: &Fid, new_name: &[u8]) -> Result<()> {
        self.done(&Request::Rename { from: self.number, name, to: to.number, new_name })
    }

    /// Removes a name in this directory; `flags` of `unlinkat(2)`.
    pub fn unlink(&self, name: &[u8], flags: u32) -> Result<()> {
        self.done(&Request::Unlink { fid: self.number, name, flags })
    }

    /// Makes what was written persistent; the fid is open.
    pub fn sync(&self, data_only: bool) -> Result<()> {
        self.done(&Request::Sync { fid: self.number, data_only })
    }

    /// Returns the numbers of the file system.
    pub fn numbers(&self) -> Result<StatFs> {
        let request = Request::StatFs { fid: self.number };
        match self.client.ask(&request, Data::None)?.read(&request)? {
            Reply::StatFs(numbers) => Ok(numbers),
            _ => Err(Errno::EIO),
        }
    }
}
