//! The options that a program chose for its connections (tcp(7)).

use hayate_tcp::{Algorithm, Config, Keepalive};

use crate::net::settings::Settings;

/// The options that a program chose for its connections.
#[derive(Clone, Copy)]
pub struct Choices {
    pub nodelay: bool,
    pub cork: bool,
    pub quick: bool,
    pub keepalive: Keepalive,
    pub syn_retries: u32,
    /// TCP_LINGER2 in seconds, 0 for the default; below 0: FIN-WAIT-2 does not last.
    pub fin_timeout: i32,
    /// TCP_DEFER_ACCEPT in seconds.
    pub defer_accept: i32,
    pub user_timeout: u32,
    pub algorithm: Algorithm,
    /// TCP_MAXSEG; 0 if it is not set.
    pub max_segment: u32,
}

impl Choices {
    /// Those of a socket whose program has chosen nothing.
    pub fn new(settings: &Settings) -> Choices {
        let config = Config::default();
        Choices {
            nodelay: false,
            cork: false,
            quick: true,
            keepalive: Keepalive::default(),
            syn_retries: config.syn_retries,
            fin_timeout: 0,
            defer_accept: 0,
            user_timeout: 0,
            algorithm: settings.algorithm(),
            max_segment: 0,
        }
    }
}
