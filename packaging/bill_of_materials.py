"""bill_of_materials.py VERSION SOURCE FILE: what a package holds that is not plimsoll's own, as CycloneDX 1.5. Without a file, --list prints names
and versions of all that is linked, copied in, or installed for tests."""
import json
import os
import re
import subprocess
import sys

#: Debian's packages whose code is in the program: linked, or headers.
LINKED = {"libfmt-dev": ("fmt", "MIT"), "nlohmann-json3-dev": ("nlohmann-json", "MIT"), "libcli11-dev": ("CLI11", "BSD-3-Clause"),
          "libboost-dev": ("Boost", "BSL-1.0"), "libeigen3-dev": ("Eigen", "MPL-2.0"), "zlib1g-dev": ("zlib", "Zlib"),
          "libsqlite3-dev": ("SQLite", "blessing"), "libyaml-cpp-dev": ("yaml-cpp", "MIT"), "libtomlplusplus-dev": ("toml++", "MIT")}


def text(source, name):
    with open(os.path.join(source, name), encoding="utf-8") as file:
        return file.read()


def installed(package):
    """The version of a Debian package, or None where this is no Debian or it is not there."""
    try:
        found = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.decode() or None


def linked():
    for package, (name, license_) in LINKED.items():
        version = installed(package)
        yield {"type": "library", "name": name, "version": version or "unknown", "licenses": [{"license": {"id": license_}}],
               **({"purl": f"pkg:deb/debian/{package}@{version}"} if version else {})}


def copied(source):
    """Of third_party/, and the page's packages that its build takes in."""
    version = re.search(r"v(\d+\.\d+\.\d+)", text(source, "third_party/uplot/uPlot.iife.min.js")[:200]).group(1)
    page = json.loads(text(source, "web/package-lock.json"))["packages"]["node_modules/uplot"]["version"]
    assert version == page, f"third_party/uplot is {version}, the page takes {page}"
    yield {"type": "library", "name": "uPlot", "version": version, "licenses": [{"license": {"id": "MIT"}}], "purl": f"pkg:npm/uplot@{version}"}
    version = re.search(r"yaml-cpp (\d+\.\d+\.\d+)", text(source, "third_party/yaml-cpp/README.md")).group(1)
    yield {"type": "library", "name": "yaml-cpp", "version": version, "licenses": [{"license": {"id": "MIT"}}], "purl": f"pkg:github/jbeder/yaml-cpp@{version}",
           "description": "in the page's module"}


def bill(version, source):
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": {"component": {"type": "application", "name": "plimsoll", "version": version, "licenses": [{"license": {"id": "Apache-2.0"}}]}},
            "components": [*linked(), *copied(source)]}


def everything(source):
    for each in linked():
        yield "linked", each["name"], each["version"]
    for each in copied(source):
        yield "copied in", each["name"], each["version"]
    for path, each in json.loads(text(source, "web/package-lock.json"))["packages"].items():
        if path:
            yield "page's build", path.split("node_modules/")[-1], each["version"]
    for name in ("cuda13", "cuda12", "torchtune", "texts"):
        for line in text(source, f"tests/rehearsal/requirements-{name}.txt").splitlines():
            if "==" in line:
                package, version = line.rstrip(" \\\n").split("==")
                yield f"rehearsals, {name}", package, version
    workflow = text(source, ".github/workflows/checks.yml")
    for action, version in sorted(set(re.findall(r"uses: (\S+@[0-9a-f]{40})  # (\S+)", workflow))):
        yield "workflow", action, version


def main():
    if sys.argv[1:] == ["--list"]:
        for where, name, version in everything(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")):
            print(f"{where:<24} {name:<48} {version}")
        return
    version, source, path = sys.argv[1:]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(bill(version, source), file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
