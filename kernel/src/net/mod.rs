//! Sockets. Today only the Unix domain; internet sockets need a network device first.

pub mod unix;
