# nginx ROOT: makes the folders that nginx's maintainer scripts would make, enables the site that
# they enable, and gives it a page.
nginx() {
    root=$1
    mkdir -p "$root/var/log/nginx" "$root/var/lib/nginx" "$root/var/www/html" \
        "$root/etc/nginx/sites-enabled" "$root/etc/nginx/modules-enabled"
    chown 33:33 "$root/var/lib/nginx"
    ln -sf /etc/nginx/sites-available/default "$root/etc/nginx/sites-enabled/default"
    printf '<h1>It works</h1>\n' >"$root/var/www/html/index.html"
}
