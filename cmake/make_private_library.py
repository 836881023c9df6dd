#!/usr/bin/env python3
"""Makes a private copy of a shared library.

    make_private_library.py PATCHELF SOURCE OUTPUT [--replace OLD=NEW]... [--rpath PATH] [--keep-soname]

The copy gets the SONAME of its own file name, its NEEDED entries are renamed, and its STB_GNU_UNIQUE symbols become ordinary globals.
Why the last: the loader merges unique symbols over the whole process, RTLD_LOCAL or not. Two copies of libstdc++ would share the ids of
some locale facets but not the counter that hands them out.
"""
import argparse
import os
import shutil
import struct
import subprocess
import sys

STB_GLOBAL, STB_GNU_UNIQUE = 1, 10
SHT_DYNSYM = 11


def unique_to_global(path):
    with open(path, "r+b") as f:
        data = bytearray(f.read())
        if data[:4] != b"\x7fELF" or data[4] != 2 or data[5] != 1:
            sys.exit(f"{path}: not a 64-bit little-endian ELF file; private copies are made only of those")
        (section_offset,) = struct.unpack_from("<Q", data, 0x28)
        entry_size, count = struct.unpack_from("<HH", data, 0x3A)
        changed = 0
        for i in range(count):
            header = section_offset + i * entry_size
            (kind,) = struct.unpack_from("<I", data, header + 4)
            if kind != SHT_DYNSYM:
                continue
            offset, size = struct.unpack_from("<QQ", data, header + 24)
            for symbol in range(offset, offset + size, 24):
                info = data[symbol + 4]
                if info >> 4 == STB_GNU_UNIQUE:
                    data[symbol + 4] = STB_GLOBAL << 4 | info & 15
                    changed += 1
        if changed:
            f.seek(0)
            f.write(data)
    return changed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("patchelf")
    parser.add_argument("source")
    parser.add_argument("output")
    parser.add_argument("--replace", action="append", default=[])
    parser.add_argument("--rpath")
    parser.add_argument("--keep-soname", action="store_true")
    args = parser.parse_args()

    os.makedirs(os.path.dirname(args.output), exist_ok=True)
    temporary = args.output + ".new"
    shutil.copyfile(os.path.realpath(args.source), temporary)
    os.chmod(temporary, 0o755)

    def patch(*options):
        # One change a run: some patchelf versions mix up the arguments of several.
        return subprocess.run([args.patchelf, *options, temporary], check=True, capture_output=True, text=True).stdout.strip()

    name = os.path.basename(args.output)
    if not args.keep_soname:
        patch("--set-soname", name)
    renames = dict(pair.split("=", 1) for pair in args.replace)
    for needed in patch("--print-needed").split():
        if needed in renames:
            patch("--replace-needed", needed, renames[needed])
    if args.rpath:
        # DT_RPATH, not DT_RUNPATH: it stands before LD_LIBRARY_PATH and also serves what our libraries need in turn.
        patch("--force-rpath", "--set-rpath", args.rpath)
    unique_to_global(temporary)

    left = [needed for needed in patch("--print-needed").split() if needed in renames]
    wrong_name = not args.keep_soname and patch("--print-soname") != name
    if left or wrong_name or (args.rpath and patch("--print-rpath") != args.rpath):
        sys.exit(f"{args.output}: patchelf did not do what it was told (still needs {left}); use another patchelf version")
    os.replace(temporary, args.output)


if __name__ == "__main__":
    main()
