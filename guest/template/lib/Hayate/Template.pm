package Hayate::Template;

# Makes the Perl that runs it a template of Hayate (docs/templates.md).
#
#   template make cgi --perl=POSIX
#   template start cgi -- script.pl one two
#   template bind /usr/bin/perl cgi
#
# A start behaves as `perl [-w] script args` does, with these differences: modules that were loaded
# before are there, and hash seeds are the template's. A script that asks for what only the start of
# Perl can do (other options on its first line, __END__ with DATA, caller at its top) is started as
# always.

use strict;

my $READY = 1020;
my $SERVES = "option -w\nscript\nsame PERL*\nsame LANG\nsame LC_*\n";

# ready(MODULE...): loads modules, and makes this process the template $HAYATE_TEMPLATE.
sub ready {
    my $name = $ENV{HAYATE_TEMPLATE}
        or die "the template needs a name; `template make NAME -- ...` gives it\n";
    for my $module (@_) {
        (my $file = "$module.pm") =~ s{::}{/}g;
        require $file;
    }
    my $files = join "\n", grep { m{^/} && !/\n/ } values %INC;
    # struct hayate_start and struct hayate_template of hayate.h.
    my $start = "\0" x 80;
    # A buffer of its own, not the constant's.
    substr($start, 0, 1) = "\0";
    my $template = pack 'p4', $name, $start, $SERVES, $files;
    # The folder of this file: no script is to find it.
    my $folder = $INC{'Hayate/Template.pm'};
    @INC = grep { "$_/Hayate/Template.pm" ne $folder } @INC;
    $| = 1;
    syscall($READY, $template, 32) == 0 or die "$name cannot be a template: $!\n";
    $| = 0;
    my $child = fork;
    defined $child or die "$name cannot be a template: $!\n";
    if ($child) {
        waitpid $child, 0;
        exit 0;
    }
    my ($arguments, $count, undef, undef, $strings, $size, $environment) = unpack 'Q7', $start;
    if (!$arguments) {
        require POSIX;
        POSIX::_exit(0);
    }
    my $block = unpack "P" . ($size + $environment), pack 'Q', $strings;
    my @arguments = (split /\0/, substr($block, 0, $size), -1)[0 .. $count - 1];
    # One match for all variables: an operation of Perl for each takes longer. A string without a
    # name, or without "=", is no variable to Perl.
    %ENV = substr($block, $size, $environment) =~ /(?<![^\0])([^\0=]+)=([^\0]*)/g;
    _begin(@arguments);
}

# One start, to its end.
sub _begin {
    my ($program, @rest) = @_;
    while (@rest && $rest[0] eq '-w') {
        $^W = 1;
        shift @rest;
    }
    my $script = shift @rest;
    defined $script or die "a start by name takes a script\n";
    $^T = time;
    srand;
    $| = 1 if -t STDOUT;
    if (!_fits($script)) {
        # Not the path that is bound.
        exec { '/proc/self/exe' } @_;
        die "/proc/self/exe: $!\n";
    }
    @ARGV = @rest;
    _name($script);
    my $path = $script;
    if ($script !~ m{^\.{0,2}/}) {
        # `do` looks for it in @INC, and would show it as ./$script.
        unshift @INC, sub {
            shift @INC;
            open my $file, '<', $script or return;
            return \"#line 1 \"$script\"\n", $file;
        };
    }
    # What it does not define must not be found here.
    package main;
    local $@;
    $! = 0;
    my $done = do $path;
    if ($@) {
        my $status = $! + 0 || $? >> 8 || 255;
        print STDERR $@;
        exit $status;
    }
    if (!defined $done && $!) {
        -r $script or do {
            print STDERR "Can't open perl script \"$script\": $!\n";
            exit 2;
        };
    }
    exit 0;
}

# $0 is the script. Perl tells the kernel as well, which had a better name for the process.
sub _name {
    my ($script) = @_;
    $0 = $script;
    my ($last) = $script =~ m{([^/]*)$};
    my $name = pack 'Z16', $last;
    syscall 157, 15, $name, 0, 0, 0;
}

# Whether a script can be run by `do`.
sub _fits {
    my ($script) = @_;
    open my $file, '<', $script or return 1;
    my $first = <$file>;
    return 1 if !defined $first;
    if ($first =~ /^#!.*perl\S*\s+(.*?)\s*$/) {
        return 0 if $1 ne '' && $1 ne '-w';
        $^W = 1 if $1 eq '-w';
    }
    local $/;
    my $rest = <$file>;
    return 1 if !defined $rest;
    return 0 if $rest =~ /^__END__\b/m && $rest =~ /\bDATA\b/;
    return $rest !~ /\bcaller\b/;
}

1;
