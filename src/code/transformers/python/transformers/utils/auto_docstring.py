def auto_docstring(obj=None, **options):
    return obj if obj is not None else lambda of: of


def auto_class_docstring(*args, **options):
    return lambda of: of
