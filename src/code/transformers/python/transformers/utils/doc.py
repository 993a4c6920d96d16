# What is written into docstrings changes nothing of a step.
def copy_func(function):
    return function


def add_start_docstrings(*docs):
    return lambda of: of


def add_start_docstrings_to_model_forward(*docs):
    return lambda of: of


def add_end_docstrings(*docs):
    return lambda of: of


def add_code_sample_docstrings(*docs, **options):
    return lambda of: of


def replace_return_docstrings(output_type=None, config_class=None):
    return lambda of: of
