#!/bin/sh
# Compiles python's standard library, as far as it is installed, in several processes' worth of
# work.
command -v python3 >/dev/null || { echo "python3 is not installed"; exit 77; }
python3 -c 'import compileall' 2>/dev/null || { echo "python3 has no compileall"; exit 77; }
dir=${TMPDIR:-/tmp}/compile-test.$$
mkdir "$dir" || exit 1
trap 'rm -rf "$dir"' EXIT
lib=$(python3 -c 'import os; print(os.path.dirname(os.__file__))')
mkdir "$dir/lib" && cp "$lib"/*.py "$dir/lib/" || { echo "the library cannot be copied"; exit 1; }
for part in json email importlib collections asyncio encodings; do
    if [ -d "$lib/$part" ]; then cp -r "$lib/$part" "$dir/lib/" || exit 1; fi
done
unset PYTHONDONTWRITEBYTECODE
find "$dir/lib" -name '*.pyc' -exec rm -f {} +
python3 -m compileall -q "$dir/lib" > "$dir/log" 2>&1 || { echo "compileall failed: $(tail -n 1 "$dir/log")"; exit 1; }
sources=$(find "$dir/lib" -name '*.py' | wc -l)
compiled=$(find "$dir/lib" -name '*.pyc' | wc -l)
[ "$sources" -gt 20 ] || { echo "only $sources modules"; exit 1; }
[ "$compiled" -eq "$sources" ] || { echo "$compiled of $sources modules were compiled"; exit 1; }
exit 0
