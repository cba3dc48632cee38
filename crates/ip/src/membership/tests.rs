use super::*;
use crate::source_filter::Mode;

const GROUP: Address = Address::v4(0xefff_0102);
const HOST: Address = Address::v4(0x0a00_020f);
const ALL: SourceFilter = SourceFilter::empty(Mode::Exclude);

fn general(dialect: Dialect) -> Query {
    Query { dialect, group: None, patience: 10 * SECOND, sources: None }
}

fn join(groups: &mut Memberships, group: Address, interface: u32, now: u64, tells: bool) {
    groups.change((group, interface), (None, Some(&ALL)), now, tells).unwrap();
}

fn leave(groups: &mut Memberships, group: Address, interface: u32, now: u64, tells: bool) {
    groups.change((group, interface), (Some(&ALL), None), now, tells).unwrap();
}

fn all_due(groups: &mut Memberships, now: u64) -> Vec<Saying> {
    let mut from = 0;
    let mut next = || groups.due(&mut from, now, |most| most / 2);
    core::iter::from_fn(|| next().map(|due| due.saying)).collect()
}

fn record(kind: Kind, sources: &[Address]) -> Saying {
    let records = [Record { kind, sources: sources.to_vec() }];
    Saying::Records(records.into_iter().collect())
}

#[test]
fn some_groups_are_not_told() {
    let v6 = |high: u128, low| Address::v6(high << 112 | low);
    assert!(!is_told(Address::v4(0xe000_0001)) && is_told(Address::v4(0xe000_00fb)));
    assert!(!is_told(v6(0xff02, 1)) && !is_told(v6(0xff01, 5)) && !is_told(v6(0xff00, 5)));
    assert!(is_told(v6(0xff02, 0xfb)));
}

#[test]
fn a_change_is_said_twice_and_then_nothing_is_due() {
    let (joined, left) = (record(Kind::ToExclude, &[]), record(Kind::ToInclude, &[]));
    let mut groups = Memberships::new();
    join(&mut groups, GROUP, 2, 100, true);
    join(&mut groups, GROUP, 2, 100, true);
    assert!(groups.allows(GROUP, 2, HOST) && !groups.allows(GROUP, 3, HOST));
    assert_eq!(all_due(&mut groups, 100), core::slice::from_ref(&joined));
    let again = groups.deadline().unwrap();
    assert!(again > 100 && again <= 101 + REPEAT);
    assert_eq!(all_due(&mut groups, again), core::slice::from_ref(&joined));
    assert_eq!(groups.deadline(), None);
    leave(&mut groups, GROUP, 2, again, true);
    assert_eq!(groups.deadline(), None);
    leave(&mut groups, GROUP, 2, again, true);
    assert!(!groups.allows(GROUP, 2, HOST));
    assert_eq!(all_due(&mut groups, again), [left]);
    // Joined again, before it was said twice.
    join(&mut groups, GROUP, 2, again, true);
    assert_eq!(all_due(&mut groups, again), [joined]);
    leave(&mut groups, GROUP, 2, again, true);
    while let Some(at) = groups.deadline() {
        all_due(&mut groups, at);
    }
    assert!(groups.members.is_empty());
    join(&mut groups, GROUP, 1, 0, false);
    assert_eq!(groups.deadline(), None);
    leave(&mut groups, GROUP, 1, 0, false);
    assert!(groups.members.is_empty());
}

#[test]
fn queries_are_answered_in_their_dialect_and_in_time() {
    let mut groups = Memberships::new();
    join(&mut groups, GROUP, 2, 0, true);
    join(&mut groups, Address::v4(0xe000_0001), 2, 0, true);
    while let Some(at) = groups.deadline() {
        all_due(&mut groups, at);
    }
    let now = 100 * SECOND;
    groups.on_query(2, true, &general(Dialect::Second), now, |most| most - 1);
    assert_eq!(groups.deadline(), Some(now + 10 * SECOND - 1));
    // A query that is more urgent.
    let soon = Query { group: Some(GROUP), patience: SECOND, ..general(Dialect::Second) };
    groups.on_query(2, true, &soon, now, |most| most - 1);
    let at = groups.deadline().unwrap();
    assert_eq!(at, now + SECOND - 1);
    let due = groups.due(&mut 0, at, |_| 0).unwrap();
    assert_eq!((due.dialect, due.saying, due.group), (Dialect::Second, Saying::IsMember, GROUP));
    assert_eq!(groups.deadline(), None);
    // Another host is quicker.
    groups.on_query(2, true, &soon, at, |most| most - 1);
    groups.on_report(2, GROUP, at);
    assert_eq!(groups.deadline(), None);
    // When the old router is gone the newest dialect is spoken, and nobody is quicker.
    let later = at + OLD_ROUTER;
    groups.on_query(2, true, &general(Dialect::Third), later, |_| 5);
    groups.on_report(2, GROUP, later);
    let due = groups.due(&mut 0, later + 5, |_| 0).unwrap();
    assert_eq!((due.dialect, due.saying), (Dialect::Third, record(Kind::IsExclude, &[])));
    assert_eq!(groups.due(&mut 0, later + 5, |_| 0), None);
    // Other interfaces, other versions, other groups.
    groups.on_query(3, true, &general(Dialect::Third), later, |_| 0);
    groups.on_query(2, false, &general(Dialect::Third), later, |_| 0);
    let other = Query { group: Some(Address::v4(0xefff_0103)), ..general(Dialect::Third) };
    groups.on_query(2, true, &other, later, |_| 0);
    assert_eq!(groups.deadline(), None);
}

