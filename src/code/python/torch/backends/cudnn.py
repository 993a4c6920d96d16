# Switches of the process: which libraries a step takes is what the strategy says.
def flags(**options):
    from contextlib import nullcontext

    return nullcontext()
