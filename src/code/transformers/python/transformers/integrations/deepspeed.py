def is_deepspeed_zero3_enabled():
    return False


def is_fsdp_managed_module(module):
    return False


def is_fsdp_enabled():
    return False
