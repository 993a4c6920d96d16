"""The README tells the truth: every plimsoll command in it runs, and the report it shows is the one the program prints."""
import os
import re
import shlex

from driver import SOURCE, Checks, run


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


NUMBER = re.compile(r"\d[\d,]*\.?\d*(?:e[+-]\d+)?")
BARS = str.maketrans("", "", "█▏▎▍▌▋▊▉>")


def same(shown, printed):
    """The same words, and numbers within 5 %: a report in the README need not follow every constant of a hardware file."""
    shown, printed = shown.translate(BARS), printed.translate(BARS)
    if NUMBER.sub("#", shown).split() != NUMBER.sub("#", printed).split():
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed))
    return all(abs(float(a.replace(",", "")) - float(b.replace(",", ""))) <= 0.05 * float(b.replace(",", "")) + 0.1 for a, b in pairs)


def main():
    checks = Checks()
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
        text = file.read()
    commands = [line for block in blocks(text, "sh") for line in block.splitlines() if line.startswith("plimsoll ")]
    checks.check(len(commands) >= 5, f"the README shows {len(commands)} commands")
    for command in commands:
        words = shlex.split(command.split(" | ")[0].split("  #")[0])
        result = run(*words[1:], folder=SOURCE)
        checks.check(result.code in (0, 1), f"{command}: exit {result.code}: {result.err[:300]}")
    shown = blocks(text, "text")
    checks.check(len(shown) >= 1, "the README shows no report")
    for block in shown:
        first, _, report = block.partition("\n")
        words = shlex.split(first.removeprefix("$ "))
        if words[1] == "rehearse":
            continue  # needs PyTorch: the rehearsal suite runs it
        printed = run(*words[1:], folder=SOURCE).out
        # The README may stop early at a line "…", never differ.
        wanted = report.split("…\n")[0].splitlines()
        lines = printed.splitlines()[: len(wanted)]
        checks.check(len(lines) == len(wanted) and all(map(same, wanted, lines)), f"{first}: the README shows\n{report}\nbut it prints\n{printed}")
    checks.finish()


if __name__ == "__main__":
    main()
