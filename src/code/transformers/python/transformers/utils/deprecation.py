def deprecate_kwarg(*args, **options):
    return lambda function: function
