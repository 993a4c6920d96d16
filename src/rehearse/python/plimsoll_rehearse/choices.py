"""Values that nobody computed, where a program needs one. A number is finite, positive and different from zero; choices are balanced: every
expert gets the same number of tokens, a mask selects about half. What holds of any numbers, holds: they are finite, and equal to themselves."""

import linecache
import os
import re
import sys

from . import journal, steps
from .device import ASSUMED, NONE

NUMBER = 0.75  # a single one: exact in every type, and as good a loss, norm or probability as any
GOLDEN = 0.6180339887498949  # multiples of it, without their whole part, spread evenly over (0, 1)
PATIENCE = 256  # how often a line asks for a number in one step before it is taken to wait for it to fall: more than a step has micro-batches
MOST_TOLD = 4096  # elements of a tensor whose being read is worth telling: not one that is offloaded
HERE = os.path.dirname(os.path.abspath(__file__))


def given_values():
    """--value NAME=NUMBER, by lines."""
    pairs = (line.rpartition("=") for line in os.environ.get("PLIMSOLL_REHEARSE_VALUES", "").splitlines())
    return {name: float(number) for name, _, number in pairs}


def lines_of_program():
    """Place and text of the lines that the program is in, innermost first, those of PyTorch and of this package left out."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((HERE, "<")) and f"{os.sep}torch{os.sep}" not in name:
            yield f"{name}:{frame.f_lineno}", linecache.getline(name, frame.f_lineno)
        frame = frame.f_back


class Choices:
    def __init__(self, torch, values):
        self._torch, self._values, self._given = torch, values, given_values()
        self._asked = {}  # by line of the program: for how many numbers in this step, and at which operator last
        steps.at_boundaries(self._asked.clear)
        self._dealt = {"topk": 1, "argmax": 0, "argmin": 0, "max": 1, "min": 1, "multinomial": 0}

    # ---- numbers ------------------------------------------------------------------------------------------------------

    def pattern(self, tensor):
        """Values for an unknown tensor."""
        torch, count = self._torch, tensor.numel()
        if count == 1:
            number = self._given_here()
            if number is None and tensor.dtype.is_floating_point:
                number = max(self._number_here(), torch.finfo(tensor.dtype).tiny)
            elif number is None:
                number = NUMBER if tensor.dtype.is_complex else 0 if tensor.dtype == torch.bool else 1
            return torch.full(tensor.shape, number, dtype=torch.float64, device="cpu").to(tensor.dtype)
        if tensor.dtype == torch.bool:
            return (torch.arange(count, device="cpu") % 2 == 0).view(tensor.shape)
        if self._values.is_whole(tensor):
            return torch.ones(tensor.shape, dtype=tensor.dtype, device="cpu")
        spread = torch.frac(GOLDEN * torch.arange(1, count + 1, dtype=torch.float64, device="cpu"))
        return torch.clamp(spread, min=2.0**-7).view(tensor.shape)

    def _number_here(self):
        """The same for all who ask; but a line that asks on and on, and computes between, waits for convergence: it gets half as much every
        time. One that reads what was computed before (each norm of a list) is through in the end."""
        line = next((place for place, _ in lines_of_program()), None)
        asked, last = self._asked.get(line, (0, None))
        asked += last is None or self._values.operators > last + 1
        self._asked[line] = asked, self._values.operators
        if asked <= PATIENCE:
            return NUMBER
        journal.note(f"{line} reads a number more than {PATIENCE} times in a step: from there on it halves, as what converges does")
        return NUMBER * 2.0 ** (PATIENCE - asked)

    def give(self, tensor):
        """What the user gave for this line, in the place of a number that follows from assumed ones."""
        number = self._given_here()
        if number is not None:
            self._values.set(tensor, self._torch.full(tensor.shape, number, dtype=self._torch.float64, device="cpu").to(tensor.dtype), ASSUMED)

    def _given_here(self):
        """What the user gave for a name that stands in the line that asks, or for that line."""
        if not self._given:
            return None
        for place, text in lines_of_program():
            for name, number in self._given.items():
                if place.endswith(name) if ":" in name else re.search(rf"\b{re.escape(name)}\b", text):
                    return number
        return None

    # ---- choices ------------------------------------------------------------------------------------------------------

    def choose(self, name, result, inputs, arguments, options):
        """The result of an operator that chooses by numbers that nobody computed; None for any other."""
        torch, values = self._torch, self._values
        if name == "_is_all_true":  # asked by checks of what must hold
            values.set(result, torch.ones(result.shape, dtype=torch.bool, device="cpu"), ASSUMED)
            return result
        if name in ("all", "any", "_is_any_true") and values.is_small(result) and values.knowledge(inputs[0]) == NONE:
            # Of a condition that none meets: a search for bad values ends, and so does drawing anew. Numbers differ from zero.
            met = name == "all" or inputs[0].dtype != torch.bool
            values.set(result, torch.full(result.shape, met, dtype=torch.bool, device="cpu"), ASSUMED)
            return result
        if name == "nonzero" and not values.is_small(inputs[0]):
            count = values.count_expanded(inputs[0])
            if count is not None:
                return torch.empty((count, inputs[0].dim()), dtype=torch.int64, device=result.device)
            journal.read(f"places of what is not zero in a {str(inputs[0].dtype)[6:]} tensor at {journal.user_line()}: taken as every other one")
            return torch.empty((inputs[0].numel() // 2, inputs[0].dim()), dtype=torch.int64, device=result.device)
        if name in self._dealt:
            return self._deal(name, result, inputs[0], arguments, options)
        if name in ("sort", "argsort") and not (values.is_whole(inputs[0]) and values.knowledge(inputs[0]) == ASSUMED):  # dealt ones are sorted
            return self._keep_order(name, result, inputs[0], arguments, options)
        return None

    def _deal(self, name, result, scores, arguments, options):
        """Indices dealt round robin, as a balanced router deals its tokens to experts."""
        indices = result[self._dealt[name]] if isinstance(result, tuple) else result if self._dealt[name] == 0 else None
        if indices is None or not self._values.is_small(indices) or scores.dim() == 0 or indices.numel() == 0:
            return None
        place = {"topk": 2, "multinomial": len(arguments)}.get(name, 1)  # of its argument dim
        axis = options.get("dim", arguments[place] if len(arguments) > place else None if name.startswith("arg") else -1)
        among = scores.numel() if axis is None else scores.shape[axis]
        dealt = self._torch.arange(indices.numel(), device="cpu") % max(1, among)
        if name == "topk":
            journal.replaced("the indices of topk over rows: dealt round robin, as a balanced router deals tokens to experts")
        self._values.set(indices, dealt.view(indices.shape), ASSUMED)
        return result

    def _keep_order(self, name, result, scores, arguments, options):
        """Numbers that nobody computed are in order as they are."""
        indices = result[1] if isinstance(result, tuple) else result
        if not self._values.is_small(indices) or indices.dim() == 0:
            return None
        axis = options.get("dim", next((each for each in arguments[1:] if type(each) is int), -1))
        shape = [1] * indices.dim()
        shape[axis] = -1
        self._values.set(indices, self._torch.arange(indices.shape[axis], device="cpu").view(shape).expand(indices.shape), ASSUMED)
        return result
