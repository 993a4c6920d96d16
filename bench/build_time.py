"""build_time.py FOLDER: which sources and headers a build spends its time on, from the traces that clang writes beside its objects.

    cmake --preset default -B build/trace -DCMAKE_CXX_COMPILER=clang++-22 -DCMAKE_CXX_FLAGS=-ftime-trace -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON
    CCACHE_DISABLE=1 cmake --build build/trace --target plimsoll_cli
    python3 bench/build_time.py build/trace
"""
import collections
import json
import pathlib
import sys

_ROWS = 25


def events_of(path):
    with open(path, encoding="utf-8") as file:
        text = json.load(file)
    return text["traceEvents"] if isinstance(text, dict) and "traceEvents" in text else []


def short(path):
    """From the project's folder or the library's: /usr/include/fmt/format.h is fmt/format.h."""
    for start in ("/src/", "/include/plimsoll/", "/usr/include/", "/c++/12/"):
        if start in path:
            return ("src/" if start == "/src/" else "plimsoll/" if "plimsoll" in start else "") + path.rsplit(start, 1)[1]
    return path


def read(folder):
    """Seconds of each source (front end, back end) and of each header, everything that it includes within it, over all sources."""
    sources, headers, times = {}, collections.Counter(), collections.Counter()
    for path in pathlib.Path(folder).rglob("*.json"):
        totals = collections.Counter()
        for event in events_of(path):
            seconds = event.get("dur", 0) / 1e6
            if event["name"] in ("Frontend", "Backend"):
                totals[event["name"]] += seconds
            elif event["name"] == "Source" and event["ph"] == "b":
                opened = event  # its end stands next
            elif event["name"] == "Source":
                headers[short(opened["args"]["detail"])] += (event["ts"] - opened["ts"]) / 1e6
                times[short(opened["args"]["detail"])] += 1
        if totals:
            sources[short(str(path)).removesuffix(".json").removesuffix(".cpp")] = totals
    return sources, headers, times


def main(folder):
    sources, headers, times = read(folder)
    print(f"{len(sources)} sources: front end {sum(each['Frontend'] for each in sources.values()):.0f} s, back end {sum(each['Backend'] for each in sources.values()):.0f} s\n")
    print("| source | front end | back end |\n| --- | --- | --- |")
    for name, each in sorted(sources.items(), key=lambda item: -sum(item[1].values()))[:_ROWS]:
        print(f"| {name} | {each['Frontend']:.1f} s | {each['Backend']:.1f} s |")
    print("\n| header | with all that it includes | read |\n| --- | --- | --- |")
    for name, seconds in headers.most_common(_ROWS):
        print(f"| {name} | {seconds:.1f} s | {times[name]} times |")


if __name__ == "__main__":
    main(*sys.argv[1:])
