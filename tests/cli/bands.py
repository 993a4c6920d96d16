"""bench/bands.py on errors made up for it: what leaving a source out does to a constant, and to the bands."""
import importlib.util
import math
import os

from driver import SOURCE, Checks

SPEC = importlib.util.spec_from_file_location("bands", os.path.join(SOURCE, "bench", "bands.py"))
bands = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(bands)


def constants(checks):
    """Seconds that grow as the square of a constant's scale: a source that took 1.21 times as long as predicted wants 1.1 of it, and log seconds
    at 0.9, 1 and 1.1 are a parabola to a hundredth."""

    def rows(longer):
        return [tuple(2 * math.log(scale) for scale in (0.9, 1.0, 1.1)) + (math.log(longer),)] * 5

    checks.check(abs(bands.best_scale({"a": rows(1.21)}, 0.1) - 1.1) < 0.01, "one source moves the constant to where it is predicted")
    checks.check(abs(bands.best_scale({"a": rows(1.0)}, 0.1) - 1.0) < 0.01, "one that is predicted leaves it")
    checks.check(bands.changed("150 us", 2) == "300 us" and bands.changed(0.5, 2) == 1.0, "units stay")
    for constant in bands.CONSTANTS:
        checks.check(len(constant.sources) > 1 or constant.fallback is not None, f"{constant.name} has neither another source nor a fallback")
        for path, keys in constant.places:
            with open(os.path.join(SOURCE, "hardware", path), encoding="utf-8") as file:
                tree = bands.json.load(file)
            for key in keys:
                tree = bands.element(tree, key)
            checks.check(isinstance(tree, (int, float, str)), f"{path} has no {keys}")


def residual(source, error, place="one node", quantity=bands.TIME):
    row = {"quantity": quantity, "predicted": 1 + error, "measured": 1, "kind": {"place": place, "host": "ahead", "basis": "played", "training": "whole"}}
    return bands.Residual(source, source, row)


def quantiles(checks):
    """Weights of 1 each: the middles of four values stand at 1/8, 3/8, 5/8 and 7/8."""
    four = [(0.0, 1), (1.0, 1), (2.0, 1), (3.0, 1)]
    checks.check(bands.quantile(four, 0.5) == 1.5 and bands.quantile(four, 0.01) == 0.0 and bands.quantile(four, 0.75) == 2.5, "quantiles between middles")
    many = bands.errors_by_source([residual("a", 0.0)] * 100 + [residual("b", 0.5)] * 4)
    checks.check(len(many["a"][0]) == bands.MOST_OF_A_SOURCE and many["a"][1] == 10 and many["b"][1] == 2, "a source counts as the root of its rows")
    low, high = bands.spread(many, 0.2)
    checks.check(low == 0.0 and high == 0.0, f"a sixth of the weight is less than a fifth: {low}, {high}")


def kinds(checks):
    """Four sources of twenty rows make a kind; two do not, and take a wider one's band, which is wide enough for them."""
    found = [residual(source, error / 100) for source in "abcd" for error in range(-10, 10)]
    found += [residual(source, error / 10, "many nodes") for source in "ef" for error in range(-5, 5)]
    made = bands.entries(found)
    whens = [entry["when"] for entry in made]
    checks.check({"basis": "played", "host": "ahead", "place": "one node"} == whens[0], f"the narrowest stands first: {whens}")
    checks.check(whens[-1] == {} and all(when.get("place") != "many nodes" for when in whens), f"two sources make no kind: {whens}")
    checks.check(bands.band_of(residual("x", 0, "many nodes"), made)["when"] == {"basis": "played", "host": "ahead"}, "they take the next wider one's band")
    checks.check(made[0]["low"] >= -0.1 and made[0]["high"] <= 0.1 and made[-1]["low"] < -0.3, f"each as wide as its own sources are: {made}")
    covered = bands.counted(bands.held_by_others(found), lambda one: one.source)
    checks.check(covered["a"][0] == 20 and covered["a"][1] >= 18, f"a source is held against the others: {covered}")


def pairs(checks):
    """Seven runs of one question, predicted e^0.02 apart and measured e^0.01: a pair d places apart is overstated by 0.01 d. Of the 21 pairs 6, 5,
    4, 3 and 2 are 1 to 5 places apart, and 18.9 are nine in ten: 5 places."""
    kind = {"framework": "megatron-te", "basis": "played"}
    rows = [{"question": "one", "kind": kind, "predicted": math.exp(0.02 * i), "measured": math.exp(0.01 * i)} for i in range(7)]
    rows.append({"question": "two", "kind": kind, "predicted": 5.0, "measured": 1.0})
    found = bands.differences(rows)
    checks.check([one["framework"] for one in found] == ["megatron-te", "all"] and found[0]["pairs"] == 21, f"pairs of one question: {found}")
    checks.check(abs(found[0]["p90"] - 0.05) < 1e-9, f"overstated by five places: {found}")


def main():
    checks = Checks()
    constants(checks)
    quantiles(checks)
    kinds(checks)
    pairs(checks)
    checks.finish()


if __name__ == "__main__":
    main()
