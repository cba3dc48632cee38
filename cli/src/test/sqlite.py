# SQLite on the disk at /d: `load FIRST` inserts numbers and tells each when it is committed,
# `check` prints how many there are, the largest, and what SQLite says of the file.
import sqlite3, sys

base = sqlite3.connect("/d/base", isolation_level=None)
base.execute("pragma journal_mode=wal")
base.execute("pragma synchronous=full")
base.execute("create table if not exists told (n integer primary key, filler blob)")
if sys.argv[1] == "load":
    first = int(sys.argv[2])
    for number in range(first, first + 100000):
        base.execute("insert into told values (?, randomblob(?))", (number, number % 5000))
        print(number, flush=True)
else:
    count, largest = base.execute("select count(*), coalesce(max(n), 0) from told").fetchone()
    print(count, largest, base.execute("pragma integrity_check").fetchone()[0])