#[test]
fn an_old_router_is_not_told_of_leaving() {
    let mut groups = Memberships::new();
    groups.on_query(2, true, &general(Dialect::First), 0, |_| 0);
    join(&mut groups, GROUP, 2, 0, true);
    let due = groups.due(&mut 0, 0, |_| 0).unwrap();
    assert_eq!((due.dialect, &due.saying), (Dialect::First, &Saying::Joined));
    leave(&mut groups, GROUP, 2, 0, true);
    let due = groups.due(&mut 0, 0, |_| 0).unwrap();
    assert_eq!(due.saying, Saying::Left);
    assert_eq!(report(&due, HOST), None);
    assert!(groups.members.is_empty());
}

#[test]
fn an_old_router_is_told_of_members_alone() {
    let mut groups = Memberships::new();
    groups.on_query(2, true, &general(Dialect::Second), 0, |_| 0);
    let none = SourceFilter::empty(Mode::Include);
    let one = none.with(HOST, 9).unwrap();
    let two = one.with(Address::v4(7), 9).unwrap();
    // A socket that wants nothing yet is no member.
    groups.change((GROUP, 2), (None, Some(&none)), 0, true).unwrap();
    assert_eq!(groups.deadline(), None);
    groups.change((GROUP, 2), (Some(&none), Some(&one)), 0, true).unwrap();
    assert_eq!(all_due(&mut groups, 0), [Saying::Joined]);
    let at = groups.deadline().unwrap();
    assert_eq!(all_due(&mut groups, at), [Saying::Joined]);
    // Another source is no news.
    groups.change((GROUP, 2), (Some(&one), Some(&two)), at, true).unwrap();
    assert_eq!(all_due(&mut groups, at), []);
    assert_eq!(groups.deadline(), None);
    groups.change((GROUP, 2), (Some(&two), None), at, true).unwrap();
    assert_eq!(all_due(&mut groups, at), [Saying::Left]);
    assert!(groups.members.is_empty());
}

#[test]
fn changes_of_sources_are_told() {
    let other = Address::v4(7);
    let mut groups = Memberships::new();
    let none = SourceFilter::empty(Mode::Include);
    let one = none.with(HOST, 9).unwrap();
    groups.change((GROUP, 2), (None, Some(&none)), 0, true).unwrap();
    groups.change((GROUP, 2), (Some(&none), Some(&one)), 0, true).unwrap();
    let allow = record(Kind::Allow, &[HOST]);
    assert_eq!(all_due(&mut groups, 0), core::slice::from_ref(&allow));
    let at = groups.deadline().unwrap();
    assert_eq!(all_due(&mut groups, at), [allow]);
    assert!(groups.allows(GROUP, 2, HOST) && !groups.allows(GROUP, 2, other));
    groups.change((GROUP, 2), (Some(&one), None), at, true).unwrap();
    assert_eq!(all_due(&mut groups, at), [record(Kind::Block, &[HOST])]);
    while let Some(at) = groups.deadline() {
        all_due(&mut groups, at);
    }
    assert!(groups.members.is_empty());
}

#[test]
fn questions_about_sources_are_answered_with_those_that_are_wanted() {
    let hosts = [1, 2, 3, 4].map(Address::v4);
    let mut groups = Memberships::new();
    let some = SourceFilter::new(Mode::Include, hosts[..2].to_vec());
    groups.change((GROUP, 2), (None, Some(&some)), 0, false).unwrap();
    let about = |sources: &[Address]| Query {
        group: Some(GROUP),
        sources: Some(sources.to_vec()),
        ..general(Dialect::Third)
    };
    groups.on_query(2, true, &about(&hosts[1..]), 0, |_| 5);
    assert_eq!(groups.deadline(), Some(5));
    assert_eq!(all_due(&mut groups, 5), [record(Kind::IsInclude, &hosts[1..2])]);
    // Nothing is said of those that are not wanted.
    groups.on_query(2, true, &about(&hosts[2..]), 5, |_| 0);
    assert_eq!(all_due(&mut groups, 5), []);
    // Questions that are not answered yet are one; that about all has precedence.
    groups.on_query(2, true, &about(&hosts[..1]), 5, |_| 9);
    groups.on_query(2, true, &about(&hosts[1..2]), 5, |_| 3);
    assert_eq!(groups.deadline(), Some(8));
    assert_eq!(all_due(&mut groups, 8), [record(Kind::IsInclude, &hosts[..2])]);
    groups.on_query(2, true, &about(&hosts[..1]), 8, |_| 0);
    groups.on_query(2, true, &general(Dialect::Third), 8, |_| 0);
    assert_eq!(all_due(&mut groups, 8), [record(Kind::IsInclude, &hosts[..2])]);
    assert_eq!(groups.deadline(), None);
}

#[test]
fn long_lists_are_several_messages() {
    let hosts: Vec<_> = (1..=650).map(Address::v4).collect();
    let mut groups = Memberships::new();
    let many = SourceFilter::new(Mode::Include, hosts);
    groups.change((GROUP, 2), (None, Some(&many)), 0, true).unwrap();
    let lengths = |said: Vec<Saying>| -> Vec<usize> {
        said.iter().map(|saying| saying.records()[0].sources.len()).collect()
    };
    assert_eq!(lengths(all_due(&mut groups, 0)), [300, 300, 50]);
    let at = groups.deadline().unwrap();
    assert_eq!(lengths(all_due(&mut groups, at)), [300, 300, 50]);
    assert_eq!(groups.deadline(), None);
    groups.on_query(2, true, &general(Dialect::Third), at, |_| 0);
    assert_eq!(lengths(all_due(&mut groups, at)), [300, 300, 50]);
    assert_eq!(groups.deadline(), None);
}
