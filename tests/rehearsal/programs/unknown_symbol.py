"""Loads a library that wants a function of the CUDA runtime which no stand-in has."""

import ctypes
import os
import subprocess
import tempfile

with tempfile.TemporaryDirectory() as folder:
    library = os.path.join(folder, "libnewer.so")
    source = "extern int cudaNotYetInvented(void); int use(void) { return cudaNotYetInvented(); }"
    plain = {key: value for key, value in os.environ.items() if not key.startswith("LD_")}
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=source.encode(), check=True, env=plain)
    ctypes.CDLL(library, mode=os.RTLD_NOW)
