#!/usr/bin/env perl
# perl: fork, wait, pipes, signals, sockets, select, file tests, exec, local time.
use strict;
use warnings;
use POSIX qw(:sys_wait_h :signal_h :errno_h);
use Socket;
use Fcntl qw(:DEFAULT :flock :seek);
use IO::Handle;

my $dir = ($ENV{TMPDIR} || "/tmp") . "/perl-test.$$";
mkdir $dir or die "mkdir: $!";
chdir $dir or die "chdir: $!";
my $owner = $$;
END { if ($owner && $$ == $owner) { my $status = $?; chdir "/"; system("rm", "-rf", $dir); $? = $status } }

sub fail { print "failed: @_\n"; exit 1 }
sub is { my ($got, $want, $what) = @_; fail("$what: got '$got', not '$want'") if $got ne $want }

# fork, exit statuses, signals
for my $code (0, 1, 42, 255) {
    my $pid = fork // fail("fork: $!");
    if (!$pid) { POSIX::_exit($code) }
    is(waitpid($pid, 0), $pid, "waitpid");
    is($? >> 8, $code, "exit status");
}
my $pid = fork // fail("fork: $!");
if (!$pid) { sleep 100; POSIX::_exit(0) }
is(waitpid($pid, WNOHANG), 0, "WNOHANG");
kill 'TERM', $pid;
waitpid $pid, 0;
is($? & 127, 15, "signal in the status");
is(waitpid(-1, 0), -1, "no child is left");
is($! + 0, ECHILD, "errno");

# pipes and backquotes
pipe(my $r, my $w) or fail("pipe: $!");
$pid = fork // fail("fork: $!");
if (!$pid) { close $r; print {$w} "line $_\n" for 1 .. 5000; close $w; POSIX::_exit(0) }
close $w;
my $lines = 0;
while (<$r>) { $lines++; is($_, "line $lines\n", "line through a pipe") }
is($lines, 5000, "lines through a pipe");
waitpid $pid, 0;
is(`echo hi; exit 3`, "hi\n", "backquotes");
is($? >> 8, 3, "their status");
open(my $to, '|-', "cat > written") or fail("open: $!");
print $to "to a child";
close $to;
open(my $from, '-|', 'cat', 'written') or fail("open: $!");
is(scalar <$from>, "to a child", "from a child");
close $from;
is(system("true"), 0, "system");
is(system("./none") == -1 || $? >> 8 == 127 ? 1 : 0, 1, "system of nothing");

# signals
my $caught = 0;
local $SIG{USR1} = sub { $caught++ };
kill 'USR1', $$ for 1 .. 3;
is($caught, 3, "signals to oneself");
eval {
    local $SIG{ALRM} = sub { die "alarm\n" };
    alarm 1;
    select(undef, undef, undef, 20);
    alarm 0;
};
is($@, "alarm\n", "alarm interrupts select");
my $set = POSIX::SigSet->new(SIGUSR1);
sigprocmask(SIG_BLOCK, $set);
kill 'USR1', $$;
is($caught, 3, "a blocked signal");
my $pending = POSIX::SigSet->new;
POSIX::sigpending($pending);
is($pending->ismember(SIGUSR1), 1, "sigpending");
sigprocmask(SIG_UNBLOCK, $set);
is($caught, 4, "an unblocked signal");
my @dead;
{
    local $SIG{CHLD} = sub { while ((my $p = waitpid(-1, WNOHANG)) > 0) { push @dead, $p } };
    for (1 .. 10) { my $p = fork // fail("fork: $!"); POSIX::_exit(0) if !$p }
    my $until = time + 20;
    select(undef, undef, undef, 0.05) while @dead < 10 && time < $until;
}
is(scalar @dead, 10, "children reaped by a handler");

# sockets and select
socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or fail("socketpair: $!");
$_->autoflush(1) for $a, $b;
print $a "ping\n";
is(scalar <$b>, "ping\n", "socketpair");
my $bits = '';
vec($bits, fileno($a), 1) = 1;
is(scalar(select(my $ready = $bits, undef, undef, 0)), 0, "select of nothing");
print $b "pong\n";
is(scalar(select($ready = $bits, undef, undef, 5)), 1, "select of something");
socket(my $server, AF_UNIX, SOCK_STREAM, 0) or fail("socket: $!");
bind($server, pack_sockaddr_un("sock")) or fail("bind: $!");
listen($server, 5) or fail("listen: $!");
$pid = fork // fail("fork: $!");
if (!$pid) {
    socket(my $c, AF_UNIX, SOCK_STREAM, 0) or POSIX::_exit(1);
    connect($c, pack_sockaddr_un("sock")) or POSIX::_exit(2);
    syswrite($c, "from a client");
    POSIX::_exit(0);
}
accept(my $client, $server) or fail("accept: $!");
is(sysread($client, my $text, 100), 13, "sysread");
is($text, "from a client", "what a client says");
waitpid $pid, 0;
is($?, 0, "the client's status");

# files
sysopen(my $f, "file", O_RDWR | O_CREAT | O_EXCL, 0640) or fail("sysopen: $!");
is(sysopen(my $g, "file", O_RDWR | O_CREAT | O_EXCL) ? 1 : $! + 0, EEXIST, "O_EXCL");
syswrite $f, "0123456789";
sysseek $f, 4, SEEK_SET;
sysread $f, $text, 3;
is($text, "456", "sysseek and sysread");
truncate $f, 5;
is(-s "file", 5, "truncate");
is(((stat "file")[2]) & 0777, 0640, "mode");
flock($f, LOCK_EX) or fail("flock: $!");
$pid = fork // fail("fork: $!");
if (!$pid) { open(my $h, '<', "file"); POSIX::_exit(flock($h, LOCK_EX | LOCK_NB) ? 1 : 0) }
waitpid $pid, 0;
is($?, 0, "flock excludes");
symlink "file", "link" or fail("symlink: $!");
is(readlink "link", "file", "readlink");
rename "file", "renamed" or fail("rename: $!");
is((-l "link" ? 1 : 0) . (-e "link" ? 1 : 0), "10", "dangling link");
utime 1000, 2000, "renamed";
is((stat "renamed")[9], 2000, "utime");
opendir(my $d, ".") or fail("opendir: $!");
is(join(" ", sort grep { !/^\./ } readdir $d), "link renamed sock written", "readdir");
is((unlink glob "*") + 0, 4, "glob and unlink");

# a memory-hungry part: strings and hashes of many megabytes
my %h = map { $_ => "x" x ($_ % 100) } 1 .. 100_000;
is(scalar(keys %h), 100_000, "a large hash");
my $long = "y" x (20 << 20);
is(length $long, 20 << 20, "a large string");
undef $long;
is(POSIX::strftime("%Y-%m-%d", gmtime 86400 * 365), "1971-01-01", "gmtime");
my @t = times;
fail("times") if $t[0] + $t[1] <= 0;
exec "/bin/sh", "-c", "chdir / 2>/dev/null; rm -rf '$dir'; exit 0" or fail("exec: $!");
