"""The stand-in's libraries, loaded right before PyTorch loads its own: for a library of a name that is there already, the loader takes that
one, whatever folder PyTorch's RPATH names. So every Python that comes to use PyTorch finds the stand-in of its own toolkit, whoever started
it, and nothing else of the machine is touched."""

import ctypes
import importlib.util
import os
import re
import sys

from . import device, journal

FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # lib/plimsoll/rehearse
# runtime and what goes with it, by toolkit and major version; what is opened by name is found on LD_LIBRARY_PATH
LIBRARIES = {
    ("cuda", "12"): "libcudart.so.12 libcublas.so.12 libcublasLt.so.12 libcupti.so.12 libnccl.so.2 libcudnn.so.9 libcuda.so.1",
    ("cuda", "13"): "libcudart.so.13 libcublas.so.13 libcublasLt.so.13 libcupti.so.13 libnccl.so.2 libcudnn.so.9 libcuda.so.1",
    ("hip", "6"): "libamdhip64.so.6 librocblas.so.4 libhipblas.so.2 libhipblaslt.so.0 librccl.so.1",
    ("hip", "7"): "libamdhip64.so.7 librocblas.so.5 libhipblas.so.3 libhipblaslt.so.1 librccl.so.1",
}


def toolkit_of_torch():
    """("cuda", "13") as PyTorch's version.py says, without importing it; ("cpu", "") where it was built for the processor alone; None where
    there is none."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    with open(os.path.join(os.path.dirname(found.origin), "version.py")) as file:
        text = file.read()
    for name in ("cuda", "hip"):
        major = re.search(rf"(?m)^{name}\b[^=\n]*= *[\"']([0-9]+)", text)
        if major:
            return name, major.group(1)
    return "cpu", ""


def load():
    """Throws SystemExit where the program's PyTorch has no stand-in."""
    toolkit = toolkit_of_torch()
    if toolkit is None:
        return
    if toolkit[0] == "cpu":
        raise SystemExit(f"plimsoll rehearse: the PyTorch of {sys.executable} is built for the CPU alone: install a CUDA or ROCm build of torch")
    if toolkit not in LIBRARIES:
        raise SystemExit(
            f"plimsoll rehearse: the PyTorch of {sys.executable} is built for {' '.join(toolkit)}, which has no stand-in: CUDA 12 and 13 and "
            "ROCm 6 and 7 have one"
        )
    if toolkit[0] == "cuda" and os.environ.get("PLIMSOLL_REHEARSE_ARCH"):
        journal.note("the program's PyTorch is a CUDA build: which kernels it launches is CUDA's choice, not ROCm's")
    device.load(os.path.join(FOLDER, "libplimsoll_device.so"))
    for name in ("libplimsoll_torch.so", *LIBRARIES[toolkit].split()):
        ctypes.CDLL(os.path.join(FOLDER, name), mode=ctypes.RTLD_GLOBAL)
    os.environ["PLIMSOLL_REHEARSE_CUDNN"] = "1" if "libcudnn.so.9" in LIBRARIES[toolkit] else "0"
