def _field(default=None, default_factory=None, **options):
    if default_factory is not None:
        from dataclasses import field

        return field(default_factory=default_factory)
    return default


def interval(min=None, max=None, exclude_min=False, exclude_max=False):
    return _field


def is_divisible_by(divisor=None):
    return _field


def activation_fn_key(default=None, **options):
    return default


def probability(default=None, **options):
    return default


def positive_int_field(default=None, **options):
    return default
