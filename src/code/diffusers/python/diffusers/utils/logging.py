class _Logger:
    def debug(self, *args, **options):
        pass

    info = warning = error = warning_once = info_once = warning_advice = debug


_LOGGER = _Logger()


def get_logger(name=None):
    return _LOGGER
