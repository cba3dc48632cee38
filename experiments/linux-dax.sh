#!/bin/sh
# linux-dax.sh LINUX MEASURE BUSYBOX FOLDER: counts the instructions by which Linux starts a program of 40 MB
# text, of which it touches 400 pages, in place on ext4 with -o dax on an NVDIMM: what executables in two
# files are held against (docs/off2f.md).
#
# LINUX is build/linux, where ./hayate keeps Debian's kernel; MEASURE the suite, static; BUSYBOX a static
# busybox; FOLDER an empty one, which then holds FOLDER/root for Hayate:
#
#   ./hayate run --rootfs FOLDER/root --off2f='*/large' --deterministic --cpus 1 --memory 1024 \
#       -- /bin/busybox sh /run.sh
#
# Both write the suite's JSON, whose ticks are instructions. Needs python3 for the program, qemu, mke2fs, cpio.
set -eu
linux=$1 measure=$2 busybox=$3 folder=$4
cd "$folder"
mkdir -p root/bin root/usr/bin root/large root/tmp root/proc root/sys root/dev root/m
cp "$busybox" root/bin/busybox
cp "$measure" root/usr/bin/measure
ln -sf busybox root/bin/sh
python3 - root/large/large <<'END'
import struct, sys
PAGE, TEXT, BASE = 4096, 40 << 20, 0x400000
# mov rsi, BASE; mov ecx, 400; again: mov al, [rsi]; add rsi, 25 pages; dec ecx; jnz again; exit(0)
code = b'\x48\xbe' + struct.pack('<Q', BASE) + b'\xb9' + struct.pack('<I', 400)
top = len(code)
code += b'\x8a\x06\x48\x81\xc6' + struct.pack('<I', 25 * PAGE) + b'\xff\xc9'
code += b'\x75' + struct.pack('<b', top - (len(code) + 2)) + b'\xb8\x3c\0\0\0\x31\xff\x0f\x05'
image = bytearray(b'\x7fELF\x02\x01\x01' + b'\0' * 9)
image += struct.pack('<HHIQQQIHHHHHH', 2, 62, 1, BASE + 0x100, 64, 0, 0, 64, 56, 2, 64, 0, 0)
image += struct.pack('<IIQQQQQQ', 1, 5, 0, BASE, BASE, TEXT, TEXT, PAGE)
image += struct.pack('<IIQQQQQQ', 1, 6, TEXT, BASE + TEXT, BASE + TEXT, PAGE, PAGE, PAGE)
image += b'\0' * (0x100 - len(image)) + code
image += b'\x90' * (TEXT - len(image)) + b'\0' * PAGE
open(sys.argv[1], 'wb').write(image)
END
chmod 755 root/large/large
cat >root/run.sh <<'END'
run() { /usr/bin/measure run "$@" --json - --no-progress --dir /tmp --passes 1 --iterations 10; }
run --program warm=/large/large program/warm
run --before '[ ! -e /proc/hayate/pools ] || echo drop >/proc/hayate/pools
echo 3 >/proc/sys/vm/drop_caches' --cold --program cold=/large/large program/cold
END

# Linux: the same root without the program, which lies on the NVDIMM, behind the 2 MiB that a namespace with
# page structures in memory takes. Without such a namespace ext4 refuses -o dax there.
cp -R root initramfs
rm initramfs/large/large
for module in drivers/nvdimm/libnvdimm drivers/acpi/nfit/nfit drivers/nvdimm/nd_btt drivers/nvdimm/nd_pmem; do
    cp "$linux"/lib/modules/*/kernel/$module.ko initramfs/m/
done
cat >initramfs/init <<'END'
#!/bin/busybox sh
for word in mount insmod poweroff; do busybox ln -s busybox /bin/$word; done
mount -t proc proc /proc
mount -t sysfs sysfs /sys
for module in libnvdimm nfit nd_btt nd_pmem; do insmod /m/$module.ko; done
cd /sys/bus/nd/devices
echo namespace0.0 >/sys/bus/nd/drivers/nd_pmem/unbind
echo ram >pfn0.0/mode
echo 2097152 >pfn0.0/align
echo 11111111-2222-3333-4444-555555555555 >pfn0.0/uuid
echo namespace0.0 >pfn0.0/namespace
echo pfn0.0 >/sys/bus/nd/drivers/nd_pmem/bind
cd /
mount -t devtmpfs devtmpfs /dev 2>/dev/null
mount -t ext4 -o dax,ro /dev/pmem0 /large && . /run.sh
poweroff -f
END
chmod 755 initramfs/init
(cd initramfs && find . | cpio -o -H newc --quiet) >initramfs.cpio
mkdir -p files
cp root/large/large files/
mke2fs -q -F -t ext4 -b 4096 -m 0 -d files dax.ext4 96M
truncate -s 128M nvdimm
dd if=dax.ext4 of=nvdimm bs=1M seek=2 conv=notrunc status=none
qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -machine q35,nvdimm=on \
    -m 1024M,slots=2,maxmem=4G -object memory-backend-file,id=nvm,size=128M,share=off,mem-path=nvdimm \
    -device nvdimm,memdev=nvm,id=nvm1 -accel tcg -cpu max,-erms -icount shift=0,sleep=off \
    -rtc base=2024-01-01,clock=vm -seed 1 -kernel "$linux"/boot/vmlinuz-* -initrd initramfs.cpio \
    -append "console=ttyS0 panic=-1 tsc=reliable no_timer_check quiet mitigations=off init_on_alloc=0 \
norandmaps randomize_kstack_offset=off audit=0" -serial stdio
