# A field that is checked is what its default is.
def strict(cls=None, **options):
    return cls if cls is not None else strict


def as_validated_field(check):
    def field(default=None, **options):
        if "default_factory" in options:
            from dataclasses import field as made

            return made(default_factory=options["default_factory"])
        return default

    def with_arguments(*args, **kwargs):
        if args or (kwargs and "default" not in kwargs and "default_factory" not in kwargs):
            return check(*args, **kwargs)
        return field(**kwargs)

    return with_arguments
