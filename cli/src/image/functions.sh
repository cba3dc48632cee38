# Shell functions for making images. They run below fakeroot, or as root.

# unpack TAR FOLDER
unpack() {
    tar -x -p --keep-directory-symlink --numeric-owner -f "$1" -C "$2"
}

# disk FOLDER IMAGE: an ext4 image with the folder's content and room for nothing more. No
# journal, for it is never written; blocks of a page, so that the page cache reads whole ones; a
# fixed identity and time, so that the same files give the same bytes.
disk() {
    files=$(find "$1" -xdev | wc -l)
    kib=$(find "$1" -xdev -printf '%k\n' | awk '{ sum += $1 + 1 } END { print sum }')
    inodes=$((files + files / 8 + 256))
    # Content, inodes of 256 bytes, and a tenth for what ext4 keeps for itself.
    size=$((kib + inodes / 4 + kib / 10 + 8192))
    rm -f "$2"
    E2FSPROGS_FAKE_TIME=1704067200 mke2fs -q -F -t ext4 -b 4096 -I 256 -N "$inodes" -m 0 \
        -O ^has_journal,^resize_inode -U 68617961-7465-4000-8000-000000000001 \
        -E root_owner=0:0,hash_seed=68617961-7465-4000-8000-000000000002,lazy_itable_init=1 \
        -L hayate -d "$1" "$2" "${size}k"
}

# split FOLDER NVM: converts the folder's programs and libraries to header files, their texts to a
# store in the file NVM; NVM.summary tells about it.
split() {
    set -- "$1" "$2" ${HAYATE_GLOB:+"--glob=$HAYATE_GLOB"}
    "$HAYATE_SELF" off2f tree "$@" >"$2.summary"
}

# archive FOLDER FILE: a cpio archive for an initramfs.
archive() {
    (cd "$1" && find . -xdev | LC_ALL=C sort | cpio -o -H newc --quiet --reproducible) >"$2"
}
