# servers.sh HOST LENGTH CONNECTIONS: starts the servers of the image and asks each from inside the
# machine. HOST is an address with a port of this machine's host, where a file of LENGTH bytes is
# served; CONNECTIONS is the number of connections in a row, none of which may leave memory taken.
# Prints a line `test NAME ... ok` for each case, then `serving`, and serves until its input ends.
host=$1
length=$2
connections=$3

# check NAME COMMAND...: a case, which passes if the command succeeds.
check() {
    name=$1
    shift
    if said=$("$@" 2>&1); then
        echo "test $name ... ok"
    else
        echo "test $name ... FAILED"
        printf '%s: %s\n' "$name" "$said" >&2
    fi
}

# answered URL: waits until a server answers there; fails after half a minute.
answered() {
    curl -sSf --retry 60 --retry-delay 1 --retry-max-time 30 --retry-all-errors -o /dev/null "$1"
}

# asked PORT: 300 requests, ten at a time, each answered with 200.
asked() {
    answered "http://localhost:$1/" || return
    ab -q -n 300 -c 10 "http://127.0.0.1:$1/" >/tmp/ab || return
    case $(cat /tmp/ab) in
        *"Complete requests:      300"*"Failed requests:        0"*) ;;
        *) cat /tmp/ab; return 1 ;;
    esac
    case $(cat /tmp/ab) in *"Non-2xx"*) cat /tmp/ab; return 1 ;; esac
}

# same FILE: whether standard input is the content of the file.
same() { busybox cmp - "$1"; }

names() {
    [ "$(getent hosts localhost | wc -l)" -ge 1 ] || return
    # The host's name has the machine's own address.
    case $(getent ahostsv4 "$(hostname)") in 10.0.2.15*) ;; *) return 1 ;; esac
    # The network's name server, which the job names.
    case $(cat /etc/resolv.conf) in "nameserver 10.0.2.3") ;; *) return 1 ;; esac
}

fetched_inside() { curl -sSf http://127.0.0.1:80/big | same /tmp/big; }
fetched_from_host() { curl -sSf "http://$host/" | same /tmp/big; }

redis() {
    redis-server --port 6379 --bind 0.0.0.0 --protected-mode no --save '' --daemonize yes >/dev/null
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        [ "$(redis-cli ping 2>&1)" = PONG ] && break
        sleep 0.5
    done
    redis-benchmark -q -n 2000 -c 20 -t ping,set,get,lpush,lrange_100 >/tmp/bench 2>&1 || return
    [ "$(redis-cli llen mylist)" -ge 2000 ] || return
    case $(cat /tmp/bench) in *rror*) cat /tmp/bench; return 1 ;; esac
    redis-cli set from-the-host "answered by redis"
}

# apache MODEL PORT: an Apache with this model of processes.
apache() {
    model=$1
    folder=/tmp/apache-$model
    cp -a /etc/apache2 "$folder"
    mkdir -p "/var/run/apache2-$model" /var/log/apache2
    rm -f "$folder"/mods-enabled/mpm_*
    ln -s "../mods-available/mpm_$model.load" "../mods-available/mpm_$model.conf" \
        "$folder/mods-enabled/"
    echo "Listen $2" >"$folder/ports.conf"
    for site in "$folder"/sites-available/000-default.conf; do
        sed -i "s/:80>/:$2>/" "$site"
    done
    APACHE_RUN_USER=www-data APACHE_RUN_GROUP=www-data APACHE_LOG_DIR=/var/log/apache2 \
        APACHE_RUN_DIR=/var/run/apache2-$model APACHE_LOCK_DIR=/var/run/apache2-$model \
        APACHE_PID_FILE=/var/run/apache2-$model/pid \
        apache2 -d "$folder" -k start || return
    asked "$2"
}

cat >/tmp/asynchronous.py <<'PYTHON'
import asyncio

async def serve(reader, writer):
    while (await reader.readline()).strip():
        pass
    writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: 8\r\n\r\nasyncio\n")
    await writer.drain()
    writer.close()

async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", 8001)
    async with server:
        await server.serve_forever()

asyncio.run(main())
PYTHON

# Connections to the machine itself: 10,000 open at once, each of which carries a byte both ways.
cat >/tmp/many.py <<'PYTHON'
import resource, socket

COUNT = 10_000
resource.setrlimit(resource.RLIMIT_NOFILE, (2 * COUNT + 100, 2 * COUNT + 100))
listener = socket.create_server(("127.0.0.1", 9000), backlog=128)
pairs = []
for number in range(COUNT):
    client = socket.create_connection(("127.0.0.1", 9000))
    server, peer = listener.accept()
    assert peer == client.getsockname(), number
    pairs.append((client, server))
for number, (client, server) in enumerate(pairs):
    client.send(bytes([number & 255]))
for number, (client, server) in enumerate(pairs):
    assert server.recv(2) == bytes([number & 255]), number
    server.send(b"!")
for client, server in pairs:
    assert client.recv(2) == b"!"
PYTHON

# A connection after the other, each with a byte both ways; the client closes first. Memory is
# compared with that after a first round, when everything that is kept has grown, and after the
# minute in which ended connections are remembered (TIME-WAIT).
cat >/tmp/row.py <<'PYTHON'
import socket, sys, threading, time

COUNT = int(sys.argv[1])
FIRST = 2_000
MINUTE = 65

def serve(listener):
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(connection.recv(1))
            connection.recv(1)

def connect(count):
    for number in range(count):
        with socket.create_connection(("127.0.0.1", 9001)) as connection:
            connection.sendall(bytes([number & 255]))
            assert connection.recv(1) == bytes([number & 255]), number

def free():
    with open("/proc/meminfo") as lines:
        kibs = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
    return kibs["MemFree"] + kibs["Cached"] + kibs["Buffers"]

listener = socket.create_server(("127.0.0.1", 9001), backlog=128)
threading.Thread(target=serve, args=(listener,), daemon=True).start()
connect(FIRST)
if COUNT > FIRST:
    time.sleep(MINUTE)
    before = free()
    connect(COUNT)
    time.sleep(MINUTE)
    lost = before - free()
    assert lost < 1024, f"{lost} KiB are taken after {COUNT} connections"
PYTHON

# Node's own server.
cat >/tmp/node.js <<'JAVASCRIPT'
require('http').createServer((_, answer) => answer.end('node\n')).listen(8004, '0.0.0.0');
JAVASCRIPT

# The content that the host knows, too: the numbers from 1 on.
seq 1 999999999 | head -c "$length" >/tmp/big
ln -s /tmp/big /var/www/html/big

check names names
nginx
check nginx asked 80
check a_large_file_by_loopback fetched_inside
check a_large_file_from_the_host fetched_from_host
check redis redis
check apache_prefork apache prefork 8081
check apache_event apache event 8082
(cd /var/www/html && exec python3 -m http.server 8000 >/dev/null 2>&1) &
python3 /tmp/asynchronous.py &
check python_http_server answered http://localhost:8000/
check python_asyncio asked 8001
# Go's net/http, with sendfile.
caddy file-server --listen :8003 --root /var/www/html >/tmp/caddy 2>&1 &
node /tmp/node.js &
/servers/hayate-tokio-server 8005 &
check go_net_http asked 8003
check node_http asked 8004
check tokio asked 8005
check connections_in_a_row python3 /tmp/row.py "$connections"
check ten_thousand_open_connections python3 /tmp/many.py
echo serving
cat >/dev/null
