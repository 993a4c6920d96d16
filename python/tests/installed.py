"""pip installs the package into an environment of its own, which then answers as the library does. Skipped (77) where pip reaches no index."""
import subprocess
import sys
import venv
from pathlib import Path


def main(source, folder):
    venv.create(folder, with_pip=True, clear=True)
    python = str(Path(folder) / "bin" / "python")
    built = subprocess.run([python, "-m", "pip", "install", "--quiet", "scikit-build-core>=0.10"], check=False)
    if built.returncode != 0:
        return 77
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", source], check=True)
    said = "import plimsoll; print(plimsoll.estimate('gpt2', on='1xh100-sxm', micro_batch=8, seq=1024).verdict)"
    answer = subprocess.run([python, "-c", said], check=True, stdout=subprocess.PIPE, cwd=folder).stdout.decode().strip()
    program = subprocess.run([str(Path(folder) / "bin" / "plimsoll"), "--version"], check=True, stdout=subprocess.PIPE).stdout.decode().strip()
    print(answer, program)
    return 0 if answer == "fits" and program.startswith("plimsoll ") else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
