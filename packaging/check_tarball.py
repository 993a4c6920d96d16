"""check_tarball.py TARBALL PROGRAM: whether the unpacked program needs nothing of its machine and answers as the built one does."""
import os
import subprocess
import sys
import tarfile
import tempfile

_QUESTIONS = (["estimate", "llama-3.1-8b", "--on", "8xmi300x", "--fsdp", "full", "--micro-batch", "2", "--seq", "8192", "--json"],
              ["models", "gpt2"], ["hardware", "h100-sxm"], ["estimate", "no-such-model", "--on", "8xmi300x"])


def answer(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    return done.returncode, done.stdout, done.stderr


def main(tarball, built):
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(tarball) as archive:
            archive.extractall(folder)
        (top,) = os.listdir(folder)
        program = os.path.join(folder, top, "bin", "plimsoll")
        headers = subprocess.run(["readelf", "--program-headers", "--dynamic", "--wide", program], check=True, stdout=subprocess.PIPE, text=True).stdout
        for word in ("INTERP", "NEEDED"):
            assert word not in headers, f"{program} asks for a dynamic linker or a library:\n{headers}"
        inside = {"cwd": "/", "env": {}}
        if os.geteuid() == 0:  # in a root folder that holds nothing else
            program, inside = "/bin/plimsoll", {"preexec_fn": lambda root=os.path.join(folder, top): (os.chroot(root), os.chdir("/")), "env": {}}
        for question in _QUESTIONS:
            assert answer([program, *question], **inside) == answer([built, *question], env={}), question
    print(f"{tarball}: {os.path.getsize(tarball) / 1e6:.1f} MB, needs a Linux kernel and nothing else")


if __name__ == "__main__":
    main(*sys.argv[1:])
