"""Blocks of a disk that held data before it was erased, and must not read the same afterwards.

A drive that says that it has erased itself may not have done so. That both of its ends are blank proves
nothing: there the ramdisk writes zeros itself. So blocks from all over the disk are compared.
"""

import hashlib
import mmap
import os
import random

BLOCK = 4096  # bytes that are read at once: a multiple of every drive's own block
STRETCHES = 512  # the disk is divided into as many, and one block of each is remembered
TRIES = 8  # places in a stretch that are looked at for a block with data
HEAD = 64 << 20  # bytes at the beginning of a partition: file systems have data there first
HEADS = 32  # stretches of such a beginning
UNREADABLE = 16  # blocks that cannot be read, after which no more are looked at: each may take a drive half a minute
DIRECT = os.O_DIRECT  # past the kernel's cache, which does not notice what a drive does to itself


class Reader:
    """Reads blocks from the drive itself."""

    def __init__(self, name):
        self.fd = os.open(name, os.O_RDONLY | DIRECT)
        self.buffer = mmap.mmap(-1, BLOCK)  # aligned, as O_DIRECT wants it
        self.blocks = os.lseek(self.fd, 0, os.SEEK_END) // BLOCK

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    def digest(self, block):
        """The SHA-256 of a block; None if it is one byte over and over, which drives may read as after any erasure."""
        if os.preadv(self.fd, [self.buffer], block * BLOCK) != BLOCK:
            raise OSError("block %d ends early" % block)
        data = self.buffer[:]
        return None if data == data[:1] * BLOCK else hashlib.sha256(data).digest()


def take(name, starts=()):
    """Digests of blocks with data, by number: at random places in each stretch of the disk, and where partitions start.

    starts are the partitions' first bytes. Blocks that cannot be read are passed over, but not many.
    """
    with Reader(name) as disk:
        stretches = divide(0, disk.blocks, STRETCHES)
        for start in starts:
            stretches += divide(start // BLOCK, min(disk.blocks, (start + HEAD) // BLOCK), HEADS)
        taken, unreadable = {}, 0
        for first, last in stretches:
            for block in random.sample(range(first, last), min(TRIES, last - first)):
                try:
                    digest = disk.digest(block)
                except OSError:
                    unreadable += 1
                    if unreadable == UNREADABLE:
                        return taken
                    continue
                if digest:
                    taken[block] = digest
                    break
        return taken


def same(name, taken):
    """How many of the blocks that were taken still read as they did."""
    with Reader(name) as disk:
        return sum(disk.digest(block) == digest for block, digest in taken.items())


def divide(first, last, count):
    """Equal stretches of the blocks from first to before last, of one block at least."""
    count = max(0, min(count, last - first))
    return [(first + (last - first) * i // count, first + (last - first) * (i + 1) // count) for i in range(count)]
