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
#
#   template make counter --perl-script=/usr/lib/cgi-bin/counter.pl
#   template bind /usr/lib/cgi-bin/counter.pl counter
#
# Here Perl has compiled the script already (-MHayate::Template=script), and a start goes on where
# INIT blocks run, before the script's first statement. `use` and BEGIN blocks ran once.

use strict;

my $READY = 1020;
# Numbers of Linux for x86-64.
my ($POLL, $PRCTL, $EXIT_GROUP, $WAITID) = (7, 157, 231, 247);
my ($PROCESS_VM_WRITEV, $STATX) = (311, 332);
my ($ECHILD, $ESPIPE) = (10, 29);
my $SERVES = "option -w\nscript\nsame PERL*\nsame LANG\nsame LC_*\n";

# struct hayate_start, struct hayate_variables: filled in at each start.
my $start = "\0" x 80;
my $variables = "\0" x 16;

# Declares this process as the template $name. $environment: the address of `environ`, or 0.
sub _declare {
    my ($name, $serves, $files, $environment) = @_;
    # struct hayate_template of hayate.h. Buffers of their own, not those of constants.
    substr($start, 0, 1) = substr($variables, 0, 1) = "\0";
    my $template = pack 'p4Qp', $name, $start, $serves, $files, $environment, $variables;
    syscall($READY, $template, length $template) == 0 or die "$name cannot be a template: $!\n";
}

# Makes the template. Returns in each start alone.
sub _keep {
    my ($name) = @_;
    my $buffered = $|;
    $| = 1;
    my $child = fork;
    $| = $buffered;
    defined $child or die "$name cannot be a template: $!\n";
    if ($child) {
        waitpid $child, 0;
        _leave(0);
    }
    # The child of the fork has nothing to do.
    unpack 'Q', $start or _leave(0);
}

# Ends the process at once: neither END blocks nor destructors.
sub _leave {
    syscall $EXIT_GROUP, $_[0];
}

# The arguments of a start, the program first.
sub _arguments {
    return unpack '(Z*)*', _given();
}

# The same as they lie in memory, each ended by a zero byte.
sub _given {
    my $size = unpack 'x40Q', $start;
    return unpack "x32P$size", $start;
}

# Perl tells the C library each change of %ENV, which takes thousands of instructions a variable. In
# a start the C library has the environment already: the kernel sets its variable `environ`. Until
# %ENV is filled in, Perl is to take this thread for one that is not its first: such a one tells
# the C library nothing (`my_setenv`, util.c). It knows the first one by PL_curinterp.

# The vector that the kernel gives is not from Perl's memory, so Perl must take it for the one that
# it was started with (PL_origenviron): it copies that before it changes it.

# PL_curinterp, and where it and PL_origenviron are, for process_vm_writev(2); undefined: the C
# library is told as ever.
my ($first, $there);

# The address of a variable of Perl or of the C library, or 0.
sub _address {
    my ($name) = @_;
    defined &DynaLoader::dl_find_symbol or DynaLoader::boot_DynaLoader('DynaLoader');
    # The program and its libraries.
    my $all = DynaLoader::dl_load_file('', 0) or return 0;
    return DynaLoader::dl_find_symbol($all, $name, 1) || 0;
}

# The bytes at an address.
sub _at {
    my ($address, $size) = @_;
    return unpack "P$size", pack 'Q', $address;
}

