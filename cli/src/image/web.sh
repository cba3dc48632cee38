# web ROOT: what `./hayate experiment tender-web` asks Apache for. `web-server [--template]
# COMMAND...` starts an Apache of processes with mod_cgi, sees that every script answers, and turns
# into the command; with --template the script in Perl begins at a template of the server's user.
# `web-ask REQUESTS SCRIPT` sends it as many requests, one after the other, and fails unless each is
# answered.
web() {
    scripts=$1/usr/lib/cgi-bin
    mkdir -p "$scripts" "$1/usr/local/bin"

    # A shell that starts Perl: two new processes for a request.
    cat >"$scripts/counter" <<'END'
#!/bin/sh
/usr/lib/cgi-bin/counter.pl
END
    cat >"$scripts/counter.pl" <<'END'
#!/usr/bin/perl
open(my $file, '+<', '/run/web/counter') or die "counter: $!\n";
flock($file, 2) or die "counter: $!\n";
my $count = <$file> + 1;
seek($file, 0, 0) or die "counter: $!\n";
print $file "$count\n";
close($file) or die "counter: $!\n";
print "Content-Type: text/plain\n\n$count\n";
END

    # The same in C, without a C library, with 4 KiB to 1 MiB of text of which it reads every page.
    for kib in 4 16 64 256 1024; do
        web_in_c "$kib" "$scripts/c-$kib"
    done
    chmod 755 "$scripts"/*

    cat >"$1/etc/apache2/web.conf" <<'END'
ServerRoot /etc/apache2
ServerName localhost
DefaultRuntimeDir /run/web
PidFile /run/web/pid
ErrorLog /run/web/error
Listen 8080
LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule alias_module /usr/lib/apache2/modules/mod_alias.so
LoadModule cgi_module /usr/lib/apache2/modules/mod_cgi.so
User www-data
Group www-data
StartServers 2
MinSpareServers 1
MaxSpareServers 4
MaxRequestWorkers 8
LogFormat "%h %l %u %t \"%r\" %>s %b" common
CustomLog /run/web/access common
ScriptAlias /cgi-bin/ /usr/lib/cgi-bin/
END
    cat >"$1/usr/local/bin/web-server" <<'END'
#!/bin/sh
# web-server [--template] COMMAND...: starts Apache, and the command when every script answers.
# With --template the script in Perl begins where it is compiled, at a template that the server's
# user has made.
fail() {
    echo "web-server: $*" >&2
    [ ! -e /run/web/error ] || cat /run/web/error >&2
    exit 4
}
# A template serves the user who made it, where the variables that Perl reads are the same.
as_server() {
    setpriv --reuid=33 --regid=33 --init-groups env -i PATH="$PATH" /usr/local/bin/"$@"
}
# The number of scripts that began at the template.
begun() {
    as_server template show web | sed -n 's/^starts: //p'
}
mkdir -p /run/web
echo 0 >/run/web/counter
chown -R 33:33 /run/web
template=
if [ "$1" = --template ]; then
    template=yes
    shift
    script=/usr/lib/cgi-bin/counter.pl
    as_server template make web --perl-script="$script" || fail "$script makes no template"
    as_server template bind "$script" web || fail "$script begins at no template"
fi
apache2 -f /etc/apache2/web.conf -k start || fail 'Apache does not start'
wanted=1
for path in /usr/lib/cgi-bin/*; do
    said=$(curl -sS --retry 60 --retry-delay 1 --retry-max-time 60 --retry-connrefused \
        "http://127.0.0.1:8080/cgi-bin/${path##*/}" 2>&1)
    [ "$said" = "$wanted" ] || fail "${path##*/} answers '$said' instead of $wanted"
    wanted=$((wanted + 1))
done
# Two of the scripts are in Perl: one is started by the server, one by a shell.
[ -z "$template" ] || [ "$(begun)" = 2 ] || fail "$(begun) scripts began at the template, not 2"
exec "$@"
END
    cat >"$1/usr/local/bin/web-ask" <<'END'
#!/bin/sh
# web-ask REQUESTS SCRIPT: as many requests in a row. The counter's length may change (-l).
said=$(ab -q -l -n "$1" "http://127.0.0.1:8080/cgi-bin/$2" 2>&1)
case $said in
*Non-2xx*) ;;
*"Complete requests:      $1"*"Failed requests:        0"*) exit ;;
esac
printf '%s\n' "$said" >&2
exit 1
END
    chmod 755 "$1/usr/local/bin/web-server" "$1/usr/local/bin/web-ask"
}

# web_in_c KIB PROGRAM: the counter as a static program with a text of this length.
web_in_c() {
    # Code and constants take less than two kilobytes.
    cat >"$scratch/counter.c" <<'END'
static long call(long number, long one, long two, long three) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(one), "S"(two), "d"(three)
                     : "rcx", "r11", "memory");
    return result;
}

enum { READ = 0, WRITE = 1, OPEN = 2, SEEK = 8, EXIT = 60, LOCK = 73 };
enum { READ_WRITE = 2, EXCLUSIVE = 2 };

/* The linker puts it behind the code. */
#define WORDS(number) #number
#define FILL(kib) ".section .text.zz, \"ax\"\n.fill (" WORDS(kib) " - 2) * 1024, 1, 0x90\n.text"
__asm__(FILL(KIB));
extern const char __executable_start[];

static void check(long result) {
    if (result < 0)
        call(EXIT, 1, 0, 0);
}

__attribute__((force_align_arg_pointer)) void _start(void) {
    static const char head[] = "Content-Type: text/plain\n\n";
    char answer[64], digits[24];
    unsigned long count = 0, length = 0, at = 0;
    for (; at < KIB / 4; at++)
        *(volatile const char *)(__executable_start + 4096 * at);
    long file = call(OPEN, (long)"/run/web/counter", READ_WRITE, 0);
    check(file);
    check(call(LOCK, file, EXCLUSIVE, 0));
    long got = call(READ, file, (long)digits, sizeof digits);
    check(got);
    for (at = 0; at < (unsigned long)got && digits[at] >= '0' && digits[at] <= '9'; at++)
        count = count * 10 + (unsigned long)(digits[at] - '0');
    count++;
    unsigned long rest = count;
    at = sizeof digits;
    digits[--at] = '\n';
    do
        digits[--at] = (char)('0' + rest % 10);
    while ((rest /= 10) != 0);
    check(call(SEEK, file, 0, 0));
    check(call(WRITE, file, (long)(digits + at), (long)(sizeof digits - at)));
    for (; length < sizeof head - 1; length++)
        answer[length] = head[length];
    while (at < sizeof digits)
        answer[length++] = digits[at++];
    check(call(WRITE, 1, (long)answer, (long)length));
    call(EXIT, 0, 0, 0);
}
END
    # Headers and text in one segment, in whole pages.
    cc -O2 -DKIB="$1" -ffreestanding -fno-stack-protector -fno-asynchronous-unwind-tables \
        -fcf-protection=none -nostdlib -static -Wl,-z,noseparate-code -Wl,--build-id=none \
        -o "$2" "$scratch/counter.c"
}
