#!/usr/bin/python3
"""without.py NUMBER[:ERRNO]... -- COMMAND...: as on a kernel where these calls (by number) give that error, ENOSYS
unless another is named. For tests of what is said on hosts that lack something."""
import ctypes
import os
import struct
import sys


def main():
    at = sys.argv.index("--")
    calls = [(w.split(":") + ["38"])[:2] for w in sys.argv[1:at]]
    code = [struct.pack("=HBBI", 0x20, 0, 0, 0)]  # load the number
    for nr, error in calls:
        code += [struct.pack("=HBBI", 0x15, 0, 1, int(nr)), struct.pack("=HBBI", 0x06, 0, 0, 0x50000 | int(error))]
    code.append(struct.pack("=HBBI", 0x06, 0, 0, 0x7fff0000))
    text = ctypes.create_string_buffer(b"".join(code))
    prog = ctypes.create_string_buffer(struct.pack("@HxxxxxxQ", len(code), ctypes.addressof(text)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, prog, 0, 0):
        sys.exit(f"without.py: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[at + 1], sys.argv[at + 1:])


main()
