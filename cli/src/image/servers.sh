# servers ROOT: makes the files and users that the maintainer scripts of the servers would make.
servers() {
    root=$1
    # Users that adduser would make. tcpdump becomes its own when it has opened what it reads.
    echo 'tcpdump:x:102:102::/nonexistent:/usr/sbin/nologin' >>"$root/etc/passwd"
    echo 'tcpdump:x:102:' >>"$root/etc/group"
    echo 'redis:x:101:101::/var/lib/redis:/usr/sbin/nologin' >>"$root/etc/passwd"
    echo 'redis:x:101:' >>"$root/etc/group"
    mkdir -p "$root/var/lib/redis" "$root/var/log/redis" \
        "$root/var/log/apache2" "$root/run/apache2"
    chown 101:101 "$root/var/lib/redis" "$root/var/log/redis"
    nginx "$root"

    # apache2: the modules and the site that its package enables. `web.sh` has CGI, with another
    # configuration.
    for module in alias auth_basic authn_core authn_file authz_core authz_host authz_user autoindex \
        deflate dir env filter mime mpm_event negotiation reqtimeout setenvif status; do
        for kind in load conf; do
            [ ! -e "$root/etc/apache2/mods-available/$module.$kind" ] ||
                ln -sf "../mods-available/$module.$kind" \
                    "$root/etc/apache2/mods-enabled/$module.$kind"
        done
    done
    ln -sf ../sites-available/000-default.conf "$root/etc/apache2/sites-enabled/000-default.conf"
    echo 'ServerName localhost' >"$root/etc/apache2/conf-enabled/name.conf"
    web "$root"
}
