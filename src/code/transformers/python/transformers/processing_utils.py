class Unpack:
    pass
