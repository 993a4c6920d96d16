def replace(obj, **changes):
    from dataclasses import fields

    for field in fields(obj):
        changes.setdefault(field.name, getattr(obj, field.name))
    return type(obj)(**changes)
