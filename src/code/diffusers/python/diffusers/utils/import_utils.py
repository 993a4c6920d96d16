def is_torch_available():
    return True


def is_torch_version(operation, version):
    """As of a release that is newer than all that are asked for."""
    return operation in (">", ">=", "!=")
