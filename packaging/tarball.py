"""tarball.py PROGRAM SOURCE BILL TARBALL: the static program, its manual pages and completions, which it writes itself, the pipelines' steps, the licences, and what is inside."""
import io
import os
import re
import subprocess
import sys
import tarfile


def written_by(program, *words):
    return subprocess.run([program, *words], check=True, stdout=subprocess.PIPE).stdout


def manuals(program):
    names = re.findall(r"^  ([a-z][a-z-]*)  ", written_by(program, "--help").decode(), re.MULTILINE)  # a name and, in the next column, what it is for
    if "estimate" not in names:
        sys.exit("no command stands in the program's --help")
    yield "share/man/man1/plimsoll.1", written_by(program, "man")
    for name in names:
        if name != "formula":
            yield f"share/man/man1/plimsoll-{name}.1", written_by(program, "man", name)
    for name in ("zero", "ring", "bubble", "flops"):
        yield f"share/man/man1/plimsoll-formula-{name}.1", written_by(program, "man", "formula", name)


def completions(program):
    for shell, path in (("bash", "bash-completion/completions/plimsoll"), ("zsh", "zsh/site-functions/_plimsoll"), ("fish", "fish/vendor_completions.d/plimsoll.fish")):
        yield f"share/{path}", written_by(program, "completion", shell)


def main(program, source, bill, tarball):
    os.makedirs(os.path.dirname(tarball), exist_ok=True)
    top = os.path.basename(tarball)[:-len(".tar.gz")]
    with tarfile.open(tarball, "w:gz") as archive:
        archive.add(program, f"{top}/bin/plimsoll")
        archive.add(os.path.join(source, "LICENSE"), f"{top}/LICENSE")
        archive.add(bill, f"{top}/share/doc/plimsoll/plimsoll.cdx.json")
        for path in ("ci/github/action.yml", "ci/gitlab/plimsoll-gate.yml"):  # steps that run the program in pipelines
            archive.add(os.path.join(source, path), f"{top}/share/plimsoll/{path}")
        for library in ("uPlot", "yaml-cpp"):
            archive.add(os.path.join(source, "third_party", library.lower(), "LICENSE"), f"{top}/LICENSE.{library}")
        for name, text in [*manuals(program), *completions(program)]:
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))


if __name__ == "__main__":
    main(*sys.argv[1:])
