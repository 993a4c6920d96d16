"""A program that knows the installed library by pkg-config alone is built and run: pkgconfig.py FOLDER SOURCE COMPILER [FLAG]."""
import os
import subprocess
import sys
import tempfile


def main(folder, source, *compiler):
    said = subprocess.run(["pkg-config", "--cflags", "--libs", "plimsoll"], check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "PKG_CONFIG_PATH": folder})
    with tempfile.TemporaryDirectory() as scratch:
        program = os.path.join(scratch, "consumer")
        subprocess.run([*filter(None, compiler), "-std=c++20", source, "-o", program, *said.stdout.split()], check=True)
        subprocess.run([program], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