# Looks for these variables. PL_origenviron has no symbol: it is the only one of the interpreter
# that leads to the first stack, and there to a pointer to the first variable.
sub _find_variables {
    my ($current, $environ, $size) =
        map { _address($_) || return } qw(PL_curinterp environ PL_interp_size);
    open my $maps, '<', '/proc/self/maps' or return;
    # A word is as long as an address here.
    local $^W = 0;
    my ($low, $high) = map { /^(\w+)-(\w+) .*\[stack\]$/ ? (hex $1, hex $2) : () } <$maps>;
    open my $variables, '<', '/proc/self/environ' or return;
    my ($variable) = (<$variables> // '') =~ /^([^\0]+\0)/;
    return if !$high || !defined $variable;
    $high -= length $variable;
    my $is_in_stack = sub { $_[0] >= $low && $_[0] <= $high && $_[0] % $_[1] == 0 };
    $first = _at($current, 8);
    my $interpreter = unpack 'Q', $first;
    my @words = unpack 'Q*', _at($interpreter, unpack 'S', _at($size, 2));
    my @places = grep {
        my $string = $is_in_stack->($words[$_], 8) ? unpack 'Q', _at($words[$_], 8) : 0;
        $is_in_stack->($string, 1) && _at($string, length $variable) eq $variable
    } 0 .. $#words;
    $there = pack 'Q4', $current, 8, $interpreter + 8 * $places[0], 8 if @places == 1;
}

# Writes PL_curinterp, and PL_origenviron if it is given; whether that worked.
sub _write {
    my $values = join '', @_;
    my $here = pack 'PQ', $values, length $values;
    return syscall($PROCESS_VM_WRITEV, $$ + 0, $here, 1, $there, scalar @_, 0) == length $values;
}

# Whether the C library has any variable.
sub _has_variables {
    my $vector = unpack 'Q', _at($_[0], 8);
    return $vector && unpack 'Q', _at($vector, 8);
}

# Separates %ENV, which must be empty, from the C library, and says whether that worked.
sub _separate_environment {
    my $zero = pack 'Q', 0;
    my $environ = _address('environ');
    if (_write($zero)) {
        # Whether this Perl is as it was thought to be.
        $ENV{HAYATE_TEMPLATE} = '';
        %ENV = ();
        my $told = _has_variables($environ);
        _write($first);
        $ENV{HAYATE_TEMPLATE} = '';
        my $is_told = _has_variables($environ);
        %ENV = ();
        return _write($zero) if !$told && $is_told;
    }
    return 0;
}

# The address of `environ`, or 0: the kernel is not to set it. $sees: whether %ENV is looked at.
sub _hand_over_environment {
    my ($sees) = @_;
    %ENV = ();
    undef $there if $there && $sees && !_separate_environment();
    return $there ? _address('environ') : 0;
}

# Takes the environment of a start; $sees: into %ENV, too.
sub _take_environment {
    my ($sees) = @_;
    my $size = unpack 'x8Q', $variables;
    # Name, value, name, value. It takes less than unpack; the last zero byte is left out.
    %ENV = split /\0/, unpack('P' . ($size - 1), $variables), -1 if $size && $sees;
    _write($first, substr $start, 16, 8) if $there;
}

# ready(MODULE...): loads modules, and makes this process the template $HAYATE_TEMPLATE.
sub ready {
    my $name = $ENV{HAYATE_TEMPLATE}
        or die "the template needs a name; `template make NAME -- ...` gives it\n";
    for my $module (@_) {
        (my $file = "$module.pm") =~ s{::}{/}g;
        require $file;
    }
    my $files = join "\n", grep { m{^/} && !/\n/ } values %INC;
    # The folder of this file: no script is to find it.
    _hide();
    _find_variables();
    _declare($name, $SERVES, $files, _hand_over_environment(1));
    _keep($name);
    _take_environment(1);
    _begin(_arguments());
}

# Takes the folder of this file out of @INC.
sub _hide {
    my $folder = $INC{'Hayate/Template.pm'};
    @INC = grep { "$_/Hayate/Template.pm" ne $folder } @INC;
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
    syscall $PRCTL, 15, $name, 0, 0, 0;
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

# ---- a script that is compiled already --------------------------------------------------------

# The script, if Perl was started with one; whether its first line has -w.
my ($script, $warns);
# The arguments of a start without any of the script's.
my $usual;
# How many modules are loaded; undefined: the end is as always.
my $included;
# Descriptors above 2 for poll(2): as asked, and as answered if none is open (POLLNVAL).
my $polled = join '', map { pack 'lss', $_, 0, 0 } 3 .. 18;
my $closed = join '', map { pack 'lss', $_, 0, 32 } 3 .. 18;

# -MHayate::Template=script[,-w]
sub import {
    my (undef, $what, $option) = @_;
    return if !defined $what;
    ($script, $warns) = ($0, $option);
    _find_variables();
    _hide();
}

# The first of all INIT blocks, and the last of all END blocks.
INIT { _begin_script() if defined $script }
END { _end_script() if defined $included }

# Returns in each start, where the script is to begin.
sub _begin_script {
    my ($name, $before, $stamp) = map { $ENV{"HAYATE_TEMPLATE$_"} } '', '_TIME', '_FILE';
    defined $name or die "the template needs a name; `template make NAME -- ...` gives it\n";
    my @modules = grep { $_ ne $INC{'Hayate/Template.pm'} } values %INC;
    for my $module (@modules) {
        $module =~ m{^/} or die "$module: a relative path leads elsewhere in another directory\n";
    }
    # Perl's own modules are not looked at in each start.
    my @own = grep { !m{^/(?:usr|etc)/} } @modules;
    my $serves = join '', $warns ? "option -w\n" : '', "script $script\n",
        (map { "unchanged $_\n" } $script, @own), "same PERL*\nsame LANG\nsame LC_*\n";
    my $has_destructors = _has_destructors($script, @modules);
    $usual = "$^X\0$script\0";
    delete $INC{'Hayate/Template.pm'};
    my $sees = !$there || _sees_environment($script, %INC);
    my $environment = _hand_over_environment($sees);
    _declare($name, $serves, join("\n", $script, @modules), $environment);
    # The kernel has noted which files must be unchanged. Are they still what Perl has read?
    _stamp($script) eq $stamp or die "$script: it has just been changed\n";
    for my $module (@own) {
        (split / /, _stamp($module))[0] < $before or die "$module: it has just been changed\n";
    }
    _keep($name);

    # A start. Positions may be other than 0. What is written to a terminal is buffered by lines,
    # from the open on.
    _take_environment($sees || !$there);
    seek STDIN, 0, 1;
    seek STDERR, 0, 1;
    seek STDOUT, 0, 1 or -t STDOUT and _begin_as_always();
    if (_given() ne $usual) {
        my (undef, @rest) = _arguments();
        @ARGV = @rest[_script_at(@rest) .. $#rest];
    }
    $^T = time;
    srand unpack 'x64L', $start;
    $included = keys %INC if !$has_destructors;
    $! = 0;
}

# How many arguments are those of Perl, the script among them: none in a start by name.
sub _script_at {
    my $at = 0;
    $at++ while $at < @_ && $_[$at] eq '-w';
    $at < @_ && $_[$at] eq $script ? $at + 1 : 0;
}

# Starts Perl with the script. No start with "--" is served.
sub _begin_as_always {
    my ($program, @rest) = _arguments();
    my $at = _script_at(@rest) || unshift @rest, $script;
    splice @rest, $at - 1, 0, '--';
    exec { '/proc/self/exe' } $program, @rest;
    die "/proc/self/exe: $!\n";
}

# The stamp of a file, which changes with it: the time of its last change in nanoseconds first, as
# statx(2) tells it.
sub _stamp {
    my ($file) = @_;
    my $answer = "\0" x 256;
    syscall($STATX, -100, $file, 0, 0x7ff, $answer) == 0 or die "$file: $!\n";
    my ($number, $size, $seconds, $nanoseconds) = unpack 'x32QQx48qL', $answer;
    return join ' ', $seconds * 1_000_000_000 + $nanoseconds, $number, $size;
}

# Modules of Perl that do not look at the environment, and load none that do.
my %blind = map { ("$_.pm", 1) } qw(strict warnings utf8 feature integer bytes constant vars
    warnings/register Fcntl XSLoader Exporter);

# Whether a script with these modules may look at %ENV. It does not if it cannot name it: ENV is in
# no text, and there are no evaluated strings, no files to load later, and no references by a name
# that the script makes up, which strict forbids.
sub _sees_environment {
    my ($script, %modules) = @_;
    my @files = map { $modules{$_} } grep { !$blind{$_} } keys %modules;
    for my $file ($script, @files) {
        open my $lines, '<', $file or return 1;
        my $text = join '', <$lines>;
        return 1 if $text =~ m{
            ENV | \beval\b(?!\s*\{) | \b(?:require|glob|syscall)\b | \bdo\b(?!\s*\{) | \?\{
            | [^\w\s][a-z]*e[a-z]*e[a-z]*\b | [%\$\@*&]\s*[\w:]*(?:::|')(?!\w) | \bno\s+strict\b
        }x;
        next if $text =~ /\A(?:#.*\n|\s*\n|use [\w:.]+[^{}<;]*;\s*\n)*use strict;/;
        return 1 if $text =~ /->|[\$\@%&*]\s*[\$\{]/;
    }
    return 0;
}

# Whether the end of an object may be noticed: the name of a method that would be called is in one
# of the files, or in a package, or a library is loaded that is not Perl's.
sub _has_destructors {
    for my $file (@_) {
        open my $lines, '<', $file or return 1;
        while (<$lines>) {
            return 1 if /DESTROY|AUTOLOAD/;
        }
    }
    my $libraries = $DynaLoader::{dl_shared_objects};
    return 1 if $libraries && grep { !m{^/usr/lib/[^/]+/perl} } @$libraries;
    my (@packages, %seen) = \%main::;
    while (my $package = pop @packages) {
        for my $name (keys %$package) {
            my $is_glob = ref \$package->{$name} eq 'GLOB';
            if ($name eq 'DESTROY' || $name eq 'AUTOLOAD') {
                # Without code, it is a name that Perl has looked for.
                return 1 if !$is_glob || *{$package->{$name}}{CODE};
            }
            # Regular expressions have a method that does nothing (universal.c).
            next if $name !~ /::$/ || $name eq 'Regexp::' || !$is_glob;
            my $inner = *{$package->{$name}}{HASH};
            push @packages, $inner if $inner && !$seen{$inner}++;
        }
    }
    return 0;
}

# Perl looks at all objects in the end, three times. If nobody can notice it does not: no module was
# loaded since, no child is left to wait for, no file is open whose end could fail.
sub _end_script {
    my $status = $? & 255;
    return if keys %INC != $included || tied *STDOUT || !defined fileno STDOUT;
    syscall $POLL, $polled, 16, 0;
    return if $polled ne $closed;
    # WEXITED, WNOHANG, WNOWAIT
    return if syscall($WAITID, 0, 0, 0, 0x100_0005, 0) != -1 || $! != $ECHILD;
    if (!seek(STDOUT, 0, 1) && $! != $ESPIPE) {
        # As perl_destruct says it; the status is that of perlmain.
        print STDERR "Unable to flush stdout: $!\n";
        _leave($status || 1);
    }
    # It writes out all other buffers, and gives an input back what was read ahead (PerlIO_flush).
    local $^W = 0;
    { exec { '' } '' };
    _leave($status);
}

1;
