//! Who a program runs as: users and groups by name or number, from `/etc/passwd` and `/etc/group`.
//!
//! The files are the guest's own and may hold anything: a line that is none is passed over.

use crate::Failure;
use hayate_job::Job;

/// A user, as a program gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user's number.
    pub user: u32,
    /// The group's number.
    pub group: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// The login name, if the user has one.
    pub name: Option<Vec<u8>>,
    /// The home directory, if the user has one.
    pub home: Option<Vec<u8>>,
}

/// Finds the user of a job by the files of the guest, if the job names one ([`Job::account`]), and
/// puts it in.
///
/// # Errors
/// There is no such user or group.
pub fn settle(job: &mut Job) -> Result<Option<Identity>, Failure> {
    let Some(account) = &job.account else { return Ok(None) };
    let file = |path| std::fs::read(path).unwrap_or_default();
    let (passwd, group) = (file("/etc/passwd"), file("/etc/group"));
    let mut identity = resolve(account, &passwd, &group)?;
    if identity.name.is_none() && !account.contains(&b':') {
        // As Docker and runc have it, for images that are made for any user's number.
        identity.group = 0;
    }
    if !job.environment.iter().any(|variable| variable.starts_with(b"HOME=")) {
        let home = identity.home.clone().unwrap_or_else(|| b"/".to_vec());
        job.environment.push([b"HOME=", &home[..]].concat());
    }
    job.user = (identity.user, identity.group);
    Ok(Some(identity))
}

/// Finds the user of `USER[:GROUP]`, each by name or number. A number needs no line in the files;
/// without one its group has the same number, as with `run --user`.
///
/// # Errors
/// A name is in neither file.
pub fn resolve(wanted: &[u8], passwd: &[u8], group: &[u8]) -> Result<Identity, Failure> {
    let at = wanted.iter().position(|&byte| byte == b':');
    let (user, wanted_group) = match at {
        Some(at) => (&wanted[..at], Some(&wanted[at + 1..])),
        None => (wanted, None),
    };
    let shown = String::from_utf8_lossy(wanted).into_owned();
    let no = |what: &str| Failure::new(format!("there is no {what} in the guest (user {shown})"));
    let by_number = number(user);
    let mut lines = passwd.split(|&byte| byte == b'\n').map(fields);
    let known = lines.find(|line| match by_number {
        Some(number_wanted) => line.get(2).and_then(|field| number(field)) == Some(number_wanted),
        None => line.len() >= 4 && line[0] == user && !user.is_empty(),
    });
    let mut identity = match (&known, by_number) {
        (None, None) => return Err(no("such user")),
        (None, Some(user)) => {
            Identity { user, group: user, groups: Vec::new(), name: None, home: None }
        }
        (Some(line), _) => Identity {
            user: line.get(2).and_then(|field| number(field)).ok_or_else(|| no("such user"))?,
            group: line.get(3).and_then(|field| number(field)).ok_or_else(|| no("such user"))?,
            groups: Vec::new(),
            name: Some(line[0].to_vec()),
            home: line.get(5).filter(|home| !home.is_empty()).map(|home| home.to_vec()),
        },
    };
    let groups: Vec<_> = group.split(|&byte| byte == b'\n').map(fields).collect();
    if let Some(wanted) = wanted_group {
        let named = || {
            let line = groups.iter().find(|line| line.len() >= 3 && line[0] == wanted)?;
            number(line[2])
        };
        identity.group = number(wanted).or_else(named).ok_or_else(|| no("such group"))?;
        return Ok(identity);
    }
    if let Some(name) = &identity.name {
        identity.groups = groups
            .iter()
            .filter(|line| {
                let members = line.get(3).copied().unwrap_or_default();
                members.split(|&byte| byte == b',').any(|member| member == name)
            })
            .filter_map(|line| number(line[2]))
            .collect();
    }
    Ok(identity)
}

fn fields(line: &[u8]) -> Vec<&[u8]> {
    line.split(|&byte| byte == b':').collect()
}

/// A number as Linux has them; the largest means "none" (setresuid(2)).
fn number(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&number| digits && number != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/bash\n\nbroken\n\
        daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\nann:x:1000:100::/home/ann:/bin/sh\n";
    const GROUP: &[u8] = b"root:x:0:\nusers:x:100:\nwheel:x:10:root,ann\ndisk:x:6:ann\nx\n";

    fn found(wanted: &str) -> Option<(u32, u32, Vec<u32>)> {
        let found = resolve(wanted.as_bytes(), PASSWD, GROUP).ok()?;
        Some((found.user, found.group, found.groups))
    }

    #[test]
    fn users_are_found_by_name_and_number() {
        assert_eq!(found("ann"), Some((1000, 100, vec![10, 6])));
        assert_eq!(found("1000"), Some((1000, 100, vec![10, 6])));
        assert_eq!(found("ann:wheel"), Some((1000, 10, vec![])));
        assert_eq!(found("ann:7"), Some((1000, 7, vec![])));
        assert_eq!(found("77"), Some((77, 77, vec![])));
        assert_eq!(found("77:users"), Some((77, 100, vec![])));
        for wrong in ["nobody", "", ":", "ann:", "ann:nobody", "4294967295", "+1", "broken", "-1"] {
            assert_eq!(found(wrong), None, "{wrong}");
        }
        let ann = resolve(b"1000", PASSWD, GROUP).ok().unwrap();
        assert_eq!(ann.home.as_deref(), Some(&b"/home/ann"[..]));
        assert_eq!(ann.name.as_deref(), Some(&b"ann"[..]));
    }

    #[test]
    fn files_may_hold_anything() {
        assert!(resolve(b"ann", b"ann:::::\nann", b":::ann").is_err());
        assert!(resolve(b"5", b"\0:\xff:5:1", b"\xff").is_ok());
    }
}
