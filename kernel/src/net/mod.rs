//! Sockets. Today the Unix domain; internet sockets come with a network device.

pub mod unix;
